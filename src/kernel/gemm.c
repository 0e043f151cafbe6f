/* gemm.c - the table of gemm by ISA. */
#include "kernel/gemm.h"

#include "kernel/gemm_int.h"

#include <assert.h>

static const struct ek_gemm_ops table[EK_ISA_COUNT] = {
    [EK_ISA_REF] = {ek_ref_gemm_f32, ek_ref_gemm_bf16, ek_ref_gemm_pack_f32,
                    ek_ref_gemm_pack_bf16},
    [EK_ISA_AVX2] = {ek_avx2_gemm_f32, ek_avx2_gemm_bf16, ek_ref_gemm_pack_f32,
                     ek_ref_gemm_pack_bf16},
    [EK_ISA_AVX512] = {ek_avx512_gemm_f32, ek_avx512_gemm_bf16, ek_avx512_gemm_pack_f32,
                       ek_avx512_gemm_pack_bf16},
};

const struct ek_gemm_ops *ek_gemm_ops_get(enum ek_isa isa)
{
    assert((unsigned)isa < EK_ISA_COUNT);
    return &table[isa];
}
