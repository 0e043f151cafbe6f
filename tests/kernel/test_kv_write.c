/* The write of keys and values into their pages, and the rotation before it. */
#include "kernel_test.h"
#include "num/float.h"
#include "num/quant.h"

static const enum ek_dtype kv_dtypes[] = {EK_DTYPE_F32, EK_DTYPE_BF16, EK_DTYPE_E4M3};

static struct ek_attn_dims dims_of(int32_t H, int32_t K, int32_t D, enum ek_dtype t)
{
    return (struct ek_attn_dims){
        .H = H, .K = K, .D = D, .page_tokens = 16, .kv_dtype = t, .scale = 1};
}

/* Numbers of all magnitudes with the odd ones among them. */
static void fill(float *x, int n, uint64_t seed)
{
    static const float special[] = {0.0f,    -0.0f,         448.0f,   448.1f,  464.0f,
                                    -465.0f, 1e30f,         INFINITY, NAN,     -NAN,
                                    1e-3f,   0.0009765625f, 1e-40f,   -1e-40f, 1.0625f,
                                    0.015f,  -1e38f,        3.3e38f};
    struct ek_rng rng;
    ek_rng_init(&rng, seed);
    for (int i = 0; i < n; i++)
        x[i] = i % 37 ? random_float(&rng) * ldexpf(1, i % 40 - 25)
                      : special[(size_t)i / 37 % COUNT(special)];
}

static void check_write(const struct ek_ops *ops)
{
    enum { T = 19, H = 6, K = 3, D = 37, LD = 240, POOL = 2 * 16 * K * D };
    static float q[T * LD], k[T * LD], v[T * LD];
    static unsigned char want[2][POOL * 4], got[2][POOL * 4];
    static const float scales[K] = {1.0f, 0.5f, 3.0f};
    fill(q, T * LD, 3);
    fill(k, T * LD, 4);
    fill(v, T * LD, 5);
    for (int i = 0; i < T * LD; i++) /* one row in three without a wild number */
        if (i / LD % 3 == 0 && !(fabsf(q[i]) < 1e6f))
            q[i] = 1;
    int64_t slot[T];
    for (int t = 0; t < T; t++)
        slot[t] = (t * 5 + 3) % 32;
    for (size_t i = 0; i < 2 * COUNT(kv_dtypes); i++) {
        struct ek_attn_dims d = dims_of(H, K, D, kv_dtypes[i / 2]);
        d.k_scale = d.v_scale = scales;
        struct ek_kv_rows rows = {.q = i % 2 ? q : NULL,
                                  .k = k,
                                  .v = v,
                                  .ldq = LD,
                                  .ldk = LD,
                                  .ldv = LD,
                                  .slot = slot};
        memset(want, 0xaa, sizeof want);
        memset(got, 0xaa, sizeof got);
        int64_t a = ek_ops_get(EK_ISA_REF)->kv_write(want[0], want[1], &rows, 0, T, &d);
        int64_t b = ops->kv_write(got[0], got[1], &rows, 0, 7, &d);
        b += ops->kv_write(got[0], got[1], &rows, 7, T, &d);
        assert_int_equal(a, b);
        assert_int_equal(a > 0, d.kv_dtype == EK_DTYPE_E4M3);
        assert_memory_equal(want, got, sizeof want);
    }
}

static void every_variant_writes_the_same_bits_and_counts_saturation(void **state)
{
    (void)state;
    for_each_isa(check_write);
}

static void saturation_is_counted_and_lands_at_the_right_slot(void **state)
{
    (void)state;
    struct ek_attn_dims d = dims_of(1, 1, 4, EK_DTYPE_E4M3);
    float k[] = {1, 448.5f, -448, NAN}, v[] = {900, -897, 448, 0};
    float k_scale = 0.5f, v_scale = 2.0f;
    unsigned char kp[2 * 16 * 4] = {0}, vp[2 * 16 * 4] = {0};
    int64_t slot = 16 + 3;
    struct ek_kv_rows rows = {
        .k = k, .v = v, .ldq = 4, .ldk = 4, .ldv = 4, .slot = &slot};
    d.k_scale = &k_scale;
    d.v_scale = &v_scale;
    k[1] = 224.5f;
    k[2] = -224;
    assert_int_equal(ek_ops_get(EK_ISA_REF)->kv_write(kp, vp, &rows, 0, 1, &d), 3);
    static const unsigned char want_k[] = {0x40, 0x7e, 0xfe, 0x7f};
    static const unsigned char want_v[] = {0x7e, 0xfe, 0x76, 0};
    assert_memory_equal(kp + 19 * 4, want_k, 4);
    assert_memory_equal(vp + 19 * 4, want_v, 4);
}

/* Mean squares of q . (k - k^) and of k - k^ over random pairs, keys to nearest or
 * shaped by a query that is `noise` away from the q that asks. */
