/* pageskit.h - a pool of pages over a pretended KV storage, and sequences that run on
 * it.
 *
 * The KV of a position is a hash over salt and all tokens up to it, as a model's is a
 * function of them: written through the numbers that a check gave, copied by fork,
 * poisoned when a page becomes free. So `pk_reads_right` says whether a sequence would
 * read what it wrote.
 */
#ifndef EVENKEEL_TESTS_SERVE_PAGESKIT_H
#define EVENKEEL_TESTS_SERVE_PAGESKIT_H

#include "base/map.h"
#include "serve/pages.h"
#include "testkit.h"

enum { PK_PAGES = 32, PK_CAP = 8, PK_TOKENS = PK_CAP * EK_PAGE_TOKENS };

#define PK_POISON UINT64_MAX

struct pk {
    struct ek_pages pages;
    uint64_t kv[PK_PAGES][EK_PAGE_TOKENS];
    uint64_t next_owner;
};

struct pk_seq {
    struct ek_page_table table;
    struct ek_page_ref refs[PK_CAP];
    int32_t tokens[PK_TOKENS + 1];
    uint64_t kv[PK_TOKENS]; /* what must lie in the storage */
};

static inline void pk_copy(void *arg, int32_t to, int32_t from)
{
    struct pk *k = arg;
    memcpy(k->kv[to], k->kv[from], sizeof k->kv[to]);
}

static inline void pk_on_free(void *arg, int32_t page)
{
    struct pk *k = arg;
    memset(k->kv[page], 0xff, sizeof k->kv[page]);
}

static inline void pk_open(struct pk *k, enum ek_page_check check, bool caches)
{
    struct ek_pages_options o = {.n_pages = PK_PAGES,
                                 .check = check,
                                 .caches_prefixes = caches,
                                 .copy = pk_copy,
                                 .on_free = pk_on_free,
                                 .arg = k};
    memset(k, 0, sizeof *k);
    memset(k->kv, 0xff, sizeof k->kv);
    k->next_owner = 1;
    assert_int_equal(ek_pages_init(&k->pages, &o, NULL), 0);
}

static inline void pk_start(struct pk *k, struct pk_seq *s, uint64_t tenant)
{
    struct ek_salt salt = {tenant, tenant * 3};
    ek_page_table_init(&s->table, k->next_owner++, salt, s->refs, PK_CAP);
}

/* Page n's worth of tokens, a different one for each `variant`. */
static inline void pk_say(struct pk_seq *s, int32_t page, int32_t variant)
{
    for (int32_t i = 0; i < EK_PAGE_TOKENS; i++)
        s->tokens[page * EK_PAGE_TOKENS + i] = variant * 100 + i;
}

static inline uint64_t pk_value(const struct pk_seq *s, int32_t position)
{
    uint64_t before = position > 0 ? s->kv[position - 1] : s->table.salt.lo;
    uint64_t of[2] = {before, (uint64_t)(uint32_t)s->tokens[position]};
    return ek_hash(of, sizeof of, (uint64_t)position);
}

/* Runs a step over the next n tokens. Returns EK_ELIMIT, EK_EBUSY or 0. */
static inline int pk_run(struct pk *k, struct pk_seq *s, int32_t n)
{
    int32_t numbers[PK_CAP];
    struct ek_page_table *t = &s->table;
    int32_t from = t->n_tokens, end = from + n;
    int rc = ek_pages_reserve(&k->pages, t, end);
    if (rc)
        return rc;
    assert_int_equal(ek_pages_check(&k->pages, t, s->tokens, n, numbers, NULL), 0);
    for (int32_t i = from; i < end; i++) {
        s->kv[i] = pk_value(s, i);
        k->kv[numbers[i / EK_PAGE_TOKENS]][i % EK_PAGE_TOKENS] = s->kv[i];
    }
    ek_pages_commit(&k->pages, t, s->tokens, n);
    assert_int_equal(t->n_tokens, end);
    return 0;
}

/* Attaches what is cached of the first n tokens. */
static inline int32_t pk_match(struct pk *k, struct pk_seq *s, int32_t n)
{
    int32_t n_hit = ek_pages_match(&k->pages, &s->table, s->tokens, n);
    assert_int_equal(n_hit, s->table.n_tokens);
    for (int32_t i = 0; i < n_hit; i++)
        s->kv[i] = pk_value(s, i);
    return n_hit;
}

static inline int pk_fork(struct pk *k, struct pk_seq *from, struct pk_seq *to)
{
    int rc = ek_pages_fork(&k->pages, &from->table, &to->table);
    if (rc)
        return rc;
    memcpy(to->tokens, from->tokens, sizeof to->tokens);
    memcpy(to->kv, from->kv, sizeof to->kv);
    return 0;
}

static inline enum ek_page_fault pk_check(const struct pk *k, const struct pk_seq *s,
                                          int32_t *bad)
{
    int32_t numbers[PK_CAP];
    return ek_pages_check(&k->pages, &s->table, s->tokens, 0, numbers, bad);
}

/* The check passes, and every position holds what was written for it. */
static inline bool pk_reads_right(const struct pk *k, const struct pk_seq *s)
{
    int32_t numbers[PK_CAP];
    if (ek_pages_check(&k->pages, &s->table, s->tokens, 0, numbers, NULL))
        return false;
    for (int32_t i = 0; i < s->table.n_tokens; i++) {
        if (k->kv[numbers[i / EK_PAGE_TOKENS]][i % EK_PAGE_TOKENS] != s->kv[i])
            return false;
    }
    return true;
}

/* Nobody holds anything now: every page is free, cached or out of use. */
static inline void pk_expect_all_back(struct pk *k, int32_t n_quarantined)
{
    struct ek_pages *p = &k->pages;
    assert_true(ek_pages_is_sane(p));
    assert_int_equal(p->n_quarantined, n_quarantined);
    assert_int_equal(p->n_free + p->n_cached, PK_PAGES - n_quarantined);
    ek_pages_drop_cache(p);
    assert_int_equal(p->n_free, PK_PAGES - n_quarantined);
    assert_int_equal(p->n_cached, 0);
    assert_true(ek_pages_is_sane(p));
}

static inline void pk_close(struct pk *k)
{
    ek_pages_release(&k->pages);
}

#endif
