/* Packed weights: what comes out of a pack is what the file held, exactly where the
 * header says so, and rounded by half a step elsewhere. */
#include "kernel/weight_int.h"
#include "kernel_test.h"
#include "num/float.h"
#include "num/quant.h"

static const int64_t Ns[] = {1, 15, 16, 17, 129, 130};

struct fixture {
    struct ek_weight w;
    unsigned char *rows; /* in the file's format, at an odd address */
    unsigned char *base;
    float *dense; /* the same as f32 */
    size_t row_bytes, size;
    float *scratch;
};

/* Random valid blocks: bytes at random, scales small and finite. */
static void random_rows(struct fixture *f, enum ek_dtype t, int64_t N, int64_t K,
                        struct ek_rng *rng)
{
    for (size_t i = 0; i < (size_t)N * f->row_bytes; i++)
        f->rows[i] = (unsigned char)ek_rng_below(rng, 256);
    size_t block = ek_dtype_block(t), size = ek_dtype_block_bytes(t);
    for (int64_t b = 0; b < N * K / (int64_t)block; b++) {
        unsigned char *p = f->rows + (size_t)b * size;
        for (int s = 0; s < 2; s++) {
            uint16_t h = ek_f32_to_f16(random_float(rng) * 0.1f);
            int has_min = t == EK_DTYPE_Q4_1 || t == EK_DTYPE_Q5_1 ||
                          t == EK_DTYPE_Q4_K || t == EK_DTYPE_Q5_K ||
                          t == EK_DTYPE_Q2_K;
            int at = t == EK_DTYPE_Q6_K                           ? 208
                     : t == EK_DTYPE_Q3_K                         ? 108
                     : t == EK_DTYPE_Q2_K                         ? 80
                     : t == EK_DTYPE_TQ1_0 || t == EK_DTYPE_TQ2_0 ? (int)size - 2
                                                                  : 0;
            if (block > 1 && (s == 0 || has_min))
                memcpy(p + at + 2 * s, &h, 2);
            if (t == EK_DTYPE_MXFP4) /* a power of two near 1 */
                p[0] = (unsigned char)(120 + ek_rng_below(rng, 9));
            for (int i = 0; t == EK_DTYPE_NVFP4 && i < 4; i++)
                p[i] = (unsigned char)(0x30 + ek_rng_below(rng, 16));
        }
        if (block == 1) {
            float x = random_float(rng);
            ek_quant_from_f32(p, t, &x, 1);
        }
    }
}

static void setup(struct fixture *f, enum ek_weight_format format, enum ek_dtype t,
                  int64_t N, int64_t K)
{
    struct ek_rng rng;
    ek_rng_init(&rng, (uint64_t)(N * 31 + K));
    *f = (struct fixture){.w = {format, N, K, NULL}};
    assert_int_equal(ek_dtype_bytes(&f->row_bytes, t, (uint64_t)K), 0);
    f->base = new_bytes((size_t)N * f->row_bytes + 1);
    f->rows = f->base + 1;
    f->dense = new_floats(N * K);
    f->scratch = new_floats(128 * K);
    f->size = ek_weight_bytes(format, N, K);
    assert_true(f->size > 0);
    f->w.data = new_bytes(f->size + 64);
    memset(f->w.data, 0xee, f->size + 64);
    random_rows(f, t, N, K, &rng);
    for (int64_t n = 0; n < N; n++)
        ek_quant_to_f32(f->dense + n * K, t, f->rows + (size_t)n * f->row_bytes,
                        (size_t)K);
}

static void teardown(struct fixture *f)
{
    ek_free(f->w.data);
    ek_free(f->base);
    ek_free(f->dense);
    ek_free(f->scratch);
}

/* Every row must be `dense` to within rel of the largest of its group of 32 (for I6:
 * of 256, for E4M3: of the weight). */
static void expect_rows(const struct fixture *f, float rel)
{
    int64_t K = f->w.K;
    float *row = new_floats(K), top_of_all = 0;
    int64_t block = f->w.format == EK_WEIGHT_I6 ? 256 : 32;
    for (int64_t i = 0; i < f->w.N * K; i++)
        top_of_all = fmaxf(top_of_all, fabsf(f->dense[i]));
    for (int64_t n = 0; n < f->w.N; n++) {
        ek_weight_row(row, &f->w, n);
        for (int64_t k = 0; k < K; k++) {
            float top = 0;
            for (int64_t j = k / block * block; j < K && j < (k / block + 1) * block;
                 j++)
                top = fmaxf(top, fabsf(f->dense[n * K + j]));
            if (f->w.format == EK_WEIGHT_E4M3)
                top = top_of_all;
            expect_near((double)row[k], (double)f->dense[n * K + k],
                        (double)(rel * top));
        }
    }
    const unsigned char *data = f->w.data;
    for (int i = 0; i < 64; i++)
        assert_int_equal(data[f->size + (size_t)i], 0xee);
    ek_free(row);
}

