/* pages.h - who owns which page of the KV storage, and the check before each read.
 *
 * The storage itself is lm/kv; this is the book about it. A page belongs to one
 * sequence; a table entry remembers the page's generation as it was when the page was
 * given out. A page that was freed, or given to somebody else, has another generation,
 * so a stale entry can never be read: the page numbers that a forward pass gets come
 * out of ek_pages_check and from nowhere else.
 *
 *            reserve            commit (16 tokens)
 *    FREE ------------> WRITING ------------------> SEALED
 *     ^                    |                          |
 *     +------- free (generation + 1) -----------------+
 *                                     check failed: QUARANTINE, never given out again
 *
 * Invariants (ek_pages_is_sane):
 *   n_free + n_used + n_quarantined == n_pages
 *   FREE: owner 0, fill 0, on the free list once;  others: not on it
 *   WRITING: fill < 16;  SEALED: fill == 16;  generation >= 1, never falls
 * Owner thread: the engine's.
 */
#ifndef EVENKEEL_SERVE_PAGES_H
#define EVENKEEL_SERVE_PAGES_H

#include "base/err.h"
#include "lm/kv.h"

#include <stdbool.h>
#include <stdint.h>

/* A page knows its place in the sequence in 16 bits: 1 Mi tokens a sequence. */
#define EK_PAGES_PER_SEQ_MAX 65535

enum ek_page_state {
    EK_PAGE_FREE,
    EK_PAGE_WRITING,    /* its owner may append; fill < 16 */
    EK_PAGE_SEALED,     /* full, never written again */
    EK_PAGE_QUARANTINE, /* a check failed on it; out of use until restart */
};

struct ek_page {
    uint64_t owner;      /* id of the sequence, unique for ever; 0: nobody */
    uint32_t generation; /* + 1 at every free, never reset; 0 is never valid */
    uint16_t index;      /* which page of its sequence it is */
    uint8_t fill;        /* tokens written, 0..16 */
    uint8_t state;       /* enum ek_page_state */
};

struct ek_pages {
    struct ek_page *pages; /* (n_pages) heap, owned */
    int32_t *free_list;    /* (n_pages) stack of free page numbers, owned */
    int32_t n_pages;
    int32_t n_free;
    int32_t n_quarantined;
};

/* A table entry: the page, and its generation when the sequence got it. */
struct ek_page_ref {
    int32_t page;
    uint32_t generation;
};

struct ek_page_table {
    uint64_t owner;           /* id of the sequence; not 0 */
    struct ek_page_ref *refs; /* (cap) borrowed, of the request's arena */
    int32_t cap;              /* pages the table can name */
    int32_t n_pages;          /* pages held, <= cap */
    int32_t n_tokens;         /* positions written, <= n_pages * 16 */
};

/* What a check found. X(name, text); the text is the metric's label. */
#define EK_PAGE_FAULTS(X)                                                              \
    X(NONE, "none")                                                                    \
    X(COUNT, "count")           /* fewer pages than the positions need */              \
    X(RANGE, "range")           /* no such page */                                     \
    X(OWNER, "owner")           /* another sequence's */                               \
    X(GENERATION, "generation") /* freed and given out since */                        \
    X(STATE, "state")           /* free, quarantined, or still written mid-sequence */ \
    X(ORDER, "order")           /* another place in the sequence: swapped, doubled */  \
    X(FILL, "fill")             /* fewer tokens written than would be read */

enum ek_page_fault {
#define X(name, text) EK_PAGE_FAULT_##name,
    EK_PAGE_FAULTS(X)
#undef X
        EK_PAGE_FAULT_COUNT_OF
};
const char *ek_page_fault_text(enum ek_page_fault f);

/* n_pages >= 0. Errors: EK_ENOMEM. */
int ek_pages_init(struct ek_pages *p, int32_t n_pages, struct ek_err *err) EK_MUST_USE;
void ek_pages_release(struct ek_pages *p);

/* Pages that n positions take. Cannot fail. */
int32_t ek_pages_for_tokens(int32_t n_tokens);

/* An empty table over refs[0,cap). owner must never have been used before. */
void ek_page_table_init(struct ek_page_table *t, uint64_t owner,
                        struct ek_page_ref *refs, int32_t cap);

/* Makes the table hold pages for n_tokens positions in all; does nothing when it does.
 * Errors: EK_ELIMIT over the table's cap, EK_EBUSY too few free pages; unchanged.
 * Cost: O(pages added), no allocation. */
int ek_pages_reserve(struct ek_pages *p, struct ek_page_table *t,
                     int32_t n_tokens) EK_MUST_USE;

/* The check before each read. A step will read positions [0,n_tokens) and write the
 * n_new ones after them: every page of those is compared with the book, and its number
 * written to numbers[0, pages for n_tokens + n_new). On a fault the sequence must not
 * run: *bad (may be NULL) is the entry's index in the table.
 * Cost: about 2 ns a page, no allocation. Cannot fail otherwise. */
enum ek_page_fault ek_pages_check(const struct ek_pages *p,
                                  const struct ek_page_table *t, int32_t n_new,
                                  int32_t *numbers, int32_t *bad) EK_MUST_USE;

/* The n_new positions were written: raises fill, seals full pages. The table was
 * checked for them in this step (asserted where cheap). */
void ek_pages_commit(struct ek_pages *p, struct ek_page_table *t, int32_t n_new);

/* Gives back every page that is still this table's and empties it. An entry that is
 * not (foreign owner, other generation) is left alone: another's page stays. */
void ek_pages_free(struct ek_pages *p, struct ek_page_table *t);

/* After a fault at entry i: takes its page out of use for good when it is this table's
 * own (its book is wrong). A page that is somebody else's, or free, is left alone:
 * there the entry is wrong, and the other sequence goes on. Then gives back every page
 * of this owner, those that the table lost included. Cost: O(n_pages). */
void ek_pages_fault(struct ek_pages *p, struct ek_page_table *t, int32_t i);

/* True when every invariant above holds. Cost: O(n_pages^2). For tests. */
bool ek_pages_is_sane(const struct ek_pages *p);

#endif
