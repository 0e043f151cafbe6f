/* tokenizer_pre.h - the pre-tokenizer: cuts a fragment into the pieces that are merged
 * on their own. A list of steps; each cuts every piece of the one before.
 *
 * Bytes that are no UTF-8 stand alone, and a step sees them as the end of the text.
 */
#ifndef EVENKEEL_DATA_TOKENIZER_PRE_H
#define EVENKEEL_DATA_TOKENIZER_PRE_H

#include "base/err.h"
#include "data/tokenizer_regex.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What becomes of a match and of what lies between two. */
enum ek_tok_cut {
    EK_TOK_CUT_ISOLATED,    /* both are pieces */
    EK_TOK_CUT_REMOVED,     /* the match is dropped */
    EK_TOK_CUT_TO_PREVIOUS, /* the match ends the piece before it */
    EK_TOK_CUT_TO_NEXT,     /* the match begins the piece after it */
    EK_TOK_CUT_CONTIGUOUS,  /* matches that touch are one piece */
};

#define EK_TOK_PRE_STEPS 8

struct ek_tok_step {
    struct ek_tok_regex *regex; /* owned */
    enum ek_tok_cut cut;
    bool is_inverted; /* what lies between the matches counts as the match */
};

struct ek_tok_pre {
    struct ek_tok_step steps[EK_TOK_PRE_STEPS];
    int n_steps;
};

struct ek_tok_span {
    uint32_t lo, hi;
};

struct ek_tok_spans {
    struct ek_tok_span *items; /* heap, owned */
    size_t n, cap;
};

struct ek_tok_pre_work {
    struct ek_tok_spans now, next;   /* pieces before and after a step */
    struct ek_tok_regex_work *regex; /* owned, made on first use */
};

void ek_tok_pre_release(struct ek_tok_pre *pre);
void ek_tok_pre_work_release(struct ek_tok_pre_work *work);

/* Appends a step. Errors: those of ek_tok_regex_new, EK_EUNSUP too many steps. */
int ek_tok_pre_add(struct ek_tok_pre *pre, const char *pattern, size_t n,
                   enum ek_tok_cut cut, bool is_inverted,
                   struct ek_err *err) EK_MUST_USE;

/* Leaves the pieces of p[0,n) (n < 2^31) in work->now, in order, none empty. Errors:
 * EK_ENOMEM, EK_ELIMIT (a regex that gives up). */
int ek_tok_pre_run(const struct ek_tok_pre *pre, struct ek_tok_pre_work *work,
                   const char *p, size_t n, uint64_t *steps) EK_MUST_USE;

/* What a name in GGUF's tokenizer.ggml.pre stands for. */
struct ek_tok_pre_name {
    const char *name;
    const char *const *patterns; /* NULL-terminated; each isolates its matches */
    bool ignores_merges;
    bool is_nfc;
    bool adds_bos; /* where the metadata does not say */
};

const struct ek_tok_pre_name *ek_tok_pre_find(const char *name, size_t n);
const char *ek_tok_pre_gpt2(void); /* the pattern ByteLevel itself uses */

/* "deepseek-llm, falcon, ..." of all known names into out[cap]. Returns out. */
const char *ek_tok_pre_list(char *out, size_t cap);

#endif
