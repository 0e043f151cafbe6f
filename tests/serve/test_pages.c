/* The check finds every single wrong thing, in tables and in the book, and what follows
 * a fault harms nobody else. */
#include "pageskit.h"

/* Six sequences that stand close to each other. With the cache:
 *
 *   a  P0 P1 X2 | partial, one reserved      tenant 1
 *   b  P0 P1 Y2 | partial                    tenant 1: a's sibling in the last place
 *   c  P0 P1 X2 | partial                    tenant 2: the same tokens
 *   d  P0 P1 X2 | partial                    tenant 1: shares all of a's full pages
 *   e  P0 P1 Z2 given back: cached           tenant 1
 *   f  W0 W1 W2 | partial                    tenant 1: shares nothing
 *
 * Without: a is forked into b after 40 tokens, so they share two pages; then each goes
 * its way, and a has a sealed page of its own. */
enum { A, B, C, D, E, F, N_SEQS };

struct scene {
    struct pk k;
    struct pk_seq s[N_SEQS];
};

static void say_prompt(struct pk_seq *s, int32_t v0, int32_t v2)
{
    pk_say(s, 0, v0);
    pk_say(s, 1, v0);
    pk_say(s, 2, v2);
    pk_say(s, 3, v2);
}

static void set_scene(struct scene *m, enum ek_page_check check, bool caches)
{
    static const uint64_t tenants[N_SEQS] = {1, 1, 2, 1, 1, 1};
    static const int32_t firsts[N_SEQS] = {1, 1, 1, 1, 1, 2};
    static const int32_t thirds[N_SEQS] = {3, 4, 3, 3, 5, 6};
    pk_open(&m->k, check, caches);
    for (int i = 0; i < N_SEQS; i++) {
        struct pk_seq *s = &m->s[i];
        pk_start(&m->k, s, tenants[i]);
        say_prompt(s, firsts[i], thirds[i]);
        if (i == B && !caches) {
            assert_int_equal(pk_fork(&m->k, &m->s[A], s), 0);
            say_prompt(s, firsts[i], thirds[A]);
        }
        int32_t first = i == A && !caches ? 40 : 56 - s->table.n_tokens;
        assert_int_equal(pk_run(&m->k, s, first), 0);
    }
    if (!caches)
        assert_int_equal(pk_run(&m->k, &m->s[A], 16), 0);
    assert_int_equal(ek_pages_reserve(&m->k.pages, &m->s[A].table, 70), 0);
    ek_pages_free(&m->k.pages, &m->s[E].table);
    assert_int_equal(m->s[A].table.n_shared, caches ? 3 : 2);
    assert_true(ek_pages_is_sane(&m->k.pages));
    for (int i = 0; i < N_SEQS; i++)
        assert_true(pk_reads_right(&m->k, &m->s[i]));
}

/* a's check fails and gives no page number away. Then the fault is handled. */
static enum ek_page_fault expect_fault(struct scene *m)
{
    int32_t numbers[PK_CAP], bad = -1;
    for (int i = 0; i < PK_CAP; i++)
        numbers[i] = -7;
    struct pk_seq *a = &m->s[A];
    enum ek_page_fault fault =
        ek_pages_check(&m->k.pages, &a->table, a->tokens, 1, numbers, &bad);
    assert_int_not_equal(fault, EK_PAGE_FAULT_NONE);
    for (int i = 0; i < PK_CAP; i++)
        assert_int_equal(numbers[i], -7);
    ek_pages_fault(&m->k.pages, &a->table, bad);
    assert_int_equal(a->table.n_pages, 0);
    return fault;
}

/* The others read what is theirs, or are told; then all pages come back. */
static void expect_peace(struct scene *m, bool may_hit_others)
{
    struct ek_pages *p = &m->k.pages;
    int32_t bad = 0;
    ek_pages_free(p, &m->s[A].table);
    for (int i = B; i < N_SEQS; i++) {
        if (pk_check(&m->k, &m->s[i], &bad) == EK_PAGE_FAULT_NONE) {
            assert_true(pk_reads_right(&m->k, &m->s[i]));
            ek_pages_free(p, &m->s[i].table);
        } else {
            assert_true(may_hit_others);
            ek_pages_fault(p, &m->s[i].table, bad);
        }
    }
    assert_true(p->n_quarantined <= 1);
    pk_expect_all_back(&m->k, p->n_quarantined);
    pk_close(&m->k);
}

