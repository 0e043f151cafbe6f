/* gemm.c - 6 rows by two registers of columns. bf16 has no instruction here: pairs are
 * opened to f32, two FMAs each. Columns past the last eight go by a masked load. */
#include "kernel/gemm_int.h"
#include "kernel/matmul_int.h"
#include "num/float.h"

#include <immintrin.h>
#include <stdalign.h>

#define MR 6

#if defined(__clang__)
#define EK_UNROLL_6 _Pragma("unroll")
#else
#define EK_UNROLL_6 _Pragma("GCC unroll 6")
#endif

struct tile {
    const float *a;
    int64_t am, ak;
    const float *b; /* pairs, for bf16 */
    int64_t ldb;
    float *c;
    int64_t ldc, K;
    __m256i m0, m1; /* columns that exist */
    struct ek_gemm_from from;
};

/* All ones in the first n of 8 lanes. */
EK_INLINE __m256i first_of_8(int64_t n)
{
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : n < 0 ? 0 : (int)n), lane);
}

EK_INLINE void open_tile(const struct tile *t, __m256 *s0, __m256 *s1, const int R)
{
    EK_UNROLL_6
    for (int r = 0; r < R; r++) {
        const float *c = t->from.at + r * t->from.ld;
        s0[r] = t->from.at ? _mm256_maskload_ps(c, t->m0) : _mm256_setzero_ps();
        s1[r] = t->from.at ? _mm256_maskload_ps(c + 8, t->m1) : _mm256_setzero_ps();
    }
}

EK_INLINE void close_tile(const struct tile *t, const __m256 *s0, const __m256 *s1,
                          const int R)
{
    EK_UNROLL_6
    for (int r = 0; r < R; r++) {
        _mm256_maskstore_ps(t->c + r * t->ldc, t->m0, s0[r]);
        _mm256_maskstore_ps(t->c + r * t->ldc + 8, t->m1, s1[r]);
    }
}

EK_INLINE void tile_f32(const struct tile *t, const int R)
{
    __m256 s0[MR], s1[MR];
    open_tile(t, s0, s1, R);
    for (int64_t k = 0; k < t->K; k++) {
        __m256 b0 = _mm256_maskload_ps(t->b + k * t->ldb, t->m0);
        __m256 b1 = _mm256_maskload_ps(t->b + k * t->ldb + 8, t->m1);
        const float *a = t->a + k * t->ak;
        EK_UNROLL_6
        for (int r = 0; r < R; r++) {
            __m256 x = _mm256_broadcast_ss(a + r * t->am);
            s0[r] = _mm256_fmadd_ps(x, b0, s0[r]);
            s1[r] = _mm256_fmadd_ps(x, b1, s1[r]);
        }
    }
    close_tile(t, s0, s1, R);
}

EK_INLINE __m256 low_half(__m256 pair)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pair), 16));
}

EK_INLINE __m256 high_half(__m256 pair)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000);
    return _mm256_and_ps(pair, _mm256_castsi256_ps(high));
}

/* a: f32 already rounded to bf16. K counts pairs. */
EK_INLINE void tile_bf16(const struct tile *t, const int R)
{
    __m256 s0[MR], s1[MR];
    open_tile(t, s0, s1, R);
    for (int64_t k = 0; k < t->K; k++) {
        __m256 p0 = _mm256_maskload_ps(t->b + k * t->ldb, t->m0);
        __m256 p1 = _mm256_maskload_ps(t->b + k * t->ldb + 8, t->m1);
        const float *a = t->a + 2 * k;
        for (int half = 0; half < 2; half++) {
            __m256 b0 = half ? high_half(p0) : low_half(p0);
            __m256 b1 = half ? high_half(p1) : low_half(p1);
            EK_UNROLL_6
            for (int r = 0; r < R; r++) {
                __m256 x = _mm256_broadcast_ss(a + r * t->am + half);
                s0[r] = _mm256_fmadd_ps(x, b0, s0[r]);
                s1[r] = _mm256_fmadd_ps(x, b1, s1[r]);
            }
        }
    }
    close_tile(t, s0, s1, R);
}

#define BY_ROWS(name)                                                                  \
    static void name##_any(const struct tile *t, int R)                                \
    {                                                                                  \
        switch (R) {                                                                   \
        case 6:                                                                        \
            name(t, 6);                                                                \
            return;                                                                    \
        case 4:                                                                        \
            name(t, 4);                                                                \
            return;                                                                    \
        case 2:                                                                        \
            name(t, 2);                                                                \
            return;                                                                    \
        default:                                                                       \
            name(t, 1);                                                                \
        }                                                                              \
    }
BY_ROWS(tile_f32)
BY_ROWS(tile_bf16)

static int tile_rows(int64_t n)
{
    return n >= 6 ? 6 : n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

static void block_f32(const struct ek_gemm *g, int64_t k0, int64_t k1, bool is_added)
{
    struct tile t = {
        .am = g->am, .ak = g->ak, .ldb = g->ldb, .ldc = g->ldc, .K = k1 - k0};
    for (int64_t n = 0; n < g->N; n += 16) {
        t.b = (const float *)g->b + k0 * g->ldb + n;
        t.m0 = first_of_8(g->N - n);
        t.m1 = first_of_8(g->N - n - 8);
        for (int64_t m = 0, R; m < g->M; m += R) {
            R = tile_rows(g->M - m);
            t.a = g->a + m * g->am + k0 * g->ak;
            t.c = g->c + m * g->ldc + n;
            t.from = ek_gemm_from(g, m, n, is_added);
            tile_f32_any(&t, (int)R);
        }
    }
}

static void block_bf16(const struct ek_gemm *g, int64_t k0, int64_t k1, bool is_added)
{
    alignas(32) float rows[MR * EK_GEMM_KB] = {0};
    struct tile t = {.a = rows,
                     .am = EK_GEMM_KB,
                     .ldb = g->ldb,
                     .ldc = g->ldc,
                     .K = (k1 - k0 + 1) / 2};
    for (int64_t m = 0, R; m < g->M; m += R) {
        R = tile_rows(g->M - m);
        for (int64_t r = 0; r < R; r++) {
            const float *a = g->a + (m + r) * g->am + k0 * g->ak;
            for (int64_t k = 0; k < k1 - k0; k++)
                rows[r * EK_GEMM_KB + k] = ek_bf16_to_f32(ek_f32_to_bf16(a[k * g->ak]));
            if ((k1 - k0) & 1)
                rows[r * EK_GEMM_KB + k1 - k0] = 0;
        }
        for (int64_t n = 0; n < g->N; n += 16) {
            t.b = (const float *)g->b + k0 / 2 * g->ldb + n;
            t.m0 = first_of_8(g->N - n);
            t.m1 = first_of_8(g->N - n - 8);
            t.c = g->c + m * g->ldc + n;
            t.from = ek_gemm_from(g, m, n, is_added);
            tile_bf16_any(&t, (int)R);
        }
    }
}

void ek_avx2_gemm_f32(const struct ek_gemm *g)
{
    ek_gemm_by_k(g, block_f32);
}

void ek_avx2_gemm_bf16(const struct ek_gemm *g)
{
    ek_gemm_by_k(g, block_bf16);
}
