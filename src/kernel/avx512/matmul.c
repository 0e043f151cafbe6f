/* matmul.c - the AVX-512 tile of each weight format, and how many rows it takes. */
#include "kernel/avx512/avx512.h"

void ek_avx512_matmul(float *y, int64_t ldy, const void *act, const struct ek_weight *w,
                      int64_t T, int64_t n0, int64_t n1, enum ek_matmul_mode mode)
{
    static ek_tile_fn *const tiles[EK_WEIGHT_COUNT] = {
        [EK_WEIGHT_F32] = ek_avx512_tile_f32,   [EK_WEIGHT_BF16] = ek_avx512_tile_bf16,
        [EK_WEIGHT_E4M3] = ek_avx512_tile_e4m3, [EK_WEIGHT_I8] = ek_avx512_tile_i8,
        [EK_WEIGHT_I6] = ek_avx512_tile_i6,     [EK_WEIGHT_I4] = ek_avx512_tile_i4,
        [EK_WEIGHT_I4S] = ek_avx512_tile_i4s,
    };
    struct ek_tile first = {.act = act,
                            .y = y,
                            .stride = ek_act_stride(w->format, w->K),
                            .ldy = ldy,
                            .G = ek_weight_groups(w->K),
                            .mode = mode};
    ek_matmul_run(&first, w, T, n0, n1, tiles[w->format],
                  w->format == EK_WEIGHT_I6 ? 4 : 8);
}
