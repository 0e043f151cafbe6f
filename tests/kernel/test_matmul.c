/* matmul of every variant against sums in f64 over the weight and the activations as
 * they were rounded, so that only the accumulation is judged.
 *
 * Tolerance: a sum of n products in f32 in any order errs by at most n ulp/2 of the sum
 * of magnitudes (Higham, Accuracy and Stability, 3.1). A product here passes at most
 * K + 8 roundings: K additions and the scales. In I4 w = d q + m is summed in its two
 * parts, whose magnitudes are each at most three times the largest |w| of the row. */
#include "kernel/matmul_int.h"
#include "kernel_test.h"
#include "num/float.h"

static const int64_t Ts[] = {0, 1, 2, 3, 5, 8, 17};
static const int64_t Ns[] = {1, 15, 16, 17, 48, 129};
static const int64_t Ks[] = {1, 31, 32, 33, 64, 129, 257, 576};

/* What a row holds besides values of [-1,1]. */
enum spikes {
    NO_SPIKES,
    FEW,       /* one column in eleven 20 times as large: in two quads of most groups */
    HUGE_ONES, /* 1000 times: more than tops can hold at the others' scale */
    EVERYWHERE /* one in each quad */
};

static void add_spikes(float *x, int64_t K, enum spikes spikes)
{
    static const int step[] = {1, 11, 37, 4};
    static const float times[] = {1, 20, 1000, 20};
    for (int64_t k = 2; k < K; k += step[spikes])
        x[k] *= times[spikes];
}

struct fixture {
    struct ek_weight w;
    float *x, *y, *dense; /* (T,K), (T,ldy), (N,K) */
    void *act;
    int64_t T, ldx, ldy;
};

static void setup(struct fixture *f, enum ek_weight_format format, int64_t T, int64_t N,
                  int64_t K)
{
    struct ek_rng rng;
    ek_rng_init(&rng, (uint64_t)(T * 1000003 + N * 1009 + K * 7 + (int64_t)format));
    *f =
        (struct fixture){.w = {format, N, K, NULL}, .T = T, .ldx = K + 3, .ldy = N + 5};
    f->w.data = new_bytes(ek_weight_bytes(format, N, K));
    f->x = new_floats(T * f->ldx);
    f->y = new_floats(T * f->ldy);
    f->dense = new_floats(N * K);
    f->act = new_bytes(ek_matmul_act_bytes(format, T, K));
    fill_random(f->x, T * f->ldx, &rng);
    for (int64_t t = 0; t < T; t++)
        add_spikes(f->x + t * f->ldx, K, (enum spikes)((t * 3 + K) % 4));
    fill_random(f->dense, N * K, &rng);
    float *scratch = new_floats(128 * K);
    ek_weight_pack(&f->w, 0, N, EK_DTYPE_F32, f->dense, (size_t)K * 4, scratch);
    ek_free(scratch);
    for (int64_t n = 0; n < N; n++)
        ek_weight_row(f->dense + n * K, &f->w, n);
}

static void teardown(struct fixture *f)
{
    ek_free(f->w.data);
    ek_free(f->x);
    ek_free(f->y);
    ek_free(f->dense);
    ek_free(f->act);
}

/* Activation k of a row of cells. */
static double of_cells(const unsigned char *row, int64_t k)
{
    const struct ek_act_cell *x = ek_act_cells(row) + k / EK_GROUP;
    int v = x->base[k % EK_GROUP];
    for (int i = 0; i < 2; i++)
        if (x->at[i] >> 5 == k % EK_GROUP / 4)
            v += 16 * x->top[i][k % 4];
    return (double)x->scale * v;
}

/* out[K] = row t of the prepared activations, as the numbers they stand for. */
static void act_row(double *out, const struct fixture *f, int64_t t)
{
    int64_t K = f->w.K;
    const unsigned char *row = ek_act_row(f->act, f->w.format, K, t);
    for (int64_t k = 0; k < K; k++) {
        if (f->w.format == EK_WEIGHT_F32)
            out[k] = (double)((const float *)(const void *)row)[k];
        else if (f->w.format == EK_WEIGHT_BF16 || f->w.format == EK_WEIGHT_E4M3)
            out[k] = (double)ek_bf16_to_f32(((const uint16_t *)(const void *)row)[k]);
        else
            out[k] = of_cells(row, k);
    }
}

