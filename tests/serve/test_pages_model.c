/* 100,000 random operations against a naive model: plain arrays that keep the tokens of
 * every page in full and count everything by scanning. After each one the book is sane,
 * all counts agree, and every sequence reads what it wrote. */
#include "base/rng.h"
#include "pageskit.h"

enum { N_SEQS = 7, N_SHARED = PK_PAGES };

/* A page that tables share, known by everything that decides its KV. */
struct naive_page {
    bool is_alive, is_public; /* public: others may match it */
    uint64_t tenant;
    int32_t n_tokens; /* from position 0 to the page's end */
    int32_t tokens[PK_TOKENS];
    uint64_t used; /* when its last holder left */
    int32_t page;  /* which one it is in the book */
};

struct naive_seq {
    bool is_alive;
    uint64_t tenant;
    int32_t n_tokens;
    int32_t n_public;     /* pages that end later are not for others */
    int32_t path[PK_CAP]; /* naive pages it holds, from the first on */
    int32_t n_path;
    int32_t n_own; /* pages after those */
};

struct world {
    struct pk k;
    struct pk_seq seqs[N_SEQS];
    struct naive_seq naive[N_SEQS];
    struct naive_page pages[N_SHARED];
    bool caches;
    uint64_t clock;
    int64_t n_evicted;
    int32_t n_hits; /* tokens, to see that the run was worth something */
    int32_t n_busy;
    struct ek_rng rng;
};

static int32_t draw(struct world *w, int32_t n)
{
    return (int32_t)ek_rng_below(&w->rng, (uint64_t)n);
}

static int32_t n_refs(const struct world *w, int32_t page)
{
    int32_t n = 0;
    for (int s = 0; s < N_SEQS; s++) {
        for (int32_t i = 0; w->naive[s].is_alive && i < w->naive[s].n_path; i++)
            n += w->naive[s].path[i] == page;
    }
    return n;
}

static int32_t n_free(const struct world *w)
{
    int32_t n = PK_PAGES;
    for (int32_t i = 0; i < N_SHARED; i++)
        n -= w->pages[i].is_alive;
    for (int s = 0; s < N_SEQS; s++)
        n -= w->naive[s].is_alive ? w->naive[s].n_own : 0;
    return n;
}

static int32_t n_cached(const struct world *w)
{
    int32_t n = 0;
    for (int32_t i = 0; i < N_SHARED; i++)
        n += w->pages[i].is_alive && n_refs(w, i) == 0;
    return n;
}

/* b begins with all of a. */
static bool is_prefix(const struct naive_page *a, const struct naive_page *b)
{
    return a->tenant == b->tenant && a->n_tokens <= b->n_tokens &&
           memcmp(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof a->tokens[0]) == 0;
}

static bool is_leaf(const struct world *w, int32_t i)
{
    for (int32_t j = 0; j < N_SHARED; j++) {
        if (j != i && w->pages[j].is_alive && w->pages[j].is_public &&
            is_prefix(&w->pages[i], &w->pages[j]))
            return false;
    }
    return true;
}

static bool evict(struct world *w)
{
    int32_t best = -1;
    for (int32_t i = 0; i < N_SHARED; i++) {
        const struct naive_page *g = &w->pages[i];
        if (g->is_alive && n_refs(w, i) == 0 && is_leaf(w, i) &&
            (best < 0 || g->used < w->pages[best].used))
            best = i;
    }
    if (best < 0)
        return false;
    w->pages[best].is_alive = false;
    w->n_evicted++;
    return true;
}

/* Whether n pages can be had; then they can. */
static bool make_free(struct world *w, int32_t n)
{
    if (n_free(w) + n_cached(w) < n)
        return false;
    while (n_free(w) < n)
        assert_true(evict(w));
    return true;
}

