/* matmul_f32.c - 16 outputs x R rows; two sums an output, of even and of odd columns,
 * so that one row alone does not wait for each FMA. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    const float *w = (const float *)(const void *)c->panel;
    __m512 even[8], odd[8];
    for (int t = 0; t < R; t++)
        even[t] = odd[t] = _mm512_setzero_ps();
    for (int64_t k = 0; k < c->G * EK_GROUP; k += 2) {
        __m512 w0 = _mm512_load_ps(w + k * EK_PANEL);
        __m512 w1 = _mm512_load_ps(w + (k + 1) * EK_PANEL);
        ek_tile_fetch(c, (const unsigned char *)(w + k * EK_PANEL), 2);
        for (int t = 0; t < R; t++) {
            const float *x = (const float *)(const void *)(c->act + t * c->stride) + k;
            even[t] = _mm512_fmadd_ps(w0, _mm512_set1_ps(x[0]), even[t]);
            odd[t] = _mm512_fmadd_ps(w1, _mm512_set1_ps(x[1]), odd[t]);
        }
    }
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols),
                    _mm512_add_ps(even[t], odd[t]), c->mode);
}

void ek_avx512_tile_f32(const struct ek_tile *c, int R)
{
    EK_TILE_TO_8(tile, c, R);
}