static void expect_row(const struct fixture *f, int64_t t, const double *x)
{
    int64_t K = f->w.K;
    for (int64_t n = 0; n < f->w.N; n++) {
        double sum = 0, wmax = 0, xsum = 0;
        for (int64_t k = 0; k < K; k++) {
            double w = (double)f->dense[n * K + k];
            sum += w * x[k];
            wmax = fabs(w) > wmax ? fabs(w) : wmax;
            xsum += fabs(x[k]);
        }
        double got = (double)f->y[t * f->ldy + n];
        double bound = (double)(K + 8) * EPS * 6 * wmax * xsum;
        if (!(fabs(got - sum) <= bound))
            fail_msg("%s T=%ld N=%ld K=%ld row %ld column %ld: %.9g, expected %.9g",
                     ek_weight_name(f->w.format), (long)f->T, (long)f->w.N, (long)K,
                     (long)t, (long)n, got, sum);
    }
}

static void check_products(const struct ek_ops *ops)
{
    for (int format = 0; format < EK_WEIGHT_COUNT; format++)
        for (size_t i = 0; i < COUNT(Ts) * COUNT(Ns) * COUNT(Ks); i++) {
            struct fixture f;
            int64_t T = Ts[i % COUNT(Ts)], N = Ns[i / COUNT(Ts) % COUNT(Ns)];
            int64_t K = Ks[i / COUNT(Ts) / COUNT(Ns)];
            setup(&f, (enum ek_weight_format)format, T, N, K);
            double *x = new_bytes((size_t)K * sizeof *x);
            ops->matmul_prepare(f.act, f.w.format, f.x, f.ldx, T, K, 0, T);
            ops->matmul(f.y, f.ldy, f.act, &f.w, T, 0, N, EK_MATMUL_SET);
            for (int64_t t = 0; t < T; t++) {
                act_row(x, &f, t);
                expect_row(&f, t, x);
                for (int64_t n = N; n < f.ldy; n++)
                    assert_true(f.y[t * f.ldy + n] == 0);
            }
            ek_free(x);
            teardown(&f);
        }
}

static void products_agree_with_f64_over_the_shape_grid(void **state)
{
    (void)state;
    for_each_isa(check_products);
}

/* Rows alone, columns in ranges, activations prepared in ranges: the same bits. */
static void check_split(const struct ek_ops *ops, int64_t T, int64_t N, int64_t K)
{
    for (int format = 0; format < EK_WEIGHT_COUNT; format++) {
        struct fixture f;
        setup(&f, (enum ek_weight_format)format, T, N, K);
        float *whole = new_floats(T * f.ldy);
        ops->matmul_prepare(f.act, f.w.format, f.x, f.ldx, T, K, 0, T);
        ops->matmul(whole, f.ldy, f.act, &f.w, T, 0, N, EK_MATMUL_SET);
        for (int64_t t0 = 0, step = 1; t0 < T; t0 += step, step = step % 4 + 1) {
            int64_t t1 = t0 + step < T ? t0 + step : T;
            const unsigned char *row = ek_act_row(f.act, f.w.format, K, t0);
            ops->matmul_prepare(f.act, f.w.format, f.x, f.ldx, T, K, t0, t1);
            for (int64_t n0 = 0; n0 < N; n0 += 48)
                ops->matmul(f.y + t0 * f.ldy, f.ldy, row, &f.w, t1 - t0, n0,
                            n0 + 48 < N ? n0 + 48 : N, EK_MATMUL_SET);
        }
        assert_memory_equal(whole, f.y, (size_t)(T * f.ldy) * sizeof *whole);
        ek_free(whole);
        teardown(&f);
    }
}

static void check_splits(const struct ek_ops *ops)
{
    check_split(ops, 17, 129, 577);
    check_split(ops, 300, 33, 577); /* more rows than stay in L2, in every format */
}

static void
a_row_has_the_same_bits_alone_and_in_a_batch_and_for_every_split(void **state)
{
    (void)state;
    for_each_isa(check_splits);
}

static void check_add(const struct ek_ops *ops)
{
    for (int format = 0; format < EK_WEIGHT_COUNT; format++) {
        struct fixture f;
        setup(&f, (enum ek_weight_format)format, 5, 33, 70);
        float *sum = new_floats(f.T * f.ldy);
        for (int64_t i = 0; i < f.T * f.ldy; i++)
            sum[i] = (float)i;
        ops->matmul_prepare(f.act, f.w.format, f.x, f.ldx, f.T, f.w.K, 0, f.T);
        ops->matmul(f.y, f.ldy, f.act, &f.w, f.T, 0, f.w.N, EK_MATMUL_SET);
        ops->matmul(sum, f.ldy, f.act, &f.w, f.T, 0, f.w.N, EK_MATMUL_ADD);
        for (int64_t i = 0; i < f.T * f.ldy; i++)
            assert_true(sum[i] == (float)i + f.y[i]);
        ek_free(sum);
        teardown(&f);
    }
}

