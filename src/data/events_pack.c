#include "data/events_pack.h"

#include "base/mem.h"
#include "data/events_int.h"
#include "data/events_pack_int.h"
#include "data/intern.h"

#include <math.h>
#include <string.h>
#include <zlib.h>

struct reader {
    const char *name;
    const unsigned char *data;
    size_t size;
    const struct ek_pack_header *h;
    const struct ek_pack_section *sections;
    uint32_t next; /* section that is taken next */
    struct ek_err *err;
};

static uint32_t crc_of(const void *p, uint64_t n)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), p, (size_t)n);
}

#define refuse(r, ...)                                                                 \
    (ek_err_set((r)->err, EK_EFORMAT, __VA_ARGS__), in_file(r, EK_EFORMAT))

static int in_file(const struct reader *r, int status)
{
    ek_err_prefix(r->err, "%s", r->name);
    return status;
}

static int check_header(struct reader *r)
{
    static const char magic[8] = EK_PACK_MAGIC_BYTES;
    const struct ek_pack_header *h = r->h = (const void *)r->data;
    char have[32], want[32];
    if (r->size < sizeof magic || memcmp(r->data, magic, sizeof magic) != 0)
        return refuse(r, "is no packed log: expected a file of `keel data pack`");
    if (r->size < sizeof *h)
        return refuse(r, "is cut off within its header");
    if (h->version > EK_EVENTS_PACK_VERSION) {
        ek_err_set(r->err, EK_EUNSUP,
                   "format %u: this keel reads up to %d; pack the log again or use the "
                   "keel that wrote it",
                   h->version, EK_EVENTS_PACK_VERSION);
        return in_file(r, EK_EUNSUP);
    }
    if (h->crc != crc_of(h, offsetof(struct ek_pack_header, crc)))
        return refuse(r, "the header is damaged: its checksum differs");
    if (h->file_bytes != r->size)
        return refuse(r, "holds %s: its header says %s", ek_format_bytes(have, r->size),
                      ek_format_bytes(want, h->file_bytes));
    if (h->version == 0 || h->flags || h->n_columns > EK_EVENTS_COLUMNS_MAX ||
        h->n_sections > EK_PACK_SECTIONS_MAX || h->n < 1 || h->n > EK_EVENTS_MAX ||
        h->n_users < 1 || h->n_users > EK_EVENTS_USERS_MAX || h->n_items < 1 ||
        h->n_items > EK_EVENTS_ITEMS_MAX)
        return refuse(r, "the header's counts are out of range");
    return 0;
}

/* That sections follow one another, lie in the file and are undamaged. */
static int check_directory(struct reader *r)
{
    const struct ek_pack_header *h = r->h;
    uint64_t at = sizeof *h + h->n_sections * sizeof *r->sections;
    r->sections = (const void *)(r->data + sizeof *h);
    if (at > r->size)
        return refuse(r, "is cut off within its directory");
    if (h->directory_crc != crc_of(r->sections, at - sizeof *h))
        return refuse(r, "the directory is damaged: its checksum differs");
    for (uint32_t i = 0; i < h->n_sections; i++) {
        const struct ek_pack_section *s = &r->sections[i];
        at = ek_pack_align(at);
        if (s->offset != at || at > r->size || s->bytes > r->size - at)
            return refuse(r, "section %u is not where it must be", i);
        if (s->crc != crc_of(r->data + at, s->bytes))
            return refuse(r, "section %u at byte %llu is damaged: its checksum differs",
                          i, (unsigned long long)at);
        at += s->bytes;
    }
    return at == r->size ? 0 : refuse(r, "bytes are left behind the last section");
}

/* The section that must come now: *p, and its size in *bytes (may be NULL). `want`:
 * how many bytes it must have, or UINT64_MAX. */
static int take(struct reader *r, enum ek_pack_kind kind, int column, uint64_t want,
                const void **p, uint64_t *bytes)
{
    const struct ek_pack_section *s = &r->sections[r->next];
    if (r->next == r->h->n_sections || s->kind != kind || s->column != (uint32_t)column)
        return refuse(r, "section %u: expected kind %d of column %d", r->next, kind,
                      column);
    if (want != UINT64_MAX && s->bytes != want)
        return refuse(r, "section %u: %llu bytes, expected %llu", r->next,
                      (unsigned long long)s->bytes, (unsigned long long)want);
    r->next++;
    *p = r->data + s->offset;
    if (bytes)
        *bytes = s->bytes;
    return 0;
}

