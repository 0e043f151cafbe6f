/* report_json.c - one JSON object, a line; members are only ever added. */
#include "base/json.h"
#include "load/report_int.h"

#include <string.h>

static int add_text(struct ek_buf *out, const char *before, const char *text)
{
    int rc = ek_buf_add_str(out, before);
    if (rc)
        return rc;
    return text ? ek_json_add_str(out, text, strlen(text))
                : ek_buf_add_str(out, "null");
}

static int add_number(struct ek_buf *out, const char *key, double v)
{
    int rc = ek_buf_addf(out, ",\"%s\":", key);
    return rc ? rc : ek_json_add_double(out, v);
}

/* v with 6 digits behind the point at most: nanoseconds of milliseconds. */
static double rounded(double v)
{
    return (double)(int64_t)(v * 1e6 + 0.5) / 1e6;
}

static int add_workload(struct ek_buf *out, const struct ek_load_facts *f)
{
    const struct ek_workload_options *w = &f->o->workload;
    int rc = ek_buf_addf(out, ",\"loop\":\"%s\",\"workload\":{",
                         f->o->is_open ? "open" : "closed");
    if (!rc)
        rc = add_text(out, "\"trace\":", f->trace);
    if (!rc && !f->trace)
        rc = ek_buf_addf(out, ",\"prompt_tokens\":%lld,\"output_tokens\":%lld",
                         (long long)w->prompt_tokens, (long long)w->output_tokens);
    if (!rc)
        rc = add_number(out, "rate", w->rate);
    if (!rc)
        rc = add_number(out, "burstiness", w->burstiness);
    if (!rc)
        rc = add_number(out, "scale", w->time_scale);
    if (!rc)
        rc = add_number(out, "length_scale", w->length_scale);
    if (!rc)
        rc = add_number(out, "duration_s", (double)f->o->duration_us / 1e6);
    if (!rc)
        rc = ek_buf_addf(out,
                         ",\"max_tokens\":%lld,\"concurrency\":%lld,\"requests\":%llu,"
                         "\"ignore_eos\":%s,\"seed\":%llu",
                         (long long)w->max_tokens, (long long)f->o->concurrency,
                         (unsigned long long)w->n_max,
                         f->o->ignore_eos ? "true" : "false",
                         (unsigned long long)w->seed);
    if (!rc)
        rc = add_number(out, "tokens_per_word", rounded(f->o->scale.per_word));
    if (!rc)
        rc = add_number(out, "overhead_tokens", rounded(f->o->scale.overhead));
    return rc ? rc : ek_buf_add_char(out, '}');
}

static int add_counts(struct ek_buf *out, const struct ek_load_result *r)
{
    const struct {
        const char *key;
        uint64_t n;
    } counts[] = {
        {"sent", r->n_sent},
        {"ok", r->n_ok},
        {"failed", r->n_failed},
        {"refused", r->n_429 + r->n_503},
        {"refused_429", r->n_429},
        {"refused_503", r->n_503},
        {"without_text", r->n_empty},
        {"without_usage", r->n_no_usage},
        {"unfinished", r->n_unfinished},
        {"shortened", r->n_shortened},
    };
    int rc = ek_buf_add_str(out, ",\"requests\":{");
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && !rc; i++)
        rc = ek_buf_addf(out, "%s\"%s\":%llu", i ? "," : "", counts[i].key,
                         (unsigned long long)counts[i].n);
    if (!rc)
        rc = ek_buf_addf(out,
                         "},\"tokens\":{\"prompt\":%lld,\"prompt_asked\":%lld,"
                         "\"cached\":%lld,\"output\":%lld,\"output_asked\":%lld}",
                         (long long)r->n_prompt, (long long)r->n_prompt_asked,
                         (long long)r->n_cached, (long long)r->n_output,
                         (long long)r->n_output_asked);
    return rc;
}

