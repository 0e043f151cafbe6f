/* pick.c - softmax and argmax in plain C; the sum of the softmax in f64. */
#include "kernel/ref/ref.h"

#include <assert.h>
#include <math.h>

double ek_ref_softmax(float *p, const float *x, int64_t n, float temperature)
{
    assert(n > 0);
    float max = -INFINITY, inv = 1.0f / temperature;
    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        float e = expf((x[i] - max) * inv);
        p[i] = e;
        sum += (double)e;
    }
    float scale = (float)(1.0 / sum);
    for (int64_t i = 0; i < n; i++)
        p[i] *= scale;
    /* the largest adds exp(0) = 1 to the sum */
    /* cppcheck-suppress invalidFunctionArg */
    return (double)max * (double)inv + log(sum);
}

int64_t ek_ref_argmax(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i])))
            best = i;
    return best;
}
