/* pages.c - the book kept: pages handed out, filled, shared, moved, given back. */
#include "serve/pages.h"

#include "base/mem.h"
#include "base/rng.h"
#include "serve/pages_int.h"

#include <assert.h>
#include <string.h>

static int alloc_book(struct ek_pages *p, const struct ek_pages_options *o)
{
    size_t n = (size_t)o->n_pages, n_slots;
    if (!ek_mul_size(&n_slots, n, EK_PAGE_TOKENS))
        return EK_ENOMEM;
    p->pages = ek_calloc(n, sizeof *p->pages);
    p->tokens = ek_calloc(n_slots, sizeof *p->tokens);
    p->free_list = ek_alloc_array(n, sizeof *p->free_list);
    if (!p->pages || !p->tokens || !p->free_list)
        return EK_ENOMEM;
    if (o->check == EK_PAGE_CHECK_FULL) {
        p->records = ek_calloc(n_slots, sizeof *p->records);
        if (!p->records)
            return EK_ENOMEM;
    }
    return o->caches_prefixes ? ek_prefix_init(&p->prefix, o->n_pages, p->tokens) : 0;
}

int ek_pages_init(struct ek_pages *p, const struct ek_pages_options *o,
                  struct ek_err *err)
{
    assert(o->n_pages >= 0);
    *p = (struct ek_pages){.o = *o, .chain_mask = UINT64_MAX};
    if (alloc_book(p, o)) {
        ek_pages_release(p);
        return ek_err_set(err, EK_ENOMEM, "no memory for the table of %d KV pages",
                          o->n_pages);
    }
    if (ek_rng_secret(&p->anchor, sizeof p->anchor)) {
        ek_pages_release(p);
        return ek_err_set(err, EK_EIO, "the system gives no random numbers");
    }
    p->n_pages = p->n_free = o->n_pages;
    for (int32_t i = 0; i < p->n_pages; i++) {
        int32_t page = p->n_pages - 1 - i; /* page 0 goes out first */
        p->free_list[i] = page;
        p->pages[page].generation = 1;
        p->pages[page].parent = i;
    }
    return 0;
}

void ek_pages_release(struct ek_pages *p)
{
    ek_prefix_release(&p->prefix);
    ek_free(p->pages);
    ek_free(p->tokens);
    ek_free(p->records);
    ek_free(p->free_list);
    *p = (struct ek_pages){0};
}

int32_t ek_pages_for_tokens(int32_t n_tokens)
{
    return n_tokens / EK_PAGE_TOKENS + (n_tokens % EK_PAGE_TOKENS != 0);
}

int32_t ek_pages_available(const struct ek_pages *p)
{
    return p->n_free + p->n_cached;
}

static void empty(struct ek_page_table *t)
{
    t->n_pages = t->n_tokens = t->n_shared = 0;
    t->chain = 0;
    t->tip = (struct ek_page_ref){.page = -1};
}

void ek_page_table_init(struct ek_page_table *t, uint64_t owner, struct ek_salt salt,
                        struct ek_page_ref *refs, int32_t cap)
{
    assert(owner != 0 && cap >= 0);
    *t = (struct ek_page_table){
        .owner = owner, .salt = salt, .n_public = INT32_MAX, .refs = refs, .cap = cap};
    empty(t);
}

static int32_t *tokens_of(const struct ek_pages *p, int32_t page)
{
    return p->tokens + (size_t)page * EK_PAGE_TOKENS;
}

/* A page that nobody holds and that is in no index goes back. */
static void free_page(struct ek_pages *p, int32_t page)
{
    struct ek_page *g = &p->pages[page];
    /* A page that used up its generations could repeat one: it retires. */
    bool is_last = g->generation == UINT32_MAX;
    *g = (struct ek_page){.generation = g->generation + !is_last};
    if (is_last) {
        g->state = EK_PAGE_QUARANTINE;
        p->n_quarantined++;
        return;
    }
    g->parent = p->n_free;
    p->free_list[p->n_free++] = page;
    if (p->o.on_free)
        p->o.on_free(p->o.arg, page);
}

static bool evict_one(struct ek_pages *p)
{
    int32_t page = ek_prefix_oldest(&p->prefix);
    if (page < 0)
        return false;
    ek_prefix_remove(&p->prefix, page);
    p->n_cached--;
    p->n_evicted++;
    free_page(p, page);
    return true;
}

/* Sees to it that n pages are free. */
static bool make_free(struct ek_pages *p, int32_t n)
{
    if (n > ek_pages_available(p))
        return false;
    while (p->n_free < n && evict_one(p))
        ;
    return p->n_free >= n;
}