static int check_rising(struct reader *r, const int64_t *offsets, int64_t n,
                        int64_t end, int64_t least)
{
    bool is_fine = offsets[0] == 0 && offsets[n] == end;
    for (int64_t i = 0; i < n; i++)
        is_fine = is_fine && offsets[i + 1] >= offsets[i] &&
                  offsets[i + 1] - offsets[i] >= least;
    return is_fine ? 0 : refuse(r, "section %u: offsets do not rise", r->next - 1);
}

/* That names are what a reader of text could have made: of its lengths, each once. */
static int check_names(struct reader *r, const struct ek_names *names)
{
    int64_t twin = 0;
    for (int64_t i = 0; i < names->n; i++) {
        if (names->offsets[i + 1] - names->offsets[i] > EK_EVENTS_NAME_MAX)
            return refuse(r, "section %u: name %lld is over %d bytes", r->next - 1,
                          (long long)i, EK_EVENTS_NAME_MAX);
    }
    int rc = ek_names_twin(&twin, names);
    if (rc)
        return ek_err_set(r->err, rc, "%s: %s", r->name, ek_status_text(rc));
    size_t len = 0;
    const char *name = twin < names->n ? ek_names_get(names, twin, &len) : NULL;
    return name ? refuse(r, "section %u: name %lld is there before: '%.*s'",
                         r->next - 1, (long long)twin, len < 100 ? (int)len : 100, name)
                : 0;
}

static int take_names(struct reader *r, enum ek_pack_kind kind, int column,
                      struct ek_names *names)
{
    const void *offsets = NULL, *bytes = NULL;
    uint64_t n_bytes = 0;
    int rc = take(r, kind, column, ((uint64_t)names->n + 1) * sizeof(int64_t), &offsets,
                  NULL);
    if (!rc)
        rc = take(r, kind + 1, column, UINT64_MAX, &bytes, &n_bytes);
    names->offsets = offsets;
    names->bytes = bytes;
    if (!rc)
        rc = check_rising(r, offsets, names->n, (int64_t)n_bytes, 1);
    return rc ? rc : check_names(r, names);
}

static int take_text(struct reader *r, enum ek_pack_kind kind, int column, size_t head,
                     const char **text)
{
    const void *p = NULL;
    uint64_t n = 0;
    int rc = take(r, kind, column, UINT64_MAX, &p, &n);
    if (rc)
        return rc;
    *text = (const char *)p + head;
    if (n < head + 1 || memchr(*text, 0, n - head) != *text + (n - head - 1))
        return refuse(r, "section %u: expected text", r->next - 1);
    return 0;
}

static bool are_in_range(const int32_t *v, int64_t n, int64_t end)
{
    bool is_fine = true;
    for (int64_t i = 0; i < n; i++)
        is_fine = is_fine && v[i] >= 0 && v[i] < end;
    return is_fine;
}

static bool are_finite(const float *v, int64_t n)
{
    bool is_fine = true;
    for (int64_t i = 0; i < n; i++)
        is_fine = is_fine && isfinite(v[i]);
    return is_fine;
}

static int take_times(struct reader *r, struct ek_events *e)
{
    const void *times = NULL;
    if (r->next == r->h->n_sections || r->sections[r->next].kind != EK_PACK_TIMES)
        return 0;
    int rc = take(r, EK_PACK_TIMES, 0, (uint64_t)e->n * sizeof(int64_t), &times, NULL);
    e->times = times;
    for (int64_t i = 0; i < e->n && !rc; i++) {
        if (e->times[i] > EK_EVENTS_TIME_MAX || e->times[i] < -EK_EVENTS_TIME_MAX)
            return refuse(r, "section %u: the time of row %lld is out of range",
                          r->next - 1, (long long)i);
    }
    for (int64_t u = 0; u < e->n_users && !rc; u++) {
        for (int64_t i = e->offsets[u] + 1; i < e->offsets[u + 1]; i++) {
            if (e->times[i] < e->times[i - 1])
                return refuse(r, "section %u: times fall at row %lld", r->next - 1,
                              (long long)i);
        }
    }
    return rc;
}

static int take_levels(struct reader *r, struct ek_column *c, int i, int64_t n)
{
    uint64_t bytes = r->next < r->h->n_sections ? r->sections[r->next].bytes : 0;
    if (bytes < 2 * sizeof(int64_t) || bytes % sizeof(int64_t) ||
        bytes / sizeof(int64_t) - 1 > (uint64_t)EK_EVENTS_LEVELS_MAX)
        return refuse(r, "section %u: expected the levels of '%s'", r->next, c->name);
    c->names.n = (int64_t)(bytes / sizeof(int64_t)) - 1;
    int rc = take_names(r, EK_PACK_LEVEL_OFFSETS, i, &c->names);
    if (!rc && !are_in_range(c->levels, n, c->names.n))
        rc = refuse(r, "column '%s': a level is out of range", c->name);
    return rc;
}