static void errors(double *score, double *key, bool is_shaped, float noise)
{
    enum { T = 64, D = 64 };
    static float q[T * D], ask[T * D], k[T * D], v[T * D];
    static uint8_t kp[T * D], vp[T * D];
    int64_t slot[T];
    struct ek_attn_dims d = dims_of(1, 1, D, EK_DTYPE_E4M3);
    struct ek_rng rng;
    ek_rng_init(&rng, 11);
    for (int i = 0; i < T * D; i++) {
        q[i] = ask[i] = random_float(&rng);
        k[i] = random_float(&rng) * 4;
        ask[i] += noise * random_float(&rng);
    }
    for (int t = 0; t < T; t++)
        slot[t] = t;
    struct ek_kv_rows rows = {.q = is_shaped ? q : NULL,
                              .k = k,
                              .v = v,
                              .ldq = D,
                              .ldk = D,
                              .ldv = D,
                              .slot = slot};
    ek_ops_get(EK_ISA_REF)->kv_write(kp, vp, &rows, 0, T, &d);
    *score = *key = 0;
    for (int t = 0; t < T; t++) {
        double dot = 0;
        for (int c = 0; c < D; c++) {
            double e = (double)k[t * D + c] - (double)ek_e4m3_to_f32(kp[t * D + c]);
            dot += (double)ask[t * D + c] * e;
            *key += e * e;
        }
        *score += dot * dot;
    }
}

static void a_key_keeps_its_score_with_its_own_and_similar_queries(void **state)
{
    (void)state;
    double plain, plain_key, shaped, shaped_key;
    errors(&plain, &plain_key, false, 0);
    errors(&shaped, &shaped_key, true, 0);
    assert_true(shaped < 0.06 * plain); /* of the very query almost nothing is left */
    assert_true(shaped_key < 1.1 * plain_key);
    errors(&plain, &plain_key, false, 0.3f);
    errors(&shaped, &shaped_key, true, 0.3f);
    assert_true(shaped < 0.2 * plain);
}

static void a_key_without_a_query_is_rounded_to_the_nearest(void **state)
{
    (void)state;
    enum { D = 64 };
    float q[D] = {0}, k[D], v[D] = {0};
    uint8_t kp[16 * D], vp[16 * D];
    int64_t slot = 5;
    struct ek_attn_dims d = dims_of(1, 1, D, EK_DTYPE_E4M3);
    struct ek_rng rng;
    ek_rng_init(&rng, 12);
    for (int i = 0; i < D; i++)
        k[i] = random_float(&rng) * 10;
    struct ek_kv_rows rows = {
        .q = q, .k = k, .v = v, .ldq = D, .ldk = D, .ldv = D, .slot = &slot};
    ek_ops_get(EK_ISA_REF)->kv_write(kp, vp, &rows, 0, 1, &d);
    for (int i = 0; i < D; i++)
        assert_int_equal(kp[5 * D + i], ek_f32_to_e4m3(k[i]));
}

/* The entry of the normed Hadamard matrix is the sign of the bits that i and j share. */
static double rotated(const float *x, int64_t n, int64_t i)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += __builtin_parity((unsigned)(i & j)) ? -(double)x[j] : (double)x[j];
    return sum / sqrt((double)n);
}

static void check_rotate(const struct ek_ops *ops)
{
    static const int dims[] = {1, 2, 6, 8, 16, 20, 64, 80, 96, 128, 256};
    for (size_t k = 0; k < COUNT(dims); k++) {
        enum { T = 3, HEADS = 2, LD = 2 * 256 + 5 };
        static float x[T * LD], y[T * LD], ref[T * LD];
        int64_t D = dims[k], n = D & -D;
        struct ek_rng rng;
        ek_rng_init(&rng, 20 + k);
        for (int i = 0; i < T * LD; i++)
            ref[i] = y[i] = x[i] = random_float(&rng);
        ops->rotate(y, LD, T, HEADS, D);
        ek_ops_get(EK_ISA_REF)->rotate(ref, LD, T, HEADS, D);
        assert_memory_equal(y, ref, sizeof y);
        for (int64_t t = 0; t < T; t++) {
            for (int64_t i = 0; i < HEADS * D; i++)
                assert_true(fabs((double)y[t * LD + i] -
                                 rotated(x + t * LD + i / n * n, n, i % n)) < 2e-6);
            for (int64_t i = HEADS * D; i < LD; i++)
                assert_true(y[t * LD + i] == x[t * LD + i]);
        }
        ops->rotate(y, LD, T, HEADS, D);
        for (int i = 0; i < T * LD; i++)
            assert_true(fabsf(y[i] - x[i]) < 1e-6f);
    }
}

static void rotation_is_the_hadamard_matrix_and_its_own_inverse(void **state)
{
    (void)state;
    for_each_isa(check_rotate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_writes_the_same_bits_and_counts_saturation),
        cmocka_unit_test(saturation_is_counted_and_lands_at_the_right_slot),
        cmocka_unit_test(a_key_keeps_its_score_with_its_own_and_similar_queries),
        cmocka_unit_test(a_key_without_a_query_is_rounded_to_the_nearest),
        cmocka_unit_test(rotation_is_the_hadamard_matrix_and_its_own_inverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