/* Appends a free page to the table as its own. */
static int32_t take_page(struct ek_pages *p, struct ek_page_table *t)
{
    int32_t page = p->free_list[--p->n_free];
    struct ek_page *g = &p->pages[page];
    assert(g->state == EK_PAGE_FREE);
    *g = (struct ek_page){
        .owner = t->owner,
        .salt = t->salt,
        .generation = g->generation,
        .parent = -1,
        .n_refs = 1,
        .index = (uint16_t)t->n_pages,
        .state = EK_PAGE_WRITING,
    };
    t->refs[t->n_pages++] = (struct ek_page_ref){page, g->generation};
    return page;
}

int ek_pages_reserve(struct ek_pages *p, struct ek_page_table *t, int32_t n_tokens)
{
    int32_t need = ek_pages_for_tokens(n_tokens);
    if (need > t->cap || need > EK_PAGES_PER_SEQ_MAX)
        return EK_ELIMIT;
    if (need > t->n_pages && !make_free(p, need - t->n_pages))
        return EK_EBUSY;
    while (t->n_pages < need)
        take_page(p, t);
    return 0;
}

static void hold(struct ek_pages *p, int32_t page)
{
    if (p->pages[page].n_refs++ == 0) {
        ek_prefix_hold(&p->prefix, page);
        p->n_cached--;
    }
}

/* One holder less. */
static void let_go(struct ek_pages *p, int32_t page)
{
    struct ek_page *g = &p->pages[page];
    if (--g->n_refs > 0 || g->state != EK_PAGE_SHARED)
        return;
    if (ek_prefix_has(&p->prefix, page)) {
        ek_prefix_idle(&p->prefix, page);
        p->n_cached++;
    } else {
        free_page(p, page);
    }
}

/* The page after the shared ones, which has just become SHARED or is another such. */
static void extend_path(const struct ek_pages *p, struct ek_page_table *t, int32_t page)
{
    const struct ek_page *g = &p->pages[page];
    t->tip = (struct ek_page_ref){page, g->generation};
    t->refs[t->n_shared++] = t->tip;
    t->chain = g->chain;
}

/* SEALED to SHARED: the table's first page of its own joins the path. */
static void share_next(struct ek_pages *p, struct ek_page_table *t)
{
    int32_t page = t->refs[t->n_shared].page;
    struct ek_page *g = &p->pages[page];
    assert(g->state == EK_PAGE_SEALED && g->owner == t->owner);
    g->state = EK_PAGE_SHARED;
    g->owner = 0;
    g->parent = t->tip.page;
    extend_path(p, t, page);
}

static struct ek_prefix_key key_after(const struct ek_page_table *t, uint64_t hash,
                                      const int32_t *tokens)
{
    return (struct ek_prefix_key){hash, t->salt, t->tip.page, tokens};
}

/* Publishes the table's first page of its own, or takes the equal one that is there.
 * Below a page that is not in the index nothing is: its number could come back as
 * another parent's. */
static void publish(struct ek_pages *p, struct ek_page_table *t)
{
    if (t->n_shared > 0 && !ek_prefix_has(&p->prefix, t->tip.page))
        return;
    int32_t page = t->refs[t->n_shared].page;
    struct ek_prefix_key key = key_after(t, p->pages[page].chain, tokens_of(p, page));
    int32_t same = ek_prefix_find(&p->prefix, &key);
    if (same < 0) {
        share_next(p, t);
        ek_prefix_add(&p->prefix, page, &key);
    } else if (p->pages[same].state == EK_PAGE_SHARED) {
        hold(p, same);
        extend_path(p, t, same);
        free_page(p, page);
    }
}

/* Writes positions [t->n_tokens, end) of the page that holds the first of them. */
static void fill_page(struct ek_pages *p, struct ek_page_table *t, int32_t page,
                      const int32_t *tokens, int32_t end)
{
    struct ek_page *g = &p->pages[page];
    int32_t i = t->n_tokens / EK_PAGE_TOKENS;
    uint64_t chain = g->chain;
    if (g->fill == 0)
        chain = ek_pages_chain_start(
            p, t->salt, i > 0 ? p->pages[t->refs[i - 1].page].chain : p->anchor);
    for (; t->n_tokens < end; t->n_tokens++) {
        int32_t slot = page * EK_PAGE_TOKENS + g->fill++;
        p->tokens[slot] = tokens[t->n_tokens];
        chain = ek_pages_chain_next(p, chain, p->tokens[slot], t->n_tokens);
        if (p->records)
            p->records[slot] = chain;
    }
    g->chain = chain;
    if (g->fill == EK_PAGE_TOKENS)
        g->state = EK_PAGE_SEALED;
}

