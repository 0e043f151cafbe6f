/* report_svg.c - three histograms, drawn by hand.
 *
 *   title, model, load
 *   ┌ time to first token ───────────── p50 · p95 · p99 ┐
 *   │  bars over a logarithmic axis of time             │   PANEL high
 *   └───────────────────────────────────────────────────┘
 *   time between tokens ...
 *   end to end ...
 */
#include "base/svg.h"
#include "load/report_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH    760.0
#define LEFT     24.0
#define RIGHT    (WIDTH - 24.0)
#define HEAD     64.0  /* above the first panel */
#define PANEL    190.0 /* one panel */
#define PLOT_TOP 44.0  /* within a panel, as the next two */
#define PLOT_END 140.0
#define N_PANELS 3
#define N_BINS   60

/* 0.35 ms, 12 ms, 3.4 s: three digits at most, for a person. */
static const char *format_ns(char out[32], double ns)
{
    double ms = ns / 1e6;
    if (ms >= 1000.0)
        snprintf(out, 32, "%.3g s", ms / 1000.0);
    else if (ms >= 1.0)
        snprintf(out, 32, "%.3g ms", ms);
    else
        snprintf(out, 32, "%.3g \xc2\xb5s", ns / 1e3);
    return out;
}

/* The axis of one panel: logarithms of nanoseconds onto LEFT..RIGHT. */
struct axis {
    double lo, hi; /* log10 of ns; lo < hi */
    double top;    /* y of the panel */
};

static double x_of(const struct axis *a, double ns)
{
    double v = (log10(fmax(ns, 1.0)) - a->lo) / (a->hi - a->lo);
    return LEFT + (RIGHT - LEFT) * fmin(fmax(v, 0.0), 1.0);
}

static struct axis axis_of(const struct ek_hist *h, double top)
{
    double lo = fmax((double)h->min, 1e3), hi = fmax((double)h->max, 1e3);
    return (struct axis){log10(lo * 0.9), log10(hi * 1.1), top};
}

/* Ticks at 1, 2 and 5 of every power of ten, at the powers alone on a long axis. */
static int add_ticks(struct ek_buf *out, const struct axis *a)
{
    static const double steps[] = {1.0, 2.0, 5.0};
    size_t n = a->hi - a->lo > 3.0 ? 1 : 3;
    int rc = 0;
    for (int e = (int)floor(a->lo); e <= (int)ceil(a->hi); e++) {
        for (size_t i = 0; i < n && !rc; i++) {
            char label[32];
            double ns = steps[i] * pow(10.0, e);
            if (log10(ns) < a->lo || log10(ns) > a->hi)
                continue;
            double x = x_of(a, ns);
            rc = ek_svg_line(out, "grid", x, a->top + PLOT_TOP, x,
                             a->top + PLOT_END + 4.0);
            if (!rc)
                rc = ek_svg_text(out, x, a->top + PLOT_END + 18.0,
                                 " text-anchor=\"middle\"", format_ns(label, ns));
        }
    }
    return rc;
}

/* The first and the last bin also take what rounding put outside. */
static int add_bars(struct ek_buf *out, const struct axis *a, const struct ek_hist *h)
{
    uint64_t counts[N_BINS], most = 1;
    double step = (a->hi - a->lo) / N_BINS, wide = (RIGHT - LEFT) / N_BINS;
    for (int i = 0; i < N_BINS; i++) {
        double from = i == 0 ? -1.0 : pow(10.0, a->lo + i * step);
        double to = i == N_BINS - 1 ? HUGE_VAL : pow(10.0, a->lo + (i + 1) * step);
        counts[i] = ek_hist_between(h, from, to);
        most = counts[i] > most ? counts[i] : most;
    }
    int rc = 0;
    for (int i = 0; i < N_BINS && !rc; i++) {
        if (counts[i] == 0)
            continue;
        /* One event among millions is still seen. */
        double high =
            fmax((PLOT_END - PLOT_TOP) * (double)counts[i] / (double)most, 1.0);
        rc = ek_svg_bar(out, LEFT + i * wide + 0.5, a->top + PLOT_END - high,
                        wide - 1.0, high, (unsigned long long)counts[i]);
    }
    return rc;
}

