/* avx512.h - kernels for AVX-512 F, BW, DQ, VL, VNNI, BF16, VBMI. */
#ifndef EVENKEEL_KERNEL_AVX512_AVX512_H
#define EVENKEEL_KERNEL_AVX512_AVX512_H

#include "kernel/attn_int.h"
#include "kernel/matmul_int.h"
#include "kernel/ops.h"

ek_matmul_prepare_fn ek_avx512_matmul_prepare;
ek_matmul_fn ek_avx512_matmul;
ek_rmsnorm_fn ek_avx512_rmsnorm;
ek_rope_fn ek_avx512_rope;
ek_rotate_fn ek_avx512_rotate;
ek_kv_write_fn ek_avx512_kv_write;
ek_attn_fn ek_avx512_attn;
ek_attn_merge_fn ek_avx512_attn_merge;
ek_jagged_fn ek_avx512_jagged_forward;
ek_jagged_fn ek_avx512_jagged_backward;
ek_glu_fn ek_avx512_glu;
ek_add_fn ek_avx512_add;
ek_peaks_fn ek_avx512_peaks;
ek_weigh_fn ek_avx512_weigh;
ek_beats_fn ek_avx512_beats;
ek_probe_read_fn ek_avx512_probe_read;
ek_probe_dot_fn ek_avx512_probe_dot;

/* Steps of attention (attn_form.c, attn_once.c); for ek_avx512_attn. */
void ek_avx512_attn_keys(const struct ek_attn_block *b);
void ek_avx512_attn_values(const struct ek_attn_block *b);
void ek_avx512_attn_score_once(const struct ek_attn_block *b,
                               const struct ek_attn_rows *g);
void ek_avx512_attn_value_once(const struct ek_attn_block *b,
                               const struct ek_attn_rows *g);

/* One panel of each weight format; for ek_avx512_matmul. */
ek_tile_fn ek_avx512_tile_f32;
ek_tile_fn ek_avx512_tile_bf16;
ek_tile_fn ek_avx512_tile_e4m3;
ek_tile_fn ek_avx512_tile_i8;
ek_tile_fn ek_avx512_tile_i6;
ek_tile_fn ek_avx512_tile_i4;
ek_tile_fn ek_avx512_tile_i4s;

#endif
