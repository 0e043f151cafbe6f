/* safetensors_header.c - one file: u64 length, JSON header, data that the header's
 * offsets must tile. The header is walked, not parsed into a tree: what is kept is one
 * ek_tensor and one name for each entry, whatever the header says. */
#include "base/mem.h"
#include "base/utf8.h"
#include "data/json_pull.h"
#include "data/safetensors_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Duplicates are looked for one by one; real files hold one or two. */
#define METAS_MAX 1024

struct reader {
    struct ek_safetensors *s;
    struct ek_json_pull json;
    const unsigned char *data; /* behind the header */
    size_t data_bytes;
    const char *file;   /* for messages */
    char where[192];    /* "tensor 'x'", or empty: the header */
    struct ek_buf text; /* scratch: the last string */
    struct ek_err *err; /* may be NULL */
};

/* "<file>: <where>: <sentence>"; returns status. */
#define fail(r, status, ...) ek_err_as(status, say(r, status, __VA_ARGS__))
static int say(struct reader *r, int status, const char *fmt, ...) EK_PRINTF(3, 4);

static int say(struct reader *r, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ek_err_setv(r->err, status, fmt, args);
    va_end(args);
    if (r->where[0])
        ek_err_prefix(r->err, "%s", r->where);
    ek_err_prefix(r->err, "%s", r->file);
    return status;
}

/* Gives a sentence of the JSON walk its place. */
static int in_header(struct reader *r, int rc)
{
    if (rc < 0) {
        if (r->where[0])
            ek_err_prefix(r->err, "%s", r->where);
        ek_err_prefix(r->err, "%s: header", r->file);
    }
    return rc;
}

/* The next string, copied to the arena; NUL inside is refused. */
static int take_name(struct reader *r, const char **out, const char *what)
{
    int rc = in_header(r, ek_json_pull_str(&r->json, &r->text));
    if (rc)
        return rc;
    if (r->text.len && memchr(r->text.data, 0, r->text.len))
        return fail(r, EK_EFORMAT, "%s '%.100s' holds a NUL; expected none", what,
                    r->text.data);
    char *copy = ek_arena_strndup(&r->s->arena, r->text.data, r->text.len);
    if (!copy)
        return fail(r, EK_ENOMEM, "out of memory");
    *out = copy;
    return 0;
}

static int read_metas(struct reader *r)
{
    struct ek_safetensors_meta *old = r->s->metas, *made = NULL, **end = &made;
    size_t n = 0;
    int rc = in_header(r, ek_json_pull_expect(&r->json, '{'));
    while (!rc && (rc = in_header(r, ek_json_pull_more(&r->json, '}', &n))) > 0) {
        struct ek_safetensors_meta *m = ek_arena_alloc(&r->s->arena, sizeof *m);
        if (!m)
            return fail(r, EK_ENOMEM, "out of memory");
        if (n > METAS_MAX)
            return fail(r, EK_ELIMIT, "has more than %d entries; expected fewer",
                        METAS_MAX);
        rc = take_name(r, &m->key, "key");
        if (!rc)
            rc = in_header(r, ek_json_pull_expect(&r->json, ':'));
        if (!rc)
            rc = take_name(r, &m->value, "value");
        for (const struct ek_safetensors_meta *o = made; o && !rc; o = o->next) {
            if (!strcmp(o->key, m->key))
                rc = fail(r, EK_EFORMAT, "key '%.100s' is there twice; expected once",
                          m->key);
        }
        m->next = NULL;
        if (!rc) {
            *end = m;
            end = &m->next;
        }
    }
    if (rc)
        return rc;
    if (!old)
        r->s->metas = made;
    else if (made) {
        while (old->next)
            old = old->next;
        old->next = made;
    }
    return 0;
}

static int read_dtype(struct reader *r, struct ek_tensor *t)
{
    int rc = in_header(r, ek_json_pull_str(&r->json, &r->text));
    if (rc)
        return rc;
    if (r->text.len && strlen(r->text.data) == r->text.len &&
        ek_safetensors_dtype(&t->dtype, r->text.data))
        return 0;
    char known[256];
    size_t at = 0;
    for (int i = 0; i < EK_DTYPE_COUNT && at < sizeof known; i++) {
        const char *word = ek_safetensors_word((enum ek_dtype)i);
        if (word)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s",
                                   at ? ", " : "", word);
    }
    return fail(r, EK_EUNSUP, "dtype '%.32s' is not supported; known: %s",
                r->text.len ? r->text.data : "", known);
}

