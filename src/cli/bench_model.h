/* bench_model.h - timed steps of a model: prefill of a prompt, decode of a batch at a
 * depth. Keys and values of earlier positions are not computed but random and finite:
 * no time depends on them, and a depth of thousands costs no minutes.
 */
#ifndef EVENKEEL_CLI_BENCH_MODEL_H
#define EVENKEEL_CLI_BENCH_MODEL_H

#include "cli/bench.h"
#include "serve/runtime.h"

#define EK_BENCH_TOKENS_MAX 1048576 /* positions of a sequence, or of a batch */

enum ek_bench_kind { EK_BENCH_PREFILL, EK_BENCH_DECODE };

struct ek_bench_job {
    enum ek_bench_kind kind;
    int64_t n_tokens; /* prefill: of the prompt; decode: steps of one repetition */
    int64_t depth;    /* decode: positions that each sequence has already */
    int64_t batch;    /* decode: sequences */
};

/* One model's buffers; grown by the jobs that need more. */
struct ek_bench_model {
    struct ek_runtime *rt; /* borrowed; its own KV is not used */
    struct ek_kv kv;
    int32_t *pages, *tokens;
    float *logits;
    struct ek_lm_seq *seqs;
    int64_t cap_pages, cap_seqs;
};

void ek_bench_model_init(struct ek_bench_model *m, struct ek_runtime *rt);
void ek_bench_model_release(struct ek_bench_model *m);

/* Buffers for this job. Errors: EK_EINVAL a size out of range; EK_ENOMEM, EK_ELIMIT. */
int ek_bench_model_fit(struct ek_bench_model *m, const struct ek_bench_job *job,
                       struct ek_err *err) EK_MUST_USE;

/* One repetition of a job that fits: its tokens a second, over all sequences. */
double ek_bench_model_run(struct ek_bench_model *m, const struct ek_bench_job *job);

/* Bytes that a decode step reads for each token: its share of the weights, and its
 * sequence's keys and values. */
double ek_bench_model_bytes(const struct ek_bench_model *m,
                            const struct ek_bench_job *job);

/* Multiplications and additions of a prefill for each token, attention left out. */
double ek_bench_model_flop(const struct ek_bench_model *m);

#endif
