/* avx2.h - kernels for AVX2, FMA, F16C. */
#ifndef EVENKEEL_KERNEL_AVX2_AVX2_H
#define EVENKEEL_KERNEL_AVX2_AVX2_H

#include "kernel/matmul_int.h"
#include "kernel/ops.h"

ek_matmul_prepare_fn ek_avx2_matmul_prepare;
ek_matmul_fn ek_avx2_matmul;
ek_rmsnorm_fn ek_avx2_rmsnorm;
ek_rope_fn ek_avx2_rope;
ek_rotate_fn ek_avx2_rotate;
ek_kv_write_fn ek_avx2_kv_write;
ek_attn_fn ek_avx2_attn;
ek_attn_merge_fn ek_avx2_attn_merge;
ek_jagged_fn ek_avx2_jagged_forward;
ek_jagged_fn ek_avx2_jagged_backward;
ek_glu_fn ek_avx2_glu;
ek_add_fn ek_avx2_add;
ek_peaks_fn ek_avx2_peaks;
ek_weigh_fn ek_avx2_weigh;
ek_beats_fn ek_avx2_beats;
ek_probe_read_fn ek_avx2_probe_read;
ek_probe_dot_fn ek_avx2_probe_dot;

/* One panel of each weight format; for ek_avx2_matmul. */
ek_tile_fn ek_avx2_tile_f32;
ek_tile_fn ek_avx2_tile_bf16;
ek_tile_fn ek_avx2_tile_e4m3;
ek_tile_fn ek_avx2_tile_i8;
ek_tile_fn ek_avx2_tile_i6;
ek_tile_fn ek_avx2_tile_i4;
ek_tile_fn ek_avx2_tile_i4s;

#endif
