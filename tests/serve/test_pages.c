/* Page ownership: every kind of wrong entry is found, and a random schedule agrees with
 * a naive book kept beside it. */
#include "base/mem.h"
#include "base/rng.h"
#include "serve/pages.h"
#include "testkit.h"

#include <string.h>

#define N_PAGES 24
#define CAP     8

struct fixture {
    struct ek_pages pool;
    struct ek_page_ref refs[2][CAP];
    struct ek_page_table a, b;
};

/* Two sequences of 40 tokens in three pages each. */
static void two_sequences(struct fixture *f)
{
    assert_int_equal(
        ek_pages_init(&f->pool,
                      &(struct ek_pages_options){.n_pages = N_PAGES,
                                                 .check = EK_PAGE_CHECK_PAGES},
                      NULL),
        0);
    ek_page_table_init(&f->a, 1, (struct ek_salt){0}, f->refs[0], CAP);
    ek_page_table_init(&f->b, 2, (struct ek_salt){0}, f->refs[1], CAP);
    assert_int_equal(ek_pages_reserve(&f->pool, &f->a, 48), 0);
    assert_int_equal(ek_pages_reserve(&f->pool, &f->b, 48), 0);
    ek_pages_commit(&f->pool, &f->a, NULL, 40);
    ek_pages_commit(&f->pool, &f->b, NULL, 40);
    assert_true(ek_pages_is_sane(&f->pool));
}

static enum ek_page_fault check(const struct fixture *f, int32_t *bad)
{
    int32_t numbers[CAP];
    return ek_pages_check(&f->pool, &f->a, NULL, 1, numbers, bad);
}

static void a_good_table_yields_its_page_numbers(void **state)
{
    (void)state;
    struct fixture f;
    two_sequences(&f);
    int32_t numbers[CAP];
    assert_int_equal(ek_pages_check(&f.pool, &f.a, NULL, 8, numbers, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(numbers[i], f.a.refs[i].page);
    ek_pages_release(&f.pool);
}

static void positions_past_the_reservation_are_a_count_fault(void **state)
{
    (void)state;
    struct fixture f;
    two_sequences(&f);
    int32_t numbers[CAP];
    assert_int_equal(ek_pages_check(&f.pool, &f.a, NULL, 9, numbers, NULL),
                     EK_PAGE_FAULT_COUNT);
    ek_pages_release(&f.pool);
}

static void page_numbers_outside_the_pool_are_range_faults(void **state)
{
    (void)state;
    static const int32_t wrong[] = {-1, N_PAGES, INT32_MAX, INT32_MIN};
    struct fixture f;
    two_sequences(&f);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int32_t bad = -1;
        f.a.refs[1].page = wrong[i];
        assert_int_equal(check(&f, &bad), EK_PAGE_FAULT_RANGE);
        assert_int_equal(bad, 1);
    }
    ek_pages_fault(&f.pool, &f.a, 1);
    assert_int_equal(f.pool.n_quarantined, 0);
    assert_int_equal(f.pool.n_free, N_PAGES - 3);
    ek_pages_release(&f.pool);
}

static void another_requests_page_is_found_in_every_place(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct fixture f;
        int32_t bad = -1;
        two_sequences(&f);
        f.a.refs[i].page = f.b.refs[i].page;
        assert_int_equal(check(&f, &bad), EK_PAGE_FAULT_OWNER);
        assert_int_equal(bad, i);
        ek_pages_release(&f.pool);
    }
}

static void a_freed_page_is_found_by_state_or_generation(void **state)
{
    (void)state;
    struct fixture f;
    two_sequences(&f);
    struct ek_page_table copy = f.a;
    struct ek_page_ref refs[CAP];
    memcpy(refs, f.a.refs, sizeof refs);
    copy.refs = refs;
    ek_pages_free(&f.pool, &f.a);
    int32_t numbers[CAP];
    assert_int_equal(ek_pages_check(&f.pool, &copy, NULL, 1, numbers, NULL),
                     EK_PAGE_FAULT_GENERATION);
    /* Given out again, even to a forged owner of the same id: still not its page. */
    ek_page_table_init(&f.a, 1, (struct ek_salt){0}, f.refs[0], CAP);
    assert_int_equal(ek_pages_reserve(&f.pool, &f.a, 48), 0);
    ek_pages_commit(&f.pool, &f.a, NULL, 40);
    assert_int_equal(ek_pages_check(&f.pool, &copy, NULL, 1, numbers, NULL),
                     EK_PAGE_FAULT_GENERATION);
    ek_pages_release(&f.pool);
}

