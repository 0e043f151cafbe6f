/* ops.c - the table of kernels by ISA. */
#include "kernel/ops.h"

#include "kernel/avx2/avx2.h"
#include "kernel/avx512/avx512.h"
#include "kernel/ref/ref.h"

#include <assert.h>

#define OPS(isa_, prefix)                                                              \
    {                                                                                  \
        .isa = isa_, .matmul_prepare = ek_##prefix##_matmul_prepare,                   \
        .matmul = ek_##prefix##_matmul, .rmsnorm = ek_##prefix##_rmsnorm,              \
        .rope = ek_##prefix##_rope, .rotate = ek_##prefix##_rotate,                    \
        .kv_write = ek_##prefix##_kv_write, .attn = ek_##prefix##_attn,                \
        .attn_merge = ek_##prefix##_attn_merge,                                        \
        .jagged_forward = ek_##prefix##_jagged_forward,                                \
        .jagged_backward = ek_##prefix##_jagged_backward, .glu = ek_##prefix##_glu,    \
        .add = ek_##prefix##_add, .peaks = ek_##prefix##_peaks,                        \
        .weigh = ek_##prefix##_weigh, .beats = ek_##prefix##_beats,                    \
        .probe_read = ek_##prefix##_probe_read, .probe_dot = ek_##prefix##_probe_dot,  \
    }

static const struct ek_ops table[EK_ISA_COUNT] = {
    [EK_ISA_REF] = OPS(EK_ISA_REF, ref),
    [EK_ISA_AVX2] = OPS(EK_ISA_AVX2, avx2),
    [EK_ISA_AVX512] = OPS(EK_ISA_AVX512, avx512),
};

const struct ek_ops *ek_ops_get(enum ek_isa isa)
{
    assert((unsigned)isa < EK_ISA_COUNT);
    return &table[isa];
}
