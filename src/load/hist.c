#include "load/hist.h"

#include <math.h>

#define SUB_BITS 8
#define SUB      (1 << SUB_BITS)

static size_t bucket_of(int64_t ns)
{
    uint64_t v = (uint64_t)ns;
    if (v < SUB)
        return (size_t)v;
    int exponent = 63 - __builtin_clzll(v);
    size_t i = (size_t)(exponent - SUB_BITS + 1) * SUB +
               (size_t)((v >> (exponent - SUB_BITS)) - SUB);
    return i < EK_HIST_BUCKETS ? i : EK_HIST_BUCKETS - 1;
}

static double middle_of(size_t bucket)
{
    if (bucket < SUB)
        return (double)bucket;
    int shift = (int)(bucket / SUB) - 1;
    double low = ldexp((double)(SUB + bucket % SUB), shift);
    return low + (ldexp(1.0, shift) - 1.0) / 2.0;
}

void ek_hist_add(struct ek_hist *h, int64_t ns)
{
    ns = ns < 0 ? 0 : ns;
    h->min = h->n == 0 || ns < h->min ? ns : h->min;
    h->max = ns > h->max ? ns : h->max;
    h->sum += (double)ns;
    h->counts[bucket_of(ns)]++;
    h->n++;
}

void ek_hist_merge(struct ek_hist *h, const struct ek_hist *from)
{
    if (from->n == 0)
        return;
    h->min = h->n == 0 || from->min < h->min ? from->min : h->min;
    h->max = from->max > h->max ? from->max : h->max;
    h->sum += from->sum;
    h->n += from->n;
    for (size_t i = 0; i < EK_HIST_BUCKETS; i++)
        h->counts[i] += from->counts[i];
}

double ek_hist_quantile(const struct ek_hist *h, double q)
{
    if (h->n == 0)
        return 0.0;
    double rank = ceil(q * (double)h->n);
    uint64_t want = rank < 1.0 ? 1 : (uint64_t)rank;
    if (want >= h->n)
        return (double)h->max;
    uint64_t seen = 0;
    size_t i = 0;
    while (i < EK_HIST_BUCKETS - 1 && seen + h->counts[i] < want)
        seen += h->counts[i++];
    return fmin(fmax(middle_of(i), (double)h->min), (double)h->max);
}

double ek_hist_mean(const struct ek_hist *h)
{
    return h->n ? h->sum / (double)h->n : 0.0;
}

uint64_t ek_hist_between(const struct ek_hist *h, double from_ns, double to_ns)
{
    uint64_t n = 0;
    for (size_t i = 0; i < EK_HIST_BUCKETS; i++) {
        double at = middle_of(i);
        if (h->counts[i] && at >= from_ns && at < to_ns)
            n += h->counts[i];
    }
    return n;
}
