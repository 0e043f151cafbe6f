/* Rows of every format. Values of the block formats are checked against an independent
 * implementation by check_quant_gguf.py; here are the promises it cannot see. */
#include "num/float.h"
#include "num/quant.h"
#include "num_test.h"

static const enum ek_dtype block_types[] = {
    EK_DTYPE_Q4_0,   EK_DTYPE_Q4_1,   EK_DTYPE_Q5_0,  EK_DTYPE_Q5_1, EK_DTYPE_Q8_0,
    EK_DTYPE_Q4_K,   EK_DTYPE_Q5_K,   EK_DTYPE_Q6_K,  EK_DTYPE_Q2_K, EK_DTYPE_Q3_K,
    EK_DTYPE_IQ4_NL, EK_DTYPE_IQ4_XS, EK_DTYPE_TQ1_0, EK_DTYPE_TQ2_0};

static void real_formats_are_read_and_seven_plus_three_written(void **state)
{
    (void)state;
    int n_read = 0, n_write = 0;
    for (int t = 0; t < EK_DTYPE_COUNT; t++) {
        n_read += ek_quant_can_read((enum ek_dtype)t);
        n_write += ek_quant_can_write((enum ek_dtype)t);
    }
    assert_int_equal(n_read, 7 + 16);
    assert_int_equal(n_write, 7 + 3);
    assert_false(ek_quant_can_read(EK_DTYPE_I32));
    assert_false(ek_quant_can_write(EK_DTYPE_Q6_K));
    assert_false(ek_quant_can_read(EK_DTYPE_COUNT));
}

static void plain_rows_convert_element_by_element_at_any_address(void **state)
{
    (void)state;
    static const enum ek_dtype plain[] = {EK_DTYPE_F32,  EK_DTYPE_F64,  EK_DTYPE_F16,
                                          EK_DTYPE_BF16, EK_DTYPE_E4M3, EK_DTYPE_E5M2,
                                          EK_DTYPE_E8M0};
    static const float x[5] = {1, 2, 0.5f, 4, 0.25f};
    for (size_t i = 0; i < COUNT(plain); i++)
        for (int shift = 0; shift < 3; shift++) {
            unsigned char bytes[64];
            float y[6] = {0, 0, 0, 0, 0, 9};
            memset(bytes, 0xcd, sizeof bytes);
            ek_quant_from_f32(bytes + shift, plain[i], x, 5);
            assert_int_equal(bytes[(size_t)shift + 5 * ek_dtype_block_bytes(plain[i])],
                             0xcd);
            ek_quant_to_f32(y, plain[i], bytes + shift, 5);
            assert_memory_equal(x, y, sizeof x);
            assert_true(y[5] == 9);
        }
}

static void a_written_block_differs_by_half_a_step_at_most(void **state)
{
    (void)state;
    static const struct {
        enum ek_dtype t;
        float steps; /* of a range of 2 */
    } cases[] = {{EK_DTYPE_Q4_0, 8}, {EK_DTYPE_Q4_1, 7.5f}, {EK_DTYPE_Q8_0, 127}};
    float x[96], y[96];
    for (int i = 0; i < 96; i++)
        x[i] = i < 64 ? sinf((float)i * 1.7f) : i % 32 == 5 ? -1.0f : 0.0f;
    x[0] = -1;
    x[32] = 1; /* whichever sign is the largest */
    x[40] = -1;
    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned char bytes[3 * 34];
        ek_quant_from_f32(bytes, cases[i].t, x, 96);
        ek_quant_to_f32(y, cases[i].t, bytes, 96);
        for (int j = 0; j < 96; j++) {
            /* q4_0 has one code less on the side opposite to its largest value */
            float half = (cases[i].t == EK_DTYPE_Q4_0 ? 1.0f : 0.5f) / cases[i].steps;
            assert_true(fabsf(x[j] - y[j]) <= half * 1.01f);
        }
    }
}

static void a_block_of_zeros_stays_zero(void **state)
{
    (void)state;
    static const enum ek_dtype written[] = {EK_DTYPE_Q4_0, EK_DTYPE_Q4_1,
                                            EK_DTYPE_Q8_0};
    float x[32] = {0}, y[32];
    for (size_t i = 0; i < COUNT(written); i++) {
        unsigned char bytes[34];
        ek_quant_from_f32(bytes, written[i], x, 32);
        ek_quant_to_f32(y, written[i], bytes, 32);
        for (int j = 0; j < 32; j++)
            assert_true(y[j] == 0);
    }
}

/* Byte offsets of the f16 scales of a block; -1: no more. */
static void scales_of(int at[2], enum ek_dtype t)
{
    at[0] = t == EK_DTYPE_Q6_K    ? 208
            : t == EK_DTYPE_Q2_K  ? 80
            : t == EK_DTYPE_Q3_K  ? 108
            : t == EK_DTYPE_TQ1_0 ? 52
            : t == EK_DTYPE_TQ2_0 ? 64
                                  : 0;
    at[1] = t == EK_DTYPE_Q2_K ? 82
            : t == EK_DTYPE_Q4_1 || t == EK_DTYPE_Q5_1 || t == EK_DTYPE_Q4_K ||
                    t == EK_DTYPE_Q5_K
                ? 2
                : -1;
}

