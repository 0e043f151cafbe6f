/* jagged attention of every variant against f64, forward and backward.
 *
 * Tolerance with F32 products, inputs in [-1,1): an error in a score is (D+3) ulp/2 of
 * sum|q k| alpha, and moves P by as much relatively; sums of n terms err by n ulp/2 of
 * the sum of their sizes. Rather than carry that through backward, each output is held
 * to a share of its own largest element's size: 2e-5, ten times what is seen; and to
 * 100 dB as a whole.
 *
 * With BF16 products P and dx are rounded to bf16, 2^-9 relative at most and
 * 2^-9/sqrt(3) by root mean square, 20 log10 of that is 59 dB; two such roundings meet in dq and dk
 * (P's in dx), and bf16 outputs are rounded once more: 54 dB. What cancels in a sum
 * (P dP - delta) is lost again, so 45 dB is asked for, of inputs already rounded. */
#include "base/mem.h"
#include "jagged_naive.h"

#define SOFT .score = EK_JAGGED_SOFTMAX, .alpha = 0.25f
#define PHI  .score = EK_JAGGED_PHI, .alpha = 0.25f, .scale = 0.5f
#define MIX                                                                            \
    {                                                                                  \
        0, 1, 5, 70, 64, 17, 3, 131, -1                                                \
    }
#define GIANT                                                                          \
    {                                                                                  \
        2, 1, 520, 3, 0, 2, -1                                                         \
    }

static const int32_t any_targets[1] = {0};
static const enum ek_phi any_phis[1] = {EK_PHI_RAW};

