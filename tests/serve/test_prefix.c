/* Prefixes are shared exactly when salt, parents and tokens are equal, whatever the
 * hashes say; the least recently used leaf goes first; forks share and copy. */
#include "base/rng.h"
#include "pageskit.h"

/* A sequence of `tenant` whose pages say v[0], v[1], ...; the rest says 50. */
static void make(struct pk *k, struct pk_seq *s, uint64_t tenant, const int32_t *v,
                 int32_t n)
{
    memset(s, 0, sizeof *s);
    pk_start(k, s, tenant);
    for (int32_t i = 0; i < PK_CAP; i++)
        pk_say(s, i, i < n ? v[i] : 50);
    s->tokens[PK_TOKENS] = 0;
}

/* Runs such a sequence over its n pages and gives it back. */
static void leave_cached(struct pk *k, uint64_t tenant, const int32_t *v, int32_t n)
{
    struct pk_seq s;
    make(k, &s, tenant, v, n);
    pk_match(k, &s, n * EK_PAGE_TOKENS);
    assert_int_equal(pk_run(k, &s, n * EK_PAGE_TOKENS - s.table.n_tokens), 0);
    ek_pages_free(&k->pages, &s.table);
}

static int32_t n_hit(struct pk *k, uint64_t tenant, const int32_t *v, int32_t n)
{
    struct pk_seq s;
    make(k, &s, tenant, v, n);
    int32_t hit = pk_match(k, &s, n * EK_PAGE_TOKENS + 1);
    assert_true(pk_reads_right(k, &s));
    ek_pages_free(&k->pages, &s.table);
    return hit / EK_PAGE_TOKENS;
}

#define V(...)                                                                         \
    (const int32_t[])                                                                  \
    {                                                                                  \
        __VA_ARGS__                                                                    \
    }

static void a_match_is_the_longest_cached_prefix_in_whole_pages(void **state)
{
    (void)state;
    struct pk k;
    pk_open(&k, EK_PAGE_CHECK_FULL, true);
    leave_cached(&k, 1, V(1, 2, 3), 3);
    leave_cached(&k, 1, V(1, 2, 4, 5), 4);
    assert_int_equal(k.pages.n_cached, 5);
    assert_int_equal(n_hit(&k, 1, V(1, 2, 3), 3), 3);
    assert_int_equal(n_hit(&k, 1, V(1, 2, 3, 5), 4), 3);
    assert_int_equal(n_hit(&k, 1, V(1, 2, 4, 5), 4), 4);
    assert_int_equal(n_hit(&k, 1, V(1, 3, 4, 5), 4), 1);
    assert_int_equal(n_hit(&k, 1, V(2, 3, 4, 5), 4), 0);
    assert_int_equal(n_hit(&k, 1, V(3), 1), 0); /* cached, but not at the start */
    pk_close(&k);
}

static void a_match_leaves_one_token_to_compute(void **state)
{
    (void)state;
    struct pk k;
    pk_open(&k, EK_PAGE_CHECK_PAGES, true);
    leave_cached(&k, 1, V(1, 2), 2);
    for (int32_t n = 1; n <= 40; n++) {
        struct pk_seq s;
        make(&k, &s, 1, V(1, 2), 2);
        int32_t max = (n - 1) / EK_PAGE_TOKENS;
        assert_int_equal(pk_match(&k, &s, n), (max < 2 ? max : 2) * EK_PAGE_TOKENS);
        ek_pages_free(&k.pages, &s.table);
    }
    assert_int_equal(k.pages.n_lookup_tokens, 2 * EK_PAGE_TOKENS + 40 * 41 / 2);
    assert_int_equal(k.pages.n_hit_tokens,
                     16 * EK_PAGE_TOKENS + 8 * 2 * EK_PAGE_TOKENS);
    pk_close(&k);
}

