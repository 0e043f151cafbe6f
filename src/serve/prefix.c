/* prefix.c - buckets for the index, a binary heap for what may be evicted. */
#include "serve/prefix.h"

#include "base/mem.h"
#include "lm/kv.h"

#include <assert.h>
#include <string.h>

int ek_prefix_init(struct ek_prefix *x, int32_t n_pages, const int32_t *tokens)
{
    *x = (struct ek_prefix){.tokens = tokens, .n_pages = n_pages, .n_buckets = 1};
    while (x->n_buckets < (uint32_t)n_pages)
        x->n_buckets *= 2;
    x->nodes = ek_calloc((size_t)n_pages, sizeof *x->nodes);
    x->buckets = ek_alloc_array(x->n_buckets, sizeof *x->buckets);
    x->heap = ek_alloc_array((size_t)n_pages, sizeof *x->heap);
    if (!x->nodes || !x->buckets || !x->heap) {
        ek_prefix_release(x);
        return EK_ENOMEM;
    }
    for (uint32_t i = 0; i < x->n_buckets; i++)
        x->buckets[i] = -1;
    for (int32_t i = 0; i < n_pages; i++)
        x->nodes[i].place = EK_PREFIX_ABSENT;
    return 0;
}

void ek_prefix_release(struct ek_prefix *x)
{
    ek_free(x->nodes);
    ek_free(x->buckets);
    ek_free(x->heap);
    *x = (struct ek_prefix){0};
}

static int32_t *bucket_of(const struct ek_prefix *x, uint64_t hash)
{
    return &x->buckets[hash & (x->n_buckets - 1)];
}

bool ek_prefix_has(const struct ek_prefix *x, int32_t page)
{
    return page >= 0 && page < x->n_pages && x->nodes[page].place != EK_PREFIX_ABSENT;
}

bool ek_prefix_is_idle(const struct ek_prefix *x, int32_t page)
{
    return ek_prefix_has(x, page) && x->nodes[page].used != 0;
}

static bool is_equal(const struct ek_prefix *x, int32_t page,
                     const struct ek_prefix_key *key)
{
    const struct ek_prefix_node *n = &x->nodes[page];
    return n->hash == key->hash && n->salt.lo == key->salt.lo &&
           n->salt.hi == key->salt.hi && n->parent == key->parent &&
           memcmp(x->tokens + (size_t)page * EK_PAGE_TOKENS, key->tokens,
                  EK_PAGE_TOKENS * sizeof *key->tokens) == 0;
}

int32_t ek_prefix_find(const struct ek_prefix *x, const struct ek_prefix_key *key)
{
    int32_t page = *bucket_of(x, key->hash);
    while (page >= 0 && !is_equal(x, page, key))
        page = x->nodes[page].next;
    return page;
}

static bool is_older(const struct ek_prefix *x, int32_t a, int32_t b)
{
    return x->nodes[x->heap[a]].used < x->nodes[x->heap[b]].used;
}

static void swap_places(struct ek_prefix *x, int32_t a, int32_t b)
{
    int32_t page = x->heap[a];
    x->heap[a] = x->heap[b];
    x->heap[b] = page;
    x->nodes[x->heap[a]].place = a;
    x->nodes[x->heap[b]].place = b;
}

/* Moves the entry at `i` to where it belongs. */
static void settle(struct ek_prefix *x, int32_t i)
{
    while (i > 0 && is_older(x, i, (i - 1) / 2)) {
        swap_places(x, i, (i - 1) / 2);
        i = (i - 1) / 2;
    }
    for (;;) {
        int32_t best = i;
        for (int32_t kid = 2 * i + 1; kid <= 2 * i + 2 && kid < x->n_heap; kid++) {
            if (is_older(x, kid, best))
                best = kid;
        }
        if (best == i)
            return;
        swap_places(x, i, best);
        i = best;
    }
}

static void push(struct ek_prefix *x, int32_t page)
{
    int32_t i = x->n_heap++;
    x->heap[i] = page;
    x->nodes[page].place = i;
    settle(x, i);
}