static void a_bad_scale_is_found_in_its_block(void **state)
{
    (void)state;
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7e00, 0x7c01};
    for (size_t i = 0; i < COUNT(block_types); i++) {
        enum ek_dtype t = block_types[i];
        size_t size = ek_dtype_block_bytes(t), block = ek_dtype_block(t), where = 99;
        unsigned char bytes[4 * 210];
        int at[2];
        memset(bytes, 0x3a, sizeof bytes); /* every f16 among them finite */
        assert_true(ek_quant_is_finite(t, bytes, 4 * block, &where));
        assert_int_equal(where, 99);
        scales_of(at, t);
        for (size_t s = 0; s < 2 && at[s] >= 0; s++)
            for (size_t b = 0; b < 4 * COUNT(bad); b++) {
                unsigned char *p = bytes + b % 4 * size + (size_t)at[s];
                memcpy(p, &bad[b / 4], 2);
                assert_false(ek_quant_is_finite(t, bytes, 4 * block, &where));
                assert_int_equal(where, b % 4 * block);
                memset(p, 0x3a, 2);
            }
    }
}

static void a_bad_scale_of_one_byte_is_found_in_its_block(void **state)
{
    (void)state;
    unsigned char mx[3 * 17] = {0}, nv[3 * 36] = {0};
    size_t where = 99;
    mx[17] = 252; /* 6 times 2^125 is an f32, 6 times 2^126 is none */
    memset(nv, 0xfe, sizeof nv);
    assert_true(ek_quant_is_finite(EK_DTYPE_MXFP4, mx, 3 * 32, &where));
    assert_true(ek_quant_is_finite(EK_DTYPE_NVFP4, nv, 3 * 64, &where));
    for (unsigned c = 253; c < 256; c++) {
        mx[17] = (unsigned char)c;
        assert_false(ek_quant_is_finite(EK_DTYPE_MXFP4, mx, 3 * 32, &where));
        assert_int_equal(where, 32);
    }
    for (size_t i = 0; i < 4; i++) {
        for (unsigned c = 0x7f; c <= 0xff; c += 0x80) {
            nv[2 * 36 + i] = (unsigned char)c;
            assert_false(ek_quant_is_finite(EK_DTYPE_NVFP4, nv, 3 * 64, &where));
            assert_int_equal(where, 128);
        }
        nv[2 * 36 + i] = 0;
    }
}

static void a_bad_element_is_found(void **state)
{
    (void)state;
    float x[5] = {1, 2, 3, INFINITY, NAN};
    double d[3] = {1, -1e300, 0};
    unsigned char e4m3[3] = {0x7e, 0xfe, 0xff}, e5m2[2] = {0x7b, 0xfc},
                  e8m0[2] = {0, 255};
    size_t at = 9;
    assert_true(ek_quant_is_finite(EK_DTYPE_F32, x, 3, &at));
    assert_false(ek_quant_is_finite(EK_DTYPE_F32, x, 5, &at));
    assert_int_equal(at, 3);
    assert_false(ek_quant_is_finite(EK_DTYPE_F64, d, 3, &at)); /* beyond f32 */
    assert_int_equal(at, 1);
    assert_false(ek_quant_is_finite(EK_DTYPE_E4M3, e4m3, 3, &at));
    assert_int_equal(at, 2);
    assert_false(ek_quant_is_finite(EK_DTYPE_E5M2, e5m2, 2, &at));
    assert_int_equal(at, 1);
    assert_false(ek_quant_is_finite(EK_DTYPE_E8M0, e8m0, 2, &at));
    assert_int_equal(at, 1);
}

static void byte_counts_refuse_partial_blocks_and_overflow(void **state)
{
    (void)state;
    size_t bytes = 7;
    assert_int_equal(ek_dtype_bytes(&bytes, EK_DTYPE_Q4_K, 512), 0);
    assert_int_equal(bytes, 288);
    assert_int_equal(ek_dtype_bytes(&bytes, EK_DTYPE_Q4_K, 511), EK_EINVAL);
    assert_int_equal(ek_dtype_bytes(&bytes, EK_DTYPE_F64, UINT64_MAX / 4), EK_ELIMIT);
    assert_int_equal(bytes, 288);
    assert_string_equal(ek_dtype_name(EK_DTYPE_Q4_K), "q4_k");
    assert_string_equal(ek_dtype_name(EK_DTYPE_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_formats_are_read_and_seven_plus_three_written),
        cmocka_unit_test(plain_rows_convert_element_by_element_at_any_address),
        cmocka_unit_test(a_written_block_differs_by_half_a_step_at_most),
        cmocka_unit_test(a_block_of_zeros_stays_zero),
        cmocka_unit_test(a_bad_scale_is_found_in_its_block),
        cmocka_unit_test(a_bad_scale_of_one_byte_is_found_in_its_block),
        cmocka_unit_test(a_bad_element_is_found),
        cmocka_unit_test(byte_counts_refuse_partial_blocks_and_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