/* Runs `body` in a fresh scene with and without the cache. */
static void each_scene(void (*body)(struct scene *m, int32_t entry, int32_t k),
                       int32_t n, enum ek_page_check check)
{
    static struct scene m;
    for (int caches = 0; caches <= 1; caches++) {
        for (int32_t entry = 0; entry < 5; entry++) {
            for (int32_t k = 0; k < n; k++) {
                set_scene(&m, check, caches);
                body(&m, entry, k);
            }
        }
    }
}

static void forge_entry(struct scene *m, int32_t entry, int32_t page)
{
    struct ek_page_ref *ref = &m->s[A].refs[entry];
    if (page != ref->page) {
        *ref = (struct ek_page_ref){page, m->k.pages.pages[page].generation};
        expect_fault(m);
    }
    expect_peace(m, false);
}

static void any_other_page_in_any_place_is_found(void **state)
{
    (void)state;
    each_scene(forge_entry, PK_PAGES, EK_PAGE_CHECK_PAGES);
    each_scene(forge_entry, PK_PAGES, EK_PAGE_CHECK_FULL);
}

static void forge_number(struct scene *m, int32_t entry, int32_t k)
{
    static const int32_t wrong[] = {-1, PK_PAGES, INT32_MAX, INT32_MIN};
    m->s[A].refs[entry].page = wrong[k];
    assert_int_equal(expect_fault(m), EK_PAGE_FAULT_RANGE);
    assert_int_equal(m->k.pages.n_quarantined, 0);
    expect_peace(m, false);
}

static void page_numbers_outside_the_pool_are_range_faults(void **state)
{
    (void)state;
    each_scene(forge_number, 4, EK_PAGE_CHECK_PAGES);
    each_scene(forge_number, 4, EK_PAGE_CHECK_OFF);
}

static void forge_generation(struct scene *m, int32_t entry, int32_t k)
{
    m->s[A].refs[entry].generation += k == 0 ? 1 : UINT32_MAX;
    assert_int_equal(expect_fault(m), EK_PAGE_FAULT_GENERATION);
    expect_peace(m, false);
}

static void an_entry_of_another_generation_is_found(void **state)
{
    (void)state;
    each_scene(forge_generation, 2, EK_PAGE_CHECK_PAGES);
}

static void swap_entries(struct scene *m, int32_t entry, int32_t k)
{
    struct ek_page_ref *refs = m->s[A].refs, old = refs[entry];
    if (k != entry) {
        refs[entry] = refs[k];
        refs[k] = old;
        expect_fault(m);
    }
    expect_peace(m, false);
}

static void entries_that_swapped_places_are_found(void **state)
{
    (void)state;
    each_scene(swap_entries, 5, EK_PAGE_CHECK_PAGES);
}

/* Another value for one field of a page's book. Returns false when k says nothing new
 * for this page. */
static bool damage(struct ek_page *g, int32_t k, bool is_tip)
{
    const struct ek_page old = *g;
    bool is_shared = old.state == EK_PAGE_SHARED;
    static const uint64_t owners[] = {2, 77};
    static const int32_t refs[] = {0, -1, INT32_MIN};
    static const uint8_t fills[] = {0, 1, 7, 9, 15, 16, 17, 255};
    static const uint16_t places[] = {0, 1, 2, 3, 4, 5, 65535};
    if (k < 2)
        g->owner = owners[k];
    else if (k < 4)
        g->generation ^= k == 2 ? 1u << 31 : 1u << 8;
    else if (k < 7)
        g->n_refs = refs[k - 4];
    else if (k < 15)
        g->fill = fills[k - 7];
    else if (k < 22)
        g->index = places[k - 15];
    else if (k < 27)
        g->state = (uint8_t)(k - 22);
    else if (k == 27)
        g->salt.lo ^= 1;
    else if (k == 28)
        g->salt.hi ^= (uint64_t)1 << 63;
    else if (k == 29 && is_tip)
        g->chain ^= (uint64_t)1 << 40;
    else if (k == 30 && is_shared)
        g->parent = INT32_MAX;
    else if (k > 30 && is_shared)
        g->parent = k - 33; /* -2 and up */
    return memcmp(&old, g, sizeof old) != 0;
}
enum { OUT_OF_USE = 22 + EK_PAGE_QUARANTINE, N_DAMAGES = 33 + PK_PAGES + 1 };

