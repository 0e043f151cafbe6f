/* tokenizer_match.h - finds special and user-defined tokens in text: a trie, leftmost
 * first and longest among those that are acceptable where they stand. */
#ifndef EVENKEEL_DATA_TOKENIZER_MATCH_H
#define EVENKEEL_DATA_TOKENIZER_MATCH_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How tokenizer.json says an added token is to be read. */
struct ek_tok_added {
    int32_t id;
    bool is_guarded; /* only where special tokens are read, and in no user's bytes */
    bool eats_left, eats_right; /* takes the white space beside it (lstrip, rstrip) */
    bool is_single_word;        /* not inside a word */
};

struct ek_tok_node {
    int32_t child, sibling; /* index, 0: none */
    int32_t added;          /* index + 1 into added, 0: no token ends here */
    uint8_t byte;
};

/* Node 0 is the root; its children hang on first[]. */
struct ek_tok_trie {
    struct ek_tok_node *nodes; /* heap, owned */
    size_t n_nodes, cap_nodes;
    struct ek_tok_added *added; /* heap, owned */
    size_t n_added, cap_added;
    int32_t first[256];
};

void ek_tok_trie_release(struct ek_tok_trie *trie); /* of a zeroed one too */
int ek_tok_trie_add(struct ek_tok_trie *trie, const char *p, size_t n,
                    const struct ek_tok_added *added) EK_MUST_USE; /* n >= 1 */

struct ek_tok_text {
    const char *p;
    size_t n;
    const uint8_t *is_plain; /* NULL: nothing is */
    bool reads_specials;
};

struct ek_tok_hit {
    size_t lo, hi; /* the token with the white space that it eats */
    int32_t id;
};

/* The first hit in [from,to), or false. *steps grows by the bytes looked at. */
bool ek_tok_trie_find(const struct ek_tok_trie *trie, struct ek_tok_hit *hit,
                      const struct ek_tok_text *text, size_t from, size_t to,
                      uint64_t *steps);

#endif