static int add_rates(struct ek_buf *out, const struct ek_load_facts *f)
{
    const struct ek_load_result *r = f->r;
    const struct ek_load_slo *slo = &f->o->slo;
    int rc = add_number(out, "seconds", (double)r->span_us / 1e6);
    if (!rc)
        rc = add_number(out, "requests_per_second",
                        rounded(ek_report_rate(f, (double)r->n_ok)));
    if (!rc)
        rc = add_number(out, "output_tokens_per_second",
                        rounded(ek_report_rate(f, (double)r->n_output)));
    if (!rc)
        rc =
            add_number(out, "tokens_per_second",
                       rounded(ek_report_rate(f, (double)(r->n_output + r->n_prompt))));
    if (rc || !ek_report_has_slo(f))
        return rc ? rc : ek_buf_add_str(out, ",\"goodput\":null");
    rc = ek_buf_addf(out, ",\"goodput\":{\"within\":%llu",
                     (unsigned long long)r->n_good);
    if (!rc)
        rc = add_number(out, "requests_per_second",
                        rounded(ek_report_rate(f, (double)r->n_good)));
    if (!rc)
        rc = add_number(out, "ttft_ms", slo->ttft_ms);
    if (!rc)
        rc = add_number(out, "tpot_ms", slo->tpot_ms);
    if (!rc)
        rc = add_number(out, "e2e_ms", slo->e2e_ms);
    return rc ? rc : ek_buf_add_char(out, '}');
}

static int add_row(struct ek_buf *out, const struct ek_report_row *row)
{
    static const struct {
        const char *key;
        double q;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}};
    const struct ek_hist *h = row->hist;
    int rc =
        ek_buf_addf(out, ",\"%s\":{\"count\":%llu", row->key, (unsigned long long)h->n);
    if (!rc && h->n) {
        rc = add_number(out, "mean", rounded(ek_hist_mean(h) / 1e6));
        if (!rc)
            rc = add_number(out, "min", (double)h->min / 1e6);
        for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0] && !rc; i++)
            rc = add_number(out, quantiles[i].key,
                            rounded(ek_hist_quantile(h, quantiles[i].q) / 1e6));
        if (!rc)
            rc = add_number(out, "max", (double)h->max / 1e6);
    }
    return rc ? rc : ek_buf_add_char(out, '}');
}

static int add_errors(struct ek_buf *out, const struct ek_load_result *r)
{
    int rc = ek_buf_add_str(out, ",\"errors\":[");
    for (size_t i = 0; i < r->n_errors && !rc; i++) {
        rc = add_text(out, i ? ",{\"text\":" : "{\"text\":", r->errors[i].text);
        if (!rc)
            rc = ek_buf_addf(out, ",\"count\":%llu}",
                             (unsigned long long)r->errors[i].n);
    }
    return rc ? rc : ek_buf_add_char(out, ']');
}

int ek_load_report_json(struct ek_buf *out, const struct ek_load_facts *f)
{
    struct ek_report_row rows[EK_REPORT_ROWS];
    const struct ek_load_result *r = f->r;
    size_t n;
    ek_report_rows(rows, &n, f);
    int rc = add_text(out, "{\"url\":", f->url);
    if (!rc)
        rc = add_text(out, ",\"model\":", f->model);
    if (!rc)
        rc = add_text(out, ",\"endpoint\":", f->endpoint);
    if (!rc)
        rc = add_workload(out, f);
    if (!rc)
        rc = add_counts(out, r);
    if (!rc)
        rc = add_rates(out, f);
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_row(out, &rows[i]);
    if (!rc)
        rc =
            ek_buf_addf(out, ",\"peak_concurrency\":%llu", (unsigned long long)r->peak);
    if (!rc)
        rc = add_number(out, "client_cpu_seconds", (double)r->cpu_us / 1e6);
    if (!rc)
        rc = ek_buf_addf(out, ",\"interrupted\":%s,\"server_gone\":%s",
                         r->is_interrupted ? "true" : "false",
                         r->is_server_gone ? "true" : "false");
    if (!rc)
        rc = add_errors(out, r);
    return rc ? rc : ek_buf_add_str(out, "}\n");
}