static void damage_book(struct scene *m, int32_t entry, int32_t k)
{
    struct pk_seq *a = &m->s[A];
    struct ek_page *g = &m->k.pages.pages[a->refs[entry].page];
    bool is_shared = entry < a->table.n_shared;
    if (damage(g, k, entry == a->table.n_shared - 1)) {
        enum ek_page_fault fault = expect_fault(m);
        /* The page is lost to this server, and nothing else; if its owner is gone from
         * the book, it stays as another's. */
        bool is_foreign = fault == EK_PAGE_FAULT_OWNER && !is_shared;
        bool is_stale = fault == EK_PAGE_FAULT_GENERATION && is_shared;
        if (k == OUT_OF_USE) { /* which nobody counted */
            pk_close(&m->k);
            return;
        }
        assert_int_equal(m->k.pages.n_quarantined, !is_foreign && !is_stale);
        if (is_foreign)
            g->owner = m->s[F].table.owner; /* for the count of all pages */
        if (is_foreign)
            ek_pages_fault(&m->k.pages, &m->s[F].table, -1);
    }
    expect_peace(m, is_shared);
}

static void any_wrong_field_of_the_book_is_found(void **state)
{
    (void)state;
    each_scene(damage_book, N_DAMAGES, EK_PAGE_CHECK_PAGES);
}

static void damage_table(struct scene *m, int32_t entry, int32_t k)
{
    struct ek_page_table *t = &m->s[A].table;
    static const int32_t tokens[] = {-1, 0,  15, 32, 47, 48,        55,
                                     57, 64, 70, 79, 80, INT32_MAX, INT32_MIN};
    static const int32_t shared[] = {-1, 0, 1, 4, 5, INT32_MAX};
    static const int32_t pages[] = {-1, 0, 2, 3, PK_CAP + 1, INT32_MAX};
    if (entry > 0)
        ; /* the table is one thing: once is enough */
    else if (k < 14)
        t->n_tokens = tokens[k];
    else if (k < 20)
        t->n_shared = shared[k - 14];
    else if (k < 26)
        t->n_pages = pages[k - 20];
    else if (k == 26)
        t->chain ^= 1;
    else if (k == 27)
        t->salt.lo ^= 1;
    else if (k == 28)
        t->salt.hi ^= 1;
    else if (k < 29 + PK_PAGES && k - 29 != t->tip.page)
        t->tip = (struct ek_page_ref){k - 29, m->k.pages.pages[k - 29].generation};
    else if (k == 29 + PK_PAGES)
        t->tip.generation++;
    else
        entry = 1;
    if (entry == 0)
        expect_fault(m);
    expect_peace(m, false);
}

static void any_wrong_figure_of_the_table_is_found(void **state)
{
    (void)state;
    each_scene(damage_table, 30 + PK_PAGES, EK_PAGE_CHECK_PAGES);
}

static void the_tables_own_figures_are_checked_even_when_off(void **state)
{
    (void)state;
    static struct scene m;
    set_scene(&m, EK_PAGE_CHECK_OFF, true);
    struct ek_page_table *t = &m.s[A].table, right = *t;
    static const int32_t shared[] = {-1, 4, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        t->n_shared = shared[i];
        assert_int_equal(pk_check(&m.k, &m.s[A], NULL), EK_PAGE_FAULT_COUNT);
    }
    *t = right;
    static const int32_t tokens[] = {-1, 81, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        t->n_tokens = tokens[i];
        assert_int_equal(pk_check(&m.k, &m.s[A], NULL), EK_PAGE_FAULT_COUNT);
    }
    pk_close(&m.k);
}