static void a_match_stops_at_the_tables_cap(void **state)
{
    (void)state;
    struct pk k;
    struct pk_seq s;
    pk_open(&k, EK_PAGE_CHECK_PAGES, true);
    leave_cached(&k, 1, V(1, 2, 3), 3);
    make(&k, &s, 1, V(1, 2, 3), 3);
    s.table.cap = 2;
    assert_int_equal(pk_match(&k, &s, 60), 2 * EK_PAGE_TOKENS);
    ek_pages_free(&k.pages, &s.table);
    pk_expect_all_back(&k, 0);
    pk_close(&k);
}

static void one_other_token_anywhere_is_no_match(void **state)
{
    (void)state;
    struct pk k;
    pk_open(&k, EK_PAGE_CHECK_PAGES, true);
    leave_cached(&k, 1, V(1, 2, 3), 3);
    for (int32_t i = 0; i < 48; i++) {
        struct pk_seq s;
        make(&k, &s, 1, V(1, 2, 3), 3);
        s.tokens[i]++;
        assert_int_equal(pk_match(&k, &s, 49), i / EK_PAGE_TOKENS * EK_PAGE_TOKENS);
        ek_pages_free(&k.pages, &s.table);
    }
    pk_close(&k);
}

static void other_salts_never_share(void **state)
{
    (void)state;
    struct pk k;
    pk_open(&k, EK_PAGE_CHECK_PAGES, true);
    leave_cached(&k, 1, V(1, 2), 2);
    assert_int_equal(n_hit(&k, 2, V(1, 2), 2), 0);
    assert_int_equal(n_hit(&k, 0, V(1, 2), 2), 0);
    leave_cached(&k, 2, V(1, 2), 2);
    assert_int_equal(k.pages.n_cached, 4);
    /* One half of the salt is not the salt. */
    static const struct ek_salt halves[] = {{1, 6}, {2, 3}};
    for (int i = 0; i < 2; i++) {
        struct pk_seq s;
        make(&k, &s, 1, V(1, 2), 2);
        s.table.salt = halves[i];
        assert_int_equal(pk_match(&k, &s, 33), 0);
    }
    pk_close(&k);
}

/* With all chains equal nothing but the comparison tells pages apart. */
static void equal_hashes_do_not_make_pages_equal(void **state)
{
    (void)state;
    struct pk k;
    pk_open(&k, EK_PAGE_CHECK_PAGES, true);
    k.pages.chain_mask = 0;
    leave_cached(&k, 1, V(1, 2, 3), 3);
    leave_cached(&k, 1, V(2, 2, 3), 3);
    leave_cached(&k, 2, V(1, 2, 3), 3);
    leave_cached(&k, 1, V(3, 3, 3), 3);
    assert_int_equal(k.pages.n_cached, 12);
    assert_int_equal(n_hit(&k, 1, V(1, 2, 3), 3), 3);
    assert_int_equal(n_hit(&k, 1, V(2, 2, 3), 3), 3);
    assert_int_equal(n_hit(&k, 1, V(3, 2, 3), 3), 1);
    assert_int_equal(n_hit(&k, 1, V(4, 2, 3), 3), 0);
    assert_int_equal(n_hit(&k, 2, V(2, 2, 3), 3), 0);
    assert_int_equal(n_hit(&k, 3, V(1, 2, 3), 3), 0);
    static const struct ek_salt halves[] = {{1, 4}, {2, 3}};
    for (int i = 0; i < 2; i++) {
        struct pk_seq s;
        make(&k, &s, 1, V(1, 2), 2); /* salt {1, 3} */
        s.table.salt = halves[i];
        assert_int_equal(pk_match(&k, &s, 33), 0);
    }
    assert_true(ek_pages_is_sane(&k.pages));
    pk_close(&k);
}

