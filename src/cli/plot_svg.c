/* plot_svg.c - a legend, then a panel a curve over one axis of steps.
 *
 *   title
 *   -- run a   test: ndcg@10 0.0531, recall@10 0.0921
 *   -- run b
 *   ┌ loss ───────────────┐
 *   │  a line a run       │   PANEL high
 *   └─────────────────────┘
 */
#include "base/svg.h"
#include "cli/plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define WIDTH  760.0
#define LEFT   76.0 /* of a plot: room for LABEL letters before it */
#define LABEL  8
#define RIGHT  (WIDTH - 28.0)
#define HEAD   44.0  /* above the legend */
#define ENTRY  18.0  /* one run of the legend */
#define PANEL  232.0 /* one panel */
#define TOP    38.0  /* of the plot within a panel, as the next */
#define BOTTOM 190.0
#define COLUMN 2.0 /* a point a column: the mean of the steps in it */
#define DOTS   60  /* up to so many points are marked, too */

static bool can_draw(double v)
{
    return fabs(v) < 1e30; /* NaN is not */
}

struct ek_plot_range ek_plot_range(const struct ek_history_curve *c)
{
    struct ek_plot_range r = {.n = 0};
    for (size_t i = 0; c && i < c->n; i++) {
        struct ek_history_point p = c->points[i];
        if (!can_draw(p.value))
            continue;
        r.low = r.n && r.low.value <= p.value ? r.low : p;
        r.high = r.n && r.high.value >= p.value ? r.high : p;
        r.last = p;
        r.n++;
    }
    return r;
}

/* From data onto a panel. lo < hi; ticks at multiples of step. */
struct scale {
    double lo, hi, step;
};

/* 1, 2 or 5 times a power of ten: about n of them in `width`. */
static double nice_step(double width, int n)
{
    double raw = width / n, power = pow(10.0, floor(log10(raw)));
    double share = raw / power;
    return power * (share <= 1.0   ? 1.0
                    : share <= 2.0 ? 2.0
                    : share <= 5.0 ? 5.0
                                   : 10.0);
}

static struct scale scale_of(double lo, double hi, int n)
{
    double pad = hi - lo > 1e-9 * fabs(hi) ? 0.0 : fmax(fabs(hi) * 0.1, 1e-9);
    struct scale s = {lo - pad, hi + pad, nice_step(hi - lo + 2.0 * pad, n)};
    s.lo = floor(s.lo / s.step) * s.step;
    s.hi = ceil(s.hi / s.step) * s.step;
    return s;
}

static double share_of(const struct scale *s, double v)
{
    return (v - s->lo) / (s->hi - s->lo);
}

static double x_of(const struct scale *s, double v)
{
    return LEFT + (RIGHT - LEFT) * share_of(s, v);
}

static double y_of(const struct scale *s, double top, double v)
{
    return top + BOTTOM - (BOTTOM - TOP) * share_of(s, v);
}

/* 1500 -> "1.5k": short enough to stand beside its neighbours. */
static void format_step(char out[32], double v)
{
    if (v >= 1e6)
        snprintf(out, 32, "%gM", v / 1e6);
    else if (v >= 1e4)
        snprintf(out, 32, "%gk", v / 1e3);
    else
        snprintf(out, 32, "%g", v);
}

/* With the digits that tell a tick from the next, as far as there is room. */
static void format_value(char out[32], double v, double step)
{
    int digits = (int)fmax(0.0, -floor(log10(step) + 1e-9));
    v = fabs(v) < step * 1e-6 ? 0.0 : v;
    int n = digits > LABEL ? LABEL + 1 : snprintf(out, 32, "%.*f", digits, v);
    if (n > LABEL)
        snprintf(out, 32, "%.3g", v);
}

static int add_axes(struct ek_buf *b, const struct scale *x, const struct scale *y,
                    double top, const char *name)
{
    char label[32];
    int rc = ek_svg_text(b, LEFT, top + 22.0, " class=\"head\"", name);
    int n = (int)lround((y->hi - y->lo) / y->step);
    for (int i = 0; i <= n && !rc; i++) {
        double v = y->lo + i * y->step, at = y_of(y, top, v);
        format_value(label, v, y->step);
        rc = ek_svg_line(b, i ? "grid" : "axis", LEFT, at, RIGHT, at);
        if (!rc)
            rc = ek_svg_text(b, LEFT - 8.0, at + 4.0, " text-anchor=\"end\"", label);
    }
    n = (int)lround((x->hi - x->lo) / x->step);
    for (int i = 0; i <= n && !rc; i++) {
        double v = x->lo + i * x->step, at = x_of(x, v);
        format_step(label, v);
        rc = ek_svg_line(b, "axis", at, top + BOTTOM, at, top + BOTTOM + 4.0);
        if (!rc)
            rc = ek_svg_text(b, at, top + BOTTOM + 18.0, " text-anchor=\"middle\"",
                             label);
    }
    return rc ? rc
              : ek_svg_text(b, RIGHT, top + 22.0, " text-anchor=\"end\"", "over steps");
}

/* Means of columns, one at a time: *at is the first point that is not in one yet. */
static bool next_mean(double *step, double *value, size_t *at,
                      const struct ek_history_curve *c, const struct scale *x)
{
    double steps = 0.0, values = 0.0, n = 0.0, column = -1.0;
    for (; *at < c->n; ++*at) {
        struct ek_history_point p = c->points[*at];
        double of = floor(x_of(x, (double)p.step) / COLUMN);
        if (!can_draw(p.value))
            continue;
        if (n > 0.0 && of != column)
            break;
        column = of;
        steps += (double)p.step;
        values += p.value;
        n += 1.0;
    }
    *step = n > 0.0 ? steps / n : 0.0;
    *value = n > 0.0 ? values / n : 0.0;
    return n > 0.0;
}

