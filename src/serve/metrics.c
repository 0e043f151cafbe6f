#include "serve/metrics.h"

#include <stdio.h>
#include <string.h>

/* Bounds as vLLM's dashboards expect them (spec: upper bounds, +Inf implied). */
static const double ttft_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1,
                                     .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                     20,   40,   80,  160, 640, 2560};
static const double itl_bounds[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                    .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
static const double e2e_bounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                    30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double token_bounds[] = {
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
static const double small_bounds[] = {1, 2, 5, 10, 20};

#define N(a) (sizeof(a) / sizeof((a)[0]))
static const struct {
    const double *bounds;
    size_t n;
} tables[] = {
    {ttft_bounds, N(ttft_bounds)},   {itl_bounds, N(itl_bounds)},
    {e2e_bounds, N(e2e_bounds)},     {token_bounds, N(token_bounds)},
    {small_bounds, N(small_bounds)},
};

void ek_histogram_add(struct ek_histogram *h, enum ek_buckets b, double value)
{
    size_t i = 0;
    while (i < tables[b].n && value > tables[b].bounds[i])
        i++;
    h->counts[i]++;
    h->sum += value;
}

static void head(struct ek_out *o, const char *name, const char *type, const char *help)
{
    ek_out_printf(o, "# HELP evenkeel_%s %s\n# TYPE evenkeel_%s %s\n", name, help, name,
                  type);
}

static void one(struct ek_out *o, const char *name, const char *type, const char *help,
                double value)
{
    head(o, name, type, help);
    ek_out_printf(o, "evenkeel_%s %.17g\n", name, value);
}

static void write_histogram(struct ek_out *o, const struct ek_histogram *h,
                            enum ek_buckets b, const char *name, const char *help)
{
    uint64_t sum = 0;
    head(o, name, "histogram", help);
    for (size_t i = 0; i < tables[b].n; i++) {
        sum += h->counts[i];
        ek_out_printf(o, "evenkeel_%s_bucket{le=\"%g\"} %llu\n", name,
                      tables[b].bounds[i], (unsigned long long)sum);
    }
    sum += h->counts[tables[b].n];
    ek_out_printf(o, "evenkeel_%s_bucket{le=\"+Inf\"} %llu\n", name,
                  (unsigned long long)sum);
    ek_out_printf(o, "evenkeel_%s_sum %.17g\nevenkeel_%s_count %llu\n", name, h->sum,
                  name, (unsigned long long)sum);
}

/* A label's value: backslash, quote and line end escaped. */
static void put_label(struct ek_out *o, const char *s)
{
    for (; *s; s++) {
        if (*s == '\n')
            ek_out_str(o, "\\n");
        else if (*s == '"' || *s == '\\')
            ek_out_printf(o, "\\%c", *s);
        else
            ek_out_add(o, s, 1);
    }
}

/* The engine counts its steps itself, by powers of two. */
static void write_steps(struct ek_out *o, const struct ek_engine_stats *e)
{
    int64_t sum = 0;
    head(o, "iteration_tokens", "histogram", "tokens of a step");
    for (int i = 0; i < EK_STEP_BUCKETS; i++) {
        char bound[16] = "+Inf";
        if (i < EK_STEP_BUCKETS - 1)
            snprintf(bound, sizeof bound, "%d", 1 << i);
        sum += e->steps_by_tokens[i];
        ek_out_printf(o, "evenkeel_iteration_tokens_bucket{le=\"%s\"} %lld\n", bound,
                      (long long)sum);
    }
    ek_out_printf(o,
                  "evenkeel_iteration_tokens_sum %lld\n"
                  "evenkeel_iteration_tokens_count %lld\n",
                  (long long)e->step_tokens, (long long)sum);
}

static void write_engine(struct ek_out *o, const struct ek_metrics_now *now)
{
    const struct ek_engine_stats *e = now->engine;
    int32_t waiting = now->n_choices - e->n_running;
    int32_t used = e->n_pages - e->n_free_pages - e->n_quarantined;
    one(o, "num_requests_running", "gauge", "sequences in the batch", e->n_running);
    one(o, "num_requests_waiting", "gauge", "sequences waiting for a seat or pages",
        waiting > 0 ? waiting : 0);
    one(o, "kv_cache_usage_ratio", "gauge", "share of KV pages in use, 0 to 1",
        e->n_pages > 0 ? (double)used / e->n_pages : 0);
    one(o, "kv_pages", "gauge", "KV pages of 16 tokens", e->n_pages);
    one(o, "kv_pages_free", "gauge", "KV pages that no sequence holds",
        e->n_free_pages);
    one(o, "kv_cached_pages", "gauge",
        "of them kept by the prefix cache until they are needed", e->n_cached_pages);
    one(o, "kv_pages_quarantined", "gauge", "KV pages out of use after a failed check",
        e->n_quarantined);
    one(o, "prefix_cache_queries_total", "counter",
        "tokens looked up in the prefix cache", (double)e->prefix_lookup_tokens);
    one(o, "prefix_cache_hits_total", "counter", "tokens found in the prefix cache",
        (double)e->prefix_hit_tokens);
    one(o, "prefix_cache_evicted_pages_total", "counter",
        "pages that left the prefix cache for another use", (double)e->n_evicted);
    one(o, "num_preemptions_total", "counter",
        "times a sequence gave up its pages, to be recomputed", (double)e->n_preempted);
    one(o, "recomputed_tokens_total", "counter",
        "tokens computed again after a preemption", (double)e->recomputed_tokens);
    one(o, "deadlines_missed_total", "counter", "choices ended by their deadline",
        (double)e->n_expired);
    one(o, "corrupted_requests_total", "counter",
        "choices ended because the model's output was not finite",
        (double)e->n_corrupted);
    one(o, "kv_saturated_values_total", "counter",
        "values that the KV format cut to its range", (double)e->kv_saturated);
    one(o, "iterations_total", "counter", "steps of the engine", (double)e->n_steps);
    write_steps(o, e);
    one(o, "prompt_tokens_total", "counter", "prompt tokens computed",
        (double)e->prompt_tokens);
    one(o, "generation_tokens_total", "counter", "tokens sampled",
        (double)e->generated_tokens);
    one(o, "pages_checked_total", "counter",
        "KV pages compared with the book before they were read",
        (double)e->n_checked_pages);
    head(o, "page_check_failures_total", "counter", "page checks that failed, by kind");
    for (int k = 1; k < EK_PAGE_FAULT_COUNT_OF; k++)
        ek_out_printf(o, "evenkeel_page_check_failures_total{kind=\"%s\"} %lld\n",
                      ek_page_fault_text((enum ek_page_fault)k),
                      (long long)e->faults[k]);
}

static void write_counters(struct ek_out *o, const struct ek_metrics *m)
{
    head(o, "request_success_total", "counter", "finished choices, by reason");
    for (int f = EK_FINISH_STOP; f <= EK_FINISH_ERROR; f++)
        ek_out_printf(
            o, "evenkeel_request_success_total{finished_reason=\"%s\"} %llu\n",
            ek_finish_name((enum ek_finish)f), (unsigned long long)m->finished[f]);
    head(o, "http_responses_total", "counter", "answers, by HTTP status");
    for (int code = 100; code < 600; code++) {
        if (m->answers[code])
            ek_out_printf(o, "evenkeel_http_responses_total{code=\"%d\"} %llu\n", code,
                          (unsigned long long)m->answers[code]);
    }
    one(o, "prompt_tokens_cached_total", "counter",
        "prompt tokens of requests that the prefix cache had (as their usage says)",
        (double)m->cached_tokens);
    one(o, "requests_refused_total", "counter", "requests refused with 429: queue full",
        (double)m->refused_full);
}

void ek_metrics_write(struct ek_out *o, const struct ek_metrics *m,
                      const struct ek_metrics_now *now)
{
    head(o, "build_info", "gauge", "always 1");
    ek_out_str(o, "evenkeel_build_info{version=\"" EK_VERSION "\"} 1\n");
    head(o, "cache_config_info", "gauge", "always 1");
    ek_out_str(o, "evenkeel_cache_config_info{model=\"");
    put_label(o, now->model);
    ek_out_printf(
        o, "\",kv_dtype=\"%s\",page_tokens=\"%d\",ctx=\"%d\",max_seqs=\"%d\"} 1\n",
        now->kv_dtype, EK_PAGE_TOKENS, now->ctx, now->max_seqs);
    one(o, "http_connections", "gauge", "open connections", now->n_connections);
    write_engine(o, now);
    write_counters(o, m);
#define X(member, name, buckets, help)                                                 \
    write_histogram(o, &m->member, EK_BUCKETS_##buckets, name, help);
    EK_HISTOGRAMS(X)
#undef X
}
