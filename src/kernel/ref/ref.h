/* ref.h - the plain C kernels: they define the answer and are never deleted. */
#ifndef EVENKEEL_KERNEL_REF_REF_H
#define EVENKEEL_KERNEL_REF_REF_H

#include "kernel/ops.h"

ek_matmul_prepare_fn ek_ref_matmul_prepare;
ek_matmul_fn ek_ref_matmul;
ek_rmsnorm_fn ek_ref_rmsnorm;
ek_rope_fn ek_ref_rope;
ek_rotate_fn ek_ref_rotate;
ek_kv_write_fn ek_ref_kv_write;
ek_attn_fn ek_ref_attn;
ek_attn_merge_fn ek_ref_attn_merge;
ek_jagged_fn ek_ref_jagged_forward;
ek_jagged_fn ek_ref_jagged_backward;
ek_glu_fn ek_ref_glu;
ek_add_fn ek_ref_add;
ek_peaks_fn ek_ref_peaks;
ek_weigh_fn ek_ref_weigh;
ek_beats_fn ek_ref_beats;
ek_probe_read_fn ek_ref_probe_read;
ek_probe_dot_fn ek_ref_probe_dot;

#endif