struct pair {
    enum ek_weight_format format;
    enum ek_dtype t;
    float rel;
    int64_t K;
};

static void expect_pairs(const struct pair *pairs, size_t n, bool has_scratch)
{
    for (size_t i = 0; i < n * COUNT(Ns); i++) {
        const struct pair *p = &pairs[i / COUNT(Ns)];
        struct fixture f;
        setup(&f, p->format, p->t, Ns[i % COUNT(Ns)], p->K);
        ek_weight_pack(&f.w, 0, f.w.N, p->t, f.rows, f.row_bytes,
                       has_scratch ? f.scratch : NULL);
        expect_rows(&f, p->rel);
        teardown(&f);
    }
}

static void codes_that_fit_move_unchanged_and_need_no_scratch(void **state)
{
    (void)state;
    static const struct pair pairs[] = {{EK_WEIGHT_BF16, EK_DTYPE_BF16, 0, 70},
                                        {EK_WEIGHT_I8, EK_DTYPE_Q8_0, 0, 96},
                                        {EK_WEIGHT_I4, EK_DTYPE_Q4_0, 0, 96},
                                        {EK_WEIGHT_I4, EK_DTYPE_Q4_1, 0, 96},
                                        {EK_WEIGHT_I4S, EK_DTYPE_Q4_0, 0, 96},
                                        {EK_WEIGHT_I6, EK_DTYPE_Q6_K, 0, 256},
                                        {EK_WEIGHT_I6, EK_DTYPE_Q6_K, 0, 768},
                                        {EK_WEIGHT_I6, EK_DTYPE_Q3_K, 0, 256},
                                        {EK_WEIGHT_I6, EK_DTYPE_Q3_K, 0, 512},
                                        {EK_WEIGHT_E4M3, EK_DTYPE_E4M3, 0, 200}};
    expect_pairs(pairs, COUNT(pairs), false);
    /* q4_k: codes move, d*s and dmin*m are rounded to f16, each half an ulp, 2^-11; the
     * two terms may cancel, but neither exceeds twice the group's largest magnitude */
    static const struct pair k_quant[] = {
        {EK_WEIGHT_I4, EK_DTYPE_Q4_K, 6 * 0x1p-11f, 512}};
    expect_pairs(k_quant, 1, false);
}

static void f32_holds_every_format_exactly(void **state)
{
    (void)state;
    static const struct pair pairs[] = {{EK_WEIGHT_F32, EK_DTYPE_F32, 0, 1},
                                        {EK_WEIGHT_F32, EK_DTYPE_F16, 0, 33},
                                        {EK_WEIGHT_F32, EK_DTYPE_BF16, 0, 31},
                                        {EK_WEIGHT_F32, EK_DTYPE_F64, 0, 7},
                                        {EK_WEIGHT_F32, EK_DTYPE_E4M3, 0, 65},
                                        {EK_WEIGHT_F32, EK_DTYPE_E5M2, 0, 64},
                                        {EK_WEIGHT_F32, EK_DTYPE_Q4_0, 0, 32},
                                        {EK_WEIGHT_F32, EK_DTYPE_Q4_1, 0, 64},
                                        {EK_WEIGHT_F32, EK_DTYPE_Q5_0, 0, 32},
                                        {EK_WEIGHT_F32, EK_DTYPE_Q5_1, 0, 32},
                                        {EK_WEIGHT_F32, EK_DTYPE_Q8_0, 0, 32},
                                        {EK_WEIGHT_F32, EK_DTYPE_Q4_K, 0, 256},
                                        {EK_WEIGHT_F32, EK_DTYPE_Q5_K, 0, 256},
                                        {EK_WEIGHT_F32, EK_DTYPE_Q6_K, 0, 256},
                                        {EK_WEIGHT_I8, EK_DTYPE_Q5_0, 0, 64},
                                        {EK_WEIGHT_BF16, EK_DTYPE_E4M3, 0, 37},
                                        {EK_WEIGHT_I8, EK_DTYPE_IQ4_NL, 0, 96},
                                        {EK_WEIGHT_I8, EK_DTYPE_MXFP4, 0, 96},
                                        {EK_WEIGHT_F32, EK_DTYPE_Q2_K, 0, 256},
                                        {EK_WEIGHT_F32, EK_DTYPE_Q3_K, 0, 256},
                                        {EK_WEIGHT_F32, EK_DTYPE_IQ4_XS, 0, 256},
                                        {EK_WEIGHT_F32, EK_DTYPE_MXFP4, 0, 96},
                                        {EK_WEIGHT_F32, EK_DTYPE_NVFP4, 0, 192},
                                        {EK_WEIGHT_F32, EK_DTYPE_TQ1_0, 0, 256},
                                        {EK_WEIGHT_F32, EK_DTYPE_TQ2_0, 0, 256}};
    expect_pairs(pairs, COUNT(pairs), true);
}

