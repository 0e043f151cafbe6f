/* pages.h - who owns which page of the KV storage, and the check before each read.
 *
 * The storage itself is lm/kv; this is the book about it. A page belongs to one
 * sequence, or, full and never written again, to all that hold it. A table entry
 * remembers the page's generation as it was when the page was given out. A page that
 * was freed, or given to somebody else, has another generation, so a stale entry can
 * never be read: the page numbers that a forward pass gets come out of ek_pages_check
 * and from nowhere else.
 *
 *         reserve            16 tokens          fork, or commit with the cache
 *    FREE ---------> WRITING ----------> SEALED -------------------> SHARED
 *     ^  generation + 1 |                   |                           |
 *     +----- free ------+-------------------+---- last holder gone -----+
 *                                                 (cached: evicted)
 *            check failed: QUARANTINE, never given out again
 *
 * SHARED pages form a tree by `parent`: the page before in every sequence that holds
 * it. A table is a path of that tree from its root, then pages of its own:
 *
 *    refs   [ SHARED ... SHARED | SEALED ... SEALED  WRITING ... ]
 *             0        n_shared-1                         n_pages-1
 *
 * Each shared entry is the parent of the next one and the last one is the table's `tip`
 * with the table's `chain`, so an entry that names another live sequence's page is
 * found wherever it stands.
 *
 * Invariants (ek_pages_is_sane):
 *   FREE: owner 0, fill 0, on the free list once;  others: not on it
 *   WRITING: one owner, fill < 16;  SEALED: one owner, fill 16
 *   SHARED: owner 0, fill 16, held by n_refs tables; who holds it holds its parent;
 *           n_refs 0 only in the prefix cache
 *   generation >= 1, never falls
 * Everything is allocated in init. Owner thread: the engine's.
 */
#ifndef EVENKEEL_SERVE_PAGES_H
#define EVENKEEL_SERVE_PAGES_H

#include "base/err.h"
#include "lm/kv.h"
#include "serve/prefix.h"

#include <stdbool.h>
#include <stdint.h>

/* A page knows its place in the sequence in 16 bits: 1 Mi tokens a sequence. */
#define EK_PAGES_PER_SEQ_MAX 65535

enum ek_page_check {
    EK_PAGE_CHECK_OFF,   /* page numbers are in range, nothing else */
    EK_PAGE_CHECK_PAGES, /* every page of the table against the book */
    EK_PAGE_CHECK_FULL,  /* and the chained hash of every token */
};

enum ek_page_state {
    EK_PAGE_FREE,
    EK_PAGE_WRITING,    /* its owner may append; fill < 16 */
    EK_PAGE_SEALED,     /* full, one owner */
    EK_PAGE_SHARED,     /* full, never written again; n_refs tables hold it */
    EK_PAGE_QUARANTINE, /* a check failed on it; out of use until restart */
};

struct ek_page {
    uint64_t owner;      /* id of the sequence, unique for ever; 0: FREE and SHARED */
    struct ek_salt salt; /* tenant of the sequence, or of all that share it */
    uint64_t chain;      /* hash over salt and all tokens from position 0 up to fill */
    uint32_t generation; /* + 1 at every free, never reset; 0 is never valid */
    int32_t parent; /* SHARED: page before it, -1 first; FREE: place in free_list */
    int32_t n_refs; /* tables that hold it; 1 unless SHARED or FREE */
    uint16_t index; /* which page of its sequence it is */
    uint8_t fill;   /* tokens written, 0..16 */
    uint8_t state;  /* enum ek_page_state */
};

struct ek_pages_options {
    int32_t n_pages; /* >= 0 */
    enum ek_page_check check;
    bool caches_prefixes; /* full pages stay after their last holder, to be matched */
    /* KV of a whole page, for fork; NULL: nothing is forked with a partial page. */
    void (*copy)(void *arg, int32_t to, int32_t from);
    void (*on_free)(void *arg, int32_t page); /* a page became FREE; may be NULL */
    void *arg;                                /* of both */
};

