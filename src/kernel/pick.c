/* pick.c - the largest of a row: its block first, then the place in it. */
#include "kernel/pick.h"

int64_t ek_peaks_argmax(const float *x, int64_t n, const float *max)
{
    int64_t best = 0, n_blocks = ek_pick_blocks(n);
    for (int64_t b = 1; b < n_blocks; b++)
        best = max[b] > max[best] ? b : best;
    int64_t end = (best + 1) * EK_PICK_BLOCK;
    for (int64_t i = best * EK_PICK_BLOCK; i < end && i < n; i++) {
        if (x[i] == max[best])
            return i;
    }
    return 0;
}
