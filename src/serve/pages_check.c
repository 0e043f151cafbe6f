/* pages_check.c - reading the book: the check before each read, and the book against
 * itself. Nothing here changes anything. */
#include "serve/pages_int.h"

#include <assert.h>

const char *ek_page_fault_text(enum ek_page_fault f)
{
    static const char *const texts[] = {
#define X(name, text) text,
        EK_PAGE_FAULTS(X)
#undef X
    };
    return texts[f];
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
    bool is_whole = read >= EK_PAGE_TOKENS, is_shared = i < t->n_shared;
    enum ek_page_state state = is_shared  ? EK_PAGE_SHARED
                               : is_whole ? EK_PAGE_SEALED
                                          : EK_PAGE_WRITING;
    if (g->generation != ref.generation)
        return EK_PAGE_FAULT_GENERATION;
    if (g->state != state || (is_shared ? g->n_refs < 1 : g->n_refs != 1))
        return EK_PAGE_FAULT_STATE;
    if (g->owner != (is_shared ? 0 : t->owner))
        return EK_PAGE_FAULT_OWNER;
    if (!ek_salt_is_equal(g->salt, t->salt))
        return EK_PAGE_FAULT_SALT;
    if (g->index != i)
        return EK_PAGE_FAULT_ORDER;
    /* Not more either: bytes past the sequence's end would be somebody's residue. */
    if (g->fill != (is_whole ? EK_PAGE_TOKENS : read > 0 ? read : 0))
        return EK_PAGE_FAULT_FILL;
    if (is_shared && g->parent != (i > 0 ? t->refs[i - 1].page : -1))
        return EK_PAGE_FAULT_CHAIN;
    return EK_PAGE_FAULT_NONE;
}

/* The path ends where the table says: with every entry the parent of the next, all of
 * it is this table's then. */
static bool ends_at_tip(const struct ek_pages *p, const struct ek_page_table *t)
{
    struct ek_page_ref last = t->refs[t->n_shared - 1];
    return last.page == t->tip.page && last.generation == t->tip.generation &&
           p->pages[last.page].chain == t->chain;
}

/* Each slot's record follows from the one before it, and so all from the anchor. The
 * steps do not wait for each other, as recomputing the chain would. Pages before entry
 * i have been checked. */
static bool follows(const struct ek_pages *p, const struct ek_page_table *t, int32_t i,
                    const int32_t *tokens)
{
    const struct ek_page *g = &p->pages[t->refs[i].page];
    uint64_t before = i > 0 ? p->pages[t->refs[i - 1].page].chain : p->anchor;
    const uint64_t *record = p->records + (size_t)t->refs[i].page * EK_PAGE_TOKENS;
    int32_t position = i * EK_PAGE_TOKENS;
    uint64_t wrong = 0;
    if (g->fill == 0)
        return true;
    before = ek_pages_chain_start(p, t->salt, before);
    for (int32_t k = 0; k < g->fill; k++) {
        wrong |= record[k] ^
                 ek_pages_chain_next(p, before, tokens[position + k], position + k);
        before = record[k];
    }
    return (wrong | (before ^ g->chain)) == 0;
}

/* Numbers only, none of them wild. */
static enum ek_page_fault check_range(const struct ek_pages *p,
                                      const struct ek_page_table *t, int32_t *i)
{
    while (*i < t->n_pages && t->refs[*i].page >= 0 && t->refs[*i].page < p->n_pages)
        ++*i;
    return *i < t->n_pages ? EK_PAGE_FAULT_RANGE : EK_PAGE_FAULT_NONE;
}

static enum ek_page_fault check_pages(const struct ek_pages *p,
                                      const struct ek_page_table *t,
                                      const int32_t *tokens, int32_t *i)
{
    bool is_full = p->o.check == EK_PAGE_CHECK_FULL;
    assert(!is_full || tokens || t->n_tokens == 0);
    if (t->n_shared == 0 && t->tip.page != -1)
        return EK_PAGE_FAULT_CHAIN;
    for (; *i < t->n_pages; ++*i) {
        enum ek_page_fault fault = check_entry(p, t, *i);
        if (!fault && *i == t->n_shared - 1 && !ends_at_tip(p, t))
            fault = EK_PAGE_FAULT_CHAIN;
        if (!fault && is_full && !follows(p, t, *i, tokens))
            fault = EK_PAGE_FAULT_CHAIN;
        if (fault)
            return fault;
    }
    return EK_PAGE_FAULT_NONE;
}

/* The table's own figures hold together, and its pages suffice. */
static bool counts_are_right(const struct ek_page_table *t, int32_t n_new)
{
    if (t->n_pages < 0 || t->n_pages > t->cap || t->n_pages > EK_PAGES_PER_SEQ_MAX)
        return false;
    int32_t max = t->n_pages * EK_PAGE_TOKENS;
    return t->n_tokens >= 0 && n_new >= 0 && n_new <= max - t->n_tokens &&
           t->n_shared >= 0 && t->n_shared <= t->n_tokens / EK_PAGE_TOKENS;
}