static struct naive_page as_page(const struct pk_seq *s, uint64_t tenant, int32_t n)
{
    struct naive_page g = {.is_alive = true, .tenant = tenant, .n_tokens = n};
    memcpy(g.tokens, s->tokens, (size_t)n * sizeof g.tokens[0]);
    g.page = s->refs[n / EK_PAGE_TOKENS - 1].page;
    return g;
}

static int32_t find(const struct world *w, const struct naive_page *g)
{
    for (int32_t i = 0; i < N_SHARED; i++) {
        const struct naive_page *have = &w->pages[i];
        if (have->is_alive && have->is_public && have->n_tokens == g->n_tokens &&
            is_prefix(have, g))
            return i;
    }
    return -1;
}

/* The next page of its own joins the shared ones, public ones as the equal page. */
static void share_next(struct world *w, int s, bool is_public)
{
    struct naive_seq *m = &w->naive[s];
    int32_t n = (m->n_path + 1) * EK_PAGE_TOKENS;
    struct naive_page g = as_page(&w->seqs[s], m->tenant, n);
    int32_t at = is_public ? find(w, &g) : -1;
    g.is_public = is_public;
    for (int32_t i = 0; at < 0 && i < N_SHARED; i++)
        at = w->pages[i].is_alive ? -1 : i;
    assert_true(at >= 0);
    if (!w->pages[at].is_alive)
        w->pages[at] = g;
    m->path[m->n_path++] = at;
    m->n_own--;
}

static void naive_free(struct world *w, int s)
{
    struct naive_seq *m = &w->naive[s];
    m->is_alive = false;
    for (int32_t i = m->n_path - 1; i >= 0; i--) {
        struct naive_page *g = &w->pages[m->path[i]];
        if (n_refs(w, m->path[i]) > 0)
            continue;
        g->used = ++w->clock;
        g->is_alive = g->is_public;
    }
}

/* Tokens that often begin as somebody else's. */
static void draw_tokens(struct world *w, struct pk_seq *s)
{
    for (int32_t i = 0; i < PK_CAP; i++)
        pk_say(s, i, draw(w, 4) ? 1 : draw(w, 3));
    if (draw(w, 4) == 0)
        s->tokens[draw(w, PK_TOKENS)] = 7777;
}

static void op_start(struct world *w, int s)
{
    struct pk_seq *seq = &w->seqs[s];
    struct naive_seq *m = &w->naive[s];
    *m = (struct naive_seq){.is_alive = true, .tenant = (uint64_t)draw(w, 2)};
    m->n_public = draw(w, 3) ? INT32_MAX : draw(w, PK_TOKENS);
    pk_start(&w->k, seq, m->tenant);
    seq->table.n_public = m->n_public;
    draw_tokens(w, seq);
    int32_t n = 1 + draw(w, PK_TOKENS);
    int32_t n_hit = pk_match(&w->k, seq, n);
    for (int32_t i = 0; w->caches && i < (n - 1) / EK_PAGE_TOKENS; i++) {
        struct naive_page g = as_page(seq, m->tenant, (i + 1) * EK_PAGE_TOKENS);
        int32_t at = find(w, &g);
        if (at < 0)
            break;
        m->path[m->n_path++] = at;
    }
    m->n_tokens = m->n_path * EK_PAGE_TOKENS;
    assert_int_equal(n_hit, m->n_tokens);
    w->n_hits += n_hit;
}