static void pull(struct ek_prefix *x, int32_t page)
{
    int32_t i = x->nodes[page].place;
    x->nodes[page].place = EK_PREFIX_OUT_OF_HEAP;
    if (i < 0)
        return;
    int32_t last = x->heap[--x->n_heap];
    if (last == page)
        return;
    x->heap[i] = last;
    x->nodes[last].place = i;
    settle(x, i);
}

void ek_prefix_add(struct ek_prefix *x, int32_t page, const struct ek_prefix_key *key)
{
    assert(!ek_prefix_has(x, page));
    int32_t *bucket = bucket_of(x, key->hash);
    x->nodes[page] = (struct ek_prefix_node){
        .hash = key->hash,
        .salt = key->salt,
        .parent = key->parent,
        .next = *bucket,
        .place = EK_PREFIX_OUT_OF_HEAP,
    };
    *bucket = page;
    x->n_indexed++;
    if (ek_prefix_has(x, key->parent)) {
        x->nodes[key->parent].n_kids++;
        if (x->nodes[key->parent].place >= 0)
            pull(x, key->parent);
    }
}

void ek_prefix_remove(struct ek_prefix *x, int32_t page)
{
    if (!ek_prefix_has(x, page))
        return;
    struct ek_prefix_node *n = &x->nodes[page];
    pull(x, page);
    int32_t *link = bucket_of(x, n->hash);
    while (*link != page)
        link = &x->nodes[*link].next;
    *link = n->next;
    x->n_indexed--;
    int32_t parent = n->parent;
    *n = (struct ek_prefix_node){.place = EK_PREFIX_ABSENT};
    if (ek_prefix_has(x, parent) && --x->nodes[parent].n_kids == 0 &&
        x->nodes[parent].used != 0)
        push(x, parent);
}

void ek_prefix_hold(struct ek_prefix *x, int32_t page)
{
    assert(ek_prefix_has(x, page));
    pull(x, page);
    x->nodes[page].used = 0;
}

void ek_prefix_idle(struct ek_prefix *x, int32_t page)
{
    assert(ek_prefix_has(x, page) && x->nodes[page].used == 0);
    x->nodes[page].used = ++x->clock;
    if (x->nodes[page].n_kids == 0)
        push(x, page);
}

int32_t ek_prefix_oldest(const struct ek_prefix *x)
{
    return x->n_heap > 0 ? x->heap[0] : -1;
}

/* The page is in its bucket, alone of its kind, and in the heap where that is due. */
static bool is_node_sane(const struct ek_prefix *x, int32_t page)
{
    const struct ek_prefix_node *n = &x->nodes[page];
    struct ek_prefix_key key = {n->hash, n->salt, n->parent,
                                x->tokens + (size_t)page * EK_PAGE_TOKENS};
    bool is_leaf = n->used != 0 && n->n_kids == 0;
    if (ek_prefix_find(x, &key) != page || n->n_kids < 0)
        return false;
    if (!is_leaf)
        return n->place == EK_PREFIX_OUT_OF_HEAP;
    return n->place >= 0 && n->place < x->n_heap && x->heap[n->place] == page &&
           (n->place == 0 || !is_older(x, n->place, (n->place - 1) / 2));
}

bool ek_prefix_is_sane(const struct ek_prefix *x)
{
    int32_t n_indexed = 0, n_leaves = 0;
    int64_t n_kids = 0;
    for (int32_t page = 0; page < x->n_pages; page++) {
        if (!ek_prefix_has(x, page))
            continue;
        const struct ek_prefix_node *n = &x->nodes[page];
        if (!is_node_sane(x, page))
            return false;
        n_indexed++;
        n_leaves += n->place >= 0;
        n_kids += n->n_kids - ek_prefix_has(x, n->parent);
    }
    return n_indexed == x->n_indexed && n_leaves == x->n_heap && n_kids == 0;
}
