#include "data/tokenizer_merge.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer_int.h"

#include <assert.h>
#include <string.h>

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t pair_slot(uint64_t pair, size_t cap)
{
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ h >> 32) & (cap - 1);
}

int ek_tok_merges_init(struct ek_tok_merges *m, size_t n)
{
    size_t cap = 16;
    while (cap / 2 < n)
        cap *= 2;
    m->slots = ek_alloc_array(cap, sizeof *m->slots);
    if (!m->slots)
        return EK_ENOMEM;
    for (size_t i = 0; i < cap; i++)
        m->slots[i] = (struct ek_tok_merge){.pair = UINT64_MAX};
    m->cap = cap;
    m->n = 0;
    return 0;
}

void ek_tok_merges_release(struct ek_tok_merges *m)
{
    ek_free(m->slots);
    *m = (struct ek_tok_merges){0};
}

bool ek_tok_merges_put(struct ek_tok_merges *m, int32_t left, int32_t right,
                       uint32_t rank, int32_t id)
{
    assert(left >= 0 && right >= 0 && m->n < m->cap / 2);
    uint64_t pair = pair_key(left, right);
    size_t i = pair_slot(pair, m->cap);
    for (; m->slots[i].pair != UINT64_MAX; i = (i + 1) & (m->cap - 1))
        if (m->slots[i].pair == pair)
            return false;
    m->slots[i] = (struct ek_tok_merge){pair, rank, id};
    m->n++;
    return true;
}

const struct ek_tok_merge *ek_tok_merges_get(const struct ek_tok_merges *m,
                                             int32_t left, int32_t right)
{
    if (m->n == 0 || left < 0 || right < 0)
        return NULL;
    uint64_t pair = pair_key(left, right);
    size_t i = pair_slot(pair, m->cap);
    for (; m->slots[i].pair != UINT64_MAX; i = (i + 1) & (m->cap - 1))
        if (m->slots[i].pair == pair)
            return &m->slots[i];
    return NULL;
}

void ek_tok_merger_release(struct ek_tok_merger *m)
{
    ek_free(m->symbols);
    ek_free(m->heap);
    *m = (struct ek_tok_merger){0};
}

static int reserve(struct ek_tok_merger *m, size_t n)
{
    if (n > m->cap_symbols) {
        size_t cap = n < 64 ? 64 : n;
        void *p = ek_realloc_array(m->symbols, cap, sizeof *m->symbols);
        if (!p)
            return EK_ENOMEM;
        m->symbols = p;
        m->cap_symbols = cap;
    }
    /* n-1 pairs to begin with; each merge takes one out and puts at most two in, and
     * there are at most n-1 merges. */
    if (2 * n > m->cap_heap) {
        size_t cap = 2 * n < 128 ? 128 : 2 * n;
        void *p = ek_realloc_array(m->heap, cap, sizeof *m->heap);
        if (!p)
            return EK_ENOMEM;
        m->heap = p;
        m->cap_heap = cap;
    }
    return 0;
}

static bool is_before(const struct ek_tok_pair *a, const struct ek_tok_pair *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->left < b->left);
}

static void heap_push(struct ek_tok_merger *m, struct ek_tok_pair pair, uint64_t *steps)
{
    assert(m->n_heap < m->cap_heap);
    size_t i = m->n_heap++;
    while (i > 0) {
        size_t up = (i - 1) / 2;
        if (!is_before(&pair, &m->heap[up]))
            break;
        m->heap[i] = m->heap[up];
        i = up;
        ++*steps;
    }
    m->heap[i] = pair;
}

static struct ek_tok_pair heap_pop(struct ek_tok_merger *m, uint64_t *steps)
{
    struct ek_tok_pair top = m->heap[0];
    struct ek_tok_pair last = m->heap[--m->n_heap];
    size_t i = 0;
    for (;;) {
        size_t down = 2 * i + 1;
        if (down >= m->n_heap)
            break;
        if (down + 1 < m->n_heap && is_before(&m->heap[down + 1], &m->heap[down]))
            down++;
        if (!is_before(&m->heap[down], &last))
            break;
        m->heap[i] = m->heap[down];
        i = down;
        ++*steps;
    }
    m->heap[i] = last;
    return top;
}

/* Floats in the order of uint32, the greatest first. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return ~bits;
}

static void consider(struct ek_tok_merger *m, const struct ek_tokenizer *t,
                     const char *p, int32_t left, uint64_t *steps)
{
    if (left < 0 || m->symbols[left].next < 0)
        return;
    const struct ek_tok_symbol *a = &m->symbols[left];
    const struct ek_tok_symbol *b = &m->symbols[a->next];
    struct ek_tok_pair pair = {.left = left, .n = a->n + b->n};
    ++*steps;
    if (t->kind == EK_TOK_SPM_SCORES) {
        uint64_t id;
        if (pair.n > t->max_key_n ||
            !ek_map_get(&t->ordinary, p + a->start, pair.n, &id))
            return;
        pair.id = (int32_t)id;
        pair.rank = rank_of_score(t->tokens[id].score);
    } else {
        const struct ek_tok_merge *merge = ek_tok_merges_get(&t->merges, a->id, b->id);
        if (!merge)
            return;
        pair.id = merge->id;
        pair.rank = merge->rank;
    }
    heap_push(m, pair, steps);
}

static void split_symbols(struct ek_tok_merger *m, const struct ek_tokenizer *t,
                          const char *p, size_t n)
{
    int32_t count = 0;
    for (size_t i = 0; i < n; count++) {
        struct ek_tok_symbol *s = &m->symbols[count];
        uint32_t c;
        size_t len = 1;
        if (t->kind != EK_TOK_BYTE_LEVEL) {
            len = ek_utf8_decode(&c, p + i, n - i);
            len = len ? len : 1;
        }
        *s = (struct ek_tok_symbol){(uint32_t)i, (uint32_t)len, -1, count - 1,
                                    count + 1};
        uint64_t id;
        if (t->kind == EK_TOK_BYTE_LEVEL)
            s->id = t->byte_ids[(unsigned char)p[i]];
        else if (ek_map_get(&t->ordinary, p + i, len, &id))
            s->id = (int32_t)id;
        i += len;
    }
    m->symbols[count - 1].next = -1;
    m->n_symbols = (size_t)count;
}

int ek_tok_merger_run(struct ek_tok_merger *m, const struct ek_tokenizer *t,
                      const char *p, size_t n, uint64_t *steps)
{
    assert(n >= 1 && n <= INT32_MAX);
    int rc = reserve(m, n);
    if (rc)
        return rc;
    split_symbols(m, t, p, n);
    *steps += n;
    m->n_heap = 0;
    for (size_t i = 0; i + 1 < m->n_symbols; i++)
        consider(m, t, p, (int32_t)i, steps);
    while (m->n_heap) {
        struct ek_tok_pair pair = heap_pop(m, steps);
        struct ek_tok_symbol *a = &m->symbols[pair.left];
        if (a->n == 0 || a->next < 0)
            continue;
        struct ek_tok_symbol *b = &m->symbols[a->next];
        /* Symbols only grow, so an equal length of both is the same pair. */
        if (a->n + b->n != pair.n)
            continue;
        a->n = pair.n;
        a->id = pair.id;
        a->next = b->next;
        b->n = 0;
        if (a->next >= 0)
            m->symbols[a->next].prev = pair.left;
        consider(m, t, p, a->prev, steps);
        consider(m, t, p, pair.left, steps);
    }
    return 0;
}
