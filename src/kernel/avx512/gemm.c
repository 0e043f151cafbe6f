/* gemm.c - 12 rows by two registers of columns: 24 sums for two loads of b and twelve
 * broadcasts of a, which keeps the multipliers busy from the first-level cache. bf16
 * rounds twelve rows of a to pairs on the stack first. */
#include "kernel/avx512/simd.h"
#include "kernel/gemm_int.h"
#include "num/float.h"

#include <stdalign.h>

#define MR 12

#if defined(__clang__)
#define EK_UNROLL_12 _Pragma("unroll")
#else
#define EK_UNROLL_12 _Pragma("GCC unroll 12")
#endif

struct tile {
    const void *a; /* floats, or pairs of bf16 */
    int64_t am, ak;
    const void *b;
    int64_t ldb;
    float *c;
    int64_t ldc, K; /* K in steps: terms, or pairs */
    __mmask16 m0, m1;
    struct ek_gemm_from from;
};

EK_INLINE __m512 step_f32(__m512 sum, __m512 b, const float *a)
{
    return _mm512_fmadd_ps(_mm512_set1_ps(*a), b, sum);
}

EK_INLINE __m512 step_bf16(__m512 sum, __m512 b, const float *a)
{
    int32_t pair;
    __builtin_memcpy(&pair, a, sizeof pair);
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)b);
}

#define TILE(name, step, two)                                                          \
    EK_INLINE void name(const struct tile *t, const int R)                             \
    {                                                                                  \
        const float *a = t->a, *b = t->b;                                              \
        __m512 s0[MR], s1[MR];                                                         \
        EK_UNROLL_12                                                                   \
        for (int r = 0; r < R; r++) {                                                  \
            const float *c = t->from.at + r * t->from.ld;                              \
            s0[r] =                                                                    \
                t->from.at ? _mm512_maskz_loadu_ps(t->m0, c) : _mm512_setzero_ps();    \
            if (two)                                                                   \
                s1[r] = t->from.at ? _mm512_maskz_loadu_ps(t->m1, c + 16)              \
                                   : _mm512_setzero_ps();                              \
        }                                                                              \
        for (int64_t k = 0; k < t->K; k++) {                                           \
            __m512 b0 = _mm512_maskz_loadu_ps(t->m0, b + k * t->ldb);                  \
            __m512 b1 = two ? _mm512_maskz_loadu_ps(t->m1, b + k * t->ldb + 16) : b0;  \
            const float *at = a + k * t->ak;                                           \
            EK_UNROLL_12                                                               \
            for (int r = 0; r < R; r++) {                                              \
                s0[r] = step(s0[r], b0, at + r * t->am);                               \
                if (two)                                                               \
                    s1[r] = step(s1[r], b1, at + r * t->am);                           \
            }                                                                          \
        }                                                                              \
        EK_UNROLL_12                                                                   \
        for (int r = 0; r < R; r++) {                                                  \
            _mm512_mask_storeu_ps(t->c + r * t->ldc, t->m0, s0[r]);                    \
            if (two)                                                                   \
                _mm512_mask_storeu_ps(t->c + r * t->ldc + 16, t->m1, s1[r]);           \
        }                                                                              \
    }

TILE(tile_f32_2, step_f32, true)
TILE(tile_f32_1, step_f32, false)
TILE(tile_bf16_2, step_bf16, true)
TILE(tile_bf16_1, step_bf16, false)