/* What a name says is what differs from plain softmax over everything. */
static const struct shape shapes[] = {
    {.lq = MIX, .lk = MIX, .d = {2, 2, 16, SOFT}},
    {.lq = MIX, .lk = {3, 0, 9, 40, 66, 130, 1, 64, -1}, .d = {2, 1, 20, SOFT}},
    {.lq = MIX, .lk = MIX, .d = {2, 1, 64, SOFT, .mask = {.is_causal = true}}},
    {.lq = MIX,
     .lk = {3, 0, 9, 140, 33, 18, 1, 64, -1},
     .d = {2, 2, 32, SOFT, .mask = {.is_causal = true}}},
    {.lq = MIX, .lk = MIX, .d = {2, 2, 16, SOFT, .mask = {.window = 9}}},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 16, SOFT, .mask = {.is_causal = true, .window = 20}}},
    {.lq = MIX, .lk = MIX, .d = {4, 2, 64, SOFT, .mask = {.block = 64}}},
    {.lq = MIX,
     .lk = {3, 0, 9, 140, 33, 18, 1, 64, -1},
     .d = {2, 2, 16, SOFT, .mask = {.block = 64}}},
    {.lq = MIX, .lk = MIX, .d = {2, 2, 16, SOFT, .mask = {.block = 24}}},
    {.lq = MIX, .lk = MIX, .d = {2, 2, 16, SOFT}, .has_pair = true},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 16, SOFT, .mask = {.is_causal = true}},
     .has_pos = true,
     .has_time = true},
    {.lq = MIX, .lk = MIX, .d = {2, 2, 24, SOFT, .is_subtracting = true}},
    {.lq = {5, -1},
     .lk = {40, 1, 0, 66, 200, -1},
     .d = {2, 1, 16, SOFT, .is_broadcast_q = true}},
    {.lq = MIX,
     .lk = MIX,
     .d = {3, 3, 25, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}},
     .has_pos = true,
     .has_time = true},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 1, 16, PHI, .phi = EK_PHI_SILU,
           .mask = {.is_causal = true, .n_context = 2, .n_targets = any_targets}},
     .targets = {0, 0, 1, 7, 0, 3, 0, 20}},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 16, PHI, .phi = EK_PHI_SILU,
           .mask = {.is_causal = true,
                    .window = 10,
                    .n_context = 2,
                    .n_full = 6,
                    .n_targets = any_targets}},
     .targets = {0, 0, 1, 7, 0, 3, 0, 20}},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 16, SOFT,
           .mask = {.is_causal = true, .window = 10, .n_targets = any_targets}},
     .targets = {0, 1, 1, 7, 64, 3, 0, 20}},
    {.lq = MIX,
     .lk = {3, 0, 9, 40, 66, 130, 1, 64, -1},
     .d = {18, 9, 16, PHI, .phis = any_phis},
     .has_seq_scale = true},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 48, PHI, .phi = EK_PHI_GELU_TANH, .mask = {.window = 30}}},
    {.lq = MIX,
     .lk = {64, 1, 5, 64, 64, 64, 64, 128, -1},
     .d = {2, 2, 64, PHI, .phi = EK_PHI_GELU_POLY}},
    {.lq = {70, -1},
     .lk = {64, 64, 1, 0, 64, -1},
     .d = {2, 1, 16, PHI, .phi = EK_PHI_GELU, .is_broadcast_q = true},
     .has_pos = true},
    {.lq = GIANT, .lk = GIANT, .d = {1, 1, 16, SOFT, .mask = {.is_causal = true}}},
    {.lq = {2, 1, 70, 3, 0, 2, -1},
     .lk = {3, 2, 1030, 1, 4, 2, -1},
     .d = {1, 1, 16, PHI, .phi = EK_PHI_SILU},
     .has_pos = true},
    {.lq = GIANT,
     .lk = GIANT,
     .d = {1, 1, 16, SOFT, .mask = {.block = 64}},
     .has_pos = true},
    /* blocks of 64, whole and not, of a tile by itself; every other one in bf16 rows */
    {.lq = MIX, .lk = MIX, .d = {2, 2, 64, SOFT, .mask = {.block = 64}}},
    {.lq = MIX, .lk = MIX, .d = {2, 2, 64, SOFT, .mask = {.block = 64}}},
    {.lq = GIANT, .lk = GIANT, .d = {1, 1, 32, SOFT, .mask = {.block = 64}}},
    {.lq = GIANT, .lk = GIANT, .d = {1, 1, 96, SOFT, .mask = {.block = 64}}},
    {.lq = MIX, .lk = MIX, .d = {3, 3, 96, SOFT, .mask = {.block = 64}}},
    {.lq = MIX, .lk = MIX, .d = {1, 1, 256, SOFT, .mask = {.block = 64}}},
    /* activations over few keys, all of them, and a sequence of too many */
    {.lq = MIX,
     .lk = {64, 1, 128, 5, 127, 40, 129, 0, -1},
     .d = {18, 9, 32, PHI, .phis = any_phis},
     .has_seq_scale = true},
    {.lq = MIX,
     .lk = {64, 1, 128, 5, 127, 40, 129, 0, -1},
     .d = {18, 9, 32, PHI, .phis = any_phis},
     .has_seq_scale = true},
    {.lq = MIX,
     .lk = {64, 1, 128, 5, 127, 40, 129, 0, -1},
     .d = {2, 1, 96, PHI, .phi = EK_PHI_SILU}},
    {.lq = {2, 1, 260, 3, 0, 2, -1},
     .lk = {64, 1, 128, 5, 127, 40, -1},
     .d = {1, 1, 256, PHI, .phi = EK_PHI_GELU_TANH}},
    /* silu under a causal mask: its own course up to 512 keys; every other in bf16 rows */
    {.lq = MIX,
     .lk = MIX,
     .d = {4, 2, 32, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}},
     .has_pos = true,
     .has_seq_scale = true},
    {.lq = MIX,
     .lk = MIX,
     .d = {4, 2, 64, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}},
     .has_pos = true},
    {.lq = {300, 1, 14, -1},
     .lk = {300, 1, 14, -1},
     .d = {1, 1, 96, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}}},
    {.lq = {512, 5, 260, -1},
     .lk = {512, 5, 260, -1},
     .d = {1, 1, 32, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}}},
    /* heads of 128: the general course and those of their own; a window beside Lq != Lk */
    {.lq = MIX, .lk = MIX, .d = {2, 1, 128, SOFT, .mask = {.is_causal = true}}},
    {.lq = MIX, .lk = MIX, .d = {2, 2, 128, SOFT, .mask = {.block = 64}}},
    {.lq = MIX,
     .lk = {64, 1, 128, 5, 127, 40, 129, 0, -1},
     .d = {2, 2, 128, PHI, .phi = EK_PHI_GELU_POLY}},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 128, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}},
     .has_pos = true},
    {.lq = MIX,
     .lk = {3, 0, 9, 140, 33, 18, 1, 64, -1},
     .d = {2, 2, 16, SOFT, .mask = {.is_causal = true, .window = 7}}},
    {.lq = {3, 40, -1}, .lk = {7, 70, -1}, .d = {2, 1, 256, SOFT}},
    {.lq = {3, 40, -1}, .lk = {7, 70, -1}, .d = {2, 1, 1, PHI, .phi = EK_PHI_RELU2}},
};

