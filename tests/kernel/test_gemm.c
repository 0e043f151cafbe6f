/* test_gemm.c - gemm of every ISA against sums in f64, over strides, tails and K beyond
 * a block; and rows that do not know what stands around them. */
#include "kernel/gemm.h"
#include "kernel_test.h"
#include "num/float.h"

#define BIG 300

static float a[BIG * BIG], src[BIG * BIG], c[BIG * BIG], packed[BIG * BIG];

static double rounded(float x, bool is_bf16)
{
    return is_bf16 ? (double)ek_bf16_to_f32(ek_f32_to_bf16(x)) : (double)x;
}

static void check_one(enum ek_isa isa, bool is_bf16, const int64_t dims[3], int turn)
{
    const struct ek_gemm_ops *ops = ek_gemm_ops_get(isa);
    int64_t M = dims[0], N = dims[1], K = dims[2];
    bool a_turned = turn & 1, b_turned = turn & 2, is_added = turn & 4;
    bool has_start = turn & 8 && !is_added;
    struct ek_gemm g = {.M = M,
                        .N = N,
                        .K = K,
                        .a = a,
                        .am = a_turned ? 1 : K + 3,
                        .ak = a_turned ? M + 1 : 1,
                        .b = packed,
                        .ldb = N,
                        .c = c,
                        .ldc = N + 2,
                        .is_added = is_added,
                        .start = has_start ? src + 7 : NULL};
    int64_t sk = b_turned ? 1 : N, sn = b_turned ? K : 1;
    (is_bf16 ? ops->pack_bf16 : ops->pack_f32)(packed, N, src, sk, sn, K, N);
    for (int64_t i = 0; i < M * (N + 2); i++)
        c[i] = 0.25f;
    (is_bf16 ? ops->bf16 : ops->f32)(&g);
    for (int64_t m = 0; m < M; m++) {
        for (int64_t n = 0; n < N; n++) {
            double sum = is_added ? 0.25 : has_start ? (double)src[7 + n] : 0, size = 1;
            for (int64_t k = 0; k < K; k++) {
                double t = rounded(a[m * g.am + k * g.ak], is_bf16) *
                           rounded(src[k * sk + n * sn], is_bf16);
                sum += t;
                size += fabs(t);
            }
            expect_near((double)c[m * (N + 2) + n], sum, size * EPS * (double)(K + 4));
        }
        assert_true(c[m * (N + 2) + N] == 0.25f && c[m * (N + 2) + N + 1] == 0.25f);
    }
}

static void sums_are_those_of_f64(void **state)
{
    (void)state;
    static const int64_t dims[][3] = {{1, 1, 1},    {3, 5, 7},    {12, 32, 64},
                                      {25, 33, 17}, {13, 50, 50}, {7, 16, 257},
                                      {2, 47, 290}, {64, 64, 31}, {11, 8, 2}};
    struct ek_rng rng;
    ek_rng_init(&rng, 7);
    fill_random(a, BIG * BIG, &rng);
    fill_random(src, BIG * BIG, &rng);
    for (int isa = 0; isa <= (int)ek_isa_best(); isa++)
        for (size_t i = 0; i < COUNT(dims); i++)
            for (int turn = 0; turn < 32; turn++)
                check_one((enum ek_isa)isa, turn & 16, dims[i], turn & 15);
}

static void a_row_is_the_same_bits_wherever_it_stands(void **state)
{
    (void)state;
    enum { M = 29, N = 40, K = 270 };
    static float whole[M * N], alone[N];
    struct ek_rng rng;
    ek_rng_init(&rng, 8);
    fill_random(a, M * K, &rng);
    fill_random(src, K * N, &rng);
    for (int isa = 0; isa <= (int)ek_isa_best(); isa++)
        for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
            const struct ek_gemm_ops *ops = ek_gemm_ops_get((enum ek_isa)isa);
            ek_gemm_fn *gemm = is_bf16 ? ops->bf16 : ops->f32;
            (is_bf16 ? ops->pack_bf16 : ops->pack_f32)(packed, N, src, N, 1, K, N);
            struct ek_gemm g = {M, N, K, a, K, 1, packed, N, whole, N, false, NULL};
            gemm(&g);
            for (int64_t m = 0; m < M; m++) {
                struct ek_gemm one = {1,      N, K,     a + m * K, K,     1,
                                      packed, N, alone, N,         false, NULL};
                gemm(&one);
                assert_memory_equal(alone, whole + m * N, sizeof alone);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_f64),
        cmocka_unit_test(a_row_is_the_same_bits_wherever_it_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
