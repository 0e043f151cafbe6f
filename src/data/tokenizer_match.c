#include "data/tokenizer_match.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <assert.h>
#include <string.h>
#include <utf8proc.h>

void ek_tok_trie_release(struct ek_tok_trie *trie)
{
    ek_free(trie->nodes);
    ek_free(trie->added);
    memset(trie, 0, sizeof *trie);
}

static int grow(void **items, size_t *cap, size_t n, size_t size)
{
    if (n < *cap)
        return 0;
    size_t more = *cap ? *cap * 2 : 64;
    void *p = ek_realloc_array(*items, more, size);
    if (!p)
        return EK_ENOMEM;
    *items = p;
    *cap = more;
    return 0;
}

static int32_t child_of(const struct ek_tok_trie *trie, int32_t node, uint8_t byte)
{
    if (node == 0)
        return trie->first[byte];
    int32_t c = trie->nodes[node].child;
    while (c && trie->nodes[c].byte != byte)
        c = trie->nodes[c].sibling;
    return c;
}

static int add_node(struct ek_tok_trie *trie, int32_t *node, uint8_t byte)
{
    void *nodes = trie->nodes;
    size_t index = trie->n_nodes ? trie->n_nodes : 1;
    int rc = grow(&nodes, &trie->cap_nodes, index, sizeof *trie->nodes);
    trie->nodes = nodes;
    if (rc)
        return rc;
    struct ek_tok_node *made = &trie->nodes[index];
    *made = (struct ek_tok_node){.byte = byte};
    if (*node == 0) {
        trie->first[byte] = (int32_t)index;
    } else {
        made->sibling = trie->nodes[*node].child;
        trie->nodes[*node].child = (int32_t)index;
    }
    trie->n_nodes = index + 1;
    *node = (int32_t)index;
    return 0;
}

int ek_tok_trie_add(struct ek_tok_trie *trie, const char *p, size_t n,
                    const struct ek_tok_added *added)
{
    assert(n >= 1);
    void *items = trie->added;
    int rc = grow(&items, &trie->cap_added, trie->n_added, sizeof *trie->added);
    trie->added = items;
    int32_t node = 0;
    for (size_t i = 0; !rc && i < n; i++) {
        int32_t c = child_of(trie, node, (uint8_t)p[i]);
        if (c)
            node = c;
        else
            rc = add_node(trie, &node, (uint8_t)p[i]);
    }
    if (rc)
        return rc;
    trie->added[trie->n_added++] = *added;
    trie->nodes[node].added = (int32_t)trie->n_added;
    return 0;
}

static bool is_space(uint32_t c)
{
    if ((c >= 9 && c <= 13) || c == 0x85)
        return true;
    utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)c);
    return cat == UTF8PROC_CATEGORY_ZS || cat == UTF8PROC_CATEGORY_ZL ||
           cat == UTF8PROC_CATEGORY_ZP;
}

static bool is_word(uint32_t c)
{
    utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)c);
    return (cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_NO) ||
           cat == UTF8PROC_CATEGORY_PC;
}

/* The character that ends at `at`; its length, 0 for none or a bad one. */
static size_t char_before(uint32_t *c, const char *p, size_t from, size_t at)
{
    for (size_t len = 1; len <= 4 && len <= at - from; len++)
        if (ek_utf8_decode(c, p + at - len, len) == len)
            return len;
    return 0;
}

static bool is_acceptable(const struct ek_tok_added *a, const struct ek_tok_text *text,
                          size_t lo, size_t hi)
{
    uint32_t c;
    if (a->is_guarded) {
        if (!text->reads_specials)
            return false;
        for (size_t i = lo; text->is_plain && i < hi; i++)
            if (text->is_plain[i])
                return false;
    }
    if (a->is_single_word) {
        if (char_before(&c, text->p, 0, lo) && is_word(c))
            return false;
        if (ek_utf8_decode(&c, text->p + hi, text->n - hi) && is_word(c))
            return false;
    }
    return true;
}

static void eat_spaces(struct ek_tok_hit *hit, const struct ek_tok_added *a,
                       const struct ek_tok_text *text, size_t from, size_t to)
{
    uint32_t c;
    size_t len;
    while (a->eats_left && hit->lo > from &&
           (len = char_before(&c, text->p, from, hit->lo)) > 0 && is_space(c))
        hit->lo -= len;
    while (a->eats_right && hit->hi < to &&
           (len = ek_utf8_decode(&c, text->p + hit->hi, to - hit->hi)) > 0 &&
           is_space(c))
        hit->hi += len;
}

bool ek_tok_trie_find(const struct ek_tok_trie *trie, struct ek_tok_hit *hit,
                      const struct ek_tok_text *text, size_t from, size_t to,
                      uint64_t *steps)
{
    if (trie->n_added == 0)
        return false;
    for (size_t lo = from; lo < to; lo++) {
        const struct ek_tok_added *found = NULL;
        size_t hi = lo;
        int32_t node = 0;
        for (size_t i = lo; i < to; i++) {
            node = child_of(trie, node, (uint8_t)text->p[i]);
            ++*steps;
            if (!node)
                break;
            int32_t added = trie->nodes[node].added;
            if (added && is_acceptable(&trie->added[added - 1], text, lo, i + 1)) {
                found = &trie->added[added - 1];
                hi = i + 1;
            }
        }
        if (found) {
            *hit = (struct ek_tok_hit){lo, hi, found->id};
            eat_spaces(hit, found, text, from, to);
            return true;
        }
    }
    return false;
}