static void a_path_that_is_not_there_is_found(void **state)
{
    (void)state;
    static struct scene m;
    for (int32_t page = 0; page < PK_PAGES; page++) {
        set_scene(&m, EK_PAGE_CHECK_PAGES, false);
        struct pk_seq *f = &m.s[F];
        assert_int_equal(f->table.n_shared, 0);
        f->table.tip = (struct ek_page_ref){page, m.k.pages.pages[page].generation};
        assert_int_equal(pk_check(&m.k, f, NULL), EK_PAGE_FAULT_CHAIN);
        ek_pages_free(&m.k.pages, &f->table);
        expect_peace(&m, false);
    }
    set_scene(&m, EK_PAGE_CHECK_PAGES, false);
    m.s[F].table.n_shared = -1;
    assert_int_equal(pk_check(&m.k, &m.s[F], NULL), EK_PAGE_FAULT_COUNT);
    pk_close(&m.k);
}

/* Without the cache equal pages may be shared twice. Where a forged tip leaves it open
 * which of them a held, nobody loses one. */
static void equal_pages_in_doubt_stay_with_their_holders(void **state)
{
    (void)state;
    static struct scene m;
    for (int32_t i = 0; i < 3; i++) {
        set_scene(&m, EK_PAGE_CHECK_PAGES, false);
        struct pk_seq *a = &m.s[A], *d = &m.s[D], *e = &m.s[E];
        pk_start(&m.k, e, 1);
        assert_int_equal(pk_fork(&m.k, d, e), 0);
        a->table.tip = d->refs[i];
        expect_fault(&m);
        for (int s = B; s < N_SEQS; s++)
            assert_true(pk_reads_right(&m.k, &m.s[s]));
        ek_pages_free(&m.k.pages, &d->table);
        assert_true(pk_reads_right(&m.k, e));
        assert_true(ek_pages_is_sane(&m.k.pages));
        pk_close(&m.k);
    }
}

/* a's entry names a page that is damaged itself, of any state and whoever holds it. */
static void damage_elsewhere(struct scene *m, int32_t entry, int32_t page)
{
    struct ek_page *g = &m->k.pages.pages[page];
    bool is_held = false;
    for (int i = 0; i < N_SEQS; i++) {
        for (int32_t k = 0; k < m->s[i].table.n_pages; k++)
            is_held |= m->s[i].refs[k].page == page;
    }
    if (!is_held) {
        g->state = g->state == EK_PAGE_FREE ? EK_PAGE_SEALED : EK_PAGE_WRITING;
        m->s[A].refs[entry] = (struct ek_page_ref){page, g->generation};
        expect_fault(m);
        assert_int_equal(g->state, EK_PAGE_QUARANTINE);
        assert_int_equal(m->k.pages.n_quarantined, 1);
    }
    expect_peace(m, false);
}

static void a_damaged_page_that_nobody_holds_goes_out_of_use(void **state)
{
    (void)state;
    each_scene(damage_elsewhere, PK_PAGES, EK_PAGE_CHECK_PAGES);
}

static void a_table_under_another_owner_is_found(void **state)
{
    (void)state;
    static struct scene m;
    set_scene(&m, EK_PAGE_CHECK_PAGES, true);
    struct ek_page_table *t = &m.s[A].table;
    uint64_t owner = t->owner;
    t->owner = m.s[D].table.owner; /* which shares all but the own pages */
    assert_int_equal(pk_check(&m.k, &m.s[A], NULL), EK_PAGE_FAULT_OWNER);
    t->owner = owner;
    expect_peace(&m, false);
}

static void positions_past_the_reservation_are_a_count_fault(void **state)
{
    (void)state;
    static struct scene m;
    static const int32_t wrong[] = {25, 26, INT32_MAX, -1};
    set_scene(&m, EK_PAGE_CHECK_OFF, false);
    for (int i = 0; i < 4; i++) {
        int32_t numbers[PK_CAP];
        assert_int_equal(
            ek_pages_check(&m.k.pages, &m.s[A].table, NULL, wrong[i], numbers, NULL),
            EK_PAGE_FAULT_COUNT);
    }
    pk_close(&m.k);
}