/* Each element within a share of the largest, all together at `db` at least. */
static void compare(const char *what, const struct shape *s, const void *got,
                    enum ek_dtype t, int64_t ld, const double *want, int64_t rows,
                    int64_t n, double share, double db)
{
    double top = 0, signal = 0, noise = 0;
    for (int64_t i = 0; i < rows * n; i++) {
        top = fabs(want[i]) > top ? fabs(want[i]) : top;
        signal += want[i] * want[i];
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) {
            double x = get(got, t, r * ld + c), y = want[r * n + c];
            noise += (x - y) * (x - y);
            if (!(fabs(x - y) <= share * top))
                fail_msg("shape %d, %s[%d,%d]: %.9g, expected %.9g +- %.2g",
                         (int)(s - shapes), what, (int)r, (int)c, x, y, share * top);
        }
    if (noise > 0 && 10 * log10(signal / noise) < db)
        fail_msg("shape %d, %s: %.1f dB, expected %.1f", (int)(s - shapes), what,
                 10 * log10(signal / noise), db);
}

/* One variant and type of rows, beside `want`'s formulas on the same inputs. */
static void check_kernel(const struct ek_ops *ops, const struct shape *base,
                         const struct naive *want, enum ek_dtype dtype,
                         enum ek_dtype products)
{
    struct shape s = *base;
    struct jagged f;
    s.d.dtype = dtype;
    s.d.products = products;
    setup(&f, &s, 1);
    run_forward(&f, ops);
    const bool is_exact = products == EK_DTYPE_F32 && dtype == EK_DTYPE_F32;
    const double share = is_exact ? 2e-5 : 2e-2, db = is_exact ? 100 : 45;
    const int64_t H = f.d.H, HD = H * f.d.D, KD = (int64_t)f.d.K * f.d.D;
    compare("o", base, f.a.o, dtype, f.a.ldo, want->o, f.n_o, HD, share, db);
    for (int64_t i = 0; f.a.lse && i < f.n_o * H; i++)
        if (want->lse[i] > -1e30)
            expect_near((double)f.a.lse[i], want->lse[i], is_exact ? 1e-5 : 1e-3);
        else
            assert_true(f.a.lse[i] == -INFINITY);
    run_backward(&f, ops);
    compare("dq", base, f.a.dq, dtype, f.a.ldq, want->dq, f.n_q, HD, share, db);
    compare("dk", base, f.a.dk, dtype, f.a.ldk, want->dk, f.n_k, KD, share, db);
    compare("dv", base, f.a.dv, dtype, f.a.ldv, want->dv, f.n_k, KD, share, db);
    if (f.a.dpair)
        compare("dpair", base, f.a.dpair, EK_DTYPE_F32, f.n_pair, want->dpair, H,
                f.n_pair, share, db);
    if (f.a.dpos)
        compare("dpos", base, f.a.dpos, EK_DTYPE_F32, 1, want->dpos, 2 * f.bias.N - 1,
                1, share, db);
    if (f.a.dtime)
        compare("dtime", base, f.a.dtime, EK_DTYPE_F32, 1, want->dtime,
                EK_JAGGED_BUCKETS, 1, share, db);
    teardown(&f);
}

/* The plain variant has no code of its own for most shapes in bf16. */
static bool is_plain_enough(const struct ek_ops *ops, size_t shape)
{
    return ops->isa != EK_ISA_REF || shape < 8;
}

/* The formulas once a shape, for every variant; in bf16 for
 * both types of rows, whose values are the same numbers. */
static void check_shapes(bool is_exact)
{
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct shape s = shapes[i];
        struct jagged f;
        s.d.dtype = EK_DTYPE_F32;
        s.d.products = is_exact ? EK_DTYPE_F32 : EK_DTYPE_BF16;
        setup(&f, &s, 1);
        naive_run(&f, true);
        for (int isa = EK_ISA_REF; isa <= (int)ek_isa_best(); isa++) {
            const struct ek_ops *ops = ek_ops_get((enum ek_isa)isa);
            if (!is_exact && !is_plain_enough(ops, i))
                continue;
            check_kernel(ops, &shapes[i], &f.x, EK_DTYPE_F32, s.d.products);
            if (!is_exact)
                check_kernel(ops, &shapes[i], &f.x, EK_DTYPE_BF16,
                             i % 2 ? EK_DTYPE_BF16 : EK_DTYPE_F32);
        }
        teardown(&f);
    }
}

