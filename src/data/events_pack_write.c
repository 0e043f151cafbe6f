/* events_pack_write.c - sections from wherever they lie; no copy is made. */
#include "base/file.h"
#include "data/events_pack.h"
#include "data/events_pack_int.h"

#include <string.h>
#include <zlib.h>

struct column_head {
    uint32_t of, kind;
    char name[EK_EVENTS_NAME_MAX + 1];
};

struct pack {
    struct ek_pack_header header;
    struct ek_pack_section sections[EK_PACK_SECTIONS_MAX];
    const void *data[EK_PACK_SECTIONS_MAX];
    uint64_t at; /* where the next section goes */
};

static uint32_t crc_of(const void *p, uint64_t n)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), p, (size_t)n);
}

static void add(struct pack *k, enum ek_pack_kind kind, int column, const void *p,
                int64_t n, size_t size)
{
    uint32_t i = k->header.n_sections++;
    uint64_t bytes = (uint64_t)n * size;
    k->data[i] = p;
    k->sections[i] = (struct ek_pack_section){.kind = kind,
                                              .column = (uint32_t)column,
                                              .bytes = bytes,
                                              .crc = crc_of(p, bytes)};
}

static void add_names(struct pack *k, enum ek_pack_kind kind, int column,
                      const struct ek_names *names)
{
    add(k, kind, column, names->offsets, names->n + 1, sizeof *names->offsets);
    add(k, kind + 1, column, names->bytes, names->offsets[names->n], 1);
}

static void add_column(struct pack *k, const struct ek_events *e, int i,
                       struct column_head *head)
{
    const struct ek_column *c = &e->columns[i];
    size_t len = strlen(c->name);
    assert(len <= EK_EVENTS_NAME_MAX);
    head->of = c->of;
    head->kind = c->kind;
    memcpy(head->name, c->name, len + 1);
    add(k, EK_PACK_COLUMN, i, head, (int64_t)(8 + len + 1), 1);
    add(k, EK_PACK_VALUES, i, c->numbers ? (const void *)c->numbers : c->levels,
        c->of == EK_COLUMN_EVENT ? e->n : e->n_users, 4);
    if (c->kind == EK_COLUMN_CATEGORY)
        add_names(k, EK_PACK_LEVEL_OFFSETS, i, &c->names);
}

static void place(struct pack *k)
{
    struct ek_pack_header *h = &k->header;
    uint64_t at = sizeof *h + h->n_sections * sizeof *k->sections;
    for (uint32_t i = 0; i < h->n_sections; i++) {
        at = ek_pack_align(at);
        k->sections[i].offset = at;
        at += k->sections[i].bytes;
    }
    h->file_bytes = at;
    h->directory_crc = crc_of(k->sections, h->n_sections * sizeof *k->sections);
    h->crc = crc_of(h, offsetof(struct ek_pack_header, crc));
}

static int write_all(const struct pack *k, struct ek_file_out *f, struct ek_err *err)
{
    static const char zeros[EK_PACK_ALIGN];
    const struct ek_pack_header *h = &k->header;
    int rc = ek_file_out_add(f, h, sizeof *h, err);
    if (!rc)
        rc = ek_file_out_add(f, k->sections, h->n_sections * sizeof *k->sections, err);
    for (uint32_t i = 0; i < h->n_sections && !rc; i++) {
        const struct ek_pack_section *s = &k->sections[i];
        rc = ek_file_out_add(f, zeros, (size_t)(s->offset - f->bytes), err);
        if (!rc)
            rc = ek_file_out_add(f, k->data[i], (size_t)s->bytes, err);
    }
    return rc;
}

int ek_events_pack_write(const struct ek_events *e, const char *path, uint64_t *bytes,
                         struct ek_err *err)
{
    struct pack k = {.header = {.magic = EK_PACK_MAGIC_BYTES,
                                .version = EK_EVENTS_PACK_VERSION,
                                .n = e->n,
                                .n_users = e->n_users,
                                .n_items = e->n_items,
                                .n_columns = (uint32_t)e->n_columns}};
    struct column_head heads[EK_EVENTS_COLUMNS_MAX];
    struct ek_file_out f;
    add(&k, EK_PACK_OFFSETS, 0, e->offsets, e->n_users + 1, sizeof *e->offsets);
    add(&k, EK_PACK_ITEMS, 0, e->items, e->n, sizeof *e->items);
    if (e->times)
        add(&k, EK_PACK_TIMES, 0, e->times, e->n, sizeof *e->times);
    add_names(&k, EK_PACK_USER_OFFSETS, 0, &e->users);
    add_names(&k, EK_PACK_ITEM_OFFSETS, 0, &e->item_names);
    add(&k, EK_PACK_SOURCE, 0, e->source, (int64_t)strlen(e->source) + 1, 1);
    for (int i = 0; i < e->n_columns; i++)
        add_column(&k, e, i, &heads[i]);
    place(&k);
    int rc = ek_file_out_begin(&f, path, err);
    if (!rc)
        rc = write_all(&k, &f, err);
    if (!rc)
        rc = ek_file_out_end(&f, err);
    ek_file_out_cancel(&f);
    if (!rc && bytes)
        *bytes = k.header.file_bytes;
    return rc;
}
