/* jagged_product.c - the products of jagged attention (jagged_tile.h): blocks of C stay
 * in registers while k runs. */
#include "kernel/avx512/jagged_tile.h"

EK_INLINE __m512 add_word(__m512 sum, __m512 a, __m512 b, const bool is_bf16)
{
    return is_bf16 ? _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b)
                   : _mm512_fmadd_ps(a, b, sum);
}

/* R rows by NV vectors. */
EK_INLINE void block(const struct ek_jagged_product *g, int64_t r0, const bool is_bf16,
                     const int R, const int NV)
{
    __m512 sum[8][4];
    float *C = g->C + r0 * g->ldc;
    const float *a = g->A + r0 * g->rs, *b = g->B;
    const int64_t rs = g->rs;
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++)
            sum[r][v] = _mm512_setzero_ps();
    if (g->is_adding)
        for (int r = 0; r < R; r++)
            for (int v = 0; v < NV; v++)
                sum[r][v] = _mm512_loadu_ps(C + r * g->ldc + 16 * v);
    for (int64_t k = 0; k < g->n; k++, a += g->ks, b += g->ldb) {
        __m512 x[4];
        for (int v = 0; v < NV; v++)
            x[v] = _mm512_loadu_ps(b + 16 * v);
        for (int r = 0; r < R; r++) {
            __m512 y = _mm512_set1_ps(a[r * rs]);
            for (int v = 0; v < NV; v++)
                sum[r][v] = add_word(sum[r][v], y, x[v], is_bf16);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++)
            _mm512_storeu_ps(C + r * g->ldc + 16 * v, sum[r][v]);
}

/* Few vectors take more rows: sums enough that no product waits for another. */
EK_INLINE void product(const struct ek_jagged_product *g, const bool is_bf16,
                       const int NV)
{
    int64_t r = 0;
    for (; NV <= 2 && r + 8 <= g->rows; r += 8)
        block(g, r, is_bf16, NV <= 2 ? 8 : 4, NV);
    for (; r < g->rows; r += 4)
        block(g, r, is_bf16, 4, NV);
}

EK_INLINE void product_of(const struct ek_jagged_product *g, const bool is_bf16)
{
    switch (g->nv) {
    case 1:
        product(g, is_bf16, 1);
        break;
    case 2:
        product(g, is_bf16, 2);
        break;
    case 3:
        product(g, is_bf16, 3);
        break;
    default:
        product(g, is_bf16, 4);
        break;
    }
}

void ek_avx512_jagged_product(const struct ek_jagged_product *g, bool is_bf16)
{
    if (is_bf16)
        product_of(g, true);
    else
        product_of(g, false);
}
