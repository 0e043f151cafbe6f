#include "data/lines.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>
#include <zlib.h>

#define RAW_BYTES  ((size_t)256 << 10)
#define TEXT_BYTES ((size_t)1 << 20)

struct ek_inflate {
    z_stream z;
};

static void *z_alloc(void *unused, unsigned n, unsigned size)
{
    (void)unused;
    return ek_alloc_array(n, size);
}

static void z_free(void *unused, void *p)
{
    (void)unused;
    ek_free(p);
}

static int no_memory(const struct ek_lines *l, struct ek_err *err)
{
    return ek_err_set(err, EK_ENOMEM, "%s: %s", l->name, ek_status_text(EK_ENOMEM));
}

/* Makes raw hold something, or is_raw_over. */
static int fill_raw(struct ek_lines *l, struct ek_err *err)
{
    if (l->raw_at < l->raw_n || l->is_raw_over)
        return 0;
    if (l->is_memory) {
        l->is_raw_over = true;
        return 0;
    }
    size_t got = 0;
    int rc = ek_file_in_read(&l->file, l->raw, RAW_BYTES, &got, err);
    if (rc)
        return rc;
    l->raw_at = 0;
    l->raw_n = got;
    l->is_raw_over = got == 0;
    return 0;
}

static int begin_gzip(struct ek_lines *l, struct ek_err *err)
{
    l->gzip = ek_calloc(1, sizeof *l->gzip);
    if (!l->gzip)
        return no_memory(l, err);
    l->gzip->z.zalloc = z_alloc;
    l->gzip->z.zfree = z_free;
    if (inflateInit2(&l->gzip->z, 15 + 16) == Z_OK) /* 16: gzip's frame and no other */
        return 0;
    ek_free(l->gzip);
    l->gzip = NULL;
    return no_memory(l, err);
}

/* Reads on until raw has two bytes or is over: gzip's magic may come in two pieces. */
static int look(struct ek_lines *l, struct ek_err *err)
{
    int rc = fill_raw(l, err);
    if (rc || l->is_memory || l->raw_n != 1)
        return rc;
    size_t got = 0;
    rc = ek_file_in_read(&l->file, l->raw + 1, RAW_BYTES - 1, &got, err);
    l->raw_n += got;
    return rc;
}

static int begin(struct ek_lines *l, struct ek_err *err)
{
    static const unsigned char gzip[] = {0x1f, 0x8b};
    l->text = ek_alloc(TEXT_BYTES);
    l->cap = TEXT_BYTES;
    int rc = l->text && l->raw ? look(l, err) : no_memory(l, err);
    if (!rc && l->raw_n >= sizeof gzip && !memcmp(l->raw, gzip, sizeof gzip))
        rc = begin_gzip(l, err);
    if (rc)
        ek_lines_release(l);
    return rc;
}

int ek_lines_open(struct ek_lines *l, const char *path, size_t max_line,
                  struct ek_err *err)
{
    *l = (struct ek_lines){.name = path, .file.fd = -1, .max_line = max_line};
    int rc = ek_file_in_open(&l->file, path, err);
    if (rc)
        return rc;
    l->name = l->file.name;
    l->raw = ek_alloc(RAW_BYTES);
    return begin(l, err);
}

int ek_lines_of(struct ek_lines *l, const char *name, const void *p, size_t n,
                size_t max_line, struct ek_err *err)
{
    static unsigned char empty[1];
    /* Never written to: is_memory says so. */
    union {
        const void *in;
        unsigned char *raw;
    } u = {.in = n ? p : empty};
    *l = (struct ek_lines){.name = name,
                           .file.fd = -1,
                           .raw = u.raw,
                           .raw_n = n,
                           .is_memory = true,
                           .max_line = max_line};
    return begin(l, err);
}

void ek_lines_release(struct ek_lines *l)
{
    if (l->gzip) {
        inflateEnd(&l->gzip->z);
        ek_free(l->gzip);
    }
    if (!l->is_memory) {
        ek_free(l->raw);
        if (l->name)
            ek_file_in_close(&l->file);
    }
    ek_free(l->text);
    *l = (struct ek_lines){.file.fd = -1};
}

/* Room behind text[n): at least half a piece. */
static int make_room(struct ek_lines *l, struct ek_err *err)
{
    if (l->at) {
        memmove(l->text, l->text + l->at, l->n - l->at);
        l->n -= l->at;
        l->at = 0;
    }
    if (l->cap - l->n >= TEXT_BYTES / 2)
        return 0;
    /* Doubling; a little over the ceiling is enough to see that a line is over it. */
    size_t want = 2 * l->cap;
    char *text = ek_realloc_array(l->text, want, 1);
    if (!text)
        return no_memory(l, err);
    l->text = text;
    l->cap = want;
    return 0;
}