static void a_freed_page_is_found_by_its_generation(void **state)
{
    (void)state;
    static struct scene m;
    for (int caches = 0; caches <= 1; caches++) {
        set_scene(&m, EK_PAGE_CHECK_PAGES, caches);
        struct pk_seq stale = m.s[A];
        stale.table.refs = stale.refs;
        for (int i = 0; i < N_SEQS; i++)
            ek_pages_free(&m.k.pages, &m.s[i].table);
        ek_pages_drop_cache(&m.k.pages);
        assert_int_equal(pk_check(&m.k, &stale, NULL), EK_PAGE_FAULT_GENERATION);
        /* Given out again, even to a forged owner of the same id: still not its page. */
        struct pk_seq *a = &m.s[A];
        assert_int_equal(pk_run(&m.k, a, 56), 0);
        assert_int_equal(pk_check(&m.k, &stale, NULL), EK_PAGE_FAULT_GENERATION);
        pk_close(&m.k);
    }
}

/* Frees the page of entry `entry` behind a's back; k > 0: and gives it out again. */
static void free_in_use(struct scene *m, int32_t entry, int32_t k)
{
    struct ek_page_ref refs[PK_CAP];
    struct ek_page_table thief = m->s[A].table;
    memcpy(refs, m->s[A].refs, sizeof refs);
    thief.refs = refs;
    if (entry == 0) {
        ek_pages_free(&m->k.pages, &thief);
        struct pk_seq next = m->s[F];
        pk_start(&m->k, &next, 1);
        if (k > 0)
            assert_int_equal(pk_run(&m->k, &next, 60), 0);
        /* The shared pages may live on with other holders: then they are right. */
        int32_t bad = -1;
        assert_int_not_equal(pk_check(&m->k, &m->s[A], &bad), 0);
        assert_true(m->k.pages.pages[m->s[A].refs[bad].page].generation !=
                    m->s[A].refs[bad].generation);
    }
    pk_close(&m->k);
}

static void a_page_freed_while_in_use_is_found(void **state)
{
    (void)state;
    each_scene(free_in_use, 2, EK_PAGE_CHECK_PAGES);
}

static void full_finds_any_other_token(void **state)
{
    (void)state;
    static struct scene m;
    for (int caches = 0; caches <= 1; caches++) {
        set_scene(&m, EK_PAGE_CHECK_FULL, caches);
        struct pk_seq *a = &m.s[A];
        for (int32_t i = 0; i < a->table.n_tokens; i++) {
            int32_t bad = -1;
            a->tokens[i]++;
            assert_int_equal(pk_check(&m.k, a, &bad), EK_PAGE_FAULT_CHAIN);
            assert_int_equal(bad, i / EK_PAGE_TOKENS);
            a->tokens[i]--;
        }
        assert_true(pk_reads_right(&m.k, a));
        pk_close(&m.k);
    }
}

static void full_finds_any_swapped_pair(void **state)
{
    (void)state;
    static struct scene m;
    set_scene(&m, EK_PAGE_CHECK_FULL, true);
    struct pk_seq *a = &m.s[A];
    for (int32_t i = 0; i < a->table.n_tokens; i++) {
        for (int32_t j = 0; j < i; j++) {
            int32_t x = a->tokens[i], y = a->tokens[j];
            a->tokens[i] = y;
            a->tokens[j] = x;
            assert_int_equal(pk_check(&m.k, a, NULL), x == y ? 0 : EK_PAGE_FAULT_CHAIN);
            a->tokens[i] = x;
            a->tokens[j] = y;
        }
    }
    pk_close(&m.k);
}

static void full_finds_any_flipped_record_and_chain(void **state)
{
    (void)state;
    static struct scene m;
    for (int caches = 0; caches <= 1; caches++) {
        set_scene(&m, EK_PAGE_CHECK_FULL, caches);
        struct pk_seq *a = &m.s[A];
        for (int32_t i = 0; i < a->table.n_tokens; i++) {
            int32_t page = a->refs[i / EK_PAGE_TOKENS].page, bad = -1;
            uint64_t *record =
                &m.k.pages.records[page * EK_PAGE_TOKENS + i % EK_PAGE_TOKENS];
            for (int bit = 0; bit < 64; bit++) {
                *record ^= (uint64_t)1 << bit;
                assert_int_equal(pk_check(&m.k, a, &bad), EK_PAGE_FAULT_CHAIN);
                assert_int_equal(bad, i / EK_PAGE_TOKENS);
                *record ^= (uint64_t)1 << bit;
            }
            m.k.pages.pages[page].chain ^= 4;
            assert_int_equal(pk_check(&m.k, a, &bad), EK_PAGE_FAULT_CHAIN);
            m.k.pages.pages[page].chain ^= 4;
        }
        assert_true(pk_reads_right(&m.k, a));
        pk_close(&m.k);
    }
}

