/* plot.h - curves of several runs in one drawing, a panel a curve. */
#ifndef EVENKEEL_CLI_PLOT_H
#define EVENKEEL_CLI_PLOT_H

#include "base/buf.h"
#include "train/history.h"

#define EK_PLOT_RUNS   24 /* colours times dashes */
#define EK_PLOT_CURVES 16

struct ek_plot_run {
    const char *name; /* borrowed */
    struct ek_history history;
};

/* Of a curve's points that can be drawn. */
struct ek_plot_range {
    size_t n; /* 0: none, and nothing below is set */
    struct ek_history_point low, high, last;
};

struct ek_plot_range
ek_plot_range(const struct ek_history_curve *c); /* c: NULL is n 0 */

/* curves: names (n_curves). A run that lacks one is absent from its panel. Errors:
 * those of ek_buf_add. */
int ek_plot_svg(struct ek_buf *out, const struct ek_plot_run *runs, size_t n_runs,
                const char *const *curves, size_t n_curves) EK_MUST_USE;

#endif