static void add_mode_adds_the_same_product(void **state)
{
    (void)state;
    for_each_isa(check_add);
}

/* The activations of integer weights: a step is the largest magnitude of the quads
 * without top by 127, or that of all by 2159 if larger, and rounding errs by half of it,
 * beside two roundings of f32. */
static void expect_steps(const float *x, const struct ek_act_cell *cell)
{
    double most[EK_QUADS] = {0}, all = 0, rest = 0;
    for (int k = 0; k < EK_GROUP; k++)
        most[k / 4] = fmax(most[k / 4], fabs((double)x[k]));
    assert_true(cell->at[0] != cell->at[1]);
    for (int q = 0; q < EK_QUADS; q++) {
        all = fmax(all, most[q]);
        if (q != cell->at[0] >> 5 && q != cell->at[1] >> 5)
            rest = fmax(rest, most[q]);
    }
    double step = fmax(rest / 127, all / 2159);
    expect_near((double)cell->scale, step, step * 2 * EPS);
    for (int i = 0; i < 2; i++)
        assert_true(most[cell->at[i] >> 5] >= rest);
    for (int k = 0; k < EK_GROUP; k++) {
        double got = of_cells((const unsigned char *)(const void *)cell, k);
        expect_near(got, (double)x[k], step * 0.5 + all * 4 * EPS);
        assert_true(cell->base[k] >= -127);
    }
}

static void check_steps(const struct ek_ops *ops)
{
    const int64_t K = 32 * 50;
    struct ek_rng rng;
    float *x = new_floats(K);
    void *act = new_bytes(ek_matmul_act_bytes(EK_WEIGHT_I4, 1, K));
    ek_rng_init(&rng, 9);
    for (int spikes = NO_SPIKES; spikes <= EVERYWHERE; spikes++) {
        fill_random(x, K, &rng);
        add_spikes(x, K, (enum spikes)spikes);
        ops->matmul_prepare(act, EK_WEIGHT_I4, x, K, 1, K, 0, 1);
        for (int64_t g = 0; g < K / EK_GROUP; g++)
            expect_steps(x + g * EK_GROUP, ek_act_cells(act) + g);
    }
    ek_free(x);
    ek_free(act);
}

static void two_quads_of_outliers_do_not_coarsen_their_group(void **state)
{
    (void)state;
    for_each_isa(check_steps);
}

/* Values that rounding or scaling treats specially, one group each. */
static void fill_special(float *x, int64_t K)
{
    static const float special[] = {0.0f,     -0.0f,   1e-31f, -1e-38f,  1e-45f,  3e38f,
                                    INFINITY, -NAN,    NAN,    127.5f,   -127.5f, 0.5f,
                                    1.5f,     65504.f, 1e-30f, -INFINITY};
    for (int64_t k = 0; k < K; k++)
        if (k / EK_GROUP % 3 == 2)
            x[k] = special[(k * 7 + k / EK_GROUP) % (int64_t)COUNT(special)];
        else if (k / EK_GROUP % 3 == 1)
            x[k] *= 1e-30f;
}

static void check_prepare(const struct ek_ops *ops)
{
    for (int format = 0; format < EK_WEIGHT_COUNT; format++)
        for (size_t i = 0; i < COUNT(Ks); i++) {
            struct fixture f;
            setup(&f, (enum ek_weight_format)format, 7, 1, Ks[i]);
            size_t bytes = ek_matmul_act_bytes(f.w.format, f.T, f.w.K);
            void *other = new_bytes(bytes);
            for (int64_t t = 0; t < f.T; t += 2)
                fill_special(f.x + t * f.ldx, f.w.K);
            const struct ek_ops *ref = ek_ops_get(EK_ISA_REF);
            ref->matmul_prepare(f.act, f.w.format, f.x, f.ldx, f.T, f.w.K, 0, f.T);
            ops->matmul_prepare(other, f.w.format, f.x, f.ldx, f.T, f.w.K, 0, f.T);
            assert_memory_equal(f.act, other, bytes);
            ek_free(other);
            teardown(&f);
        }
}

