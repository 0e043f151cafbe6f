/* jagged attention: the same bits on any number of threads, in any order of tiles; the
 * gradients of the formulas that the other tests hold kernels to, by finite differences
 * in f64; tiles, masks and buckets. */
#include "base/team.h"
#include "jagged_naive.h"

#include <stdatomic.h>

#define MIX                                                                            \
    {                                                                                  \
        0, 1, 5, 70, 600, 17, 1100, -1                                                 \
    }

static const int32_t any_targets[1] = {0};

/* Staged sequences, GQA, learned bias, broadcast queries. */
static const struct shape shapes[] = {
    {.lq = MIX,
     .lk = MIX,
     .d = {4, 2, 16, .score = EK_JAGGED_SOFTMAX, .alpha = 0.25f,
           .mask = {.is_causal = true}},
     .has_pos = true,
     .has_time = true},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 64, .score = EK_JAGGED_SOFTMAX, .alpha = 0.25f,
           .mask = {.block = 64}}},
    {.lq = {40, -1},
     .lk = MIX,
     .d = {2, 1, 16, .score = EK_JAGGED_PHI, .alpha = 0.25f, .scale = 1,
           .phi = EK_PHI_GELU_TANH, .is_broadcast_q = true}},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 64, .score = EK_JAGGED_SOFTMAX, .alpha = 0.25f,
           .mask = {.block = 64}}},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 16, .score = EK_JAGGED_PHI, .alpha = 0.25f, .scale = 1,
           .phi = EK_PHI_SILU, .mask = {.is_causal = true}}},
    {.lq = {0, 1, 5, 70, 400, 17, 512, -1},
     .lk = {0, 1, 5, 70, 400, 17, 512, -1},
     .d = {4, 2, 64, .score = EK_JAGGED_PHI, .alpha = 0.25f, .scale = 1,
           .phi = EK_PHI_SILU, .mask = {.is_causal = true}},
     .has_pos = true},
    {.lq = MIX,
     .lk = {64, 1, 100, 64, 128, 3, 64, -1},
     .d = {4, 2, 64, .score = EK_JAGGED_PHI, .alpha = 0.25f, .scale = 1,
           .phi = EK_PHI_GELU_TANH}},
};

struct run {
    struct jagged *f;
    const struct ek_ops *ops;
    atomic_llong next;
    bool is_backward;
    unsigned char *scratch;
    size_t bytes;
};

static void take_tiles(void *arg, int member, int n_members)
{
    struct run *r = arg;
    (void)n_members;
    const int64_t n = r->is_backward ? r->f->plan.n_bwd : r->f->plan.n_fwd;
    ek_jagged_fn *fn =
        r->is_backward ? r->ops->jagged_backward : r->ops->jagged_forward;
    for (;;) {
        int64_t t = atomic_fetch_add(&r->next, 1);
        if (t >= n)
            break;
        fn(&r->f->a, t, r->scratch + (size_t)member * r->bytes);
    }
}

static void reduce(void *arg, int member, int n_members)
{
    struct run *r = arg;
    int64_t lo, hi;
    ek_team_share(&lo, &hi, ek_jagged_reduce_units(&r->f->a), 1, member, n_members);
    ek_jagged_reduce(&r->f->a, lo, hi);
}

/* A hash of all outputs. */
static uint64_t hash_of(const struct jagged *f)
{
    const struct ek_jagged_args *a = &f->a;
    const struct {
        const void *x;
        int64_t n;
    } all[] = {{a->o, f->n_o * a->ldo},      {a->dq, f->n_q * a->ldq},
               {a->dk, f->n_k * a->ldk},     {a->dv, f->n_k * a->ldv},
               {a->dpos, 2 * f->bias.N - 1}, {a->dtime, EK_JAGGED_BUCKETS},
               {a->lse, f->n_o * f->d.H}};
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < COUNT(all); i++) {
        const unsigned char *p = all[i].x;
        for (int64_t k = 0; p && k < all[i].n * 4; k++)
            h = (h ^ p[k]) * 1099511628211u;
    }
    return h;
}