static void int4_holds_ternary_weights_exactly(void **state)
{
    (void)state;
    static const struct pair pairs[] = {{EK_WEIGHT_I4S, EK_DTYPE_TQ1_0, 0, 256},
                                        {EK_WEIGHT_I4S, EK_DTYPE_TQ1_0, 0, 768},
                                        {EK_WEIGHT_I4S, EK_DTYPE_TQ2_0, 0, 256},
                                        {EK_WEIGHT_I4S, EK_DTYPE_TQ2_0, 0, 768}};
    expect_pairs(pairs, COUNT(pairs), true);
}

/* Half a step of the group's largest magnitude, plus the scale's rounding to f16 which
 * the largest code multiplies: I8 1/254 + 2^-11; I4 over a range of twice the largest,
 * 1/15 + 2 * 2^-11 + 2^-11; I6 over 256 columns a whole step of 1/32 where code 64 is cut
 * to 63, plus half a step of the scale's 127; I4S a whole step of 1/8 where code 16 is cut to 15; bf16 2^-8; e4m3 2^-4 of a value (subnormals 2^-10/448). */
static void other_formats_round_to_nearest(void **state)
{
    (void)state;
    static const float i8 = 1 / 254.0f + 0x1p-11f, i4 = 1 / 15.0f + 3 * 0x1p-11f,
                       i4s = 1 / 8.0f + 2 * 0x1p-11f, i6 = 1 / 32.0f + 1 / 254.0f;
    const struct pair pairs[] = {{EK_WEIGHT_BF16, EK_DTYPE_F32, 0x1p-8f, 33},
                                 {EK_WEIGHT_BF16, EK_DTYPE_Q6_K, 0x1p-8f, 256},
                                 {EK_WEIGHT_I8, EK_DTYPE_F32, i8, 31},
                                 {EK_WEIGHT_I8, EK_DTYPE_Q5_1, i8, 32},
                                 {EK_WEIGHT_I8, EK_DTYPE_Q5_K, i8, 256},
                                 {EK_WEIGHT_I8, EK_DTYPE_Q6_K, i8, 512},
                                 {EK_WEIGHT_I8, EK_DTYPE_Q2_K, i8, 256},
                                 {EK_WEIGHT_I8, EK_DTYPE_Q3_K, i8, 256},
                                 {EK_WEIGHT_I8, EK_DTYPE_IQ4_XS, i8, 256},
                                 {EK_WEIGHT_I8, EK_DTYPE_NVFP4, i8, 192},
                                 {EK_WEIGHT_I6, EK_DTYPE_F32, i6, 33},
                                 {EK_WEIGHT_I6, EK_DTYPE_BF16, i6, 257},
                                 {EK_WEIGHT_I6, EK_DTYPE_Q8_0, i6, 288},
                                 {EK_WEIGHT_I4, EK_DTYPE_F32, i4, 33},
                                 {EK_WEIGHT_I4, EK_DTYPE_BF16, i4, 64},
                                 {EK_WEIGHT_I4S, EK_DTYPE_F32, i4s, 33},
                                 {EK_WEIGHT_I4S, EK_DTYPE_Q4_1, i4s, 96},
                                 {EK_WEIGHT_E4M3, EK_DTYPE_F32, 0x1.04p-4f, 129},
                                 {EK_WEIGHT_E4M3, EK_DTYPE_Q8_0, 0x1.04p-4f, 288}};
    expect_pairs(pairs, COUNT(pairs), true);
}