static int read_shape(struct reader *r, struct ek_tensor *t)
{
    size_t n = 0;
    int rc = in_header(r, ek_json_pull_expect(&r->json, '['));
    while (!rc && (rc = in_header(r, ek_json_pull_more(&r->json, ']', &n))) > 0) {
        uint64_t dim = 0;
        if (n > EK_TENSOR_DIMS)
            return fail(r, EK_EUNSUP, "shape has more than %d dimensions",
                        EK_TENSOR_DIMS);
        rc = in_header(r, ek_json_pull_u64(&r->json, &dim));
        if (!rc && dim > INT64_MAX)
            rc = fail(r, EK_EFORMAT,
                      "shape: dimension %" PRIu64 "; expected less than 2^63", dim);
        t->shape[n - 1] = (int64_t)dim;
    }
    t->n_dims = (int)n;
    return rc;
}

static int read_offsets(struct reader *r, uint64_t offsets[2])
{
    int rc = in_header(r, ek_json_pull_expect(&r->json, '['));
    if (!rc)
        rc = in_header(r, ek_json_pull_u64(&r->json, &offsets[0]));
    if (!rc)
        rc = in_header(r, ek_json_pull_expect(&r->json, ','));
    if (!rc)
        rc = in_header(r, ek_json_pull_u64(&r->json, &offsets[1]));
    return rc ? rc : in_header(r, ek_json_pull_expect(&r->json, ']'));
}

/* The three members of an entry, each once, in any order. */
static int read_members(struct reader *r, struct ek_tensor *t, uint64_t offsets[2])
{
    static const char *const members[] = {"dtype", "shape", "data_offsets"};
    bool has[3] = {false, false, false};
    size_t n = 0;
    int rc = in_header(r, ek_json_pull_expect(&r->json, '{'));
    while (!rc && (rc = in_header(r, ek_json_pull_more(&r->json, '}', &n))) > 0) {
        rc = in_header(r, ek_json_pull_str(&r->json, &r->text));
        if (rc)
            return rc;
        const char *word = r->text.len ? r->text.data : "";
        size_t m = 0;
        while (m < 3 && strcmp(members[m], word) != 0)
            m++;
        if (m == 3)
            return fail(r, EK_EFORMAT,
                        "key '%.100s' is unknown; expected dtype, shape, data_offsets",
                        word);
        if (has[m])
            return fail(r, EK_EFORMAT, "key '%s' is there twice; expected once", word);
        has[m] = true;
        rc = in_header(r, ek_json_pull_expect(&r->json, ':'));
        if (!rc)
            rc = m == 0   ? read_dtype(r, t)
                 : m == 1 ? read_shape(r, t)
                          : read_offsets(r, offsets);
    }
    for (size_t m = 0; m < 3 && !rc; m++) {
        if (!has[m])
            rc = fail(r, EK_EFORMAT, "key '%s' is missing", members[m]);
    }
    return rc;
}

/* Offsets inside the data, and as many bytes as dtype and shape say. */
static int place(struct reader *r, struct ek_tensor *t, const uint64_t offsets[2])
{
    char shape[96];
    int rc = ek_tensor_bytes(&t->bytes, t->dtype, t->shape, t->n_dims);
    if (rc)
        return fail(r, EK_EFORMAT,
                    "shape %s has more than 2^63 elements or bytes; expected a tensor "
                    "that fits the file",
                    ek_tensor_shape_text(shape, t));
    if (offsets[0] > offsets[1] || offsets[1] > r->data_bytes)
        return fail(r, EK_EFORMAT,
                    "data_offsets [%" PRIu64 ", %" PRIu64
                    "]; expected begin <= end <= %zu, the bytes of data in the file "
                    "(truncated?)",
                    offsets[0], offsets[1], r->data_bytes);
    if (offsets[1] - offsets[0] != t->bytes)
        return fail(r, EK_EFORMAT,
                    "data_offsets [%" PRIu64 ", %" PRIu64 "] are %" PRIu64
                    " bytes; expected %zu for %s of %s",
                    offsets[0], offsets[1], offsets[1] - offsets[0], t->bytes,
                    ek_safetensors_word(t->dtype), ek_tensor_shape_text(shape, t));
    t->data = r->data + offsets[0];
    return 0;
}

static struct ek_tensor *add_tensor(struct ek_safetensors *s)
{
    if (s->tensors.n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        void *items = ek_realloc_array(s->tensors.items, cap, sizeof *s->tensors.items);
        if (!items)
            return NULL;
        s->tensors.items = items;
        s->cap = cap;
    }
    struct ek_tensor *t = &s->tensors.items[s->tensors.n++];
    *t = (struct ek_tensor){0};
    return t;
}

