/* matmul_bf16.c - vdpbf16ps: 16 outputs x R rows, a pair of columns at a time; two sums
 * an output, of even and of odd pairs. The instruction treats subnormals as zero. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    __m512 even[8], odd[8];
    for (int t = 0; t < R; t++)
        even[t] = odd[t] = _mm512_setzero_ps();
    for (int64_t k = 0; k < c->G * EK_GROUP; k += 4) {
        const unsigned char *w = c->panel + k * EK_PANEL * 2;
        __m512bh w0 = (__m512bh)_mm512_load_si512(w);
        __m512bh w1 = (__m512bh)_mm512_load_si512(w + 64);
        ek_tile_fetch(c, w, 2);
        for (int t = 0; t < R; t++) {
            const unsigned char *x = c->act + t * c->stride + 2 * k;
            even[t] = _mm512_dpbf16_ps(even[t], w0, (__m512bh)quad(x));
            odd[t] = _mm512_dpbf16_ps(odd[t], w1, (__m512bh)quad(x + 4));
        }
    }
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols),
                    _mm512_add_ps(even[t], odd[t]), c->mode);
}

void ek_avx512_tile_bf16(const struct ek_tile *c, int R)
{
    EK_TILE_TO_8(tile, c, R);
}