static void packing_in_ranges_gives_the_same_bytes(void **state)
{
    (void)state;
    for (int format = 0; format < EK_WEIGHT_COUNT; format++) {
        int64_t N = 300, K = 96, step = format == EK_WEIGHT_E4M3 ? 128 : 48;
        struct fixture a, b;
        setup(&a, (enum ek_weight_format)format, EK_DTYPE_F32, N, K);
        setup(&b, (enum ek_weight_format)format, EK_DTYPE_F32, N, K);
        ek_weight_pack(&a.w, 0, N, EK_DTYPE_F32, a.rows, a.row_bytes, a.scratch);
        for (int64_t n = (N - 1) / step * step; n >= 0; n -= step)
            ek_weight_pack(&b.w, n, n + step < N ? n + step : N, EK_DTYPE_F32,
                           b.rows + (size_t)n * b.row_bytes, b.row_bytes, b.scratch);
        assert_memory_equal(a.w.data, b.w.data, a.size);
        teardown(&a);
        teardown(&b);
    }
}

static void block_scales_multiply_their_block(void **state)
{
    (void)state;
    struct fixture f;
    int64_t N = 130, K = 300;
    setup(&f, EK_WEIGHT_E4M3, EK_DTYPE_E4M3, N, K);
    ek_weight_pack(&f.w, 0, N, EK_DTYPE_E4M3, f.rows, f.row_bytes, NULL);
    float *scales = ek_weight_block_scales(&f.w), *row = new_floats(K);
    for (int i = 0; i < 6; i++)
        scales[i] = (float)(i + 1);
    for (int64_t n = 0; n < N; n++) {
        ek_weight_row(row, &f.w, n);
        for (int64_t k = 0; k < K; k++)
            assert_true(row[k] ==
                        f.dense[n * K + k] * (float)(n / 128 * 3 + k / 128 + 1));
    }
    ek_free(row);
    teardown(&f);
}

static void each_type_keeps_its_format(void **state)
{
    (void)state;
    assert_int_equal(ek_weight_keep(EK_DTYPE_Q4_0), EK_WEIGHT_I4S);
    assert_int_equal(ek_weight_keep(EK_DTYPE_Q4_1), EK_WEIGHT_I4);
    assert_int_equal(ek_weight_keep(EK_DTYPE_Q4_K), EK_WEIGHT_I4);
    assert_int_equal(ek_weight_keep(EK_DTYPE_Q6_K), EK_WEIGHT_I6);
    assert_int_equal(ek_weight_keep(EK_DTYPE_Q3_K), EK_WEIGHT_I6);
    assert_int_equal(ek_weight_keep(EK_DTYPE_Q5_K), EK_WEIGHT_I8);
    assert_int_equal(ek_weight_keep(EK_DTYPE_IQ4_NL), EK_WEIGHT_I8);
    assert_int_equal(ek_weight_keep(EK_DTYPE_MXFP4), EK_WEIGHT_I8);
    assert_int_equal(ek_weight_keep(EK_DTYPE_NVFP4), EK_WEIGHT_I8);
    assert_int_equal(ek_weight_keep(EK_DTYPE_TQ1_0), EK_WEIGHT_I4S);
    assert_int_equal(ek_weight_keep(EK_DTYPE_TQ2_0), EK_WEIGHT_I4S);
    assert_int_equal(ek_weight_keep(EK_DTYPE_Q8_0), EK_WEIGHT_I8);
    assert_int_equal(ek_weight_keep(EK_DTYPE_E4M3), EK_WEIGHT_E4M3);
    assert_int_equal(ek_weight_keep(EK_DTYPE_F16), EK_WEIGHT_BF16);
    static const char *const names[] = {"f32",  "bf16", "fp8",   "int8",
                                        "int6", "int4", "int4s", "?"};
    for (int f = 0; f <= EK_WEIGHT_COUNT; f++)
        assert_string_equal(ek_weight_name((enum ek_weight_format)f), names[f]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_that_fit_move_unchanged_and_need_no_scratch),
        cmocka_unit_test(f32_holds_every_format_exactly),
        cmocka_unit_test(int4_holds_ternary_weights_exactly),
        cmocka_unit_test(other_formats_round_to_nearest),
        cmocka_unit_test(packing_in_ranges_gives_the_same_bytes),
        cmocka_unit_test(block_scales_multiply_their_block),
        cmocka_unit_test(each_type_keeps_its_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