void ek_pages_commit(struct ek_pages *p, struct ek_page_table *t, const int32_t *tokens,
                     int32_t n_new)
{
    assert(n_new >= 0 && ek_pages_for_tokens(t->n_tokens + n_new) <= t->n_pages);
    int32_t end = t->n_tokens + n_new;
    while (t->n_tokens < end) {
        int32_t i = t->n_tokens / EK_PAGE_TOKENS;
        int32_t page = t->refs[i].page, last = (i + 1) * EK_PAGE_TOKENS;
        assert(p->pages[page].owner == t->owner);
        assert(p->pages[page].state == EK_PAGE_WRITING);
        fill_page(p, t, page, tokens, end < last ? end : last);
        if (p->o.caches_prefixes && t->n_tokens == last && t->n_shared == i &&
            last <= t->n_public)
            publish(p, t);
    }
}

int32_t ek_pages_match(struct ek_pages *p, struct ek_page_table *t,
                       const int32_t *tokens, int32_t n)
{
    assert(t->n_pages == 0 && t->n_tokens == 0 && n >= 1);
    p->n_lookup_tokens += n;
    uint64_t before = p->anchor;
    int32_t max = (n - 1) / EK_PAGE_TOKENS;
    max = p->o.caches_prefixes ? (max < t->cap ? max : t->cap) : 0;
    while (t->n_shared < max) {
        uint64_t chain = ek_pages_chain_start(p, t->salt, before);
        for (int32_t k = 0; k < EK_PAGE_TOKENS; k++)
            chain =
                ek_pages_chain_next(p, chain, tokens[t->n_tokens + k], t->n_tokens + k);
        struct ek_prefix_key key = key_after(t, chain, tokens + t->n_tokens);
        int32_t page = ek_prefix_find(&p->prefix, &key);
        if (page < 0 || p->pages[page].state != EK_PAGE_SHARED)
            break;
        hold(p, page);
        extend_path(p, t, page);
        t->n_pages++;
        t->n_tokens += EK_PAGE_TOKENS;
        before = chain;
    }
    p->n_hit_tokens += t->n_tokens;
    return t->n_tokens;
}

/* The partial last page of `from` as a page of `to`'s own. */
static void copy_partial(struct ek_pages *p, const struct ek_page_table *from,
                         struct ek_page_table *to)
{
    int32_t source = from->refs[to->n_pages].page;
    int32_t page = take_page(p, to);
    size_t n = p->pages[source].fill;
    p->pages[page].fill = p->pages[source].fill;
    p->pages[page].chain = p->pages[source].chain;
    memcpy(tokens_of(p, page), tokens_of(p, source), n * sizeof *p->tokens);
    if (p->records)
        memcpy(p->records + (size_t)page * EK_PAGE_TOKENS,
               p->records + (size_t)source * EK_PAGE_TOKENS, n * sizeof *p->records);
    assert(p->o.copy);
    p->o.copy(p->o.arg, page, source);
}

int ek_pages_fork(struct ek_pages *p, struct ek_page_table *from,
                  struct ek_page_table *to)
{
    assert(to->n_pages == 0 && ek_salt_is_equal(from->salt, to->salt));
    int32_t n_full = from->n_tokens / EK_PAGE_TOKENS;
    bool has_partial = from->n_tokens % EK_PAGE_TOKENS != 0;
    if (n_full + has_partial > to->cap)
        return EK_ELIMIT;
    if (has_partial && !make_free(p, 1))
        return EK_EBUSY;
    while (from->n_shared < n_full)
        share_next(p, from);
    for (int32_t i = 0; i < n_full; i++) {
        hold(p, from->refs[i].page);
        extend_path(p, to, from->refs[i].page);
        to->n_pages++;
    }
    if (has_partial)
        copy_partial(p, from, to);
    to->n_tokens = from->n_tokens;
    return 0;
}

void ek_pages_adopt(struct ek_pages *p, struct ek_page_table *from,
                    struct ek_page_table *to)
{
    assert(to->n_pages == 0 && to->cap >= from->n_pages);
    assert(ek_salt_is_equal(from->salt, to->salt) && to->owner != from->owner);
    for (int32_t i = 0; i < from->n_pages; i++) {
        struct ek_page *g = &p->pages[from->refs[i].page];
        if (i >= from->n_shared) {
            assert(g->owner == from->owner);
            g->owner = to->owner;
            g->generation += g->generation < UINT32_MAX; /* the owner tells, too */
        }
        to->refs[i] = (struct ek_page_ref){from->refs[i].page, g->generation};
    }
    to->n_pages = from->n_pages;
    to->n_tokens = from->n_tokens;
    to->n_shared = from->n_shared;
    to->chain = from->chain;
    to->tip = from->tip;
    empty(from);
}