static int damaged(const struct ek_lines *l, const char *what, struct ek_err *err)
{
    return ek_err_set(err, EK_EFORMAT,
                      "%s:%llu: gzip data %s behind %llu bytes of the file: expected a "
                      "whole .gz file",
                      l->name, (unsigned long long)l->number + 1, what,
                      (unsigned long long)l->read);
}

/* One step of inflate. *got: bytes of text. */
static int inflate_some(struct ek_lines *l, size_t *got, struct ek_err *err)
{
    z_stream *z = &l->gzip->z;
    size_t room = l->cap - l->n, have = l->raw_n - l->raw_at;
    have = have < RAW_BYTES ? have : RAW_BYTES;
    z->next_in = l->raw + l->raw_at;
    z->avail_in = (unsigned)have;
    z->next_out = (unsigned char *)l->text + l->n;
    room = room < TEXT_BYTES ? room : TEXT_BYTES;
    z->avail_out = (unsigned)room;
    int rc = inflate(z, Z_NO_FLUSH);
    l->raw_at += have - z->avail_in;
    l->read += have - z->avail_in;
    *got = room - z->avail_out;
    if (rc == Z_MEM_ERROR)
        return no_memory(l, err);
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return damaged(l, "is damaged", err);
    l->is_member_over = rc == Z_STREAM_END;
    return 0;
}

/* Begins the next member. What is behind the last one must be another, or zeros, with
 * which some programs fill a block. */
static int next_member(struct ek_lines *l, struct ek_err *err)
{
    while (l->raw_at < l->raw_n && l->raw[l->raw_at] == 0) {
        l->raw_at++;
        l->read++;
    }
    if (l->raw_at == l->raw_n)
        return 0;
    l->is_member_over = false;
    return inflateReset(&l->gzip->z) == Z_OK ? 0 : no_memory(l, err);
}

static int fill_gzip(struct ek_lines *l, struct ek_err *err)
{
    size_t got = 0;
    while (!got && !l->is_over) {
        int rc = fill_raw(l, err);
        if (!rc && l->is_raw_over) {
            if (!l->is_member_over)
                return damaged(l, "is cut off", err);
            l->is_over = true;
        } else if (!rc && l->is_member_over) {
            rc = next_member(l, err);
        } else if (!rc) {
            rc = inflate_some(l, &got, err);
        }
        if (rc)
            return rc;
    }
    l->n += got;
    return 0;
}

static int fill_plain(struct ek_lines *l, struct ek_err *err)
{
    int rc = fill_raw(l, err);
    size_t room = l->cap - l->n, have = l->raw_n - l->raw_at;
    size_t n = have < room ? have : room;
    if (rc)
        return rc;
    l->is_over = l->is_raw_over;
    memcpy(l->text + l->n, l->raw + l->raw_at, n);
    l->raw_at += n;
    l->read += n;
    l->n += n;
    return 0;
}

int ek_lines_next(struct ek_lines *l, const char **line, size_t *n, struct ek_err *err)
{
    size_t seen = 0; /* bytes from at that hold no end */
    const char *end = NULL;
    for (;;) {
        end = memchr(l->text + l->at + seen, '\n', l->n - l->at - seen);
        seen = end ? (size_t)(end - l->text) - l->at : l->n - l->at;
        if (seen > l->max_line)
            return ek_err_set(err, EK_ELIMIT,
                              "%s:%llu: the line has more than %zu bytes", l->name,
                              (unsigned long long)l->number + 1, l->max_line);
        if (end || l->is_over)
            break;
        int rc = make_room(l, err);
        if (!rc)
            rc = l->gzip ? fill_gzip(l, err) : fill_plain(l, err);
        if (rc)
            return rc;
    }
    *line = NULL;
    *n = 0;
    static const char mark[] = {'\xef', '\xbb', '\xbf'}; /* of the order of bytes */
    if (l->number == 0 && seen >= sizeof mark &&
        !memcmp(l->text + l->at, mark, sizeof mark)) {
        l->at += sizeof mark;
        l->bytes += sizeof mark;
        seen -= sizeof mark;
    }
    if (!end && seen == 0)
        return 0;
    *line = l->text + l->at;
    *n = seen && l->text[l->at + seen - 1] == '\r' ? seen - 1 : seen;
    l->at += end ? seen + 1 : seen;
    l->bytes += end ? seen + 1 : seen;
    l->number++;
    return 0;
}
