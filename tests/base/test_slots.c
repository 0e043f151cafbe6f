#include "base/rng.h"
#include "base/slots.h"
#include "testkit.h"

#include <pthread.h>
#include <stdatomic.h>

static struct ek_slots *make(int32_t cap)
{
    struct ek_slots *s = NULL;
    assert_int_equal(ek_slots_new(&s, cap), 0);
    return s;
}

static int32_t n_open(const struct ek_slots *s)
{
    int32_t n;
    uint32_t n_takes;
    ek_slots_count(s, &n, &n_takes);
    return n;
}

static void a_slot_is_given_back_once(void **state)
{
    (void)state;
    struct ek_slots *s = make(4);
    uint64_t id = ek_slots_take(s, 1, 2);
    assert_true(id != 0 && ek_slots_is_open(s, id));
    assert_int_equal(n_open(s), 1);
    assert_true(ek_slots_give(s, id));
    assert_false(ek_slots_give(s, id));
    assert_false(ek_slots_is_open(s, id));
    uint64_t next = ek_slots_take(s, 1, 2);
    assert_true(next != id); /* the same slot */
    assert_false(ek_slots_give(s, id));
    assert_int_equal(n_open(s), 1);
    ek_slots_free(s);
}

static void an_id_of_nowhere_does_nothing(void **state)
{
    (void)state;
    struct ek_slots *s = make(4);
    static const uint64_t ids[] = {0, 1, 4, 5, UINT64_MAX, UINT64_C(1) << 18};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        assert_false(ek_slots_give(s, ids[i]));
        assert_false(ek_slots_is_open(s, ids[i]));
        assert_false(ek_slots_set_deadline(s, ids[i], 9));
    }
    assert_int_equal(n_open(s), 0);
    ek_slots_free(s);
}

static void the_limit_is_exact_and_may_move(void **state)
{
    (void)state;
    struct ek_slots *s = make(3);
    uint64_t a = ek_slots_take(s, 0, 9), b = ek_slots_take(s, 0, 9);
    assert_true(a && b && ek_slots_take(s, 0, 9));
    assert_true(ek_slots_take(s, 0, 9) == 0);
    ek_slots_set_limit(s, 1);
    assert_true(ek_slots_give(s, a) && ek_slots_take(s, 0, 9) == 0);
    assert_true(ek_slots_give(s, b) && ek_slots_take(s, 0, 9) == 0);
    ek_slots_set_limit(s, 100);
    assert_true(ek_slots_take(s, 0, 9) && ek_slots_take(s, 0, 9));
    assert_true(ek_slots_take(s, 0, 9) == 0);
    ek_slots_free(s);
}

static void a_sweep_ends_what_is_late_and_counts_the_young(void **state)
{
    (void)state;
    struct ek_slots *s = make(8);
    uint64_t late = ek_slots_take(s, 0, 100), extended = ek_slots_take(s, 0, 100);
    uint64_t old = ek_slots_take(s, 50, 1000);
    ek_slots_take(s, 51, 1000);
    assert_true(ek_slots_set_deadline(s, extended, 200));
    int32_t n_young;
    assert_int_equal(ek_slots_sweep(s, 99, 50, &n_young), 0);
    assert_int_equal(ek_slots_sweep(s, 100, 50, &n_young), 1);
    assert_int_equal(n_young, 1);
    assert_false(ek_slots_give(s, late));
    assert_false(ek_slots_set_deadline(s, late, 500));
    assert_true(ek_slots_give(s, extended) && ek_slots_give(s, old));
    assert_int_equal(n_open(s), 1);
    ek_slots_free(s);
}

/* The largest table, to its last slot and back twice: links of every value. */
static void the_largest_table_can_be_filled(void **state)
{
    (void)state;
    struct ek_slots *s = make(EK_SLOTS_MAX);
    uint64_t *ids = calloc(EK_SLOTS_MAX, sizeof *ids);
    assert_non_null(ids);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < EK_SLOTS_MAX; i++)
            assert_true((ids[i] = ek_slots_take(s, 0, 1)) != 0);
        assert_true(ek_slots_take(s, 0, 1) == 0);
        for (int i = 0; i < EK_SLOTS_MAX; i++)
            assert_true(ek_slots_give(s, ids[round == 1 ? EK_SLOTS_MAX - 1 - i : i]));
        assert_int_equal(n_open(s), 0);
    }
    free(ids);
    ek_slots_free(s);
}

static void random_use_agrees_with_a_list(void **state)
{
    (void)state;
    enum { CAP = 37, STEPS = 100000 };
    struct ek_slots *s = make(CAP);
    struct ek_rng rng;
    ek_rng_init(&rng, 7);
    uint64_t open[CAP], over[64] = {0};
    int32_t n = 0, n_takes = 0;
    for (int step = 0; step < STEPS; step++) {
        if (ek_rng_below(&rng, 2)) {
            uint64_t id = ek_slots_take(s, step, STEPS);
            assert_true((id != 0) == (n < CAP));
            for (int32_t i = 0; i < n; i++)
                assert_true(open[i] != id);
            if (id)
                open[n++] = id, n_takes++;
        } else if (n > 0) {
            int32_t i = (int32_t)ek_rng_below(&rng, (uint64_t)n);
            over[step % 64] = open[i];
            assert_true(ek_slots_give(s, open[i]));
            open[i] = open[--n];
        }
        assert_false(ek_slots_give(s, over[ek_rng_below(&rng, 64)]));
        int32_t have;
        uint32_t takes;
        ek_slots_count(s, &have, &takes);
        assert_int_equal(have, n);
        assert_int_equal(takes, (uint32_t)n_takes & EK_SLOTS_TAKES_MASK);
    }
    ek_slots_free(s);
}

