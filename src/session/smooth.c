#include "session/smooth.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define VARIATION_US 60e6
#define CV2_PRIOR    2.0
#define CV_MAX       10.0

void ek_smooth_init(struct ek_smooth *s, bool is_mean, int64_t window_us)
{
    assert(window_us > 0);
    *s = (struct ek_smooth){.is_mean = is_mean, .window_us = window_us};
}

static void add_point(struct ek_smooth *s, int64_t now_us, double counter)
{
    /* The last point is the latest reading; those before it keep their distance, so
     * that the window never needs more than there are. */
    if (s->n >= 2 && now_us - s->points[s->n - 2].us < s->window_us / 32)
        s->n--;
    int32_t n_over = 0;
    while (n_over + 1 < s->n && s->points[n_over + 1].us <= now_us - s->window_us)
        n_over++;
    if (n_over > 0) {
        s->n -= n_over;
        memmove(s->points, s->points + n_over, (size_t)s->n * sizeof s->points[0]);
    }
    assert(s->n < EK_SMOOTH_POINTS);
    s->points[s->n].us = now_us;
    s->points[s->n++].counter = counter;
}

void ek_smooth_add(struct ek_smooth *s, int64_t now_us, double counter)
{
    if (s->has_any && now_us <= s->last_us)
        return;
    if (s->has_any) {
        double dt = (double)(now_us - s->last_us);
        double keep = exp(-dt / (double)s->window_us);
        s->sum = keep * s->sum + (1 - keep) * (counter - s->last) / dt;
        s->weight = keep * s->weight + (1 - keep);
    }
    if (s->is_mean)
        add_point(s, now_us, counter);
    s->has_any = true;
    s->last_us = now_us;
    s->last = counter;
}

static double mean(const struct ek_smooth *s)
{
    if (s->n < 2)
        return 0;
    double us = (double)s->points[0].us, counter = s->points[0].counter;
    double edge = (double)(s->last_us - s->window_us);
    if (us < edge) {
        double share = (edge - us) / ((double)s->points[1].us - us);
        counter += share * (s->points[1].counter - counter);
        us = edge;
    }
    return (s->last - counter) / ((double)s->last_us - us);
}

double ek_smooth_value(const struct ek_smooth *s)
{
    if (s->is_mean)
        return mean(s);
    return s->weight > 0 ? s->sum / s->weight : 0;
}

double ek_smooth_young_weight(const struct ek_smooth *s)
{
    return s->is_mean ? 0.5 : 1 - exp(-1);
}

void ek_variation_add(struct ek_variation *v, int64_t dt_us, double n, double x)
{
    double keep = exp(-(double)dt_us / VARIATION_US);
    if (v->mean_weight > 0) {
        double d = x - v->mean;
        v->square = keep * v->square + (1 - keep) * n * d * d;
        v->square_weight = keep * v->square_weight + (1 - keep);
    }
    v->mean_weight = keep * v->mean_weight + (1 - keep);
    if (v->mean_weight > 0)
        v->mean += (1 - keep) / v->mean_weight * (x - v->mean);
}

double ek_variation_cv(const struct ek_variation *v)
{
    if (v->mean <= 0)
        return sqrt(CV2_PRIOR);
    double cv2 = v->square / (v->mean * v->mean) + (1 - v->square_weight) * CV2_PRIOR;
    return fmin(sqrt(cv2), CV_MAX);
}
