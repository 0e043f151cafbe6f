/* fuzz_events.c - any bytes as a log of each format and as a pack: refused with a
 * sentence, or what events.h promises. The first byte chooses an allocation to fail. */
#include "base/mem.h"
#include "data/events_pack.h"
#include "data/events_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void check(const struct ek_events *e)
{
    must(e->n >= 1 && e->offsets[0] == 0 && e->offsets[e->n_users] == e->n);
    for (int64_t u = 0; u < e->n_users; u++) {
        must(e->offsets[u + 1] > e->offsets[u]);
        for (int64_t i = e->offsets[u]; i < e->offsets[u + 1]; i++) {
            must(e->items[i] >= 0 && e->items[i] < e->n_items);
            must(!e->times || i == e->offsets[u] || e->times[i] >= e->times[i - 1]);
        }
    }
    for (int64_t i = 0; i < e->n_items; i++) {
        size_t len;
        (void)ek_names_get(&e->item_names, i, &len);
        must(len >= 1 && len <= EK_EVENTS_NAME_MAX);
    }
    for (int c = 0; c < e->n_columns; c++) {
        const struct ek_column *k = &e->columns[c];
        int64_t n = k->of == EK_COLUMN_EVENT ? e->n : e->n_users;
        for (int64_t i = 0; i < n; i++)
            must(k->numbers ? isfinite(k->numbers[i])
                            : k->levels[i] >= 0 && k->levels[i] < k->names.n);
    }
}

static void try_text(enum ek_events_format format, const void *p, size_t n,
                     uint64_t fail_at)
{
    struct ek_events_options o = {.format = format, .max_line = 4096};
    struct ek_events e = {0};
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_events_parse(&e, NULL, "log", p, n, &o, &err);
    must(rc == 0 || err.text[0]);
    if (!rc)
        check(&e);
    ek_events_release(&e);
    ek_mem_fail_at(fail_at);
    int drive = ek_events_parse(&e, NULL, "log", p, n, &o, NULL);
    must(drive == (ek_mem_failed() ? EK_ENOMEM : rc));
    ek_mem_fail_at(0);
    ek_events_release(&e);
}

static void try_pack(const void *p, size_t n)
{
    struct ek_events e = {0};
    struct ek_err err = EK_ERR_INIT;
    void *copy = ek_alloc_aligned(64, n); /* and no byte more */
    if (!copy)
        return;
    memcpy(copy, p, n);
    int rc = ek_events_pack_parse(&e, "pack", copy, n, &err);
    must(rc == 0 || err.text[0]);
    if (!rc)
        check(&e);
    ek_events_release(&e);
    ek_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    for (int f = EK_EVENTS_S3REC; f <= EK_EVENTS_TSV; f++)
        try_text((enum ek_events_format)f, data + 1, size - 1, data[0]);
    try_pack(data + 1, size - 1);
    return 0;
}
