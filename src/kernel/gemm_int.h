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

#endif