static void a_page_that_is_not_shared_is_never_attached(void **state)
{
    (void)state;
    static const uint8_t wrong[] = {EK_PAGE_FREE, EK_PAGE_WRITING, EK_PAGE_SEALED,
                                    EK_PAGE_QUARANTINE};
    for (int i = 0; i < 4; i++) {
        struct pk k;
        struct pk_seq a, b;
        pk_open(&k, EK_PAGE_CHECK_PAGES, true);
        make(&k, &a, 1, V(1, 2, 3), 3);
        make(&k, &b, 1, V(1, 2, 3), 3);
        assert_int_equal(pk_run(&k, &a, 48), 0);
        k.pages.pages[a.refs[1].page].state = wrong[i];
        assert_int_equal(n_hit(&k, 1, V(1, 2, 3), 3), 1);
        assert_int_equal(pk_run(&k, &b, 48), 0); /* computes it for itself */
        assert_int_equal(b.table.n_shared, 1);
        assert_true(pk_reads_right(&k, &b));
        pk_close(&k);
    }
}

static void equal_pages_computed_at_once_become_one(void **state)
{
    (void)state;
    struct pk k;
    struct pk_seq a, b;
    pk_open(&k, EK_PAGE_CHECK_FULL, true);
    make(&k, &a, 1, V(1, 2, 3), 3);
    make(&k, &b, 1, V(1, 2, 4), 3);
    /* Both began before either had anything to share. */
    assert_int_equal(pk_run(&k, &a, 10), 0);
    assert_int_equal(pk_run(&k, &b, 40), 0);
    assert_int_equal(pk_run(&k, &a, 30), 0);
    assert_int_equal(a.refs[0].page, b.refs[0].page);
    assert_int_equal(a.refs[1].page, b.refs[1].page);
    assert_int_not_equal(a.refs[2].page, b.refs[2].page);
    assert_int_equal(k.pages.n_free, PK_PAGES - 4);
    assert_true(pk_reads_right(&k, &a));
    assert_true(pk_reads_right(&k, &b));
    ek_pages_free(&k.pages, &a.table);
    assert_true(pk_reads_right(&k, &b));
    ek_pages_free(&k.pages, &b.table);
    pk_expect_all_back(&k, 0);
    pk_close(&k);
}

static void the_least_recently_used_leaf_goes_first(void **state)
{
    (void)state;
    struct pk k;
    struct pk_seq big;
    pk_open(&k, EK_PAGE_CHECK_PAGES, true);
    leave_cached(&k, 1, V(1, 2, 3), 3);
    leave_cached(&k, 1, V(1, 2, 4), 3);
    leave_cached(&k, 1, V(5, 6), 2);
    n_hit(&k, 1, V(1, 2, 3), 3); /* used again: 4 is the oldest leaf, then 6, 5 */
    struct pk_seq fill[4];
    for (int i = 0; i < 3; i++) {
        make(&k, &fill[i], 9, V(10 + i), 1);
        assert_int_equal(ek_pages_reserve(&k.pages, &fill[i].table, PK_TOKENS), 0);
    }
    make(&k, &big, 9, V(20), 1);
    assert_int_equal(k.pages.n_free, 2);
    assert_int_equal(ek_pages_available(&k.pages), 8);
    assert_int_equal(ek_pages_reserve(&k.pages, &big.table, 3 * EK_PAGE_TOKENS), 0);
    assert_int_equal(n_hit(&k, 1, V(1, 2, 4), 3), 2);
    assert_int_equal(n_hit(&k, 1, V(5, 6), 2), 2);
    assert_int_equal(k.pages.n_evicted, 1);
    /* A leaf that is held stays, whatever its age. */
    struct pk_seq holder;
    make(&k, &holder, 1, V(1, 2, 3), 3);
    assert_int_equal(pk_match(&k, &holder, 49), 48);
    assert_int_equal(ek_pages_available(&k.pages), 2);
    assert_int_equal(ek_pages_reserve(&k.pages, &big.table, 6 * EK_PAGE_TOKENS),
                     EK_EBUSY);
    assert_int_equal(k.pages.n_evicted, 1);
    assert_int_equal(ek_pages_reserve(&k.pages, &big.table, 5 * EK_PAGE_TOKENS), 0);
    assert_int_equal(n_hit(&k, 1, V(5, 6), 2), 0);
    assert_true(pk_reads_right(&k, &holder));
    assert_int_equal(k.pages.n_evicted, 3);
    assert_true(ek_pages_is_sane(&k.pages));
    pk_close(&k);
}