static void f32_is_the_formula(void **state)
{
    (void)state;
    check_shapes(true);
}

static void bf16_products_and_rows_keep_45_db(void **state)
{
    (void)state;
    check_shapes(false);
}

/* Large scores: softmax by its largest, activations far out. */
static void check_large(const struct ek_ops *ops)
{
    struct shape s = {
        .lq = MIX, .lk = MIX, .d = {2, 2, 16, SOFT, .mask = {.is_causal = true}}};
    s.amplitude = 12;
    s.d.dtype = s.d.products = EK_DTYPE_F32;
    struct jagged f;
    setup(&f, &s, 3);
    naive_run(&f, true);
    run_forward(&f, ops);
    run_backward(&f, ops);
    compare("o", shapes, f.a.o, EK_DTYPE_F32, f.a.ldo, f.x.o, f.n_o, 32, 1e-4, 90);
    compare("dq", shapes, f.a.dq, EK_DTYPE_F32, f.a.ldq, f.x.dq, f.n_q, 32, 1e-4, 80);
    teardown(&f);
}

static void scores_of_hundreds_stay_finite(void **state)
{
    (void)state;
    for (int isa = EK_ISA_REF; isa <= (int)ek_isa_best(); isa++)
        check_large(ek_ops_get((enum ek_isa)isa));
}

/* --- what is not a number --- */

/* One query of the sequence of 70 is NaN in its first head: so are its rows of o and dq and
 * its LSE, and no other row of o is. */
static void check_nan(const struct ek_ops *ops, const struct shape *s,
                      enum ek_dtype dtype)
{
    struct shape x = *s;
    struct jagged f;
    x.d.dtype = x.d.products = dtype;
    setup(&f, &x, 4);
    const int64_t row = f.q_offsets[3] + 65, H = f.d.H, D = f.d.D;
    void *q = (void *)(uintptr_t)f.a.q;
    if (dtype == EK_DTYPE_F32)
        ((float *)q)[row * f.a.ldq + 1] = NAN;
    else
        ((uint16_t *)q)[row * f.a.ldq + 1] = 0x7fc0;
    run_forward(&f, ops);
    run_backward(&f, ops);
    for (int64_t r = 0; r < f.n_o; r++)
        for (int64_t c = 0; c < H * D; c++) {
            const bool is_it = r == row && c < D;
            assert_true(isnan(get(f.a.o, dtype, r * f.a.ldo + c)) == is_it);
            if (is_it)
                assert_true(isnan(get(f.a.dq, dtype, r * f.a.ldq + c)));
        }
    for (int64_t i = 0; f.a.lse && i < f.n_o * H; i++)
        assert_true(isnan(f.a.lse[i]) == (i == row * H));
    teardown(&f);
}

static void a_query_that_is_nan_gives_nan(void **state)
{
    static const struct shape kinds[] = {
        {.lq = MIX, .lk = MIX, .d = {2, 2, 16, SOFT}},
        {.lq = MIX, .lk = MIX, .d = {2, 2, 64, SOFT, .mask = {.is_causal = true}}},
        {.lq = MIX, .lk = MIX, .d = {2, 2, 64, SOFT, .mask = {.block = 64}}},
        {.lq = MIX,
         .lk = MIX,
         .d = {2, 2, 64, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}}},
        {.lq = MIX, .lk = MIX, .d = {2, 2, 16, PHI, .phi = EK_PHI_SILU}},
        {.lq = MIX,
         .lk = {64, 1, 128, 64, 127, 40, 64, 0, -1},
         .d = {2, 2, 64, PHI, .phi = EK_PHI_GELU_TANH}},
    };
    (void)state;
    for (int isa = EK_ISA_REF; isa <= (int)ek_isa_best(); isa++)
        for (size_t i = 0; i < COUNT(kinds); i++) {
            check_nan(ek_ops_get((enum ek_isa)isa), &kinds[i], EK_DTYPE_F32);
            check_nan(ek_ops_get((enum ek_isa)isa), &kinds[i], EK_DTYPE_BF16);
        }
}

/* --- outputs that leave past the caches --- */

/* The same n rows at *ld = n_columns, on a line of the cache, and *ld itself. */
static void *aligned_rows(struct jagged *f, const void *x, int64_t rows, int64_t n,
                          int64_t *ld)
{
    uint16_t *to = own(f, ek_alloc_aligned(64, (size_t)(rows * n) * 2));
    assert_non_null(to);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * n, (const uint16_t *)x + r * *ld, (size_t)n * 2);
    *ld = n;
    return to;
}

