/* grad.c - the table of grad by ISA. */
#include "kernel/grad.h"

#include "kernel/grad_int.h"

#include <assert.h>

const struct ek_grad_ops *ek_grad_ops_get(enum ek_isa isa)
{
    static const struct ek_grad_ops *const table[EK_ISA_COUNT] = {
        [EK_ISA_REF] = &ek_ref_grad_ops,
        [EK_ISA_AVX2] = &ek_avx2_grad_ops,
        [EK_ISA_AVX512] = &ek_avx512_grad_ops,
    };
    assert((unsigned)isa < EK_ISA_COUNT);
    return table[isa];
}
