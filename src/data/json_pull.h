/* json_pull.h - walks JSON of a known shape without building a tree.
 *
 * For headers that may be large and are hostile: memory is what the caller keeps, and
 * nothing is accepted but what the caller asks for next. Documents of unknown shape
 * belong to base/json.h. The caller checked that the text is UTF-8.
 */
#ifndef EVENKEEL_DATA_JSON_PULL_H
#define EVENKEEL_DATA_JSON_PULL_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ek_json_pull {
    const char *p; /* borrowed */
    size_t n, at;  /* at <= n */
    struct ek_err
        *err; /* may be NULL; sentences are "byte 12: expected ':', found 'x'" */
};

void ek_json_pull_init(struct ek_json_pull *j, const char *p, size_t n,
                       struct ek_err *err);

/* Skips white space and takes the character c if it is next. */
bool ek_json_pull_try(struct ek_json_pull *j, char c);

/* All: skip white space, then take exactly this. Errors: EK_EFORMAT. */
int ek_json_pull_expect(struct ek_json_pull *j, char c) EK_MUST_USE;
int ek_json_pull_u64(struct ek_json_pull *j, uint64_t *v) EK_MUST_USE; /* no sign, no
                                                            fraction, no exponent */
int ek_json_pull_end(struct ek_json_pull *j) EK_MUST_USE; /* nothing may follow */

/* Replaces text's content by the decoded string (which may hold NUL from \u0000).
 * Errors: EK_EFORMAT lone surrogates, control characters, unknown escapes included;
 * EK_ELIMIT text's ceiling; EK_ENOMEM. */
int ek_json_pull_str(struct ek_json_pull *j, struct ek_buf *text) EK_MUST_USE;

/* Steps over any value nested at most max_depth levels (EK_ELIMIT). `text`: scratch. */
int ek_json_pull_skip(struct ek_json_pull *j, struct ek_buf *text,
                      int max_depth) EK_MUST_USE;

/* Before each member of an object or element of an array that ends with `close`:
 * 1 there is one more (the comma is taken), 0 it ended, or an error. *n counts them. */
int ek_json_pull_more(struct ek_json_pull *j, char close, size_t *n) EK_MUST_USE;

#endif
