#include "serve/pages.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

const char *ek_page_fault_text(enum ek_page_fault f)
{
    static const char *const texts[] = {
#define X(name, text) text,
        EK_PAGE_FAULTS(X)
#undef X
    };
    return texts[f];
}

int ek_pages_init(struct ek_pages *p, int32_t n_pages, struct ek_err *err)
{
    assert(n_pages >= 0);
    *p = (struct ek_pages){0};
    p->pages = ek_calloc((size_t)n_pages, sizeof *p->pages);
    p->free_list = ek_alloc_array((size_t)n_pages, sizeof *p->free_list);
    if (!p->pages || !p->free_list) {
        ek_pages_release(p);
        return ek_err_set(err, EK_ENOMEM, "no memory for the table of %d KV pages",
                          n_pages);
    }
    p->n_pages = n_pages;
    p->n_free = n_pages;
    for (int32_t i = 0; i < n_pages; i++) {
        p->pages[i].generation = 1;
        p->free_list[i] = n_pages - 1 - i; /* page 0 goes out first */
    }
    return 0;
}

void ek_pages_release(struct ek_pages *p)
{
    ek_free(p->pages);
    ek_free(p->free_list);
    *p = (struct ek_pages){0};
}

int32_t ek_pages_for_tokens(int32_t n_tokens)
{
    return n_tokens / EK_PAGE_TOKENS + (n_tokens % EK_PAGE_TOKENS != 0);
}

void ek_page_table_init(struct ek_page_table *t, uint64_t owner,
                        struct ek_page_ref *refs, int32_t cap)
{
    assert(owner != 0 && cap >= 0);
    *t = (struct ek_page_table){.owner = owner, .refs = refs, .cap = cap};
}

int ek_pages_reserve(struct ek_pages *p, struct ek_page_table *t, int32_t n_tokens)
{
    int32_t need = ek_pages_for_tokens(n_tokens);
    if (need > t->cap || need > EK_PAGES_PER_SEQ_MAX)
        return EK_ELIMIT;
    if (need - t->n_pages > p->n_free)
        return EK_EBUSY;
    while (t->n_pages < need) {
        int32_t page = p->free_list[--p->n_free];
        struct ek_page *g = &p->pages[page];
        assert(g->state == EK_PAGE_FREE);
        g->owner = t->owner;
        g->index = (uint16_t)t->n_pages;
        g->fill = 0;
        g->state = EK_PAGE_WRITING;
        t->refs[t->n_pages++] = (struct ek_page_ref){page, g->generation};
    }
    return 0;
}

/* What is wrong with entry i when tokens [0,n_tokens) of the sequence are read. */
static enum ek_page_fault check_entry(const struct ek_pages *p,
                                      const struct ek_page_table *t, int32_t i)
{
    struct ek_page_ref ref = t->refs[i];
    if (ref.page < 0 || ref.page >= p->n_pages)
        return EK_PAGE_FAULT_RANGE;
    const struct ek_page *g = &p->pages[ref.page];
    int32_t read = t->n_tokens - i * EK_PAGE_TOKENS;
    bool is_whole = read >= EK_PAGE_TOKENS;
    if (g->generation != ref.generation)
        return EK_PAGE_FAULT_GENERATION;
    if (g->state != (is_whole ? EK_PAGE_SEALED : EK_PAGE_WRITING))
        return EK_PAGE_FAULT_STATE;
    if (g->owner != t->owner)
        return EK_PAGE_FAULT_OWNER;
    if (g->index != i)
        return EK_PAGE_FAULT_ORDER;
    /* Not more either: bytes past the sequence's end would be somebody's residue. */
    if (g->fill != (is_whole ? EK_PAGE_TOKENS : read > 0 ? read : 0))
        return EK_PAGE_FAULT_FILL;
    return EK_PAGE_FAULT_NONE;
}

enum ek_page_fault ek_pages_check(const struct ek_pages *p,
                                  const struct ek_page_table *t, int32_t n_new,
                                  int32_t *numbers, int32_t *bad)
{
    int32_t need = ek_pages_for_tokens(t->n_tokens + n_new);
    enum ek_page_fault fault = EK_PAGE_FAULT_NONE;
    int32_t i = 0;
    if (need > t->n_pages || t->n_pages > t->cap)
        fault = EK_PAGE_FAULT_COUNT;
    for (; !fault && i < need; i++) {
        fault = check_entry(p, t, i);
        numbers[i] = t->refs[i].page;
    }
    if (fault && bad)
        *bad = i > 0 ? i - 1 : 0;
    return fault;
}

