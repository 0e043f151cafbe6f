/* sessions_report.c - what a run of sessions measured, for a person and as JSON. */
#include "base/json.h"
#include "load/sessions.h"

#include <string.h>

static const char *const modes[] = {"idle", "speaking", "churn"};
static const char *const protocols[] = {"websocket", "grpc", "http2"};

/* What the CPU is counted by. */
static uint64_t units(const struct ek_sessions_options *o,
                      const struct ek_sessions_result *r)
{
    return o->mode == EK_SESSIONS_SPEAKING ? r->n_echoed
           : o->mode == EK_SESSIONS_CHURN  ? r->n_opened
                                           : 0;
}

static double share(double sum, uint64_t n)
{
    return n ? sum / (double)n : 0.0;
}

/* Sessions that the differences of memory are of. */
static uint64_t cold(const struct ek_sessions_options *o,
                     const struct ek_sessions_result *r)
{
    uint64_t n_warm = (uint64_t)o->n_warm;
    return o->mode != EK_SESSIONS_CHURN && r->n_opened > n_warm ? r->n_opened - n_warm
                                                                : 0;
}

static double rate(const struct ek_sessions_result *r, uint64_t n)
{
    return r->span_us > 0 ? (double)n / ((double)r->span_us / 1e6) : 0.0;
}

/* A table ------------------------------------------------------------------ */

static int add_hist(struct ek_buf *out, const char *title, const struct ek_hist *h)
{
    if (h->n == 0)
        return 0;
    return ek_buf_addf(out, "%-12s%10.0f%10.0f%10.0f%10.0f%12llu\n", title,
                       ek_hist_quantile(h, 0.5) / 1e3, ek_hist_quantile(h, 0.9) / 1e3,
                       ek_hist_quantile(h, 0.99) / 1e3, (double)h->max / 1e3,
                       (unsigned long long)h->n);
}

static int add_head(struct ek_buf *out, const struct ek_sessions_options *o,
                    const struct ek_sessions_result *r)
{
    int rc = ek_buf_addf(out, "%s, %s%s, %s, %lld sessions", o->address,
                         protocols[o->protocol], o->has_tls ? " in TLS" : "",
                         modes[o->mode], (long long)o->n);
    if (!rc && o->mode == EK_SESSIONS_SPEAKING)
        rc = o->interval_us
                 ? ek_buf_addf(out, ", %lld bytes every %g ms",
                               (long long)o->frame_bytes, (double)o->interval_us / 1e3)
                 : ek_buf_addf(out, ", %lld bytes, the next when the last is back",
                               (long long)o->frame_bytes);
    if (!rc)
        rc = ek_buf_addf(out, ", %.1f s\n\nopened      %llu", (double)r->span_us / 1e6,
                         (unsigned long long)r->n_opened);
    if (!rc)
        rc = o->mode == EK_SESSIONS_CHURN
                 ? ek_buf_addf(out, ", %.0f/s", rate(r, r->n_opened))
                 : ek_buf_addf(out, " in %.2f s", (double)r->opening_us / 1e6);
    return rc ? rc
              : ek_buf_addf(out, ", %llu failed, %llu dropped\n",
                            (unsigned long long)r->n_failed,
                            (unsigned long long)r->n_dropped);
}

static int add_frames(struct ek_buf *out, const struct ek_sessions_options *o,
                      const struct ek_sessions_result *r)
{
    if (o->mode != EK_SESSIONS_SPEAKING)
        return 0;
    return ek_buf_addf(out,
                       "frames      %llu sent, %llu echoed (%.0f/s), %llu wrong, "
                       "%llu not sent when due\n",
                       (unsigned long long)r->n_sent, (unsigned long long)r->n_echoed,
                       rate(r, r->n_echoed), (unsigned long long)r->n_wrong,
                       (unsigned long long)r->n_blocked);
}

static int add_processes(struct ek_buf *out, const struct ek_sessions_options *o,
                         const struct ek_sessions_result *r)
{
    uint64_t n_units = units(o, r), n_cold = cold(o, r);
    int rc = 0;
    if (o->processes.n == 0)
        return 0;
    if (n_units)
        rc = ek_buf_addf(out, "CPU         %.2f us a %s (%.2f s)\n",
                         share((double)r->cpu_us, n_units),
                         o->mode == EK_SESSIONS_SPEAKING ? "frame" : "session",
                         (double)r->cpu_us / 1e6);
    if (!rc && n_cold)
        rc = ek_buf_addf(
            out,
            "CPU         %.2f us to open a session\n"
            "memory      %.2f kB a session once opened, %.2f at the end\n",
            share((double)r->opening_cpu_us, n_cold),
            share((double)(r->opened.bytes - r->before.bytes), n_cold) / 1e3,
            share((double)(r->after.bytes - r->before.bytes), n_cold) / 1e3);
    return rc;
}

int ek_sessions_table(struct ek_buf *out, const struct ek_sessions_options *o,
                      const struct ek_sessions_result *r)
{
    int rc = add_head(out, o, r);
    if (!rc)
        rc = add_frames(out, o, r);
    if (!rc)
        rc = add_processes(out, o, r);
    if (!rc)
        rc = ek_buf_addf(out,
                         "generator   %.1f %% of a core\n\n"
                         "us                 p50       p90       p99       max       "
                         "count\n",
                         r->span_us ? 100.0 * (double)r->own_cpu_us / (double)r->span_us
                                    : 0.0);
    if (!rc)
        rc = add_hist(out, o->mode == EK_SESSIONS_CHURN ? "session" : "opening",
                      &r->opening);
    if (!rc)
        rc = add_hist(out, "round trip", &r->trip);
    if (!rc)
        rc = add_hist(out, "lateness", &r->late);
    for (size_t i = 0; !rc && i < r->n_errors; i++)
        rc = ek_buf_addf(out, "%s%8llu x %s\n", i ? "" : "\n",
                         (unsigned long long)r->errors[i].n, r->errors[i].text);
    return rc;
}

