/* beats.c - counts of scores in plain C. */
#include "kernel/ref/ref.h"

int64_t ek_ref_beats(const float *x, int64_t n, int64_t split, float s)
{
    int64_t count = 0;
    for (int64_t i = 0; i < split; i++)
        count += !(x[i] < s);
    for (int64_t i = split; i < n; i++)
        count += !(x[i] <= s);
    return count;
}