static uint64_t run_with(struct jagged *f, const struct ek_ops *ops, int threads)
{
    struct ek_team *team;
    assert_int_equal(ek_team_new(&team, threads, false, NULL), 0);
    struct run r = {.f = f, .ops = ops, .bytes = ek_jagged_scratch_bytes(&f->d)};
    r.scratch = new_bytes((size_t)threads * r.bytes);
    memset(r.scratch, 0x7f, (size_t)threads * r.bytes);
    ek_team_run(team, take_tiles, &r);
    r.is_backward = true;
    r.next = 0;
    ek_team_run(team, take_tiles, &r);
    ek_team_run(team, reduce, &r);
    ek_free(r.scratch);
    ek_team_free(team);
    return hash_of(f);
}

static void check_threads(const struct ek_ops *ops)
{
    static const int threads[] = {2, 3, 8, 17};
    /* The plain variant is slow, and has one course for all: broadcast queries, staged. */
    const bool is_plain = ops->isa == EK_ISA_REF;
    for (size_t i = is_plain ? 2 : 0; i < (is_plain ? 3 : COUNT(shapes)); i++) {
        struct shape s = shapes[i];
        struct jagged f;
        s.d.dtype = EK_DTYPE_F32;
        s.d.products = i == 1 ? EK_DTYPE_F32 : EK_DTYPE_BF16;
        setup(&f, &s, 5);
        uint64_t want = run_with(&f, ops, 1);
        for (size_t k = 0; k < COUNT(threads); k++)
            assert_true(run_with(&f, ops, threads[k]) == want);
        teardown(&f);
    }
}

static void bits_are_the_same_on_1_2_3_8_and_17_threads(void **state)
{
    (void)state;
    for (int isa = EK_ISA_REF; isa <= (int)ek_isa_best(); isa++)
        check_threads(ek_ops_get((enum ek_isa)isa));
}

/* Loss: the sum of o times d_o. */
static double loss_of(struct jagged *f)
{
    double sum = 0;
    naive_run(f, false);
    for (int64_t i = 0; i < f->n_o * f->d.H * f->d.D; i++)
        sum += f->x.o[i] * f->x.d_o[i];
    return sum;
}

static void check_difference(struct jagged *f, double *x, const double *grad, int64_t n)
{
    const double step = 1e-5;
    for (int64_t i = 0; i < n; i += 1 + n / 40) {
        const double at = x[i];
        x[i] = at + step;
        double up = loss_of(f);
        x[i] = at - step;
        double down = loss_of(f);
        x[i] = at;
        expect_near(grad[i], (up - down) / (2 * step), 1e-6 * (1 + fabs(grad[i])));
    }
}

static void check_gradients_of(const struct shape *s)
{
    struct jagged f;
    setup(&f, s, 11);
    naive_run(&f, true);
    check_difference(&f, f.x.q, f.x.dq, f.n_q * 4 * 5);
    check_difference(&f, f.x.k, f.x.dk, f.n_k * 2 * 5);
    check_difference(&f, f.x.v, f.x.dv, f.n_k * 2 * 5);
    check_difference(&f, f.x.pair, f.x.dpair, f.n_pair * 4);
    check_difference(&f, f.x.pos, f.x.dpos, 2 * f.bias.N - 1);
    check_difference(&f, f.x.time, f.x.dtime, EK_JAGGED_BUCKETS);
    teardown(&f);
}

static void check_gradients(enum ek_jagged_score score, enum ek_phi phi,
                            struct ek_jagged_mask mask)
{
    check_gradients_of(&(struct shape){.lq = {3, 0, 7, -1},
                                       .lk = {3, 2, 7, -1},
                                       .d = {4, 2, 5, EK_DTYPE_F32, EK_DTYPE_F32, score,
                                             0.7f, 0.6f, phi, .mask = mask},
                                       .has_pair = true,
                                       .has_pos = true,
                                       .has_time = true,
                                       .targets = {1, 0, 2}});
}

/* Queries of all sequences at once: dq is summed over them. */
static void check_gradients_of_shared_queries(enum ek_jagged_score score)
{
    check_gradients_of(
        &(struct shape){.lq = {3, -1},
                        .lk = {3, 0, 7, -1},
                        .d = {4, 2, 5, EK_DTYPE_F32, EK_DTYPE_F32, score, 0.7f, 0.6f,
                              EK_PHI_GELU_TANH, .is_broadcast_q = true},
                        .has_pair = true,
                        .has_pos = true,
                        .has_time = true});
}

