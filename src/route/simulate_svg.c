/* simulate_svg.c - two pictures, drawn by hand.
 *
 *   bars      a group a policy, a bar a phase: overloaded session-time, its error
 *   traces    a panel a policy: demand / cores of each backend in time, 1 marked
 */
#include "route/simulate.h"

#include <math.h>

#define WIDTH  760.0
#define LEFT   160.0
#define RIGHT  (WIDTH - 24.0)
#define GROUP  54.0 /* high, a policy's bars */
#define HEAD   56.0
#define PANEL  150.0
#define PLOT   110.0 /* of a panel */
#define SHARES 2.0   /* demand / cores at a panel's top */

static const char style[] =
    "<style>\n"
    "text{font:12px system-ui,sans-serif;fill:#59636e}\n"
    ".title{font-size:15px;font-weight:600;fill:#1f2328}\n"
    ".page{fill:#ffffff}.b0{fill:#2f6fab}.b1{fill:#7fa8cf}.b2{fill:#c9b18a}\n"
    ".error{stroke:#1f2328}.mark{stroke:#a04000;stroke-dasharray:4 3}\n"
    ".grid{stroke:#d8dee4}.line{fill:none;stroke-width:1.2;stroke-opacity:.8}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#a3adb8}.title{fill:#f0f3f6}.page{fill:#0f141a}\n"
    ".error{stroke:#f0f3f6}.grid{stroke:#2a323b}.mark{stroke:#ffab5e}\n"
    "}\n"
    "</style>\n";

static int open_page(struct ek_buf *out, double height, const char *title)
{
    int rc = ek_buf_addf(out,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                         "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n",
                         WIDTH, height, WIDTH, height);
    if (!rc)
        rc = ek_buf_add_str(out, style);
    return rc ? rc
              : ek_buf_addf(out,
                            "<rect class=\"page\" width=\"%.0f\" height=\"%.0f\"/>\n"
                            "<text class=\"title\" x=\"24\" y=\"28\">%s</text>\n",
                            WIDTH, height, title);
}

static double most_of(const struct ek_sim_table *t)
{
    double most = 0.01;
    for (size_t i = 0; i < t->n_rows; i++) {
        for (int k = 0; k < EK_SIM_PHASES; k++)
            most = fmax(most,
                        t->rows[i].overloaded[k].mean + t->rows[i].overloaded[k].error);
    }
    return most;
}

static int add_bar(struct ek_buf *out, double y, int phase, const struct ek_sim_mean *m,
                   double most)
{
    double scale = (RIGHT - LEFT - 60) / most, end = LEFT + m->mean * scale;
    int rc = ek_buf_addf(out,
                         "<rect class=\"b%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                         "height=\"12\"/>\n",
                         phase, LEFT, y, m->mean * scale);
    if (!rc)
        rc = ek_buf_addf(out,
                         "<line class=\"error\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                         "y2=\"%.1f\"/>\n",
                         end - m->error * scale, y + 6, end + m->error * scale, y + 6);
    return rc ? rc
              : ek_buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\">%.1f %%</text>\n",
                            end + m->error * scale + 6, y + 10, 100 * m->mean);
}

int ek_sim_svg_bars(struct ek_buf *out, const struct ek_sim_table *t)
{
    static const char *const words[] = {"steady", "after scale-out", "after a loss"};
    double height = HEAD + GROUP * (double)t->n_rows + 32, most = most_of(t);
    int rc = open_page(out, height, "session-time at overloaded backends");
    for (size_t i = 0; !rc && i < t->n_rows; i++) {
        double y = HEAD + GROUP * (double)i;
        rc = ek_buf_addf(out, "<text x=\"24\" y=\"%.1f\">%s</text>\n", y + 24,
                         t->rows[i].policy.name);
        for (int k = 0; !rc && k < EK_SIM_PHASES; k++)
            rc = add_bar(out, y + 15 * k, k, &t->rows[i].overloaded[k], most);
    }
    for (int k = 0; !rc && k < EK_SIM_PHASES; k++)
        rc = ek_buf_addf(out,
                         "<rect class=\"b%d\" x=\"%d\" y=\"%.1f\" width=\"12\" "
                         "height=\"12\"/><text x=\"%d\" y=\"%.1f\">%s</text>\n",
                         k, 160 + 150 * k, height - 24, 178 + 150 * k, height - 14,
                         words[k]);
    return rc ? rc : ek_buf_add_str(out, "</svg>\n");
}

/* One backend's line; a gap while it is down. Seconds are thinned to the pixels. */
static int add_line(struct ek_buf *out, const struct ek_sim_trace *t, size_t i,
                    double top)
{
    size_t step = t->n_seconds / 600 + 1;
    bool is_open = false;
    int rc = ek_buf_addf(out, "<path class=\"line\" stroke=\"hsl(%d 55%% 50%%)\" d=\"",
                         (int)(i * 360 / t->n_backends));
    for (size_t k = 0; !rc && k < t->n_seconds; k += step) {
        double share = (double)t->at[k * t->n_backends + i];
        if (share >= 0)
            rc = ek_buf_addf(out, "%c%.1f %.1f", is_open ? 'L' : 'M',
                             LEFT + (RIGHT - LEFT) * (double)k / (double)t->n_seconds,
                             top + PLOT * (1 - fmin(share, SHARES) / SHARES));
        is_open = share >= 0;
    }
    return rc ? rc : ek_buf_add_str(out, "\"/>\n");
}

int ek_sim_svg_traces(struct ek_buf *out, const struct ek_sim *s,
                      const struct ek_sim_trace *traces,
                      const struct ek_sim_policy *policies, size_t n)
{
    int rc = open_page(out, HEAD + PANEL * (double)n,
                       "demand / cores of each backend; above the dashes: overloaded");
    for (size_t p = 0; !rc && p < n; p++) {
        double top = HEAD + PANEL * (double)p, one = top + PLOT * (1 - 1 / SHARES);
        rc = ek_buf_addf(out,
                         "<text x=\"24\" y=\"%.1f\">%s</text>\n"
                         "<line class=\"mark\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                         "y2=\"%.1f\"/>\n<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" "
                         "x2=\"%.1f\" y2=\"%.1f\"/>\n",
                         top + 20, policies[p].name, LEFT, one, RIGHT, one, LEFT,
                         top + PLOT, RIGHT, top + PLOT);
        for (size_t i = 0; !rc && i < traces[p].n_backends; i++)
            rc = add_line(out, &traces[p], i, top);
        if (!rc)
            rc = ek_buf_addf(out,
                             "<text x=\"%.1f\" y=\"%.1f\">0</text><text x=\"%.1f\" "
                             "y=\"%.1f\" text-anchor=\"end\">%.0f s</text>\n",
                             LEFT, top + PLOT + 16, RIGHT, top + PLOT + 16,
                             (double)(EK_SIM_PHASES * s->phase_ms) / 1000);
    }
    return rc ? rc : ek_buf_add_str(out, "</svg>\n");
}
