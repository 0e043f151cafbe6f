/* metrics.h - counters and histograms in Prometheus text (format 0.0.4), prefix
 * evenkeel_, base units. Owner thread: the loop's. */
#ifndef EVENKEEL_SERVE_METRICS_H
#define EVENKEEL_SERVE_METRICS_H

#include "serve/engine.h"
#include "serve/out.h"

#include <stdint.h>

/* X(member, name, buckets, help) */
#define EK_HISTOGRAMS(X)                                                               \
    X(ttft, "time_to_first_token_seconds", TTFT, "from arrival to the first token")    \
    X(itl, "inter_token_latency_seconds", ITL, "between tokens of a choice")           \
    X(tpot, "request_time_per_output_token_seconds", ITL,                              \
      "decode time of a request per token after the first")                            \
    X(e2e, "e2e_request_latency_seconds", E2E, "from arrival to the end")              \
    X(queue, "request_queue_time_seconds", E2E, "waiting for a seat and pages")        \
    X(prefill, "request_prefill_time_seconds", E2E, "from admission to first token")   \
    X(decode, "request_decode_time_seconds", E2E, "from first token to the end")       \
    X(inference, "request_inference_time_seconds", E2E, "from admission to the end")   \
    X(prompt, "request_prompt_tokens", TOKENS, "prompt tokens of a request")           \
    X(generation, "request_generation_tokens", TOKENS, "answer tokens of a request")   \
    X(params_n, "request_params_n", SMALL, "n of a request")                           \
    X(params_max_tokens, "request_params_max_tokens", TOKENS, "max_tokens of a request")

enum ek_buckets {
    EK_BUCKETS_TTFT,
    EK_BUCKETS_ITL,
    EK_BUCKETS_E2E,
    EK_BUCKETS_TOKENS,
    EK_BUCKETS_SMALL,
};

struct ek_histogram {
    uint64_t counts[24]; /* by bucket, not cumulated; the last one is +Inf */
    double sum;
};

struct ek_metrics {
#define X(member, name, buckets, help) struct ek_histogram member;
    EK_HISTOGRAMS(X)
#undef X
    uint64_t finished[5];   /* by enum ek_finish, choices */
    uint64_t answers[600];  /* by HTTP status */
    uint64_t refused_full;  /* 429 */
    uint64_t prompt_tokens; /* of finished requests */
    uint64_t generation_tokens;
    uint64_t cached_tokens; /* of prompts, each counted when its first news comes */
};

void ek_histogram_add(struct ek_histogram *h, enum ek_buckets b, double value);
#define ek_metrics_add(m, member, buckets, value)                                      \
    ek_histogram_add(&(m)->member, EK_BUCKETS_##buckets, value)

/* What /metrics says beside the counters. */
struct ek_metrics_now {
    const struct ek_engine_stats *engine; /* as last reported */
    int32_t n_choices;                    /* in the engine as the loop knows it */
    int32_t n_connections;
    const char *model;
    const char *kv_dtype;
    int32_t ctx;
    int32_t max_seqs;
};

void ek_metrics_write(struct ek_out *o, const struct ek_metrics *m,
                      const struct ek_metrics_now *now);

#endif
