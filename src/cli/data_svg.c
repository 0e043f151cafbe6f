/* data_svg.c - two panels over logarithmic axes: users by length, items by rank. */
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

static const char style[] =
    "<style>text{font:12px system-ui,sans-serif;fill:#59636e}"
    ".head{font-size:13px;font-weight:600;fill:#1f2328}.page{fill:#ffffff}"
    ".bar{fill:#2f6fab}.line{fill:none;stroke:#2f6fab;stroke-width:2}"
    ".axis{stroke:#8c959f}.grid{stroke:#d8dee4}"
    "@media (prefers-color-scheme:dark){text{fill:#a3adb8}.head{fill:#f0f3f6}"
    ".page{fill:#0f141a}.bar{fill:#5da9e9}.line{stroke:#5da9e9}.axis{stroke:#6b7580}"
    ".grid{stroke:#2a323b}}</style>\n";

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
    int rc =
        ek_buf_addf(b,
                    "<text class=\"head\" x=\"%.1f\" y=\"%.1f\">%s</text>\n"
                    "<line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                    "y2=\"%.1f\"/>\n",
                    LEFT, top + 22.0, title, LEFT, top + BOTTOM, RIGHT, top + BOTTOM);
    for (double v = 1.0; v <= most && !rc; v *= 10.0)
        rc = ek_buf_addf(b,
                         "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                         "y2=\"%.1f\"/><text x=\"%.1f\" y=\"%.1f\" "
                         "text-anchor=\"middle\">%.0f</text>\n",
                         x_of(v, most), top + TOP, x_of(v, most), top + BOTTOM,
                         x_of(v, most), top + BOTTOM + 16.0, v);
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
            rc = ek_buf_addf(b,
                             "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                             "height=\"%.1f\"><title>%lld</title></rect>\n",
                             x, top + BOTTOM - fmax(size, 1.0),
                             x_of(s->bin_from[i + 1], most) - x - 1.0, fmax(size, 1.0),
                             (long long)s->users_in[i]);
    }
    return rc;
}

static int add_popularity(struct ek_buf *b, const struct ek_stats *s, double top)
{
    double most = (double)s->rank[EK_STATS_BINS - 1], high = (double)s->count_at[0];
    int rc = add_axis(b, top, most, "Events of an item by its rank");
    if (!rc)
        rc = ek_buf_addf(b,
                         "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n"
                         "<polyline class=\"line\" points=\"",
                         LEFT - 6.0, top + TOP + 4.0, high);
    for (int i = 0; i < EK_STATS_BINS && !rc; i++)
        rc = ek_buf_addf(b, "%.1f,%.1f ", x_of((double)s->rank[i], most),
                         y_of(top, (double)s->count_at[i], high));
    return rc ? rc : ek_buf_add_str(b, "\"/>\n");
}

int ek_data_svg(struct ek_buf *out, const struct ek_events *e, const struct ek_stats *s)
{
    double high = HEAD + 2.0 * PANEL;
    int rc =
        ek_buf_addf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                    "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n"
                    "<title>Lengths and popularity</title>\n%s"
                    "<rect class=\"page\" width=\"%.0f\" height=\"%.0f\"/>\n"
                    "<text x=\"%.1f\" y=\"30\">%lld users, %lld items, %lld events; "
                    "lengths: mean %.1f, p50 %lld, p99 %lld</text>\n",
                    WIDTH, high, WIDTH, high, style, WIDTH, high, LEFT,
                    (long long)e->n_users, (long long)e->n_items, (long long)e->n,
                    s->mean, (long long)s->p50, (long long)s->p99);
    if (!rc)
        rc = add_lengths(out, s, HEAD);
    if (!rc)
        rc = add_popularity(out, s, HEAD + PANEL);
    return rc ? rc : ek_buf_add_str(out, "</svg>\n");
}