static void a_short_fill_is_found(void **state)
{
    (void)state;
    struct fixture f;
    two_sequences(&f);
    f.pool.pages[f.a.refs[2].page].fill--;
    assert_int_equal(check(&f, NULL), EK_PAGE_FAULT_FILL);
    ek_pages_release(&f.pool);
}

static void swapped_and_doubled_pages_are_found(void **state)
{
    (void)state;
    struct fixture f;
    two_sequences(&f);
    struct ek_page_ref first = f.a.refs[0];
    f.a.refs[0] = f.a.refs[1];
    f.a.refs[1] = first;
    assert_int_equal(check(&f, NULL), EK_PAGE_FAULT_ORDER);
    f.a.refs[0] = first;
    assert_int_equal(check(&f, NULL), EK_PAGE_FAULT_ORDER);
    ek_pages_release(&f.pool);
}

static void a_faulty_page_of_ones_own_never_comes_back(void **state)
{
    (void)state;
    struct fixture f;
    two_sequences(&f);
    int32_t page = f.a.refs[1].page;
    f.pool.pages[page].fill = 3;
    assert_int_equal(check(&f, NULL), EK_PAGE_FAULT_FILL);
    ek_pages_fault(&f.pool, &f.a, 1);
    ek_pages_free(&f.pool, &f.b);
    assert_true(ek_pages_is_sane(&f.pool));
    assert_int_equal(f.pool.n_free, N_PAGES - 1);
    struct ek_page_ref refs[N_PAGES];
    struct ek_page_table all;
    ek_page_table_init(&all, 3, (struct ek_salt){0}, refs, N_PAGES);
    assert_int_equal(ek_pages_reserve(&f.pool, &all, N_PAGES * EK_PAGE_TOKENS),
                     EK_EBUSY);
    assert_int_equal(ek_pages_reserve(&f.pool, &all, (N_PAGES - 1) * EK_PAGE_TOKENS),
                     0);
    for (int32_t i = 0; i < all.n_pages; i++)
        assert_int_not_equal(refs[i].page, page);
    ek_pages_release(&f.pool);
}

static void a_fault_at_anothers_page_leaves_it_and_loses_nothing(void **state)
{
    (void)state;
    struct fixture f;
    two_sequences(&f);
    f.a.refs[1] = f.b.refs[1]; /* and so the table forgot a page of its own */
    ek_pages_fault(&f.pool, &f.a, 1);
    int32_t numbers[CAP];
    assert_int_equal(ek_pages_check(&f.pool, &f.b, NULL, 1, numbers, NULL), 0);
    assert_int_equal(f.pool.n_quarantined, 0);
    assert_int_equal(f.pool.n_free, N_PAGES - 3);
    assert_true(ek_pages_is_sane(&f.pool));
    ek_pages_release(&f.pool);
}

static void freeing_a_corrupt_table_harms_nobody(void **state)
{
    (void)state;
    struct fixture f;
    two_sequences(&f);
    f.a.refs[0] = f.b.refs[0];
    f.a.refs[1].page = -1;
    ek_pages_free(&f.pool, &f.a);
    int32_t numbers[CAP];
    assert_int_equal(ek_pages_check(&f.pool, &f.b, NULL, 1, numbers, NULL), 0);
    ek_pages_release(&f.pool);
}

static void a_worn_out_page_retires(void **state)
{
    (void)state;
    struct fixture f;
    assert_int_equal(ek_pages_init(&f.pool,
                                   &(struct ek_pages_options){
                                       .n_pages = 1, .check = EK_PAGE_CHECK_PAGES},
                                   NULL),
                     0);
    f.pool.pages[0].generation = UINT32_MAX;
    ek_page_table_init(&f.a, 1, (struct ek_salt){0}, f.refs[0], CAP);
    assert_int_equal(ek_pages_reserve(&f.pool, &f.a, 1), 0);
    ek_pages_free(&f.pool, &f.a);
    assert_int_equal(f.pool.n_free, 0);
    assert_int_equal(f.pool.n_quarantined, 1);
    ek_pages_release(&f.pool);
}

static void reserve_without_room_changes_nothing(void **state)
{
    (void)state;
    struct fixture f;
    two_sequences(&f);
    struct ek_page_ref refs[64];
    struct ek_page_table t;
    ek_page_table_init(&t, 3, (struct ek_salt){0}, refs, 64);
    assert_int_equal(ek_pages_reserve(&f.pool, &t, 19 * EK_PAGE_TOKENS), EK_EBUSY);
    assert_int_equal(ek_pages_reserve(&f.pool, &t, 65 * EK_PAGE_TOKENS), EK_ELIMIT);
    assert_int_equal(t.n_pages, 0);
    assert_int_equal(f.pool.n_free, 18);
    ek_pages_release(&f.pool);
}

