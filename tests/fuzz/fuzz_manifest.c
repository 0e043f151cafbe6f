/* fuzz_manifest.c - any bytes as a checkpoint's manifest, and the same with the digest that
 * they should end with: refused with a sentence, or what checkpoint_int.h says. The first
 * byte chooses an allocation to fail. */
#include "base/mem.h"
#include "train/checkpoint_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define COUNT_MAX (INT64_C(1) << 53)
#define TAIL_CAP  64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void must_count(int64_t n)
{
    must(n >= 0 && n <= COUNT_MAX);
}

static void check(const struct ek_manifest *m)
{
    const struct ek_train_progress *p = &m->progress;
    must_count(p->epoch);
    must_count(p->step);
    must_count(p->steps);
    must_count(p->sequences);
    must_count(p->tokens);
    must_count(p->evals_since_best);
    must_count(p->interval.steps);
    must_count(p->interval.tokens);
    must(p->interval.flops >= 0 && (p->eval_due == 0 || p->eval_due == 1));
    must(p->best_step <= COUNT_MAX && m->adamw_steps >= -1);
    must(m->data && m->config.name && m->model.name);
    must(m->config.bytes <= COUNT_MAX && m->model.bytes <= COUNT_MAX);
    must(!m->optimizer.name || m->optimizer.bytes <= COUNT_MAX);
}

static void try_text(const char *text, size_t n, uint64_t fail_at)
{
    struct ek_manifest m;
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_manifest_parse(&m, "manifest.json", text, n, &err);
    must(rc == 0 || (err.text[0] && !m.data));
    if (!rc)
        check(&m);
    ek_manifest_release(&m);
    ek_mem_fail_at(fail_at);
    int again = ek_manifest_parse(&m, "manifest.json", text, n, NULL);
    must(again == rc || (ek_mem_failed() && again != 0));
    ek_mem_fail_at(0);
    ek_manifest_release(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    uint64_t fail_at = 1 + data[0] % 16;
    size_t n = size - 1;
    char *text = malloc(n + TAIL_CAP);
    must(text != NULL);
    memcpy(text, data + 1, n);
    try_text(text, n, fail_at);
    uint32_t crc = (uint32_t)crc32_z(0, (const unsigned char *)text, n);
    int tail =
        snprintf(text + n, TAIL_CAP, ",\n  \"crc32\": \"%08x\"\n}\n", (unsigned)crc);
    try_text(text, n + (size_t)tail, fail_at);
    free(text);
    return 0;
}