/* JSON --------------------------------------------------------------------- */

static int add_number(struct ek_buf *out, const char *key, double v)
{
    int rc = ek_buf_addf(out, ",\"%s\":", key);
    return rc ? rc : ek_json_add_double(out, v);
}

static int add_count(struct ek_buf *out, const char *key, uint64_t v)
{
    return ek_buf_addf(out, ",\"%s\":%llu", key, (unsigned long long)v);
}

static int add_text(struct ek_buf *out, const char *before, const char *text)
{
    int rc = ek_buf_add_str(out, before);
    return rc ? rc : ek_json_add_str(out, text, strlen(text));
}

static int add_json_hist(struct ek_buf *out, const char *key, const struct ek_hist *h)
{
    int rc =
        ek_buf_addf(out, ",\"%s_us\":{\"count\":%llu", key, (unsigned long long)h->n);
    if (!rc)
        rc = add_number(out, "mean", ek_hist_mean(h) / 1e3);
    if (!rc)
        rc = add_number(out, "p50", ek_hist_quantile(h, 0.5) / 1e3);
    if (!rc)
        rc = add_number(out, "p90", ek_hist_quantile(h, 0.9) / 1e3);
    if (!rc)
        rc = add_number(out, "p99", ek_hist_quantile(h, 0.99) / 1e3);
    if (!rc)
        rc = add_number(out, "max", (double)h->max / 1e3);
    return rc ? rc : ek_buf_add_char(out, '}');
}

static int add_use(struct ek_buf *out, const struct ek_sessions_options *o,
                   const struct ek_sessions_result *r)
{
    uint64_t n_cold = cold(o, r);
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"cpu_us", (double)r->cpu_us},
        {"cpu_us_each", share((double)r->cpu_us, units(o, r))},
        {"opening_cpu_us_each", share((double)r->opening_cpu_us, n_cold)},
        {"before_bytes", (double)r->before.bytes},
        {"opened_bytes", (double)r->opened.bytes},
        {"after_bytes", (double)r->after.bytes},
        {"opened_bytes_each",
         share((double)(r->opened.bytes - r->before.bytes), n_cold)},
        {"after_bytes_each", share((double)(r->after.bytes - r->before.bytes), n_cold)},
    };
    int rc = ek_buf_addf(out, ",\"processes\":{\"count\":%zu", o->processes.n);
    for (size_t i = 0; !rc && o->processes.n && i < sizeof rows / sizeof rows[0]; i++)
        rc = add_number(out, rows[i].name, rows[i].value);
    return rc ? rc : ek_buf_add_char(out, '}');
}

static int add_setting(struct ek_buf *out, const struct ek_sessions_options *o)
{
    int rc = add_text(out, "{\"address\":", o->address);
    if (!rc)
        rc = ek_buf_addf(
            out,
            ",\"mode\":\"%s\",\"protocol\":\"%s\",\"tls\":%s,"
            "\"sessions\":%lld,\"connections\":%lld,\"frame_bytes\":%lld",
            modes[o->mode], protocols[o->protocol], o->has_tls ? "true" : "false",
            (long long)o->n,
            (long long)(o->protocol == EK_SESSIONS_WEBSOCKET ? o->n : o->n_connections),
            (long long)o->frame_bytes);
    return rc ? rc : add_number(out, "interval_ms", (double)o->interval_us / 1e3);
}

static int add_counts(struct ek_buf *out, const struct ek_sessions_options *o,
                      const struct ek_sessions_result *r)
{
    const struct {
        const char *name;
        uint64_t n;
    } rows[] = {
        {"opened", r->n_opened}, {"failed", r->n_failed},   {"dropped", r->n_dropped},
        {"open", r->n_open},     {"sent", r->n_sent},       {"echoed", r->n_echoed},
        {"wrong", r->n_wrong},   {"blocked", r->n_blocked},
    };
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof rows / sizeof rows[0]; i++)
        rc = add_count(out, rows[i].name, rows[i].n);
    if (!rc)
        rc = add_number(out, "span_s", (double)r->span_us / 1e6);
    if (!rc)
        rc = add_number(out, "rate", rate(r, units(o, r)));
    if (!rc)
        rc = add_number(out, "opening_s", (double)r->opening_us / 1e6);
    return rc ? rc : add_number(out, "own_cpu_us", (double)r->own_cpu_us);
}

int ek_sessions_json(struct ek_buf *out, const struct ek_sessions_options *o,
                     const struct ek_sessions_result *r)
{
    int rc = add_setting(out, o);
    if (!rc)
        rc = add_counts(out, o, r);
    if (!rc)
        rc = add_json_hist(out, "opening", &r->opening);
    if (!rc)
        rc = add_json_hist(out, "trip", &r->trip);
    if (!rc)
        rc = add_json_hist(out, "late", &r->late);
    if (!rc)
        rc = add_use(out, o, r);
    if (!rc)
        rc = ek_buf_add_str(out, ",\"errors\":[");
    for (size_t i = 0; !rc && i < r->n_errors; i++) {
        rc = add_text(out, i ? ",{\"text\":" : "{\"text\":", r->errors[i].text);
        if (!rc)
            rc = ek_buf_addf(out, ",\"count\":%llu}",
                             (unsigned long long)r->errors[i].n);
    }
    return rc ? rc : ek_buf_add_str(out, "]}\n");
}
