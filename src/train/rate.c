#include "train/rate.h"

#include <math.h>

double ek_rate_at(const struct ek_rate *r, int64_t step)
{
    if (step < r->warmup)
        return (double)(step + 1) / (double)r->warmup;
    if (!r->is_cosine)
        return 1.0;
    int64_t n = r->total - r->warmup;
    double done = n > 0 ? (double)(step - r->warmup) / (double)n : 1.0;
    if (done > 1.0)
        done = 1.0;
    return r->end + (1.0 - r->end) * 0.5 * (1.0 + cos(3.14159265358979323846 * done));
}
