/* attn_form.c - brings a block's keys and values into the form that attn.c multiplies.
 *
 * Keys: 64 bytes of four tokens at a time, turned so that in each lane of 128 bits the
 * four lie beside each other with the same columns of that lane's quarter:
 *   f32         x = [unit][4][16 groups of 4 tokens][4 quarters][4 tokens] f32
 *   bf16, e4m3  the same, e4m3 [unit][8]..., of {bf16 even column, bf16 odd column}
 * The products of a quarter are summed in the lane, and the four quarters at the end,
 * by as few steps for 16 tokens as for one. A token's products stay in its own lanes:
 * what lies in an unwritten slot reaches no other.
 *
 * Values lie with the columns in lanes, in the order in which unpacking leaves them
 * (attn.c puts the sums right at the end), two tokens beside each other:
 *   f32         x = [token][Dp] f32
 *   bf16, e4m3  x = [pair of tokens][Dp] {bf16 even token, bf16 odd token}
 *
 * e4m3 becomes bf16 by two look-ups of 128 bytes, which is exact. Meanwhile the next
 * block is prefetched, line for line. */
#include "kernel/avx512/attn_simd.h"
#include "kernel/avx512/avx512.h"

EK_INLINE void keys_as(const struct ek_attn_block *b, const enum ek_dtype t)
{
    const struct table e = table_of(t);
    const int64_t bytes = b->D * size_of(t), n = vectors_of(t);
    for (int64_t j = b->j0 / 4 * 4; j < b->j1; j += 4)
        for (int64_t unit = 0; unit < units_of(b->D, t); unit++) {
            int64_t at = j % EK_ATTN_STRIP * bytes + 64 * unit;
            __m512i x[8];
            prefetch_rows(b->next_k[j / EK_ATTN_STRIP] + at, bytes, 4);
            form_keys(x, b->k[j / EK_ATTN_STRIP] + at, bytes,
                      bytes_of_unit(unit, b->D, t), t, &e);
            for (int i = 0; i < n; i++)
                _mm512_store_si512(b->x + ((unit * n + i) * 16 + j / 4) * 16, x[i]);
        }
}

void ek_avx512_attn_keys(const struct ek_attn_block *b)
{
    if (b->t == EK_DTYPE_F32)
        keys_as(b, EK_DTYPE_F32);
    else if (b->t == EK_DTYPE_BF16)
        keys_as(b, EK_DTYPE_BF16);
    else
        keys_as(b, EK_DTYPE_E4M3);
}

EK_INLINE void values_as(const struct ek_attn_block *b, const enum ek_dtype t)
{
    const struct table e = table_of(t);
    const int64_t bytes = b->D * size_of(t);
    for (int64_t j = b->j0 / 2 * 2; j < b->j1; j += 2)
        for (int64_t c = 0; c < b->D; c += EK_ATTN_COLS) {
            int64_t at = j % EK_ATTN_STRIP * bytes + c * size_of(t);
            const unsigned char *p = b->v[j / EK_ATTN_STRIP] + at;
            uint64_t cols = first_columns(b->D - c);
            __m512i x[4];
            prefetch_rows(b->next_v[j / EK_ATTN_STRIP] + at, bytes, 2);
            if (t == EK_DTYPE_BF16)
                prefetch_rows(b->next_v[j / EK_ATTN_STRIP] + at + 64, bytes, 2);
            form_values(x, p, p + bytes, j >= b->j0 ? cols : 0,
                        j + 1 < b->j1 ? cols : 0, t, &e);
            for (int i = 0; i < 4; i++)
                _mm512_store_si512(b->x + j / 2 * b->Dp + c + 16 * i, x[i]);
        }
}

static void values_f32(const struct ek_attn_block *b)
{
    for (int64_t j = b->j0; j < b->j1; j++) {
        int64_t at = j % EK_ATTN_STRIP * b->D * 4;
        const unsigned char *p = b->v[j / EK_ATTN_STRIP] + at;
        prefetch_rows(b->next_v[j / EK_ATTN_STRIP] + at, 64, (int)((b->D + 15) / 16));
        for (int64_t c = 0; c < b->Dp; c += 16)
            _mm512_store_ps(b->x + j * b->Dp + c,
                            _mm512_maskz_loadu_ps(first_lanes(b->D - c), p + 4 * c));
    }
}

void ek_avx512_attn_values(const struct ek_attn_block *b)
{
    if (b->t == EK_DTYPE_F32)
        values_f32(b);
    else if (b->t == EK_DTYPE_BF16)
        values_as(b, EK_DTYPE_BF16);
    else
        values_as(b, EK_DTYPE_E4M3);
}