static const char *dashes(size_t run)
{
    static const char *const of[] = {"", " stroke-dasharray=\"7 3\"",
                                     " stroke-dasharray=\"2 2\""};
    return of[run / EK_SVG_COLOURS % 3];
}

static int add_curve(struct ek_buf *b, const struct ek_history_curve *c, size_t run,
                     const struct scale *x, const struct scale *y, double top)
{
    double step, value;
    size_t colour = run % EK_SVG_COLOURS, n = 0;
    int rc = ek_buf_addf(b, "<polyline class=\"line s%zu\"%s points=\"", colour,
                         dashes(run));
    for (size_t at = 0; !rc && next_mean(&step, &value, &at, c, x); n++)
        rc = ek_buf_addf(b, "%.1f,%.1f ", x_of(x, step), y_of(y, top, value));
    if (!rc)
        rc = ek_buf_add_str(b, "\"/>\n");
    for (size_t at = 0; !rc && n <= DOTS && next_mean(&step, &value, &at, c, x);)
        rc = ek_buf_addf(b,
                         "<circle class=\"f%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.2\">"
                         "<title>%.6g at %.0f</title></circle>\n",
                         colour, x_of(x, step), y_of(y, top, value), value, step);
    return rc;
}

static int add_panel(struct ek_buf *b, const struct ek_plot_run *runs, size_t n_runs,
                     const char *name, const struct scale *x, double top)
{
    double lo = HUGE_VAL, hi = -HUGE_VAL;
    for (size_t i = 0; i < n_runs; i++) {
        struct ek_plot_range r = ek_plot_range(ek_history_find(&runs[i].history, name));
        lo = r.n ? fmin(lo, r.low.value) : lo;
        hi = r.n ? fmax(hi, r.high.value) : hi;
    }
    if (lo > hi)
        return ek_svg_text(b, LEFT, top + 22.0, " class=\"head\"", name);
    struct scale y = scale_of(lo, hi, 5);
    int rc = add_axes(b, x, &y, top, name);
    for (size_t i = 0; i < n_runs && !rc; i++) {
        const struct ek_history_curve *c = ek_history_find(&runs[i].history, name);
        if (c)
            rc = add_curve(b, c, i, x, &y, top);
    }
    return rc;
}

/* What the test part came to, of the metrics that tables give. */
static void format_finals(char out[128], const struct ek_history *h)
{
    static const char *const names[] = {"ndcg@10", "recall@10"};
    size_t n = 0;
    out[0] = 0;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        for (size_t i = 0; i < h->n_finals; i++) {
            if (strcmp(h->finals[i].name, names[k]) != 0)
                continue;
            int put = snprintf(out + n, 128 - n, "%s %s %.4f",
                               n ? "," : "test:", names[k], h->finals[i].value);
            n = put > 0 && n + (size_t)put < 128 ? n + (size_t)put : n;
        }
    }
}

static int add_legend(struct ek_buf *b, const struct ek_plot_run *run, size_t i)
{
    char finals[128], name[80];
    double y = HEAD + ENTRY * ((double)i + 0.5);
    size_t n = strlen(run->name), keep = 56;
    /* The end of a path tells runs apart. */
    snprintf(name, sizeof name, "%s%s", n > keep ? "\xe2\x80\xa6" : "",
             n > keep ? run->name + n - keep : run->name);
    format_finals(finals, &run->history);
    int rc = ek_buf_addf(b,
                         "<line class=\"line s%zu\"%s x1=\"%.1f\" y1=\"%.1f\" "
                         "x2=\"%.1f\" y2=\"%.1f\"/>\n",
                         i % EK_SVG_COLOURS, dashes(i), LEFT, y, LEFT + 26.0, y);
    if (!rc)
        rc = ek_svg_text(b, LEFT + 34.0, y + 4.0, "", name);
    return rc || !finals[0]
               ? rc
               : ek_svg_text(b, RIGHT, y + 4.0, " text-anchor=\"end\"", finals);
}

int ek_plot_svg(struct ek_buf *out, const struct ek_plot_run *runs, size_t n_runs,
                const char *const *curves, size_t n_curves)
{
    double top = HEAD + ENTRY * (double)n_runs + 8.0, last = 1.0;
    for (size_t i = 0; i < n_runs; i++) {
        for (size_t k = 0; k < n_curves; k++) {
            const struct ek_history_curve *c =
                ek_history_find(&runs[i].history, curves[k]);
            struct ek_plot_range r = ek_plot_range(c);
            last = r.n ? fmax(last, (double)r.last.step) : last;
        }
    }
    struct scale x = scale_of(0.0, last, 8);
    x.step = fmax(x.step, 1.0);
    x.hi = ceil(last / x.step) * x.step;
    int rc = ek_svg_begin(out, WIDTH, top + PANEL * (double)n_curves, "Training");
    if (!rc)
        rc = ek_svg_text(out, LEFT, 28.0, " class=\"title\"", "Training");
    for (size_t i = 0; i < n_runs && !rc; i++)
        rc = add_legend(out, &runs[i], i);
    for (size_t k = 0; k < n_curves && !rc; k++)
        rc = add_panel(out, runs, n_runs, curves[k], &x, top + PANEL * (double)k);
    return rc ? rc : ek_svg_end(out);
}
