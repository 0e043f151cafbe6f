/* pick.c - the k largest of a row, by a heap of indices whose root ranks last. */
#include "kernel/pick.h"

#include <math.h>
#include <stdbool.h>

/* Whether index a ranks before index b: larger value, at a tie the lower index; NaN
 * ranks behind every number. */
static bool ranks_before(const float *x, int32_t a, int32_t b)
{
    float u = x[a], v = x[b];
    if (isnan(u) || isnan(v))
        return isnan(u) == isnan(v) ? a < b : isnan(v);
    return u > v || (u == v && a < b);
}

/* Restores the heap below i: no child ranks behind its parent. */
static void sift_down(int32_t *ids, int64_t n, int64_t i, const float *x)
{
    for (;;) {
        int64_t worst = 2 * i + 1;
        if (worst >= n)
            return;
        if (worst + 1 < n && ranks_before(x, ids[worst], ids[worst + 1]))
            worst++;
        if (!ranks_before(x, ids[i], ids[worst]))
            return;
        int32_t id = ids[i];
        ids[i] = ids[worst];
        ids[worst] = id;
        i = worst;
    }
}

void ek_top_k(int32_t *ids, float *values, int64_t k, const float *x, int64_t n)
{
    if (k < 1)
        return;
    for (int64_t i = 0; i < k; i++)
        ids[i] = (int32_t)i;
    for (int64_t i = k / 2; i-- > 0;)
        sift_down(ids, k, i, x);
    for (int64_t i = k; i < n; i++)
        if (ranks_before(x, (int32_t)i, ids[0])) {
            ids[0] = (int32_t)i;
            sift_down(ids, k, 0, x);
        }
    for (int64_t last = k - 1; last > 0; last--) { /* the worst goes to the end */
        int32_t id = ids[0];
        ids[0] = ids[last];
        ids[last] = id;
        sift_down(ids, last, 0, x);
    }
    for (int64_t i = 0; values && i < k; i++)
        values[i] = x[ids[i]];
}