static void init_without_memory_leaves_nothing(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= 2; k++) {
        struct ek_pages pool;
        ek_mem_fail_at(k);
        assert_int_equal(ek_pages_init(&pool,
                                       &(struct ek_pages_options){
                                           .n_pages = 8, .check = EK_PAGE_CHECK_PAGES},
                                       NULL),
                         EK_ENOMEM);
        ek_mem_fail_at(0);
        assert_null(pool.pages);
    }
}

#define N_SEQS 6

/* The naive book: for each page, who has it and how often it was freed. */
struct book {
    uint64_t owner[N_PAGES];
    uint32_t frees[N_PAGES];
    int32_t n_held;
};

static void compare(const struct ek_pages *pool, const struct book *book,
                    const struct ek_page_table *tables)
{
    assert_true(ek_pages_is_sane(pool));
    assert_int_equal(pool->n_free, N_PAGES - book->n_held);
    for (int i = 0; i < N_PAGES; i++) {
        assert_int_equal(pool->pages[i].owner, book->owner[i]);
        assert_int_equal(pool->pages[i].generation, book->frees[i] + 1);
    }
    for (int s = 0; s < N_SEQS; s++) {
        int32_t numbers[CAP];
        if (tables[s].owner)
            assert_int_equal(ek_pages_check(pool, &tables[s], NULL, 0, numbers, NULL),
                             0);
    }
}

static void random_schedule_agrees_with_a_naive_book(void **state)
{
    (void)state;
    struct ek_pages pool;
    struct ek_page_ref refs[N_SEQS][CAP];
    struct ek_page_table tables[N_SEQS] = {0};
    struct book book = {0};
    struct ek_rng rng;
    uint64_t next_owner = 1;
    ek_rng_init(&rng, 7);
    assert_int_equal(
        ek_pages_init(&pool,
                      &(struct ek_pages_options){.n_pages = N_PAGES,
                                                 .check = EK_PAGE_CHECK_PAGES},
                      NULL),
        0);
    for (int step = 0; step < 20000; step++) {
        uint64_t s = ek_rng_below(&rng, N_SEQS);
        struct ek_page_table *t = &tables[s];
        if (!t->owner) {
            ek_page_table_init(t, next_owner++, (struct ek_salt){0}, refs[s], CAP);
        } else if (ek_rng_below(&rng, 10) == 0) {
            for (int32_t i = 0; i < t->n_pages; i++) {
                book.owner[t->refs[i].page] = 0;
                book.frees[t->refs[i].page]++;
                book.n_held--;
            }
            ek_pages_free(&pool, t);
            t->owner = 0;
        } else {
            int32_t n = (int32_t)ek_rng_below(&rng, 20);
            int32_t had = t->n_pages;
            int rc = ek_pages_reserve(&pool, t, t->n_tokens + n);
            if (rc == 0)
                ek_pages_commit(&pool, t, NULL, n);
            else
                assert_int_equal(t->n_pages, had);
            for (int32_t i = had; i < t->n_pages; i++) {
                assert_int_equal(book.owner[t->refs[i].page], 0);
                book.owner[t->refs[i].page] = t->owner;
                book.n_held++;
            }
        }
        compare(&pool, &book, tables);
    }
    ek_pages_release(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_table_yields_its_page_numbers),
        cmocka_unit_test(positions_past_the_reservation_are_a_count_fault),
        cmocka_unit_test(page_numbers_outside_the_pool_are_range_faults),
        cmocka_unit_test(another_requests_page_is_found_in_every_place),
        cmocka_unit_test(a_freed_page_is_found_by_state_or_generation),
        cmocka_unit_test(a_short_fill_is_found),
        cmocka_unit_test(swapped_and_doubled_pages_are_found),
        cmocka_unit_test(a_faulty_page_of_ones_own_never_comes_back),
        cmocka_unit_test(a_fault_at_anothers_page_leaves_it_and_loses_nothing),
        cmocka_unit_test(freeing_a_corrupt_table_harms_nobody),
        cmocka_unit_test(a_worn_out_page_retires),
        cmocka_unit_test(reserve_without_room_changes_nothing),
        cmocka_unit_test(init_without_memory_leaves_nothing),
        cmocka_unit_test(random_schedule_agrees_with_a_naive_book),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