static void expect_rows(const void *got, const void *want, int64_t rows, int64_t n,
                        int64_t ld)
{
    for (int64_t r = 0; r < rows; r++)
        assert_memory_equal((const uint16_t *)got + r * n,
                            (const uint16_t *)want + r * ld, (size_t)n * 2);
}

/* On a line of the cache and more than 1 MiB a tensor, against rows at odd places. */
static void check_aligned(const struct ek_ops *ops, const struct shape *shape)
{
    struct shape s = *shape;
    struct jagged f;
    s.d.dtype = s.d.products = EK_DTYPE_BF16;
    setup(&f, &s, 6);
    run_forward(&f, ops);
    run_backward(&f, ops);
    const struct ek_jagged_args odd = f.a;
    const int64_t n = (int64_t)f.d.H * f.d.D, n_kv = (int64_t)f.d.K * f.d.D;
    assert_true(f.n_q * n * 2 > 1 << 20);
    int64_t ldo = odd.ldo, ldq = odd.ldq, ldk = odd.ldk, ldv = odd.ldv;
    f.a.d_o = aligned_rows(&f, odd.d_o, f.n_o, n, &f.a.ldo);
    f.a.o = aligned_rows(&f, odd.d_o, f.n_o, n, &ldo);
    f.a.q = aligned_rows(&f, odd.q, f.n_q, n, &f.a.ldq);
    f.a.dq = aligned_rows(&f, odd.q, f.n_q, n, &ldq);
    f.a.k = aligned_rows(&f, odd.k, f.n_k, n_kv, &f.a.ldk);
    f.a.dk = aligned_rows(&f, odd.k, f.n_k, n_kv, &ldk);
    f.a.v = aligned_rows(&f, odd.v, f.n_k, n_kv, &f.a.ldv);
    f.a.dv = aligned_rows(&f, odd.v, f.n_k, n_kv, &ldv);
    run_forward(&f, ops);
    run_backward(&f, ops);
    expect_rows(f.a.o, odd.o, f.n_o, n, odd.ldo);
    expect_rows(f.a.dq, odd.dq, f.n_q, n, odd.ldq);
    expect_rows(f.a.dk, odd.dk, f.n_k, n_kv, odd.ldk);
    expect_rows(f.a.dv, odd.dv, f.n_k, n_kv, odd.ldv);
    teardown(&f);
}

static void where_rows_lie_changes_no_bit(void **state)
{
    static const struct shape kinds[] = {
        {.lq = {400, 9, 300, 1, -1},
         .lk = {400, 9, 300, 1, -1},
         .d = {12, 12, 64, SOFT, .mask = {.block = 64}}},
        {.lq = {400, 9, 300, 1, -1},
         .lk = {400, 9, 300, 1, -1},
         .d = {12, 12, 64, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}}},
        {.lq = {400, 9, 300, 1, -1},
         .lk = {64, 128, 20, 5, -1},
         .d = {12, 12, 64, PHI, .phi = EK_PHI_GELU_TANH}},
        /* heads of one line and of three, queries that share keys, a course without */
        {.lq = {400, 9, 300, 1, -1},
         .lk = {400, 9, 300, 1, -1},
         .d = {8, 8, 96, SOFT, .mask = {.block = 64}}},
        {.lq = {400, 9, 300, 65, 1, -1},
         .lk = {400, 9, 300, 65, 1, -1},
         .d = {24, 6, 32, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}}},
        {.lq = {400, 9, 300, 1, -1},
         .lk = {64, 128, 20, 5, -1},
         .d = {8, 4, 96, PHI, .phi = EK_PHI_GELU_TANH}},
        {.lq = {560, 17, 150, 1, -1},
         .lk = {560, 17, 150, 1, -1},
         .d = {12, 12, 64, SOFT, .mask = {.is_causal = true}}},
    };
    (void)state;
    for (int isa = EK_ISA_AVX2; isa <= (int)ek_isa_best(); isa++)
        for (size_t i = 0; i < COUNT(kinds); i++)
            check_aligned(ek_ops_get((enum ek_isa)isa), &kinds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_is_the_formula),
        cmocka_unit_test(bf16_products_and_rows_keep_45_db),
        cmocka_unit_test(scores_of_hundreds_stay_finite),
        cmocka_unit_test(a_query_that_is_nan_gives_nan),
        cmocka_unit_test(where_rows_lie_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