static int read_entry(struct reader *r, bool *has_metas)
{
    const char *name = NULL;
    uint64_t offsets[2] = {0, 0};
    r->where[0] = 0;
    int rc = take_name(r, &name, "tensor name");
    if (!rc)
        rc = in_header(r, ek_json_pull_expect(&r->json, ':'));
    if (rc)
        return rc;
    if (!strcmp(name, EK_SAFETENSORS_META)) {
        snprintf(r->where, sizeof r->where, EK_SAFETENSORS_META);
        if (*has_metas)
            return fail(r, EK_EFORMAT, "is there twice; expected once");
        *has_metas = true;
        return read_metas(r);
    }
    snprintf(r->where, sizeof r->where, "tensor '%.100s'", name);
    struct ek_tensor *t = add_tensor(r->s);
    if (!t)
        return fail(r, EK_ENOMEM, "out of memory");
    t->name = name;
    rc = read_members(r, t, offsets);
    return rc ? rc : place(r, t, offsets);
}

static int by_place(const void *a, const void *b)
{
    const struct ek_tensor *s = a, *t = b;
    uintptr_t p = (uintptr_t)s->data, q = (uintptr_t)t->data;
    if (p != q)
        return p < q ? -1 : 1;
    return (s->bytes > t->bytes) - (s->bytes < t->bytes);
}

/* Sorted by place, each must begin where the one before ended. */
static int check_tiles(struct reader *r, size_t first)
{
    struct ek_tensors *all = &r->s->tensors;
    size_t end = 0;
    const char *before = NULL;
    if (all->n > first)
        qsort(all->items + first, all->n - first, sizeof *all->items, by_place);
    for (size_t i = first; i < all->n; i++) {
        const struct ek_tensor *t = &all->items[i];
        size_t begin = (size_t)((uintptr_t)t->data - (uintptr_t)r->data);
        snprintf(r->where, sizeof r->where, "tensor '%.100s'", t->name);
        if (begin < end)
            return fail(r, EK_EFORMAT,
                        "begins at %zu and overlaps tensor '%.100s'; expected %zu",
                        begin, before, end);
        if (begin > end)
            return fail(r, EK_EFORMAT,
                        "begins at %zu after a gap of %zu bytes; expected %zu", begin,
                        begin - end, end);
        end = begin + t->bytes;
        before = t->name;
    }
    r->where[0] = 0;
    if (end != r->data_bytes)
        return fail(r, EK_EFORMAT,
                    "%zu bytes of data, but the tensors end at %zu; expected no bytes "
                    "behind the last tensor",
                    r->data_bytes, end);
    return 0;
}

static int check_length(struct reader *r, const unsigned char *p, size_t n,
                        size_t *length)
{
    if (n < 8)
        return fail(r, EK_EFORMAT,
                    "%zu bytes; expected at least 8, the length of the header", n);
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    const char *hint = !memcmp(p, "GGUF", 4) ? " (it is a GGUF file)"
                       : !memcmp(p, "version ", 8)
                           ? " (perhaps a Git LFS pointer: `git lfs pull`)"
                           : "";
    if (v > n - 8)
        return fail(r, EK_EFORMAT,
                    "header length %" PRIu64 "; expected at most %zu, what the file "
                    "holds%s",
                    v, n - 8, hint[0] ? hint : " (truncated?)");
    if (v > EK_SAFETENSORS_HEADER_MAX)
        return fail(r, EK_ELIMIT, "header length %" PRIu64 "; expected at most %d", v,
                    EK_SAFETENSORS_HEADER_MAX);
    if (v < 2 || p[8] != '{')
        return fail(r, EK_EFORMAT, "header of %" PRIu64 " bytes; expected '{' first%s",
                    v, hint);
    if (!ek_utf8_is_valid((const char *)p + 8, (size_t)v))
        return fail(r, EK_EFORMAT, "header is not UTF-8; expected UTF-8");
    *length = (size_t)v;
    return 0;
}

int ek_safetensors_read(struct ek_safetensors *s, const unsigned char *p, size_t n,
                        const char *name, struct ek_err *err)
{
    struct reader r = {.s = s, .file = name, .err = err};
    size_t length = 0, first = s->tensors.n, count = 0;
    bool has_metas = false;
    int rc = check_length(&r, p, n, &length);
    if (rc)
        return rc;
    /* An entry's shortest JSON is 6 bytes ("":"",) and takes 64 of the arena. */
    s->arena.max_bytes += 16 * length + 65536;
    r.data = p + 8 + length;
    r.data_bytes = n - 8 - length;
    ek_json_pull_init(&r.json, (const char *)p + 8, length, err);
    ek_buf_init(&r.text, length);
    rc = in_header(&r, ek_json_pull_expect(&r.json, '{'));
    while (!rc && (rc = in_header(&r, ek_json_pull_more(&r.json, '}', &count))) > 0)
        rc = read_entry(&r, &has_metas);
    r.where[0] = 0;
    if (!rc)
        rc = in_header(&r, ek_json_pull_end(&r.json));
    if (!rc)
        rc = check_tiles(&r, first);
    ek_buf_release(&r.text);
    return rc;
}
