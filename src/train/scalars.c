#include "train/scalars.h"

#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EVENT_MAX  (EK_SCALARS_TAG_MAX + 64)
#define SAME_START 100 /* files of one second, host and process */

struct ek_scalars {
    FILE *file; /* owned */
    char path[4096];
};

/* One message under construction. Fields are single bytes here: number << 3 | type. */
struct message {
    unsigned char bytes[EVENT_MAX];
    size_t n;
};

enum { FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* Castagnoli, reflected. A bit at a time: a record has some 60 bytes. */
static uint32_t crc32c(const unsigned char *p, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (; n; n--, p++) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return ~crc;
}

/* A digest of bytes that hold a digest would be weak: hence the rotation. */
static uint32_t masked(const unsigned char *p, size_t n)
{
    uint32_t crc = crc32c(p, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_little(unsigned char *p, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

static void add_varint(struct message *m, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        m->bytes[m->n++] = (unsigned char)(v | 0x80);
    m->bytes[m->n++] = (unsigned char)v;
}

static void add_fixed(struct message *m, int field, const void *v, size_t n)
{
    uint64_t bits = 0;
    memcpy(&bits, v, n);
    m->bytes[m->n++] = (unsigned char)(field << 3 | (n == 8 ? FIXED64 : FIXED32));
    put_little(m->bytes + m->n, bits, n);
    m->n += n;
}

static void add_int(struct message *m, int field, uint64_t v)
{
    m->bytes[m->n++] = (unsigned char)(field << 3);
    add_varint(m, v);
}

static void add_bytes(struct message *m, int field, const void *p, size_t n)
{
    m->bytes[m->n++] = (unsigned char)(field << 3 | BYTES);
    add_varint(m, n);
    memcpy(m->bytes + m->n, p, n);
    m->n += n;
}

/* Event.wall_time = 1, Event.step = 2. */
static void begin_event(struct message *m, int64_t step)
{
    double seconds = (double)ek_clock_wall_us() / 1e6;
    m->n = 0;
    add_fixed(m, 1, &seconds, sizeof seconds);
    if (step)
        add_int(m, 2, (uint64_t)step);
}

static int fail(const struct ek_scalars *s, int code, struct ek_err *err)
{
    return ek_err_set(err, EK_EIO, "%s: %s", s->path, strerror(code));
}

static int write_event(struct ek_scalars *s, const struct message *m,
                       struct ek_err *err)
{
    unsigned char record[8 + 4 + EVENT_MAX + 4];
    put_little(record, m->n, 8);
    put_little(record + 8, masked(record, 8), 4);
    memcpy(record + 12, m->bytes, m->n);
    put_little(record + 12 + m->n, masked(m->bytes, m->n), 4);
    size_t n = 12 + m->n + 4;
    return fwrite(record, 1, n, s->file) == n ? 0 : fail(s, errno, err);
}

/* Readers take the files of a folder in the order of their names: time comes first. */
static int create_file(struct ek_scalars *s, const char *folder, struct ek_err *err)
{
    char host[65] = "localhost";
    (void)gethostname(host, sizeof host - 1);
    long long second = (long long)(ek_clock_wall_us() / 1000000);
    for (int i = 0; i < SAME_START && !s->file; i++) {
        int n = snprintf(s->path, sizeof s->path,
                         "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder, second,
                         host, (long)getpid(), i);
        if (n < 0 || (size_t)n >= sizeof s->path)
            return ek_err_set(err, EK_ELIMIT, "%s: path is too long", folder);
        s->file = fopen(s->path, "wbxe");
        if (!s->file && errno != EEXIST)
            break;
    }
    if (s->file)
        return 0;
    int code = errno;
    int status = code == ENOENT || code == ENOTDIR                  ? EK_ENOENT
                 : code == EACCES || code == EPERM || code == EROFS ? EK_EPERM
                                                                    : EK_EIO;
    return ek_err_set(err, status, "%s: %s", s->path, strerror(code));
}

/* Event.file_version = 3; Event.session_log = 7 with SessionLog.status = 1 (START). */
static int write_start(struct ek_scalars *s, int64_t step, struct ek_err *err)
{
    static const unsigned char start[] = {1 << 3, 1};
    struct message m;
    begin_event(&m, 0);
    add_bytes(&m, 3, "brain.Event:2", 13);
    int rc = write_event(s, &m, err);
    if (!rc && step) {
        begin_event(&m, step);
        add_bytes(&m, 7, start, sizeof start);
        rc = write_event(s, &m, err);
    }
    return rc ? rc : ek_scalars_flush(s, err);
}

int ek_scalars_open(struct ek_scalars **s, const char *folder, int64_t step,
                    struct ek_err *err)
{
    assert(step >= 0);
    struct ek_scalars *made = ek_calloc(1, sizeof *made);
    if (!made)
        return ek_err_set(err, EK_ENOMEM, "%s: %s", folder, ek_status_text(EK_ENOMEM));
    (void)mkdir(folder, 0755); /* what is wrong with it is said by the file */
    int rc = create_file(made, folder, err);
    if (!rc)
        rc = write_start(made, step, err);
    if (!rc) {
        *s = made;
        return 0;
    }
    if (made->file)
        (void)fclose(made->file);
    ek_free(made);
    return rc;
}

/* Event.summary = 5 of one Summary.value = 1 with tag = 1 and simple_value = 2. */
int ek_scalars_add(struct ek_scalars *s, const char *tag, int64_t step, double value,
                   struct ek_err *err)
{
    struct message event, summary = {.n = 0}, point = {.n = 0};
    size_t n = strlen(tag);
    float f = (float)value;
    assert(n >= 1 && n <= EK_SCALARS_TAG_MAX && step >= 0);
    add_bytes(&point, 1, tag, n);
    add_fixed(&point, 2, &f, sizeof f);
    add_bytes(&summary, 1, point.bytes, point.n);
    begin_event(&event, step);
    add_bytes(&event, 5, summary.bytes, summary.n);
    return write_event(s, &event, err);
}

int ek_scalars_flush(struct ek_scalars *s, struct ek_err *err)
{
    return fflush(s->file) ? fail(s, errno, err) : 0;
}

int ek_scalars_close(struct ek_scalars *s, struct ek_err *err)
{
    if (!s)
        return 0;
    int rc = fclose(s->file) ? fail(s, errno, err) : 0;
    ek_free(s);
    return rc;
}

const char *ek_scalars_path(const struct ek_scalars *s)
{
    return s->path;
}
