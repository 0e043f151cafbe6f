/* data_svg.c - three panels: users by length and items by rank, over logarithmic axes,
 * and what padded batches would waste. */
#include "base/svg.h"
#include "cli/data.h"

#include <math.h>
#include <stdio.h>

#define WIDTH  760.0
#define LEFT   64.0
#define RIGHT  (WIDTH - 24.0)
#define HEAD   56.0  /* above the first panel */
#define PANEL  220.0 /* one panel */
#define TOP    36.0  /* of the plot within a panel, as the next */
#define BOTTOM 180.0

/* v in 1..most on a logarithmic axis. */
static double x_of(double v, double most)
{
    return LEFT + (RIGHT - LEFT) * (most > 1.0 ? log(v) / log(most) : 0.0);
}

static double y_of(double top, double v, double most)
{
    double share = most > 1.0 ? log(fmax(v, 1.0)) / log(most) : 1.0;
    return top + BOTTOM - (BOTTOM - TOP) * share;
}

static int add_axis(struct ek_buf *b, double top, double most, const char *title)
{
    int rc = ek_svg_text(b, LEFT, top + 22.0, " class=\"head\"", title);
    if (!rc)
        rc = ek_svg_line(b, "axis", LEFT, top + BOTTOM, RIGHT, top + BOTTOM);
    for (double v = 1.0; v <= most && !rc; v *= 10.0) {
        char label[32];
        double x = x_of(v, most);
        snprintf(label, sizeof label, "%.0f", v);
        rc = ek_svg_line(b, "grid", x, top + TOP, x, top + BOTTOM);
        if (!rc)
            rc = ek_svg_text(b, x, top + BOTTOM + 16.0, " text-anchor=\"middle\"",
                             label);
    }
    return rc;
}

static int add_lengths(struct ek_buf *b, const struct ek_stats *s, double top)
{
    double most = s->bin_from[EK_STATS_BINS], high = 1.0;
    int rc = add_axis(b, top, most, "Users by number of events");
    for (int i = 0; i < EK_STATS_BINS; i++)
        high = fmax(high, (double)s->users_in[i]);
    for (int i = 0; i < EK_STATS_BINS && !rc; i++) {
        double x = x_of(s->bin_from[i], most);
        double size = (BOTTOM - TOP) * (double)s->users_in[i] / high;
        if (s->users_in[i])
            rc = ek_svg_bar(b, x, top + BOTTOM - fmax(size, 1.0),
                            x_of(s->bin_from[i + 1], most) - x - 1.0, fmax(size, 1.0),
                            (unsigned long long)s->users_in[i]);
    }
    return rc;
}

static int add_popularity(struct ek_buf *b, const struct ek_stats *s, double top)
{
    double most = (double)s->rank[EK_STATS_BINS - 1], high = (double)s->count_at[0];
    char label[32];
    snprintf(label, sizeof label, "%.0f", high);
    int rc = add_axis(b, top, most, "Events of an item by its rank");
    if (!rc)
        rc = ek_svg_text(b, LEFT - 6.0, top + TOP + 4.0, " text-anchor=\"end\"", label);
    if (!rc)
        rc = ek_buf_add_str(b, "<polyline class=\"line s0\" points=\"");
    for (int i = 0; i < EK_STATS_BINS && !rc; i++)
        rc = ek_buf_addf(b, "%.1f,%.1f ", x_of((double)s->rank[i], most),
                         y_of(top, (double)s->count_at[i], high));
    return rc ? rc : ek_buf_add_str(b, "\"/>\n");
}

/* The axis of shares, 0 to 1, and what the two kinds of bars are. */
static int add_shares(struct ek_buf *b, const struct ek_stats *s, double top)
{
    char title[100] = "Share of a padded batch that is wasted";
    if (s->max_length)
        snprintf(title, sizeof title,
                 "Share of a padded batch that is wasted, lengths cut to %lld",
                 (long long)s->max_length);
    int rc = ek_svg_text(b, LEFT, top + 22.0, " class=\"head\"", title);
    for (int i = 0; i <= 2 && !rc; i++) {
        static const char *const labels[] = {"0", "50 %", "100 %"};
        double y = top + BOTTOM - (BOTTOM - TOP) * i / 2.0;
        rc = ek_svg_line(b, i ? "grid" : "axis", LEFT, y, RIGHT, y);
        if (!rc)
            rc = ek_svg_text(b, LEFT - 6.0, y + 4.0, " text-anchor=\"end\"", labels[i]);
    }
    if (!rc)
        rc = ek_svg_text(b, RIGHT - 150.0, top + 22.0,
                         " class=\"f0\" text-anchor=\"end\"", "shuffled");
    return rc ? rc
              : ek_svg_text(b, RIGHT, top + 22.0, " class=\"f1\" text-anchor=\"end\"",
                            "by length");
}

static int add_share(struct ek_buf *b, int kind, double x, double width, double top,
                     double share)
{
    double high = fmax((BOTTOM - TOP) * share, 1.0);
    return ek_buf_addf(b,
                       "<rect class=\"f%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                       "height=\"%.1f\"><title>%.1f %%</title></rect>\n",
                       kind, x, top + BOTTOM - high, width, high, 100.0 * share);
}

static int add_waste(struct ek_buf *b, const struct ek_stats *s, double top)
{
    double step = (RIGHT - LEFT) / EK_STATS_BATCHES, bar = step / 4.0;
    int rc = add_shares(b, s, top);
    for (int i = 0; i < EK_STATS_BATCHES && !rc; i++) {
        double middle = LEFT + step * (i + 0.5);
        char label[48];
        snprintf(label, sizeof label, "%lld users", (long long)s->batch[i]);
        rc = add_share(b, 0, middle - bar, bar - 1.0, top, s->waste_shuffled[i]);
        if (!rc)
            rc = add_share(b, 1, middle + 1.0, bar - 1.0, top, s->waste_bucketed[i]);
        if (!rc)
            rc = ek_svg_text(b, middle, top + BOTTOM + 16.0, " text-anchor=\"middle\"",
                             label);
    }
    return rc;
}

int ek_data_svg(struct ek_buf *out, const struct ek_events *e, const struct ek_stats *s)
{
    double high = HEAD + 3.0 * PANEL;
    char line[200];
    snprintf(
        line, sizeof line,
        "%lld users, %lld items, %lld events; lengths: mean %.1f, p50 %lld, p99 %lld",
        (long long)e->n_users, (long long)e->n_items, (long long)e->n, s->mean,
        (long long)s->p50, (long long)s->p99);
    int rc = ek_svg_begin(out, WIDTH, high, "Lengths, popularity and padding");
    if (!rc)
        rc = ek_svg_text(out, LEFT, 30.0, "", line);
    if (!rc)
        rc = add_lengths(out, s, HEAD);
    if (!rc)
        rc = add_popularity(out, s, HEAD + PANEL);
    if (!rc)
        rc = add_waste(out, s, HEAD + 2.0 * PANEL);
    return rc ? rc : ek_svg_end(out);
}