static void failed_memory_is_an_error(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_slots *s = NULL;
        ek_assert_rc(ek_slots_new(&s, 10));
        ek_slots_free(s);
    }
}

/* Threads take, give, give twice and give what others took, while one sweeps: each take
 * is ended once. */
enum { N_THREADS = 4, N_ROUNDS = 30000, N_SHARED = 16 };

struct race {
    struct ek_slots *slots;
    _Atomic uint64_t shared[N_SHARED]; /* ids that any thread may end */
    atomic_long n_taken, n_given, n_over;
    atomic_bool is_over;
};

static void *take_and_give(void *arg)
{
    struct race *r = arg;
    struct ek_rng rng;
    ek_rng_init(&rng, (uint64_t)(uintptr_t)&rng);
    for (int i = 0; i < N_ROUNDS; i++) {
        uint64_t id = ek_slots_take(r->slots, i, i % 8 ? INT64_MAX : 0);
        if (!id)
            continue;
        int32_t n;
        uint32_t takes;
        ek_slots_count(r->slots, &n, &takes);
        atomic_fetch_add(&r->n_over, n > 8);
        atomic_fetch_add(&r->n_taken, 1);
        uint64_t other = atomic_exchange(&r->shared[ek_rng_below(&rng, N_SHARED)], id);
        long n_given = ek_slots_give(r->slots, other) + ek_slots_give(r->slots, other);
        if (ek_rng_below(&rng, 2))
            n_given += ek_slots_give(r->slots, id);
        ek_slots_set_deadline(r->slots, other, 5);
        atomic_fetch_add(&r->n_given, n_given);
    }
    return NULL;
}

static void *sweep(void *arg)
{
    struct race *r = arg;
    while (!atomic_load(&r->is_over)) {
        int32_t n_young;
        atomic_fetch_add(&r->n_given, ek_slots_sweep(r->slots, 1, 0, &n_young));
    }
    return NULL;
}

static void threads_end_each_slot_once(void **state)
{
    (void)state;
    struct race r = {.slots = make(8)};
    pthread_t threads[N_THREADS], sweeper;
    assert_int_equal(pthread_create(&sweeper, NULL, sweep, &r), 0);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &r), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&r.is_over, true);
    pthread_join(sweeper, NULL);
    for (int i = 0; i < N_SHARED; i++)
        r.n_given += ek_slots_give(r.slots, r.shared[i]);
    assert_int_equal(n_open(r.slots), 0);
    assert_int_equal(r.n_taken, r.n_given);
    assert_int_equal(r.n_over, 0);
    uint64_t ids[8];
    for (int i = 0; i < 8; i++)
        assert_true((ids[i] = ek_slots_take(r.slots, 0, 1)) != 0); /* none was lost */
    assert_true(ek_slots_take(r.slots, 0, 1) == 0);
    ek_slots_free(r.slots);
}

/* One thread takes and gives the only slot; the other sets deadlines by ids that it was
 * told of and that are given back by then, most times. The owners in between, of whom
 * nobody was told, keep theirs. */
struct heirs {
    struct ek_slots *slots;
    _Atomic uint64_t told;
    atomic_bool is_over;
};

static void *set_old_deadlines(void *arg)
{
    struct heirs *h = arg;
    while (!atomic_load(&h->is_over))
        ek_slots_set_deadline(h->slots, atomic_load(&h->told), 0);
    return NULL;
}

static void a_deadline_is_never_the_next_owners(void **state)
{
    (void)state;
    struct heirs h = {.slots = make(1)};
    pthread_t other;
    int32_t n_young, n_ended = 0;
    assert_int_equal(pthread_create(&other, NULL, set_old_deadlines, &h), 0);
    for (int i = 0; i < 10 * N_ROUNDS; i++) {
        uint64_t told = ek_slots_take(h.slots, 0, INT64_MAX);
        atomic_store(&h.told, told);
        ek_slots_give(h.slots, told);
        uint64_t own = ek_slots_take(h.slots, 0, INT64_MAX);
        n_ended += ek_slots_sweep(h.slots, 1, 0, &n_young);
        ek_slots_give(h.slots, own);
    }
    atomic_store(&h.is_over, true);
    pthread_join(other, NULL);
    assert_int_equal(n_ended, 0);
    ek_slots_free(h.slots);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_is_given_back_once),
        cmocka_unit_test(an_id_of_nowhere_does_nothing),
        cmocka_unit_test(the_limit_is_exact_and_may_move),
        cmocka_unit_test(a_sweep_ends_what_is_late_and_counts_the_young),
        cmocka_unit_test(the_largest_table_can_be_filled),
        cmocka_unit_test(random_use_agrees_with_a_list),
        cmocka_unit_test(failed_memory_is_an_error),
        cmocka_unit_test(threads_end_each_slot_once),
        cmocka_unit_test(a_deadline_is_never_the_next_owners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
