/* grad_int.h - the tables of grad by ISA. */
#ifndef EVENKEEL_KERNEL_GRAD_INT_H
#define EVENKEEL_KERNEL_GRAD_INT_H

#include "kernel/grad.h"

extern const struct ek_grad_ops ek_ref_grad_ops, ek_avx2_grad_ops, ek_avx512_grad_ops;

#endif