static void nothing_is_cached_without_the_cache(void **state)
{
    (void)state;
    struct pk k;
    pk_open(&k, EK_PAGE_CHECK_PAGES, false);
    leave_cached(&k, 1, V(1, 2), 2);
    assert_int_equal(n_hit(&k, 1, V(1, 2), 2), 0);
    pk_expect_all_back(&k, 0);
    pk_close(&k);
}

static void forks_share_full_pages_and_copy_the_last(void **state)
{
    (void)state;
    for (int caches = 0; caches <= 1; caches++) {
        for (int32_t n = 0; n <= 3 * EK_PAGE_TOKENS; n++) {
            struct pk k;
            struct pk_seq a, b, c;
            pk_open(&k, EK_PAGE_CHECK_FULL, caches);
            make(&k, &a, 1, V(1, 2, 3), 3);
            make(&k, &b, 1, V(9), 1);
            make(&k, &c, 1, V(9), 1);
            assert_int_equal(pk_run(&k, &a, n), 0);
            assert_int_equal(pk_fork(&k, &a, &b), 0);
            assert_int_equal(pk_fork(&k, &b, &c), 0);
            int32_t n_own = n % EK_PAGE_TOKENS ? 3 : 0;
            assert_int_equal(k.pages.n_free, PK_PAGES - n / EK_PAGE_TOKENS - n_own);
            b.tokens[n] = 1000;
            c.tokens[n] = 2000;
            struct pk_seq *all[] = {&a, &b, &c};
            for (int i = 0; i < 3; i++)
                assert_int_equal(pk_run(&k, all[i], 20), 0);
            for (int i = 0; i < 3; i++) {
                for (int j = i; j < 3; j++)
                    assert_true(pk_reads_right(&k, all[j]));
                assert_true(ek_pages_is_sane(&k.pages));
                ek_pages_free(&k.pages, &all[i]->table);
            }
            pk_expect_all_back(&k, 0);
            pk_close(&k);
        }
    }
}

static void a_fork_without_room_changes_nothing(void **state)
{
    (void)state;
    struct pk k;
    struct pk_seq a, b, fill[4];
    pk_open(&k, EK_PAGE_CHECK_PAGES, false);
    make(&k, &a, 1, V(1, 2), 2);
    make(&k, &b, 1, V(1, 2), 2);
    assert_int_equal(pk_run(&k, &a, 40), 0);
    b.table.cap = 2;
    assert_int_equal(pk_fork(&k, &a, &b), EK_ELIMIT);
    b.table.cap = PK_CAP;
    for (int i = 0; i < 4; i++) {
        make(&k, &fill[i], 1, V(3), 1);
        int32_t n = k.pages.n_free < PK_CAP ? k.pages.n_free : PK_CAP;
        assert_int_equal(ek_pages_reserve(&k.pages, &fill[i].table, n * 16), 0);
    }
    assert_int_equal(k.pages.n_free, 0);
    assert_int_equal(pk_fork(&k, &a, &b), EK_EBUSY);
    assert_int_equal(b.table.n_pages, 0);
    assert_int_equal(a.table.n_shared, 0);
    assert_true(pk_reads_right(&k, &a));
    pk_close(&k);
}

static void a_freed_page_is_poisoned(void **state)
{
    (void)state;
    struct pk k;
    pk_open(&k, EK_PAGE_CHECK_PAGES, true);
    leave_cached(&k, 1, V(1, 2, 3), 3);
    ek_pages_drop_cache(&k.pages);
    for (int i = 0; i < PK_PAGES; i++) {
        for (int j = 0; j < EK_PAGE_TOKENS; j++)
            assert_true(k.kv[i][j] == PK_POISON);
    }
    assert_int_equal(k.pages.n_evicted, 3);
    pk_close(&k);
}