void ek_pages_commit(struct ek_pages *p, struct ek_page_table *t, int32_t n_new)
{
    assert(n_new >= 0 && ek_pages_for_tokens(t->n_tokens + n_new) <= t->n_pages);
    int32_t end = t->n_tokens + n_new;
    while (t->n_tokens < end) {
        int32_t i = t->n_tokens / EK_PAGE_TOKENS;
        struct ek_page *g = &p->pages[t->refs[i].page];
        int32_t last = (i + 1) * EK_PAGE_TOKENS;
        assert(g->owner == t->owner && g->state == EK_PAGE_WRITING);
        t->n_tokens = end < last ? end : last;
        g->fill = (uint8_t)(t->n_tokens - i * EK_PAGE_TOKENS);
        if (g->fill == EK_PAGE_TOKENS)
            g->state = EK_PAGE_SEALED;
    }
}

static bool is_held(const struct ek_page *g)
{
    return g->state == EK_PAGE_WRITING || g->state == EK_PAGE_SEALED;
}

static void free_page(struct ek_pages *p, int32_t page)
{
    struct ek_page *g = &p->pages[page];
    /* A page that used up its generations could repeat one: it retires. */
    bool is_last = g->generation == UINT32_MAX;
    *g = (struct ek_page){.generation = g->generation + !is_last};
    if (is_last) {
        g->state = EK_PAGE_QUARANTINE;
        p->n_quarantined++;
    } else {
        p->free_list[p->n_free++] = page;
    }
}

void ek_pages_free(struct ek_pages *p, struct ek_page_table *t)
{
    for (int32_t i = 0; i < t->n_pages; i++) {
        struct ek_page_ref ref = t->refs[i];
        if (ref.page < 0 || ref.page >= p->n_pages)
            continue;
        const struct ek_page *g = &p->pages[ref.page];
        if (is_held(g) && g->owner == t->owner && g->generation == ref.generation)
            free_page(p, ref.page);
    }
    t->n_pages = 0;
    t->n_tokens = 0;
}

void ek_pages_fault(struct ek_pages *p, struct ek_page_table *t, int32_t i)
{
    int32_t page = i >= 0 && i < t->n_pages ? t->refs[i].page : -1;
    if (page >= 0 && page < p->n_pages && is_held(&p->pages[page]) &&
        p->pages[page].owner == t->owner) {
        p->pages[page].state = EK_PAGE_QUARANTINE;
        p->n_quarantined++;
    }
    for (int32_t k = 0; k < p->n_pages; k++) {
        if (is_held(&p->pages[k]) && p->pages[k].owner == t->owner)
            free_page(p, k);
    }
    t->n_pages = 0;
    t->n_tokens = 0;
}

static bool is_page_sane(const struct ek_page *g)
{
    if (g->generation == 0)
        return false;
    switch ((enum ek_page_state)g->state) {
    case EK_PAGE_FREE:
        return g->owner == 0 && g->fill == 0;
    case EK_PAGE_WRITING:
        return g->owner != 0 && g->fill < EK_PAGE_TOKENS;
    case EK_PAGE_SEALED:
        return g->owner != 0 && g->fill == EK_PAGE_TOKENS;
    case EK_PAGE_QUARANTINE:
        return true;
    }
    return false;
}

bool ek_pages_is_sane(const struct ek_pages *p)
{
    int32_t n_free = 0, n_quarantined = 0;
    for (int32_t i = 0; i < p->n_pages; i++) {
        const struct ek_page *g = &p->pages[i];
        if (!is_page_sane(g))
            return false;
        n_free += g->state == EK_PAGE_FREE;
        n_quarantined += g->state == EK_PAGE_QUARANTINE;
    }
    if (n_free != p->n_free || n_quarantined != p->n_quarantined)
        return false;
    /* n_free entries, each FREE and no page twice: then the list is exactly those. */
    for (int32_t i = 0; i < p->n_free; i++) {
        int32_t page = p->free_list[i];
        if (page < 0 || page >= p->n_pages || p->pages[page].state != EK_PAGE_FREE)
            return false;
        for (int32_t j = 0; j < i; j++) {
            if (p->free_list[j] == page)
                return false;
        }
    }
    return true;
}