static void op_append(struct world *w, int s)
{
    struct pk_seq *seq = &w->seqs[s];
    struct naive_seq *m = &w->naive[s];
    int32_t n = 1 + draw(w, 40);
    if (m->n_tokens + n > PK_TOKENS + 1)
        n = PK_TOKENS + 1 - m->n_tokens;
    int32_t need = ek_pages_for_tokens(m->n_tokens + n), had = m->n_path + m->n_own;
    int want = 0;
    if (need > PK_CAP)
        want = EK_ELIMIT;
    else if (need > had && !make_free(w, need - had))
        want = EK_EBUSY;
    w->n_busy += want == EK_EBUSY;
    if (draw(w, 8) == 0) { /* reserved only */
        assert_int_equal(ek_pages_reserve(&w->k.pages, &seq->table, m->n_tokens + n),
                         want);
        n = 0;
    } else {
        assert_int_equal(pk_run(&w->k, seq, n), want);
    }
    if (want)
        return;
    m->n_own += need > had ? need - had : 0;
    int32_t page = m->n_tokens / EK_PAGE_TOKENS;
    m->n_tokens += n;
    for (; w->caches && page < m->n_tokens / EK_PAGE_TOKENS; page++) {
        bool is_public = page == 0 || w->pages[m->path[page - 1]].is_public;
        if (m->n_path == page && is_public &&
            (page + 1) * EK_PAGE_TOKENS <= m->n_public)
            share_next(w, s, true);
    }
}

static void op_fork(struct world *w, int s, int to)
{
    struct naive_seq *m = &w->naive[s];
    bool has_partial = m->n_tokens % EK_PAGE_TOKENS != 0;
    bool has_room = !has_partial || make_free(w, 1);
    pk_start(&w->k, &w->seqs[to], m->tenant);
    int32_t n_public = draw(w, 2) ? INT32_MAX : m->n_public;
    w->seqs[to].table.n_public = n_public;
    assert_int_equal(pk_fork(&w->k, &w->seqs[s], &w->seqs[to]),
                     has_room ? 0 : EK_EBUSY);
    if (!has_room)
        return;
    while (m->n_path < m->n_tokens / EK_PAGE_TOKENS)
        share_next(w, s, false);
    w->naive[to] = *m;
    w->naive[to].n_own = has_partial;
    w->naive[to].n_public = n_public;
    int32_t at = m->n_tokens;
    if (at < PK_TOKENS)
        w->seqs[to].tokens[at] = 8000 + to; /* and so they part */
}

static void op_adopt(struct world *w, int s, int to)
{
    struct pk_seq *a = &w->seqs[s], *b = &w->seqs[to];
    pk_start(&w->k, b, w->naive[s].tenant);
    b->table.n_public = w->naive[s].n_public;
    memcpy(b->tokens, a->tokens, sizeof b->tokens);
    memcpy(b->kv, a->kv, sizeof b->kv);
    ek_pages_adopt(&w->k.pages, &a->table, &b->table);
    w->naive[to] = w->naive[s];
    w->naive[s].is_alive = false;
}

static void op_end(struct world *w, int s)
{
    if (draw(w, 2))
        ek_pages_free(&w->k.pages, &w->seqs[s].table);
    else
        ek_pages_fault(&w->k.pages, &w->seqs[s].table, -1);
    naive_free(w, s);
}

/* An entry becomes a page of somebody else: found, and only this sequence ends. */
static void op_forge(struct world *w, int s, int other)
{
    struct pk_seq *a = &w->seqs[s], *b = &w->seqs[other];
    if (a->table.n_pages == 0 || b->table.n_pages == 0)
        return;
    int32_t i = draw(w, a->table.n_pages), j = draw(w, b->table.n_pages);
    if (draw(w, 2) && i < b->table.n_pages)
        j = i; /* the hard one: the same place */
    for (int32_t k = 0; k < a->table.n_pages; k++) {
        if (a->refs[k].page == b->refs[j].page)
            return; /* it is a's as well */
    }
    int32_t bad = -1;
    struct ek_page_ref right = a->refs[i];
    a->refs[i] = b->refs[j];
    assert_int_not_equal(pk_check(&w->k, a, &bad), EK_PAGE_FAULT_NONE);
    const struct ek_page *g = w->k.pages.pages;
    if (g[right.page].chain == g[a->refs[i].page].chain) {
        /* Found; but of two equal pages it cannot be told which one a held. */
        a->refs[i] = right;
        return;
    }
    ek_pages_fault(&w->k.pages, &a->table, bad);
    naive_free(w, s);
}

