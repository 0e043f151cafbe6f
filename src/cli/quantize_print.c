/* quantize_print.c - what keel quantize tells: a line a matrix, the sums, the texts. */
#include "base/file.h"
#include "base/json.h"
#include "cli/quantize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define OUTPUT_BYTES ((size_t)1 << 28)

/* Sums over all matrices that were rounded. */
struct totals {
    double error, norm, weighted, weighted_norm;
};

static struct totals add_up(const struct ek_quantize_report *r)
{
    struct totals t = {0};
    for (size_t i = 0; i < r->n; i++) {
        t.error += r->rows[i].error;
        t.norm += r->rows[i].norm;
        t.weighted += r->rows[i].weighted;
        t.weighted_norm += r->rows[i].weighted_norm;
    }
    return t;
}

static double decibels(double error, double norm)
{
    return error > 0 && norm > 0 ? 10 * log10(norm / error) : 0;
}

static double kl_error(const struct ek_score *s)
{
    double n = (double)s->n, mean = s->kl / n;
    return sqrt(fmax(s->kl_sq / n - mean * mean, 0) / n);
}

static void print_row(const struct ek_quantize_row *row)
{
    char in[32], out[32];
    printf("%-44s %-11s -> %-11s %10s -> %10s", row->name, row->from, row->to,
           ek_format_bytes(in, (uint64_t)row->bytes_in),
           ek_format_bytes(out, (uint64_t)row->bytes_out));
    if (row->error > 0)
        printf("  rms %.5f  snr %5.1f dB", ek_quantize_rms(row->error, row->norm),
               decibels(row->error, row->norm));
    if (row->why)
        printf("  (%s)", row->why);
    printf("\n");
}

static void print_score(const struct ek_score *s, const char *check)
{
    double n = (double)s->n, ref = exp(s->ref_nll / n), ppl = ek_score_perplexity(s);
    printf(
        "%s: perplexity %.4f -> %.4f (%+.2f %%), +- %.4f; %lld tokens scored\n"
        "KL divergence: mean %.3e +- %.1e, largest %.2e; likeliest token the same in "
        "%.2f %%\n",
        check, ref, ppl, 100 * (ppl / ref - 1), ek_score_error(s), (long long)s->n,
        s->kl / n, kl_error(s), s->kl_max, 100 * (double)s->n_agree / n);
}

static void print_text(const struct ek_quantize_result *r)
{
    const struct ek_quantize_report *q = r->report;
    struct totals t = add_up(q);
    char in[32], out[32];
    for (size_t i = 0; i < q->n && !r->set->quiet; i++)
        print_row(&q->rows[i]);
    printf("%s: %s -> %s (%.1f %%), relative rms error %.5f, snr %.1f dB, %.1f s\n",
           r->out, ek_format_bytes(in, (uint64_t)q->bytes_in),
           ek_format_bytes(out, (uint64_t)q->bytes_out),
           100 * (double)q->bytes_out / (double)q->bytes_in,
           ek_quantize_rms(t.error, t.norm), decibels(t.error, t.norm), r->seconds);
    if (r->calibration)
        printf("%s: %lld tokens; relative rms error weighted by them %.5f\n",
               r->set->calibrate, (long long)r->calibration->n_tokens,
               ek_quantize_rms(t.weighted, t.weighted_norm));
    if (r->score)
        print_score(r->score, r->set->check);
}

static int add_named(struct ek_buf *b, const char *key, const char *value)
{
    int rc = ek_buf_addf(b, "%s\"%s\":", b->data[b->len - 1] == '{' ? "" : ",", key);
    if (rc)
        return rc;
    return value ? ek_json_add_str(b, value, strlen(value)) : ek_buf_add_str(b, "null");
}

static int add_row(struct ek_buf *b, const struct ek_quantize_row *row)
{
    int rc = ek_buf_add_char(b, '{');
    if (!rc)
        rc = add_named(b, "name", row->name);
    if (!rc)
        rc = add_named(b, "from", row->from);
    if (!rc)
        rc = add_named(b, "to", row->to);
    if (!rc)
        rc = add_named(b, "why", row->why);
    if (rc)
        return rc;
    return ek_buf_addf(b,
                       ",\"bytes_in\":%lld,\"bytes_out\":%lld,\"relative_rms\":%.8g,"
                       "\"snr_db\":%.4f,\"weighted_rms\":%.8g}",
                       (long long)row->bytes_in, (long long)row->bytes_out,
                       ek_quantize_rms(row->error, row->norm),
                       decibels(row->error, row->norm),
                       ek_quantize_rms(row->weighted, row->weighted_norm));
}

static int add_score(struct ek_buf *b, const struct ek_score *s)
{
    double n = (double)s->n;
    return ek_buf_addf(
        b,
        ",\"check\":{\"scored\":%lld,\"perplexity_in\":%.6f,\"perplexity_out\":%.6f,"
        "\"standard_error\":%.6f,\"kl\":{\"mean\":%.8g,\"standard_error\":%.8g,"
        "\"max\":%.8g,\"agreement\":%.6f}}",
        (long long)s->n, exp(s->ref_nll / n), ek_score_perplexity(s), ek_score_error(s),
        s->kl / n, kl_error(s), s->kl_max, (double)s->n_agree / n);
}

static int add_json(struct ek_buf *b, const struct ek_quantize_result *r)
{
    const struct ek_quantize_report *q = r->report;
    struct totals t = add_up(q);
    int rc = ek_buf_add_char(b, '{');
    if (!rc)
        rc = add_named(b, "in", r->in);
    if (!rc)
        rc = add_named(b, "out", r->out);
    if (!rc)
        rc = ek_buf_addf(
            b,
            ",\"bytes_in\":%lld,\"bytes_out\":%lld,\"relative_rms\":%.8g,"
            "\"snr_db\":%.4f,\"weighted_rms\":%.8g,\"calibration_tokens\":%lld,"
            "\"seconds\":%.3f",
            (long long)q->bytes_in, (long long)q->bytes_out,
            ek_quantize_rms(t.error, t.norm), decibels(t.error, t.norm),
            ek_quantize_rms(t.weighted, t.weighted_norm),
            r->calibration ? (long long)r->calibration->n_tokens : 0LL, r->seconds);
    if (!rc && r->score)
        rc = add_score(b, r->score);
    if (!rc)
        rc = ek_buf_add_str(b, ",\"matrices\":[");
    for (size_t i = 0; i < q->n && !rc; i++) {
        rc = i ? ek_buf_add_char(b, ',') : 0;
        if (!rc)
            rc = add_row(b, &q->rows[i]);
    }
    return rc ? rc : ek_buf_add_str(b, "]}\n");
}

bool ek_quantize_print(const struct ek_quantize_result *r)
{
    struct ek_buf b;
    bool is_ok = true;
    if (!r->set->json) {
        print_text(r);
        return !fflush(stdout) && !ferror(stdout);
    }
    ek_buf_init(&b, OUTPUT_BYTES);
    is_ok = !add_json(&b, r) && fwrite(b.data, 1, b.len, stdout) == b.len &&
            !fflush(stdout);
    ek_buf_release(&b);
    return is_ok;
}