static void every_variant_prepares_the_same_bits(void **state)
{
    (void)state;
    for_each_isa(check_prepare);
}

static void check_nan(const struct ek_ops *ops)
{
    for (int format = 0; format < EK_WEIGHT_COUNT; format++) {
        struct fixture f;
        setup(&f, (enum ek_weight_format)format, 3, 20, 70);
        f.x[f.ldx + 69] = NAN;
        ops->matmul_prepare(f.act, f.w.format, f.x, f.ldx, f.T, f.w.K, 0, f.T);
        ops->matmul(f.y, f.ldy, f.act, &f.w, f.T, 0, f.w.N, EK_MATMUL_SET);
        for (int64_t n = 0; n < f.w.N; n++) {
            assert_false(isnan(f.y[n]));
            assert_true(isnan(f.y[f.ldy + n]));
            assert_false(isnan(f.y[2 * f.ldy + n]));
        }
        teardown(&f);
    }
}

static void a_nan_activation_reaches_its_row_and_no_other(void **state)
{
    (void)state;
    for_each_isa(check_nan);
}

/* The largest codes everywhere: no sum of bytes may saturate. */
static void check_extremes(const struct ek_ops *ops)
{
    for (int sign = -1; sign <= 1; sign += 2)
        for (int format = EK_WEIGHT_I8; format < EK_WEIGHT_COUNT; format++) {
            int64_t K = 128, N = 16;
            struct ek_weight w = {(enum ek_weight_format)format, N, K, NULL};
            w.data = new_bytes(ek_weight_bytes(w.format, N, K));
            void *act = new_bytes(ek_matmul_act_bytes(w.format, 1, K));
            float x[128], dense[128 * 16], scratch[128], y[16];
            double sum = 0;
            for (int64_t i = 0; i < K * N; i++) /* 4 bits: codes 15 and a 0 a group */
                dense[i] = i % 32 == 0 ? -1.0f : 1.0f;
            for (int64_t k = 0; k < K; k++)
                x[k] = (float)sign;
            ek_weight_pack(&w, 0, N, EK_DTYPE_F32, dense, (size_t)K * 4, scratch);
            ops->matmul_prepare(act, w.format, x, K, 1, K, 0, 1);
            ops->matmul(y, N, act, &w, 1, 0, N, EK_MATMUL_SET);
            ek_weight_row(dense, &w, 0); /* all rows are alike */
            for (int64_t k = 0; k < K; k++)
                sum += (double)dense[k] * sign;
            for (int64_t n = 0; n < N; n++)
                expect_near((double)y[n], sum, 1e-3);
            assert_true(sum * sign > 100);
            ek_free(w.data);
            ek_free(act);
        }
}

static void the_largest_codes_do_not_saturate(void **state)
{
    (void)state;
    for_each_isa(check_extremes);
}

static void impossible_sizes_have_no_bytes(void **state)
{
    (void)state;
    assert_int_equal(ek_matmul_act_bytes(EK_WEIGHT_F32, INT64_MAX / 4, 64), 0);
    assert_int_equal(ek_matmul_act_bytes(EK_WEIGHT_I4, 1, INT64_MAX), 0);
    assert_int_equal(ek_matmul_act_bytes(EK_WEIGHT_I4, 1LL << 39, 1LL << 39), 0);
    assert_int_equal(ek_matmul_act_bytes(EK_WEIGHT_I4, 1, 0), 0);
    assert_int_equal(ek_weight_bytes(EK_WEIGHT_F32, 1LL << 39, 1LL << 39), 0);
    assert_int_equal(ek_weight_bytes(EK_WEIGHT_E4M3, -1, 4), 0);
    assert_int_equal(ek_weight_bytes(EK_WEIGHT_E4M3, 4, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_f64_over_the_shape_grid),
        cmocka_unit_test(
            a_row_has_the_same_bits_alone_and_in_a_batch_and_for_every_split),
        cmocka_unit_test(add_mode_adds_the_same_product),
        cmocka_unit_test(two_quads_of_outliers_do_not_coarsen_their_group),
        cmocka_unit_test(every_variant_prepares_the_same_bits),
        cmocka_unit_test(a_nan_activation_reaches_its_row_and_no_other),
        cmocka_unit_test(the_largest_codes_do_not_saturate),
        cmocka_unit_test(impossible_sizes_have_no_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