static void gradients_are_the_differences_of_the_formula(void **state)
{
    (void)state;
    const struct ek_jagged_mask causal = {.is_causal = true};
    for (int phi = 0; phi < EK_PHI_COUNT; phi++)
        check_gradients(EK_JAGGED_PHI, (enum ek_phi)phi, causal);
    check_gradients(EK_JAGGED_SOFTMAX, EK_PHI_RAW, (struct ek_jagged_mask){0});
    check_gradients(EK_JAGGED_SOFTMAX, EK_PHI_RAW, causal);
    for (int is_causal = 0; is_causal < 2; is_causal++) {
        const struct ek_jagged_mask window = {.is_causal = is_causal, .window = 2};
        check_gradients(EK_JAGGED_SOFTMAX, EK_PHI_RAW, window);
        check_gradients(EK_JAGGED_PHI, EK_PHI_GELU_POLY, window);
    }
    check_gradients(EK_JAGGED_PHI, EK_PHI_GELU, (struct ek_jagged_mask){0});
    check_gradients(EK_JAGGED_PHI, EK_PHI_SILU,
                    (struct ek_jagged_mask){
                        .is_causal = true, .n_context = 2, .n_targets = any_targets});
    check_gradients_of_shared_queries(EK_JAGGED_SOFTMAX);
    check_gradients_of_shared_queries(EK_JAGGED_PHI);
    check_gradients(EK_JAGGED_SOFTMAX, EK_PHI_RAW, (struct ek_jagged_mask){.block = 4});
    check_gradients(
        EK_JAGGED_SOFTMAX, EK_PHI_RAW,
        (struct ek_jagged_mask){
            .is_causal = true, .window = 2, .n_context = 2, .n_targets = any_targets});
}

static void buckets_change_where_the_logarithm_does(void **state)
{
    (void)state;
    assert_int_equal(ek_jagged_bucket(0), 0);
    assert_int_equal(ek_jagged_bucket(1), 0);
    assert_int_equal(ek_jagged_bucket(2), 2); /* ln 2 = 2.3 * 0.301 */
    assert_int_equal(ek_jagged_bucket(-86400), 37);
    assert_int_equal(ek_jagged_bucket(INT64_MAX), 128);
    assert_int_equal(ek_jagged_bucket(INT64_MIN), 128);
    for (int64_t x = 1; x < 3000000; x += 1 + x / 50)
        assert_int_equal(ek_jagged_bucket(x), (int)(log((double)x) / 0.301));
}

static void tiles_hold_every_pair_once_heavy_first(void **state)
{
    (void)state;
    struct jagged f;
    struct shape s = shapes[0];
    s.d.dtype = s.d.products = EK_DTYPE_F32;
    setup(&f, &s, 1);
    for (int way = 0; way < 2; way++) {
        const struct ek_jagged_tile *t = way ? f.plan.bwd : f.plan.fwd;
        const int64_t n = way ? f.plan.n_bwd : f.plan.n_fwd;
        int64_t sum = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += t[i].work;
            assert_true(i == 0 || t[i - 1].work >= t[i].work);
        }
        assert_int_equal(sum, f.plan.n_pairs);
        assert_true(f.plan.after[way] <= f.plan.before[way]);
    }
    teardown(&f);
}

static void a_deal_gives_every_tile_to_one_member(void **state)
{
    (void)state;
    for (int members = 1; members <= 17; members += 4)
        for (int64_t n = 0; n < 60; n += 7) {
            int taken[64] = {0};
            for (int m = 0; m < members; m++)
                for (int64_t r = 0; r < n; r++) {
                    int64_t t = ek_jagged_deal(n, r, m, members);
                    if (t >= 0)
                        taken[t]++;
                }
            for (int64_t t = 0; t < n; t++)
                assert_int_equal(taken[t], 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_the_same_on_1_2_3_8_and_17_threads),
        cmocka_unit_test(gradients_are_the_differences_of_the_formula),
        cmocka_unit_test(buckets_change_where_the_logarithm_does),
        cmocka_unit_test(tiles_hold_every_pair_once_heavy_first),
        cmocka_unit_test(a_deal_gives_every_tile_to_one_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