static int add_marks(struct ek_buf *out, const struct axis *a, const struct ek_hist *h)
{
    static const struct {
        const char *name;
        double q;
    } marks[] = {{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}};
    int rc = 0;
    for (int i = 0; i < 3 && !rc; i++) {
        double x = x_of(a, ek_hist_quantile(h, marks[i].q));
        bool is_right = x > RIGHT - 40.0;
        rc = ek_svg_line(out, "mark", x, a->top + PLOT_TOP - 8.0, x, a->top + PLOT_END);
        /* Each name a line lower, so that marks side by side can be read. */
        if (!rc)
            rc = ek_svg_text(
                out, is_right ? x - 4.0 : x + 4.0, a->top + PLOT_TOP + 2.0 + 14.0 * i,
                is_right ? " class=\"of\" text-anchor=\"end\"" : " class=\"of\"",
                marks[i].name);
    }
    return rc;
}

static int add_panel(struct ek_buf *out, const struct ek_report_row *row, double top)
{
    const struct ek_hist *h = row->hist;
    char line[256], p50[32], p95[32], p99[32], mean[32];
    int rc = ek_svg_text(out, LEFT, top + 22.0, " class=\"head\"", row->title);
    if (rc || h->n == 0)
        return rc ? rc
                  : ek_svg_text(out, RIGHT, top + 22.0, " text-anchor=\"end\"",
                                "nothing was measured");
    snprintf(
        line, sizeof line,
        "%llu values \xc2\xb7 mean %s \xc2\xb7 p50 %s \xc2\xb7 p95 %s \xc2\xb7 p99 %s",
        (unsigned long long)h->n, format_ns(mean, ek_hist_mean(h)),
        format_ns(p50, ek_hist_quantile(h, 0.5)),
        format_ns(p95, ek_hist_quantile(h, 0.95)),
        format_ns(p99, ek_hist_quantile(h, 0.99)));
    struct axis a = axis_of(h, top);
    rc = ek_svg_text(out, RIGHT, top + 22.0, " text-anchor=\"end\"", line);
    if (!rc)
        rc = add_ticks(out, &a);
    if (!rc)
        rc = add_bars(out, &a, h);
    if (!rc)
        rc = ek_svg_line(out, "axis", LEFT, top + PLOT_END, RIGHT, top + PLOT_END);
    return rc ? rc : add_marks(out, &a, h);
}

static int add_head(struct ek_buf *out, const struct ek_load_facts *f)
{
    const struct ek_load_result *r = f->r;
    char line[512];
    double high = HEAD + N_PANELS * PANEL;
    int rc = ek_svg_begin(out, WIDTH, high, "Latencies under load");
    snprintf(line, sizeof line, "%.60s at %.60s", f->model, f->url);
    if (!rc)
        rc = ek_svg_text(out, LEFT, 28.0, " class=\"title\"", line);
    snprintf(line, sizeof line,
             "%s loop, %llu of %llu requests ok, at most %llu under way, %.1f output "
             "tokens/s",
             f->o->is_open ? "open" : "closed", (unsigned long long)r->n_ok,
             (unsigned long long)r->n_sent, (unsigned long long)r->peak,
             ek_report_rate(f, (double)r->n_output));
    return rc ? rc : ek_svg_text(out, LEFT, 48.0, "", line);
}

int ek_load_report_svg(struct ek_buf *out, const struct ek_load_facts *f)
{
    const struct ek_report_row panels[N_PANELS] = {
        {"ttft_ms", "Time to first token", &f->r->ttft},
        {"itl_ms", "Time between tokens", &f->r->itl},
        {"e2e_ms", "End to end", &f->r->e2e},
    };
    int rc = add_head(out, f);
    for (int i = 0; i < N_PANELS && !rc; i++)
        rc = add_panel(out, &panels[i], HEAD + i * PANEL);
    return rc ? rc : ek_svg_end(out);
}