static bool is_own(const struct ek_page *g, const struct ek_page_table *t)
{
    return (g->state == EK_PAGE_WRITING || g->state == EK_PAGE_SEALED) &&
           g->owner == t->owner;
}

/* The page of a table entry, NULL when there is none or it is given out since. */
static struct ek_page *current(const struct ek_pages *p, struct ek_page_ref ref)
{
    if (ref.page < 0 || ref.page >= p->n_pages)
        return NULL;
    struct ek_page *g = &p->pages[ref.page];
    return g->generation == ref.generation ? g : NULL;
}

/* Which page comes before entry i's, which is `page`. The entries and the parents tell
 * the same unless one of them is wrong; the chain tells which. */
static int32_t before_on_path(const struct ek_pages *p, const struct ek_page_table *t,
                              int32_t page, int32_t i)
{
    int32_t parent = p->pages[page].parent;
    struct ek_page_ref ref = i > 0 ? t->refs[i - 1] : (struct ek_page_ref){.page = -1};
    if (parent == ref.page || ek_pages_book_is_right(p, page))
        return parent;
    return current(p, ref) ? ref.page : -1;
}

/* A quarantined page still leads to those before it. */
static bool is_on_path(const struct ek_page *g)
{
    return g->state == EK_PAGE_SHARED || g->state == EK_PAGE_QUARANTINE;
}

/* The table's last shared page, or -1. The tip and the last entry both name it, and its
 * generation and its chain both tell: one of the four may be wrong. */
static int32_t last_on_path(const struct ek_pages *p, const struct ek_page_table *t)
{
    int32_t i = t->n_shared - 1, found = -1;
    struct ek_page_ref none = {.page = -1};
    struct ek_page_ref refs[2] = {i >= 0 && i < t->cap ? t->refs[i] : none, t->tip};
    for (int k = 0; k < 2; k++) {
        const struct ek_page *g = current(p, refs[k]);
        if (!g || !is_on_path(g) || g->chain != t->chain)
            continue;
        if (found >= 0 && found != refs[k].page)
            return -1; /* equal pages: not known which one is held */
        found = refs[k].page;
    }
    int32_t page = t->tip.page;
    if (found >= 0 || page != refs[0].page || page < 0 || page >= p->n_pages)
        return found;
    const struct ek_page *g = &p->pages[page];
    return is_on_path(g) && (current(p, t->tip) || g->chain == t->chain) ? page : -1;
}

/* Lets go of the shared pages, the last one first: children before their parents. */
static void leave_path(struct ek_pages *p, const struct ek_page_table *t)
{
    int32_t page = last_on_path(p, t), i = t->n_shared - 1;
    if (page >= 0 && p->pages[page].index != i && ek_pages_book_is_right(p, page))
        i = p->pages[page].index;
    for (; i >= 0 && i < t->cap && page >= 0 && page < p->n_pages; i--) {
        int32_t before = before_on_path(p, t, page, i);
        if (is_on_path(&p->pages[page]) && p->pages[page].n_refs > 0)
            let_go(p, page);
        page = before;
    }
}

void ek_pages_free(struct ek_pages *p, struct ek_page_table *t)
{
    leave_path(p, t);
    for (int32_t i = 0; i < t->n_pages && i < t->cap; i++) {
        const struct ek_page *g = current(p, t->refs[i]);
        if (g && is_own(g, t))
            free_page(p, t->refs[i].page);
    }
    empty(t);
}

static void unlist(struct ek_pages *p, int32_t page)
{
    int32_t place = p->pages[page].parent, last = p->free_list[--p->n_free];
    p->free_list[place] = last;
    p->pages[last].parent = place;
}

static void quarantine(struct ek_pages *p, int32_t page)
{
    struct ek_page *g = &p->pages[page];
    if (ek_pages_is_listed(p, page))
        unlist(p, page);
    p->n_cached -= ek_prefix_is_idle(&p->prefix, page);
    ek_prefix_remove(&p->prefix, page);
    g->state = EK_PAGE_QUARANTINE;
    p->n_quarantined++;
}

void ek_pages_fault(struct ek_pages *p, struct ek_page_table *t, int32_t i)
{
    int32_t page = i >= 0 && i < t->n_pages && i < t->cap ? t->refs[i].page : -1;
    if (page >= 0 && page < p->n_pages && p->pages[page].state != EK_PAGE_QUARANTINE &&
        (is_own(&p->pages[page], t) || !ek_pages_book_is_right(p, page)))
        quarantine(p, page);
    leave_path(p, t);
    for (int32_t k = 0; k < p->n_pages; k++) {
        if (is_own(&p->pages[k], t))
            free_page(p, k);
    }
    empty(t);
}

void ek_pages_drop_cache(struct ek_pages *p)
{
    while (evict_one(p))
        ;
}
