/* smooth.h - the smoothed rate of a counter that is read at uneven times.
 *
 * A counter (CPU used, session-time served) and not a rate goes in, so that a rare
 * reading loses nothing: EWMA takes the mean rate between two readings, the sliding
 * mean the difference over its window.
 */
#ifndef EVENKEEL_SESSION_SMOOTH_H
#define EVENKEEL_SESSION_SMOOTH_H

#include <stdbool.h>
#include <stdint.h>

#define EK_SMOOTH_POINTS 64 /* a window holds 32, and its edges */

struct ek_smooth {
    bool is_mean; /* sliding mean, else EWMA */
    int64_t window_us;
    int64_t last_us;    /* of the latest reading */
    double last;        /* the counter then */
    bool has_any;       /* a reading came */
    double sum, weight; /* EWMA: value = sum / weight, weight in [0, 1) */
    int32_t n;          /* mean: points, oldest first, at most one before the window */
    struct {
        int64_t us;
        double counter;
    } points[EK_SMOOTH_POINTS];
};

void ek_smooth_init(struct ek_smooth *s, bool is_mean, int64_t window_us);

/* A reading not later than the last is ignored. */
void ek_smooth_add(struct ek_smooth *s, int64_t now_us, double counter);

/* Counter per microsecond; 0 before the second reading. */
double ek_smooth_value(const struct ek_smooth *s);

/* Mean share of what a thing of age 0..window adds that value() lacks: 1 - 1/e for the
 * EWMA, 1/2 for the mean. */
double ek_smooth_young_weight(const struct ek_smooth *s);

/* Coefficient of variation of one session's load, from the load of many: the load x of
 * a session (their sum / n) between two readings deviates by CV * mean / sqrt(n), so
 * n (x - mean)^2 is averaged, exponentially over a minute. What that minute lacks at
 * first comes from CV^2 = 2, a session that is busy a third of the time. */
struct ek_variation {
    double mean, mean_weight;
    double square, square_weight;
};

void ek_variation_add(struct ek_variation *v, int64_t dt_us, double n, double x);

/* In [0, 10]. */
double ek_variation_cv(const struct ek_variation *v);

#endif