#define BY_ROWS(name)                                                                  \
    static void name##_any(const struct tile *t, int R)                                \
    {                                                                                  \
        switch (R) {                                                                   \
        case 12:                                                                       \
            name(t, 12);                                                               \
            return;                                                                    \
        case 8:                                                                        \
            name(t, 8);                                                                \
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
BY_ROWS(tile_f32_2)
BY_ROWS(tile_f32_1)
BY_ROWS(tile_bf16_2)
BY_ROWS(tile_bf16_1)

/* Rows that one tile takes of the n that are left. */
static int tile_rows(int64_t n)
{
    return n >= 12 ? 12 : n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

/* One block of k: c's columns in panels of two registers, rows in tiles. */
static void block_f32(const struct ek_gemm *g, int64_t k0, int64_t k1, bool is_added)
{
    struct tile t = {
        .am = g->am, .ak = g->ak, .ldb = g->ldb, .ldc = g->ldc, .K = k1 - k0};
    for (int64_t n = 0; n < g->N; n += 32) {
        t.b = (const float *)g->b + k0 * g->ldb + n;
        t.m0 = first_lanes(g->N - n);
        t.m1 = first_lanes(g->N - n - 16);
        for (int64_t m = 0, R; m < g->M; m += R) {
            R = tile_rows(g->M - m);
            t.a = g->a + m * g->am + k0 * g->ak;
            t.c = g->c + m * g->ldc + n;
            t.from = ek_gemm_from(g, m, n, is_added);
            if (t.m1)
                tile_f32_2_any(&t, (int)R);
            else
                tile_f32_1_any(&t, (int)R);
        }
    }
}

/* bf16 of x in the low half of each lane, of y in the high half. The instruction
 * flushes subnormals; so does the dot product that reads them. */
EK_INLINE __m512i pairs_of(__m512 x, __m512 y)
{
    alignas(64) static const uint16_t turn[32] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(y, x);
    return _mm512_permutexvar_epi16(_mm512_load_si512(turn), both);
}

/* R rows of a, K <= EK_GEMM_KB terms each, as pairs; *am and *ak say how they lie:
 * along k where a does (or strides are general), else all rows of a pair together. */
static void round_rows(uint32_t *pairs, int64_t *am, int64_t *ak, const float *a,
                       const struct ek_gemm *g, int R, int64_t K)
{
    const int64_t stride = EK_GEMM_KB / 2;
    *am = g->am == 1 ? 1 : stride;
    *ak = g->am == 1 ? 16 : 1;
    if (g->am == 1) {
        __mmask16 rows = first_lanes(R);
        for (int64_t k = 0; k < K; k += 2) {
            __m512 x = _mm512_maskz_loadu_ps(rows, a + k * g->ak);
            __m512 y = k + 1 < K ? _mm512_maskz_loadu_ps(rows, a + (k + 1) * g->ak)
                                 : _mm512_setzero_ps();
            _mm512_storeu_si512(pairs + k / 2 * 16, pairs_of(x, y));
        }
        return;
    }
    if (g->ak == 1) {
        for (int r = 0; r < R; r++)
            for (int64_t k = 0; k < K; k += 32) {
                const float *x = a + r * g->am + k;
                __m512 low = _mm512_maskz_loadu_ps(first_lanes(K - k), x);
                __m512 high = _mm512_maskz_loadu_ps(first_lanes(K - k - 16), x + 16);
                _mm512_storeu_si512(pairs + r * stride + k / 2,
                                    (__m512i)_mm512_cvtne2ps_pbh(high, low));
            }
        return;
    }
    for (int r = 0; r < R; r++)
        for (int64_t k = 0; k < K; k += 2) {
            const float *x = a + r * g->am + k * g->ak;
            uint32_t high = k + 1 < K ? ek_f32_to_bf16(x[g->ak]) : 0;
            pairs[r * stride + k / 2] = ek_f32_to_bf16(x[0]) | high << 16;
        }
}

static void block_bf16(const struct ek_gemm *g, int64_t k0, int64_t k1, bool is_added)
{
    alignas(64) uint32_t pairs[16 * EK_GEMM_KB / 2];
    struct tile t = {.a = pairs, .ldb = g->ldb, .ldc = g->ldc, .K = (k1 - k0 + 1) / 2};
    for (int64_t m = 0, R; m < g->M; m += R) {
        R = tile_rows(g->M - m);
        round_rows(pairs, &t.am, &t.ak, g->a + m * g->am + k0 * g->ak, g, (int)R,
                   k1 - k0);
        for (int64_t n = 0; n < g->N; n += 32) {
            t.b = (const uint32_t *)g->b + k0 / 2 * g->ldb + n;
            t.m0 = first_lanes(g->N - n);
            t.m1 = first_lanes(g->N - n - 16);
            t.c = g->c + m * g->ldc + n;
            t.from = ek_gemm_from(g, m, n, is_added);
            if (t.m1)
                tile_bf16_2_any(&t, (int)R);
            else
                tile_bf16_1_any(&t, (int)R);
        }
    }
}

void ek_avx512_gemm_f32(const struct ek_gemm *g)
{
    ek_gemm_by_k(g, block_f32);
}

void ek_avx512_gemm_bf16(const struct ek_gemm *g)
{
    ek_gemm_by_k(g, block_bf16);
}

/* Row n of 16, sn apart, at lane n. */
EK_INLINE __m512i lanes_apart(int64_t sn)
{
    return _mm512_mullo_epi32(
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
        _mm512_set1_epi32((int32_t)sn));
}

void ek_avx512_gemm_pack_f32(void *dst, int64_t ldd, const float *src, int64_t sk,
                             int64_t sn, int64_t K, int64_t N)
{
    if (sn != 1 && sk == 1 && sn < INT32_MAX / 16) { /* a transpose, 16 rows at once */
        float *d = dst;
        const __m512i lanes = lanes_apart(sn);
        for (int64_t n = 0; n < N; n += 16) {
            __mmask16 m = first_lanes(N - n);
            for (int64_t k = 0; k < K; k++) {
                __m512 x = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), m, lanes,
                                                    src + k + n * sn, 4);
                _mm512_mask_storeu_ps(d + k * ldd + n, m, x);
            }
        }
        return;
    }
    ek_ref_gemm_pack_f32(dst, ldd, src, sk, sn, K, N);
}

void ek_avx512_gemm_pack_bf16(void *dst, int64_t ldd, const float *src, int64_t sk,
                              int64_t sn, int64_t K, int64_t N)
{
    uint32_t *d = dst;
    if (sn != 1 && sk == 1 && sn < INT32_MAX / 16) { /* a transpose, 16 rows at once */
        const __m512i lanes = lanes_apart(sn);
        const __m512 zero = _mm512_setzero_ps();
        for (int64_t n = 0; n < N; n += 16) {
            __mmask16 m = first_lanes(N - n);
            for (int64_t k = 0; k < K; k += 2) {
                const float *at = src + k + n * sn;
                __m512 x = _mm512_mask_i32gather_ps(zero, m, lanes, at, 4);
                __m512 y = k + 1 < K
                               ? _mm512_mask_i32gather_ps(zero, m, lanes, at + 1, 4)
                               : zero;
                _mm512_mask_storeu_epi32(d + k / 2 * ldd + n, m, pairs_of(x, y));
            }
        }
        return;
    }
    if (sn != 1) {
        ek_ref_gemm_pack_bf16(dst, ldd, src, sk, sn, K, N);
        return;
    }
    for (int64_t k = 0; k < K; k += 2)
        for (int64_t n = 0; n < N; n += 16) {
            __mmask16 m = first_lanes(N - n);
            __m512 x = _mm512_maskz_loadu_ps(m, src + k * sk + n);
            __m512 y = k + 1 < K ? _mm512_maskz_loadu_ps(m, src + (k + 1) * sk + n)
                                 : _mm512_setzero_ps();
            _mm512_mask_storeu_epi32(d + k / 2 * ldd + n, m, pairs_of(x, y));
        }
}
