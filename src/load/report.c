#include "load/report.h"

#include "load/report_int.h"

#include <stdio.h>

void ek_report_rows(struct ek_report_row rows[EK_REPORT_ROWS], size_t *n,
                    const struct ek_load_facts *f)
{
    const struct ek_load_result *r = f->r;
    const struct ek_report_row all[EK_REPORT_ROWS] = {
        {"ttft_ms", "time to first token", &r->ttft},
        {"first_event_ms", "time to first event", &r->first},
        {"tpot_ms", "time per output token", &r->tpot},
        {"itl_ms", "time between tokens", &r->itl},
        {"e2e_ms", "end to end", &r->e2e},
        {"lateness_ms", "client lateness", &r->late},
    };
    for (size_t i = 0; i < EK_REPORT_ROWS; i++)
        rows[i] = all[i];
    *n = f->o->is_open ? EK_REPORT_ROWS : EK_REPORT_ROWS - 1;
}

double ek_report_rate(const struct ek_load_facts *f, double n)
{
    return f->r->span_us > 0 ? n / ((double)f->r->span_us / 1e6) : 0.0;
}

bool ek_report_has_slo(const struct ek_load_facts *f)
{
    const struct ek_load_slo *s = &f->o->slo;
    return s->ttft_ms > 0.0 || s->tpot_ms > 0.0 || s->e2e_ms > 0.0;
}

static int add_load(struct ek_buf *out, const struct ek_load_facts *f)
{
    const struct ek_load_options *o = f->o;
    int rc = ek_buf_addf(out, "%s, model %s, %s\n", f->url, f->model, f->endpoint);
    if (rc)
        return rc;
    if (!o->is_open)
        return ek_buf_addf(out, "closed loop, %lld under way",
                           (long long)o->concurrency);
    if (o->workload.trace && o->workload.burstiness <= 0.0)
        return ek_buf_addf(out, "open loop, the trace's arrivals%s",
                           o->workload.rate > 0.0 ? " at the rate asked for" : "");
    return ek_buf_addf(out, "open loop, %g requests/s, burstiness %g", o->workload.rate,
                       o->workload.burstiness > 0.0 ? o->workload.burstiness : 1.0);
}

static int add_lengths(struct ek_buf *out, const struct ek_load_facts *f)
{
    if (f->trace)
        return ek_buf_addf(out, "; lengths of %s\n\n", f->trace);
    return ek_buf_addf(out, "; prompts of %lld tokens, answers of %lld\n\n",
                       (long long)f->o->workload.prompt_tokens,
                       (long long)f->o->workload.output_tokens);
}

/* Lines that are only there when there is something to say. */
static int add_remarks(struct ek_buf *out, const struct ek_load_facts *f)
{
    const struct ek_load_result *r = f->r;
    int rc = 0;
    if (r->n_unfinished)
        rc = ek_buf_addf(out, "unfinished    %llu requests were under way at the end\n",
                         (unsigned long long)r->n_unfinished);
    if (!rc && r->n_shortened)
        rc = ek_buf_addf(out, "shortened     %llu requests, to fit max_tokens = %lld\n",
                         (unsigned long long)r->n_shortened,
                         (long long)f->o->workload.max_tokens);
    if (!rc && r->n_empty)
        rc = ek_buf_addf(out, "without text  %llu answers, in no time to first token\n",
                         (unsigned long long)r->n_empty);
    if (!rc && r->n_no_usage)
        rc = ek_buf_addf(out,
                         "no usage      in %llu answers: their events are counted as "
                         "tokens, their prompts are not counted\n",
                         (unsigned long long)r->n_no_usage);
    return rc;
}

static int add_counts(struct ek_buf *out, const struct ek_load_facts *f)
{
    const struct ek_load_result *r = f->r;
    double seconds = (double)r->span_us / 1e6;
    unsigned long long n_refused = r->n_429 + r->n_503;
    unsigned long long n_over = r->n_sent - r->n_unfinished;
    int rc = ek_buf_addf(
        out,
        "requests      %llu ok, %llu failed, %llu refused (429: %llu, 503: %llu)\n",
        (unsigned long long)r->n_ok, (unsigned long long)r->n_failed, n_refused,
        (unsigned long long)r->n_429, (unsigned long long)r->n_503);
    if (!rc)
        rc = ek_buf_addf(
            out,
            "throughput    %.3f requests/s, %.1f output tokens/s, %.1f "
            "with prompts, over %.2f s\n",
            ek_report_rate(f, (double)r->n_ok), ek_report_rate(f, (double)r->n_output),
            ek_report_rate(f, (double)(r->n_output + r->n_prompt)), seconds);
    if (!rc)
        rc = ek_buf_addf(out,
                         "tokens        %lld in prompts (asked for %lld), %lld of them "
                         "cached; %lld in answers (%lld)\n",
                         (long long)r->n_prompt, (long long)r->n_prompt_asked,
                         (long long)r->n_cached, (long long)r->n_output,
                         (long long)r->n_output_asked);
    if (!rc && ek_report_has_slo(f))
        rc = ek_buf_addf(
            out, "goodput       %.3f requests/s within the SLO (%llu of %llu)\n",
            ek_report_rate(f, (double)r->n_good), (unsigned long long)r->n_good,
            n_over);
    if (!rc)
        rc = ek_buf_addf(
            out, "client        at most %llu under way, %.1f %% of a core\n",
            (unsigned long long)r->peak,
            seconds > 0.0 ? 100.0 * (double)r->cpu_us / 1e6 / seconds : 0.0);
    return rc ? rc : add_remarks(out, f);
}

static int add_errors(struct ek_buf *out, const struct ek_load_result *r)
{
    int rc = 0;
    for (size_t i = 0; i < r->n_errors && !rc; i++)
        rc = ek_buf_addf(out, "%s%7llu x %s\n", i ? "" : "\n",
                         (unsigned long long)r->errors[i].n, r->errors[i].text);
    return rc;
}

/* Nanoseconds as milliseconds, nine wide: "   0.250   1234.5". */
static int add_ms(struct ek_buf *out, double ns)
{
    double ms = ns / 1e6;
    return ek_buf_addf(out, ms < 1000.0 ? "%9.3f" : "%9.1f", ms);
}

static int add_row(struct ek_buf *out, const struct ek_report_row *row)
{
    static const double quantiles[] = {0.5, 0.9, 0.95, 0.99};
    const struct ek_hist *h = row->hist;
    int rc = ek_buf_addf(out, "%-22s", row->title);
    if (!rc && h->n == 0)
        return ek_buf_addf(out, "%9s\n", "-");
    if (!rc)
        rc = add_ms(out, ek_hist_mean(h));
    for (size_t i = 0; i < 4 && !rc; i++)
        rc = add_ms(out, ek_hist_quantile(h, quantiles[i]));
    if (!rc)
        rc = add_ms(out, (double)h->max);
    return rc ? rc : ek_buf_add_char(out, '\n');
}

int ek_load_report_table(struct ek_buf *out, const struct ek_load_facts *f)
{
    struct ek_report_row rows[EK_REPORT_ROWS];
    size_t n;
    ek_report_rows(rows, &n, f);
    int rc = add_load(out, f);
    if (!rc)
        rc = add_lengths(out, f);
    if (!rc)
        rc = add_counts(out, f);
    if (!rc)
        rc = ek_buf_addf(out, "\n%-22s%9s%9s%9s%9s%9s%9s\n", "milliseconds", "mean",
                         "p50", "p90", "p95", "p99", "max");
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_row(out, &rows[i]);
    return rc ? rc : add_errors(out, f->r);
}
