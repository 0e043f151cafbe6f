/* fuzz_trace.c - any bytes as a trace, and the same bytes as a stream of events. A trace
 * is refused with a sentence or its rows keep what trace.h promises; a stream gives the
 * same however it is cut. The first byte chooses an allocation to fail and the cut. */
#include "base/mem.h"
#include "load/answer.h"
#include "load/workload.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void check_rows(const struct ek_trace *t)
{
    must(t->n > 0 && t->rows[0].at_us == 0);
    for (size_t i = 0; i < t->n; i++) {
        const struct ek_trace_row *row = &t->rows[i];
        must(row->n_in >= 1 && row->n_in <= EK_TRACE_TOKENS_MAX);
        must(row->n_out >= 1 && row->n_out <= EK_TRACE_TOKENS_MAX);
        must(row->first_hash + row->n_hashes <= t->n_hashes);
        must(i == 0 || row->at_us >= t->rows[i - 1].at_us);
    }
}

static void check_workload(const struct ek_trace *t, double rate)
{
    struct ek_workload_options o = {.trace = t,
                                    .length_scale = 3.5,
                                    .time_scale = 0.01,
                                    .rate = rate,
                                    .max_tokens = 1000};
    struct ek_workload w;
    struct ek_load_item item;
    int64_t last_us = 0;
    size_t n = 0;
    ek_workload_init(&w, &o);
    for (; ek_workload_next(&w, &item); n++) {
        must(item.at_us >= last_us && item.at_us <= EK_WORKLOAD_US_MAX);
        must(item.n_in >= 1 && item.n_out >= 1 && item.n_in + item.n_out <= 1000);
        last_us = item.at_us;
    }
    must(n == t->n);
}

static void try_trace(const char *text, size_t n, uint64_t fail_at)
{
    struct ek_trace t = {0}, u = {0};
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_trace_parse(&t, "trace", text, n, &err);
    must(rc == 0 || rc == EK_EFORMAT || rc == EK_ELIMIT);
    must(rc == 0 || err.text[0]);
    if (!rc) {
        check_rows(&t);
        check_workload(&t, 0.0);
        check_workload(&t, 7.0);
    }
    ek_mem_fail_at(fail_at);
    int drive = ek_trace_parse(&u, "trace", text, n, NULL);
    must(drive == (ek_mem_failed() ? EK_ENOMEM : rc));
    ek_mem_fail_at(0);
    ek_trace_release(&t);
    ek_trace_release(&u);
}

static void try_answer(const char *text, size_t n, size_t cut)
{
    struct ek_answer whole, parts;
    cut = cut < n ? cut : n;
    ek_answer_init(&whole);
    ek_answer_init(&parts);
    int rc = ek_answer_feed(&whole, text, n, 1, NULL);
    int rc_parts = ek_answer_feed(&parts, text, cut, 1, NULL);
    if (!rc_parts)
        rc_parts = ek_answer_feed(&parts, text + cut, n - cut, 1, NULL);
    must(rc == rc_parts && whole.n_texts == parts.n_texts);
    must(whole.n_output == parts.n_output && whole.done_us == parts.done_us);
    must(ek_answer_end(&whole, NULL) == ek_answer_end(&parts, NULL));
    ek_answer_release(&whole);
    ek_answer_release(&parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    try_trace(text, size - 1, data[0]);
    try_answer(text, size - 1, data[0]);
    return 0;
}