static void freeing_a_corrupt_table_harms_nobody(void **state)
{
    (void)state;
    static struct scene m;
    for (int32_t page = 0; page < PK_PAGES; page++) {
        for (int32_t entry = 0; entry < 5; entry++) {
            set_scene(&m, EK_PAGE_CHECK_PAGES, true);
            struct ek_page_table *t = &m.s[A].table;
            t->refs[entry] =
                (struct ek_page_ref){page, m.k.pages.pages[page].generation};
            ek_pages_free(&m.k.pages, t);
            for (int i = B; i < N_SEQS; i++)
                assert_true(pk_reads_right(&m.k, &m.s[i]));
            assert_true(ek_pages_is_sane(&m.k.pages));
            pk_close(&m.k);
        }
    }
}

static void a_quarantined_page_never_comes_back(void **state)
{
    (void)state;
    static struct scene m;
    for (int caches = 0; caches <= 1; caches++) {
        set_scene(&m, EK_PAGE_CHECK_PAGES, caches);
        int32_t page = m.s[A].refs[1].page;
        m.k.pages.pages[page].fill = 3;
        assert_int_equal(expect_fault(&m), EK_PAGE_FAULT_FILL);
        for (int i = B; i < N_SEQS; i++) {
            int32_t bad = 0;
            if (pk_check(&m.k, &m.s[i], &bad)) {
                assert_int_equal(pk_check(&m.k, &m.s[i], &bad), EK_PAGE_FAULT_STATE);
                assert_int_equal(bad, 1);
            }
            ek_pages_free(&m.k.pages, &m.s[i].table);
        }
        /* Nor does what follows it: the prefix is found up to it. */
        struct pk_seq *a = &m.s[A];
        assert_int_equal(pk_match(&m.k, a, 56), caches ? 16 : 0);
        ek_pages_free(&m.k.pages, &a->table);
        pk_expect_all_back(&m.k, 1);
        struct ek_page_ref refs[PK_PAGES];
        struct ek_page_table all;
        ek_page_table_init(&all, 99, (struct ek_salt){0}, refs, PK_PAGES);
        int32_t max = (PK_PAGES - 1) * EK_PAGE_TOKENS;
        assert_int_equal(ek_pages_reserve(&m.k.pages, &all, max + 1), EK_EBUSY);
        assert_int_equal(ek_pages_reserve(&m.k.pages, &all, max), 0);
        for (int32_t i = 0; i < all.n_pages; i++)
            assert_int_not_equal(refs[i].page, page);
        pk_close(&m.k);
    }
}

static void a_worn_out_page_retires(void **state)
{
    (void)state;
    struct ek_pages_options o = {.n_pages = 1, .check = EK_PAGE_CHECK_PAGES};
    struct ek_pages p;
    struct ek_page_ref ref;
    struct ek_page_table t;
    assert_int_equal(ek_pages_init(&p, &o, NULL), 0);
    p.pages[0].generation = UINT32_MAX;
    ek_page_table_init(&t, 1, (struct ek_salt){0}, &ref, 1);
    assert_int_equal(ek_pages_reserve(&p, &t, 1), 0);
    ek_pages_free(&p, &t);
    assert_int_equal(p.n_free, 0);
    assert_int_equal(p.n_quarantined, 1);
    ek_pages_release(&p);
}

