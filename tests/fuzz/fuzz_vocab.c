/* fuzz_vocab.c - any bytes as a vocabulary file: refused with a line and what was expected,
 * or names that, written and read again, are the same. The first byte chooses an
 * allocation to fail. */
#include "base/mem.h"
#include "train/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void check(const struct ek_vocab *v)
{
    must(v->items.n >= 1 && v->n_columns >= 0 && v->n_columns <= EK_REC_COLUMNS_MAX);
    for (int64_t i = 0; i < v->items.n; i++) {
        size_t n;
        (void)ek_names_get(&v->items, i, &n);
        must(n <= EK_EVENTS_NAME_MAX);
    }
    for (int i = 0; i < v->n_columns; i++) {
        must(v->columns[i].levels >= 0);
        must(strlen(v->columns[i].name) <= EK_EVENTS_NAME_MAX);
    }
}

static void must_be_same(const struct ek_vocab *a, const struct ek_vocab *b)
{
    must(a->items.n == b->items.n && a->n_columns == b->n_columns);
    for (int64_t i = 0; i < a->items.n; i++) {
        size_t n, m;
        const char *s = ek_names_get(&a->items, i, &n);
        const char *t = ek_names_get(&b->items, i, &m);
        must(n == m && !memcmp(s, t, n));
    }
    for (int i = 0; i < a->n_columns; i++)
        must(!strcmp(a->columns[i].name, b->columns[i].name) &&
             a->columns[i].levels == b->columns[i].levels &&
             a->columns[i].is_user == b->columns[i].is_user);
}

static void write_and_read(const struct ek_vocab *v)
{
    char path[64];
    struct ek_vocab again = {0};
    snprintf(path, sizeof path, "/tmp/ek-fuzz-vocab-%d", (int)getpid());
    must(ek_vocab_write(path, &v->items, v->columns, v->n_columns, NULL) == 0);
    must(ek_vocab_read(&again, path, NULL) == 0);
    unlink(path);
    must_be_same(v, &again);
    ek_vocab_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *text = (const char *)data + 1;
    struct ek_vocab v = {0};
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_vocab_parse(&v, "vocab.txt", text, size - 1, &err);
    must(rc == 0 || err.text[0]);
    if (!rc) {
        check(&v);
        if (data[0] >= 0xf0) /* seldom: it fsyncs */
            write_and_read(&v);
    }
    ek_vocab_release(&v);
    ek_mem_fail_at(1 + data[0] % 8);
    int again = ek_vocab_parse(&v, "vocab.txt", text, size - 1, NULL);
    must(again == (ek_mem_failed() ? EK_ENOMEM : rc));
    ek_mem_fail_at(0);
    ek_vocab_release(&v);
    return 0;
}