struct ek_pages {
    struct ek_pages_options o;
    struct ek_page *pages; /* (n_pages) heap, owned */
    int32_t *tokens;       /* (n_pages,16) ids written, owned */
    uint64_t *records;     /* (n_pages,16) FULL: chain after each token, owned */
    int32_t *free_list;    /* (n_pages) stack of free page numbers, owned */
    int32_t n_pages;
    int32_t n_free;
    int32_t n_quarantined;
    int32_t n_cached;    /* SHARED with n_refs 0 */
    uint64_t anchor;     /* secret start of every chain: nobody can aim a collision */
    uint64_t chain_mask; /* all ones; tests clear it so that all chains are equal */
    struct ek_prefix prefix;
    /* since init */
    int64_t n_evicted;       /* cached pages given up for others */
    int64_t n_lookup_tokens; /* asked for by ek_pages_match, each call counted */
    int64_t n_hit_tokens;    /* of them found */
};

/* A table entry: the page, and its generation when the sequence got it. */
struct ek_page_ref {
    int32_t page;
    uint32_t generation;
};

struct ek_page_table {
    uint64_t owner;           /* id of the sequence; not 0 */
    struct ek_salt salt;      /* its tenant */
    uint64_t chain;           /* of the last shared page; 0 when there is none */
    struct ek_page_ref tip;   /* the last shared page; page -1 when there is none */
    struct ek_page_ref *refs; /* (cap) borrowed, of the request's arena */
    int32_t cap;              /* pages the table can name */
    int32_t n_pages;          /* pages held, <= cap */
    int32_t n_tokens;         /* positions written, <= n_pages * 16 */
    int32_t n_shared;         /* leading entries that are SHARED, <= n_tokens / 16 */
    int32_t n_public;         /* only pages that end at or before this position may be
                                 published; all, unless the caller lowers it */
};

/* What a check found. X(name, text); the text is the metric's label. */
#define EK_PAGE_FAULTS(X)                                                              \
    X(NONE, "none")                                                                    \
    X(COUNT, "count")           /* fewer pages than the positions need */              \
    X(RANGE, "range")           /* no such page */                                     \
    X(OWNER, "owner")           /* another sequence's */                               \
    X(GENERATION, "generation") /* freed and given out since */                        \
    X(STATE, "state")           /* not what this place in the table asks for */        \
    X(SALT, "salt")             /* another tenant's */                                 \
    X(ORDER, "order")           /* another place in the sequence: swapped, doubled */  \
    X(FILL, "fill")             /* fewer tokens written than would be read, or more */ \
    X(CHAIN, "chain")           /* not the page after the one before; other tokens */

enum ek_page_fault {
#define X(name, text) EK_PAGE_FAULT_##name,
    EK_PAGE_FAULTS(X)
#undef X
        EK_PAGE_FAULT_COUNT_OF
};
const char *ek_page_fault_text(enum ek_page_fault f);

/* Errors: EK_ENOMEM, EK_EIO (no random numbers from the system). */
int ek_pages_init(struct ek_pages *p, const struct ek_pages_options *o,
                  struct ek_err *err) EK_MUST_USE;
void ek_pages_release(struct ek_pages *p);

/* Pages that n positions take. Cannot fail. */
int32_t ek_pages_for_tokens(int32_t n_tokens);

/* Pages that ek_pages_reserve could hand out now: the free ones and all cached ones
 * that nobody holds. */
int32_t ek_pages_available(const struct ek_pages *p);

/* An empty table over refs[0,cap). owner must never have been used before. salt is
 * {0,0} for nobody in particular. */
void ek_page_table_init(struct ek_page_table *t, uint64_t owner, struct ek_salt salt,
                        struct ek_page_ref *refs, int32_t cap);

/* Makes the table hold pages for n_tokens positions in all; does nothing when it does.
 * When no page is free the least recently used leaf of the cache is evicted.
 * Errors: EK_ELIMIT over the table's cap, EK_EBUSY too few pages; unchanged.
 * Cost: O(pages added * log n_pages), no allocation. */