enum ek_page_fault ek_pages_check(const struct ek_pages *p,
                                  const struct ek_page_table *t, const int32_t *tokens,
                                  int32_t n_new, int32_t *numbers, int32_t *bad)
{
    enum ek_page_fault fault = EK_PAGE_FAULT_COUNT;
    int32_t i = 0;
    if (counts_are_right(t, n_new))
        fault = p->o.check == EK_PAGE_CHECK_OFF ? check_range(p, t, &i)
                                                : check_pages(p, t, tokens, &i);
    if (fault) {
        if (bad)
            *bad = i;
        return fault;
    }
    int32_t need = ek_pages_for_tokens(t->n_tokens + n_new);
    for (i = 0; i < need; i++)
        numbers[i] = t->refs[i].page;
    return EK_PAGE_FAULT_NONE;
}

bool ek_pages_is_listed(const struct ek_pages *p, int32_t page)
{
    int32_t place = p->pages[page].parent;
    return place >= 0 && place < p->n_free && p->free_list[place] == page;
}

static bool shared_is_right(const struct ek_pages *p, int32_t page)
{
    const struct ek_page *g = &p->pages[page];
    uint64_t chain = p->anchor;
    bool is_held = g->n_refs >= 1 || ek_prefix_is_idle(&p->prefix, page);
    if (!is_held || g->owner != 0 || g->fill != EK_PAGE_TOKENS || g->parent < -1 ||
        g->parent >= p->n_pages || (g->parent == -1) != (g->index == 0))
        return false;
    if (g->parent >= 0) {
        const struct ek_page *before = &p->pages[g->parent];
        if (before->state == EK_PAGE_QUARANTINE)
            return true; /* nothing there to compare with */
        if (before->state != EK_PAGE_SHARED || before->index + 1 != g->index ||
            before->n_refs < g->n_refs || !ek_salt_is_equal(before->salt, g->salt))
            return false;
        chain = before->chain;
    }
    const int32_t *tokens = p->tokens + (size_t)page * EK_PAGE_TOKENS;
    chain = ek_pages_chain_start(p, g->salt, chain);
    for (int32_t k = 0; k < EK_PAGE_TOKENS; k++)
        chain = ek_pages_chain_next(p, chain, tokens[k], g->index * EK_PAGE_TOKENS + k);
    return chain == g->chain;
}

bool ek_pages_book_is_right(const struct ek_pages *p, int32_t page)
{
    const struct ek_page *g = &p->pages[page];
    if (g->generation == 0)
        return false;
    switch ((enum ek_page_state)g->state) {
    case EK_PAGE_FREE:
        return g->owner == 0 && g->fill == 0 && ek_pages_is_listed(p, page);
    case EK_PAGE_WRITING:
        return g->owner != 0 && g->n_refs == 1 && g->fill < EK_PAGE_TOKENS;
    case EK_PAGE_SEALED:
        return g->owner != 0 && g->n_refs == 1 && g->fill == EK_PAGE_TOKENS;
    case EK_PAGE_SHARED:
        return shared_is_right(p, page);
    case EK_PAGE_QUARANTINE:
        return false;
    }
    return false;
}

/* The index agrees with the book about a page. */
static bool is_indexed_right(const struct ek_pages *p, int32_t page)
{
    const struct ek_page *g = &p->pages[page];
    if (g->state != EK_PAGE_SHARED)
        return !ek_prefix_has(&p->prefix, page);
    if (!ek_prefix_has(&p->prefix, page))
        return g->n_refs >= 1;
    const struct ek_prefix_node *n = &p->prefix.nodes[page];
    return n->hash == g->chain && ek_salt_is_equal(n->salt, g->salt) &&
           n->parent == g->parent && (n->used != 0) == (g->n_refs == 0);
}

bool ek_pages_is_sane(const struct ek_pages *p)
{
    int32_t n_free = 0, n_quarantined = 0, n_cached = 0;
    for (int32_t i = 0; i < p->n_pages; i++) {
        const struct ek_page *g = &p->pages[i];
        bool is_quarantined = g->state == EK_PAGE_QUARANTINE;
        if ((!is_quarantined && !ek_pages_book_is_right(p, i)) ||
            !is_indexed_right(p, i))
            return false;
        n_free += g->state == EK_PAGE_FREE;
        n_quarantined += is_quarantined;
        n_cached += g->state == EK_PAGE_SHARED && g->n_refs == 0;
    }
    /* Each FREE page is in a place of its own: n_free of them are all the list. */
    return n_free == p->n_free && n_quarantined == p->n_quarantined &&
           n_cached == p->n_cached && ek_prefix_is_sane(&p->prefix);
}
