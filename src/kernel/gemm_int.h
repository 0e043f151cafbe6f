/* gemm_int.h - the variants of gemm, and the blocks they share. */
#ifndef EVENKEEL_KERNEL_GEMM_INT_H
#define EVENKEEL_KERNEL_GEMM_INT_H

#include "kernel/gemm.h"

/* Terms of k summed in registers at a time; then c carries the sum on. b's part of this
 * height and a panel's width stays in the first-level cache. */
#define EK_GEMM_KB 256

ek_gemm_fn ek_ref_gemm_f32, ek_ref_gemm_bf16;
ek_gemm_fn ek_avx2_gemm_f32, ek_avx2_gemm_bf16;
ek_gemm_fn ek_avx512_gemm_f32, ek_avx512_gemm_bf16;
ek_gemm_pack_fn ek_ref_gemm_pack_f32, ek_ref_gemm_pack_bf16;

ek_gemm_pack_fn ek_avx512_gemm_pack_f32, ek_avx512_gemm_pack_bf16;

/* Where the sums of a block at column n begin: rows of c, one row for all, or zero. */
struct ek_gemm_from {
    const float *at;
    int64_t ld;
};

static inline struct ek_gemm_from ek_gemm_from(const struct ek_gemm *g, int64_t m,
                                               int64_t n, bool is_added)
{
    struct ek_gemm_from x = {.ld = 0};
    if (is_added)
        x = (struct ek_gemm_from){g->c + m * g->ldc + n, g->ldc};
    else if (g->start)
        x.at = g->start + n;
    return x;
}

/* Blocks of K in ascending order, the first to c's old value if that is added to. */
typedef void ek_gemm_block_fn(const struct ek_gemm *g, int64_t k0, int64_t k1,
                              bool is_added);

static inline void ek_gemm_by_k(const struct ek_gemm *g, ek_gemm_block_fn *block)
{
    bool is_added = g->is_added;
    int64_t k0 = 0;
    do {
        int64_t k1 = k0 + EK_GEMM_KB < g->K ? k0 + EK_GEMM_KB : g->K;
        block(g, k0, k1, is_added);
        is_added = true;
        k0 = k1;
    } while (k0 < g->K);
}

#endif
