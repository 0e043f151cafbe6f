/* matmul.c - the size of prepared activations, and the walk over panels and rows. */
#include "kernel/matmul.h"

#include "kernel/matmul_int.h"

size_t ek_matmul_act_bytes(enum ek_weight_format f, int64_t T, int64_t K)
{
    const int64_t max = (int64_t)1 << 40;
    int64_t bytes;
    if (T < 0 || K < 1 || T > max || K > max ||
        __builtin_mul_overflow(T, ek_act_stride(f, K), &bytes))
        return 0;
    return (size_t)bytes;
}

/* Bytes of activations that stay in L2 while all panels pass: a quarter of 1 MiB, for
 * panels and results go through it too. */
#define BLOCK_BYTES ((int64_t)256 << 10)

/* Rows [t0,t1) of one panel in tiles. */
static void run_panel(struct ek_tile *c, const struct ek_tile *first, int64_t n,
                      int64_t t0, int64_t t1, ek_tile_fn *fn, int R)
{
    for (int64_t t = t0; t < t1; t += R) {
        while (R > t1 - t)
            R /= 2;
        c->act = first->act + t * c->stride;
        c->y = first->y + t * c->ldy + n;
        fn(c, R);
    }
}

void ek_matmul_run(const struct ek_tile *first, const struct ek_weight *w, int64_t T,
                   int64_t n0, int64_t n1, ek_tile_fn *fn, int max_rows)
{
    struct ek_tile c = *first;
    c.is_batch = T >= 4;
    int64_t step = BLOCK_BYTES / c.stride / max_rows * max_rows;
    step = step < max_rows ? max_rows : step;
    for (int64_t t = 0; t < T; t += step)
        for (int64_t n = n0; n < n1; n += EK_PANEL) {
            c.panel = ek_weight_panel(w, n / EK_PANEL);
            c.n_cols = (int)(n1 - n < EK_PANEL ? n1 - n : EK_PANEL);
            if (w->format == EK_WEIGHT_E4M3)
                c.scales = ek_weight_block_scales(w) +
                           n / EK_E4M3_BLOCK * ek_ceil_div(w->K, EK_E4M3_BLOCK);
            run_panel(&c, first, n, t, t + step < T ? t + step : T, fn, max_rows);
        }
}