static void compare(struct world *w)
{
    const struct ek_pages *p = &w->k.pages;
    assert_true(ek_pages_is_sane(p));
    assert_int_equal(p->n_free, n_free(w));
    assert_int_equal(p->n_cached, n_cached(w));
    assert_int_equal(p->n_evicted, w->n_evicted);
    assert_int_equal(p->n_quarantined, 0);
    for (int s = 0; s < N_SEQS; s++) {
        const struct naive_seq *m = &w->naive[s];
        const struct ek_page_table *t = &w->seqs[s].table;
        if (!m->is_alive)
            continue;
        assert_true(pk_reads_right(&w->k, &w->seqs[s]));
        assert_int_equal(t->n_tokens, m->n_tokens);
        assert_int_equal(t->n_shared, m->n_path);
        assert_int_equal(t->n_pages, m->n_path + m->n_own);
        for (int32_t i = 0; i < m->n_path; i++) {
            assert_int_equal(t->refs[i].page, w->pages[m->path[i]].page);
            assert_int_equal(p->pages[t->refs[i].page].n_refs, n_refs(w, m->path[i]));
        }
    }
}

static void step(struct world *w)
{
    int s = draw(w, N_SEQS), other = (s + 1 + draw(w, N_SEQS - 1)) % N_SEQS;
    bool is_alive = w->naive[s].is_alive, has_other = w->naive[other].is_alive;
    int what = draw(w, 100);
    if (what == 0) {
        ek_pages_drop_cache(&w->k.pages);
        while (evict(w))
            ;
    } else if (!is_alive) {
        op_start(w, s);
    } else if (what < 10) {
        op_end(w, s);
    } else if (what < 18 && has_other) {
        op_forge(w, s, other);
    } else if (what < 24 && !has_other) {
        op_adopt(w, s, other);
    } else if (what < 60 && !has_other) {
        op_fork(w, s, other);
    } else {
        op_append(w, s);
    }
    compare(w);
}

static void run(struct world *w, enum ek_page_check check, bool caches, uint64_t mask,
                int n_steps)
{
    memset(w, 0, sizeof *w);
    pk_open(&w->k, check, caches);
    w->k.pages.chain_mask = mask;
    w->caches = caches;
    ek_rng_init(&w->rng, 11);
    for (int i = 0; i < n_steps; i++)
        step(w);
    for (int s = 0; s < N_SEQS; s++) {
        if (w->naive[s].is_alive)
            ek_pages_free(&w->k.pages, &w->seqs[s].table);
    }
    pk_expect_all_back(&w->k, 0);
    pk_close(&w->k);
    assert_true(w->n_busy > n_steps / 1000);
    assert_true(!caches || (w->n_hits > n_steps && w->n_evicted > n_steps / 100));
}

static void the_book_with_the_cache_agrees_with_a_naive_model(void **state)
{
    (void)state;
    static struct world w;
    run(&w, EK_PAGE_CHECK_PAGES, true, UINT64_MAX, 100000);
}

static void the_book_without_the_cache_agrees_with_a_naive_model(void **state)
{
    (void)state;
    static struct world w;
    run(&w, EK_PAGE_CHECK_PAGES, false, UINT64_MAX, 20000);
}

static void the_full_check_agrees_with_a_naive_model(void **state)
{
    (void)state;
    static struct world w;
    run(&w, EK_PAGE_CHECK_FULL, true, UINT64_MAX, 20000);
}

/* All chains are equal: sharing and checking rest on comparisons alone. */
static void equal_hashes_agree_with_a_naive_model(void **state)
{
    (void)state;
    static struct world w;
    run(&w, EK_PAGE_CHECK_PAGES, true, 0, 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_book_with_the_cache_agrees_with_a_naive_model),
        cmocka_unit_test(the_book_without_the_cache_agrees_with_a_naive_model),
        cmocka_unit_test(the_full_check_agrees_with_a_naive_model),
        cmocka_unit_test(equal_hashes_agree_with_a_naive_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