static void reserve_without_room_changes_nothing(void **state)
{
    (void)state;
    static struct scene m;
    struct ek_page_ref refs[64];
    struct ek_page_table t;
    for (int caches = 0; caches <= 1; caches++) {
        set_scene(&m, EK_PAGE_CHECK_PAGES, caches);
        int32_t n = ek_pages_available(&m.k.pages);
        ek_page_table_init(&t, 99, (struct ek_salt){0}, refs, 64);
        assert_int_equal(ek_pages_reserve(&m.k.pages, &t, (n + 1) * EK_PAGE_TOKENS),
                         EK_EBUSY);
        assert_int_equal(ek_pages_reserve(&m.k.pages, &t, 65 * EK_PAGE_TOKENS),
                         EK_ELIMIT);
        assert_int_equal(t.n_pages, 0);
        assert_int_equal(ek_pages_available(&m.k.pages), n);
        assert_int_equal(m.k.pages.n_evicted, 0);
        assert_int_equal(ek_pages_reserve(&m.k.pages, &t, n * EK_PAGE_TOKENS), 0);
        assert_int_equal(ek_pages_available(&m.k.pages), 0);
        for (int i = 0; i < N_SEQS; i++)
            assert_true(pk_reads_right(&m.k, &m.s[i]));
        pk_close(&m.k);
    }
}

static void adopted_pages_leave_every_copy_of_the_old_table_stale(void **state)
{
    (void)state;
    static struct scene m;
    for (int caches = 0; caches <= 1; caches++) {
        set_scene(&m, EK_PAGE_CHECK_FULL, caches);
        struct pk_seq *a = &m.s[A], *to = &m.s[E], stale = *a;
        stale.table.refs = stale.refs;
        pk_start(&m.k, to, a->table.salt.lo);
        memcpy(to->tokens, a->tokens, sizeof to->tokens);
        memcpy(to->kv, a->kv, sizeof to->kv);
        ek_pages_adopt(&m.k.pages, &a->table, &to->table);
        assert_int_equal(a->table.n_pages, 0);
        assert_int_equal(to->table.n_tokens, 56);
        assert_true(pk_reads_right(&m.k, to));
        assert_int_equal(pk_check(&m.k, &stale, NULL), EK_PAGE_FAULT_GENERATION);
        assert_int_equal(pk_run(&m.k, to, 14), 0);
        assert_true(pk_reads_right(&m.k, to));
        ek_pages_free(&m.k.pages, &a->table); /* gives back nothing */
        assert_true(pk_reads_right(&m.k, to));
        ek_pages_free(&m.k.pages, &to->table);
        expect_peace(&m, false);
    }
}

static void init_without_memory_leaves_nothing(void **state)
{
    (void)state;
    struct ek_pages_options o = {
        .n_pages = 8, .check = EK_PAGE_CHECK_FULL, .caches_prefixes = true};
    EK_EACH_FAILURE (k) {
        struct ek_pages p;
        ek_assert_rc(ek_pages_init(&p, &o, NULL));
        ek_pages_release(&p);
        assert_null(p.pages);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_other_page_in_any_place_is_found),
        cmocka_unit_test(page_numbers_outside_the_pool_are_range_faults),
        cmocka_unit_test(an_entry_of_another_generation_is_found),
        cmocka_unit_test(entries_that_swapped_places_are_found),
        cmocka_unit_test(any_wrong_field_of_the_book_is_found),
        cmocka_unit_test(any_wrong_figure_of_the_table_is_found),
        cmocka_unit_test(the_tables_own_figures_are_checked_even_when_off),
        cmocka_unit_test(a_path_that_is_not_there_is_found),
        cmocka_unit_test(equal_pages_in_doubt_stay_with_their_holders),
        cmocka_unit_test(a_damaged_page_that_nobody_holds_goes_out_of_use),
        cmocka_unit_test(a_table_under_another_owner_is_found),
        cmocka_unit_test(positions_past_the_reservation_are_a_count_fault),
        cmocka_unit_test(a_freed_page_is_found_by_its_generation),
        cmocka_unit_test(a_page_freed_while_in_use_is_found),
        cmocka_unit_test(full_finds_any_other_token),
        cmocka_unit_test(full_finds_any_swapped_pair),
        cmocka_unit_test(full_finds_any_flipped_record_and_chain),
        cmocka_unit_test(freeing_a_corrupt_table_harms_nobody),
        cmocka_unit_test(a_quarantined_page_never_comes_back),
        cmocka_unit_test(a_worn_out_page_retires),
        cmocka_unit_test(reserve_without_room_changes_nothing),
        cmocka_unit_test(adopted_pages_leave_every_copy_of_the_old_table_stale),
        cmocka_unit_test(init_without_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