static int take_column(struct reader *r, const struct ek_events *e, struct ek_column *c,
                       int i)
{
    const void *values = NULL;
    uint32_t head[2];
    if (r->next < r->h->n_sections && r->sections[r->next].bytes < sizeof head + 1)
        return refuse(r, "section %u: expected text", r->next);
    int rc = take_text(r, EK_PACK_COLUMN, i, sizeof head, &c->name);
    if (rc)
        return rc;
    memcpy(head, c->name - sizeof head, sizeof head);
    if (strlen(c->name) > EK_EVENTS_NAME_MAX || ek_events_column(e, c->name))
        return refuse(r, "column '%.100s': its name is too long or there before",
                      c->name);
    if (head[0] > EK_COLUMN_USER || head[1] > EK_COLUMN_CATEGORY)
        return refuse(r, "column '%s': of an unknown kind", c->name);
    c->of = (enum ek_column_of)head[0];
    c->kind = (enum ek_column_kind)head[1];
    int64_t n = c->of == EK_COLUMN_EVENT ? e->n : e->n_users;
    rc = take(r, EK_PACK_VALUES, i, (uint64_t)n * 4, &values, NULL);
    if (rc)
        return rc;
    if (c->kind == EK_COLUMN_CATEGORY) {
        c->levels = values;
        return take_levels(r, c, i, n);
    }
    c->numbers = values;
    return are_finite(c->numbers, n)
               ? 0
               : refuse(r, "column '%s': a number is not finite", c->name);
}

static int take_all(struct reader *r, struct ek_events *e)
{
    const struct ek_pack_header *h = r->h;
    const void *offsets = NULL, *items = NULL;
    *e = (struct ek_events){
        .n = h->n, .n_users = h->n_users, .n_items = h->n_items, .store = e->store};
    e->users.n = h->n_users;
    e->item_names.n = h->n_items;
    int rc = take(r, EK_PACK_OFFSETS, 0, ((uint64_t)h->n_users + 1) * sizeof(int64_t),
                  &offsets, NULL);
    e->offsets = offsets;
    if (!rc)
        rc = check_rising(r, e->offsets, h->n_users, h->n, 1);
    if (!rc)
        rc = take(r, EK_PACK_ITEMS, 0, (uint64_t)h->n * sizeof(int32_t), &items, NULL);
    e->items = items;
    if (!rc && !are_in_range(e->items, e->n, e->n_items))
        rc = refuse(r, "section %u: an item is out of range", r->next - 1);
    if (!rc)
        rc = take_times(r, e);
    if (!rc)
        rc = take_names(r, EK_PACK_USER_OFFSETS, 0, &e->users);
    if (!rc)
        rc = take_names(r, EK_PACK_ITEM_OFFSETS, 0, &e->item_names);
    if (!rc)
        rc = take_text(r, EK_PACK_SOURCE, 0, 0, &e->source);
    e->columns = e->store->columns;
    for (; e->n_columns < (int)h->n_columns && !rc; e->n_columns++)
        rc = take_column(r, e, &e->store->columns[e->n_columns], e->n_columns);
    if (!rc && r->next != h->n_sections)
        rc = refuse(r, "section %u is one too many", r->next);
    return rc;
}

int ek_events_pack_parse(struct ek_events *e, const char *name, const void *p, size_t n,
                         struct ek_err *err)
{
    struct reader r = {.name = name, .data = p, .size = n, .err = err};
    struct ek_events got = {.store = ek_calloc(1, sizeof *got.store)};
    if (!got.store)
        return ek_err_set(err, EK_ENOMEM, "%s: %s", name, ek_status_text(EK_ENOMEM));
    int rc = check_header(&r);
    if (!rc)
        rc = check_directory(&r);
    if (!rc)
        rc = take_all(&r, &got);
    if (rc)
        ek_events_release(&got);
    else
        *e = got;
    return rc;
}

int ek_events_pack_open(struct ek_events *e, const char *path, struct ek_err *err)
{
    struct ek_file f = {0};
    int rc = ek_file_open(&f, path, err);
    if (rc)
        return rc;
    rc = ek_events_pack_parse(e, path, f.data, f.size, err);
    if (rc)
        ek_file_close(&f);
    else
        e->store->file = f;
    return rc;
}