/* The index and its heap alone, against a scan. */
enum { N_NODES = 24 };
struct naive {
    bool is_in[N_NODES], is_held[N_NODES];
    int32_t parent[N_NODES];
    uint64_t used[N_NODES];
};

static int32_t naive_oldest(const struct naive *m)
{
    int32_t best = -1;
    for (int32_t i = 0; i < N_NODES; i++) {
        bool is_leaf = m->is_in[i] && !m->is_held[i];
        for (int32_t j = 0; is_leaf && j < N_NODES; j++)
            is_leaf = !(m->is_in[j] && m->parent[j] == i);
        if (is_leaf && (best < 0 || m->used[i] < m->used[best]))
            best = i;
    }
    return best;
}

static void the_heap_agrees_with_a_scan(void **state)
{
    (void)state;
    static int32_t tokens[N_NODES * EK_PAGE_TOKENS];
    struct naive m;
    struct ek_prefix x;
    struct ek_rng rng;
    uint64_t clock = 0;
    memset(&m, 0, sizeof m);
    ek_rng_init(&rng, 3);
    for (int32_t i = 0; i < N_NODES; i++)
        tokens[i * EK_PAGE_TOKENS] = i;
    assert_int_equal(ek_prefix_init(&x, N_NODES, tokens), 0);
    for (int step = 0; step < 20000; step++) {
        int32_t i = (int32_t)ek_rng_below(&rng, N_NODES);
        int32_t oldest = naive_oldest(&m);
        assert_int_equal(ek_prefix_oldest(&x), oldest);
        if (!m.is_in[i]) {
            int32_t parent = (int32_t)ek_rng_below(&rng, N_NODES + 1) - 1;
            parent = parent >= 0 && (parent == i || !m.is_in[parent]) ? -1 : parent;
            struct ek_prefix_key key = {
                ek_rng_below(&rng, 4), {0, 0}, parent, tokens + i * EK_PAGE_TOKENS};
            assert_int_equal(ek_prefix_find(&x, &key), -1);
            ek_prefix_add(&x, i, &key);
            assert_int_equal(ek_prefix_find(&x, &key), i);
            m.is_in[i] = m.is_held[i] = true;
            m.parent[i] = parent;
        } else if (m.is_held[i]) {
            ek_prefix_idle(&x, i);
            m.is_held[i] = false;
            m.used[i] = ++clock;
        } else if (ek_rng_below(&rng, 3) == 0) {
            ek_prefix_hold(&x, i);
            m.is_held[i] = true;
        } else if (oldest >= 0) {
            ek_prefix_remove(&x, oldest);
            m.is_in[oldest] = false;
        }
        assert_true(ek_prefix_is_sane(&x));
    }
    ek_prefix_release(&x);
}

static void the_index_survives_any_failed_allocation(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_prefix x;
        int32_t tokens[EK_PAGE_TOKENS] = {0};
        ek_assert_rc(ek_prefix_init(&x, 1, tokens));
        ek_prefix_release(&x);
        assert_null(x.nodes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_match_is_the_longest_cached_prefix_in_whole_pages),
        cmocka_unit_test(a_match_leaves_one_token_to_compute),
        cmocka_unit_test(a_match_stops_at_the_tables_cap),
        cmocka_unit_test(one_other_token_anywhere_is_no_match),
        cmocka_unit_test(other_salts_never_share),
        cmocka_unit_test(equal_hashes_do_not_make_pages_equal),
        cmocka_unit_test(a_page_that_is_not_shared_is_never_attached),
        cmocka_unit_test(equal_pages_computed_at_once_become_one),
        cmocka_unit_test(the_least_recently_used_leaf_goes_first),
        cmocka_unit_test(nothing_is_cached_without_the_cache),
        cmocka_unit_test(forks_share_full_pages_and_copy_the_last),
        cmocka_unit_test(a_fork_without_room_changes_nothing),
        cmocka_unit_test(a_freed_page_is_poisoned),
        cmocka_unit_test(the_heap_agrees_with_a_scan),
        cmocka_unit_test(the_index_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
