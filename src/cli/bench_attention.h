/* bench_attention.h - one batch of jagged attention, forward and backward, as training
 * runs it: what keel bench attention repeats.
 */
#ifndef EVENKEEL_CLI_BENCH_ATTENTION_H
#define EVENKEEL_CLI_BENCH_ATTENTION_H

#include "base/err.h"
#include "base/team.h"
#include "kernel/ops.h"

#define EK_BENCH_LENGTH_MAX 65536
#define EK_BENCH_BATCH_MAX  65536

enum ek_attention_kind {
    EK_ATTENTION_JFA,   /* softmax, causal */
    EK_ATTENTION_HSTU,  /* silu / longest, causal, without bias */
    EK_ATTENTION_GDPA,  /* gelu_tanh, a fixed number of keys a sequence */
    EK_ATTENTION_BLOCK, /* softmax in blocks of 64 */
    EK_ATTENTION_COUNT,
};
const char *ek_attention_name(enum ek_attention_kind kind); /* "jfa" ... */

/* Lengths of B sequences: "uniform:LO:HI", "fixed:N", "lognormal:MEDIAN:SIGMA", or a file
 * of whole numbers, one a line, of which the first B are taken (over and over if there
 * are fewer). Errors: EK_EINVAL a wrong word or number; those of ek_file_read. */
int ek_bench_lengths(int64_t *lengths, int64_t B, const char *spec, uint64_t seed,
                     struct ek_err *err) EK_MUST_USE;

struct ek_attention_shape {
    enum ek_attention_kind kind;
    enum ek_dtype dtype; /* of rows and products */
    int64_t B, heads, dim;
    int64_t keys; /* gdpa: of each sequence */
    const int64_t *lengths;
};

struct ek_bench_attention;

/* Random rows, the plan of tiles, scratch for each member. Errors: EK_ENOMEM. */
int ek_bench_attention_new(struct ek_bench_attention **b,
                           const struct ek_attention_shape *shape, struct ek_team *team,
                           const struct ek_ops *ops, struct ek_err *err) EK_MUST_USE;
void ek_bench_attention_free(struct ek_bench_attention *b); /* NULL is fine */

/* One pass each way. */
void ek_bench_attention_run(struct ek_bench_attention *b, double *forward_s,
                            double *backward_s);

struct ek_attention_facts {
    int64_t rows;         /* of queries */
    double flop;          /* useful, forward; backward has 2.5 times as many */
    size_t bytes;         /* of inputs, outputs and their gradients */
    size_t beside;        /* of all else: LSE, tiles, stage, scratch */
    double before, after; /* imbalance of the backward's tiles (jagged.h) */
};
struct ek_attention_facts ek_bench_attention_facts(const struct ek_bench_attention *b);

#endif