int ek_pages_reserve(struct ek_pages *p, struct ek_page_table *t,
                     int32_t n_tokens) EK_MUST_USE;

/* The check before each read. A step will read positions [0,t->n_tokens) and write the
 * n_new ones after them: every page of the table is compared with the book, and those
 * of the step are written to numbers[0, pages for n_tokens + n_new). On a fault the
 * sequence must not run: *bad (may be NULL) is the entry's index in the table.
 *
 *   tokens   (t->n_tokens) ids of the sequence; FULL reads them, else may be NULL
 *
 * OFF: COUNT and RANGE only, so that no page number is wild.
 * FULL: also recomputes the chain from `tokens` and compares it with what each slot got
 * when it was written. Cost: docs/design/pages.md has the figures; no allocation. */
enum ek_page_fault ek_pages_check(const struct ek_pages *p,
                                  const struct ek_page_table *t, const int32_t *tokens,
                                  int32_t n_new, int32_t *numbers,
                                  int32_t *bad) EK_MUST_USE;

/* The n_new positions were written: raises fill, seals full pages. The table was
 * checked for them in this step (asserted where cheap).
 *
 *   tokens   (t->n_tokens + n_new) ids of the sequence
 *
 * With caches_prefixes each full page is published: SEALED becomes SHARED. If an equal
 * page is published already (same salt, same parent, the 16 tokens compared) the entry
 * becomes that page and the own one is freed: the bits are equal, since results depend
 * neither on the batch nor on the page. Cost: O(n_new), no allocation. */
void ek_pages_commit(struct ek_pages *p, struct ek_page_table *t, const int32_t *tokens,
                     int32_t n_new);

/* The table is empty. Attaches the longest cached prefix of tokens[0,n) in whole pages,
 * of at most n - 1 tokens (one is left to compute) and the table's cap. Returns
 * t->n_tokens. Cost: O(n). */
int32_t ek_pages_match(struct ek_pages *p, struct ek_page_table *t,
                       const int32_t *tokens, int32_t n);

/* `to` is empty and of the same salt. Shares the full pages of `from` (SEALED become
 * SHARED, also without the cache) and copies the partial last page at once, since the
 * first act of `to` would be to write it. Pages that `from` has reserved and not
 * written stay its own. Errors: EK_ELIMIT over the cap of `to`, EK_EBUSY no page for
 * the copy; unchanged. */
int ek_pages_fork(struct ek_pages *p, struct ek_page_table *from,
                  struct ek_page_table *to) EK_MUST_USE;

/* `to` is empty, of the same salt, with cap >= from->n_pages (asserted). Moves
 * everything: pages of its own get the new owner and generation + 1, so that a copy of
 * `from` kept anywhere is stale; `from` is empty then. The seam for split prefill and
 * decode pools: what a prefill hands on is this table and its tokens, nothing else. */
void ek_pages_adopt(struct ek_pages *p, struct ek_page_table *from,
                    struct ek_page_table *to);

/* Gives back every page that is still this table's and empties it. A shared page loses
 * one holder; without holders it stays in the cache as most recently used, or is freed
 * where there is none. An entry that is not this table's (foreign owner, other
 * generation, off the path) is left alone: another's page stays. */
void ek_pages_free(struct ek_pages *p, struct ek_page_table *t);

/* After a fault at entry i: takes its page out of use for good when it is this table's
 * own, or shared and its book contradicts itself. Other holders of that one fail their
 * next check with STATE; nobody can match it or what follows it any more. A page that
 * is rightly somebody else's, or free, is left alone: there the entry is wrong. Then
 * gives back every page of this owner, those that the table lost included.
 * Cost: O(n_pages). */
void ek_pages_fault(struct ek_pages *p, struct ek_page_table *t, int32_t i);

/* Evicts every cached page that nobody holds. */
void ek_pages_drop_cache(struct ek_pages *p);

/* True when every invariant above holds. Cost: O(n_pages). For tests. */
bool ek_pages_is_sane(const struct ek_pages *p);

#endif
