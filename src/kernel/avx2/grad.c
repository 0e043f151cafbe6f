/* grad.c - grad_body.h compiled for this ISA. */
#include "kernel/grad_body.h"
#include "kernel/grad_int.h"

EK_GRAD_OPS(ek_avx2_grad_ops);
