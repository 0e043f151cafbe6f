/* tokenizer_regex.h - the regular expressions of tokenizers, which are written for
 * Oniguruma, run by PCRE2: translated where the two read the same text differently.
 *
 *   \s \S \w \W    Unicode's White_Space and word properties, written out
 *   \p{^X}, \p{Han}  negation; scripts without script extensions
 *   [A&&[^B]]      intersection of general categories, by its complement
 *   \h \X \K, nested sets, POSIX brackets: refused by name
 *
 * $ and ^ match at every line end and start, as in Oniguruma's Ruby syntax.
 */
#ifndef EVENKEEL_DATA_TOKENIZER_REGEX_H
#define EVENKEEL_DATA_TOKENIZER_REGEX_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>

struct ek_tok_regex;      /* compiled once, immutable; threads: any */
struct ek_tok_regex_work; /* of one encode call */

/* Errors: EK_EFORMAT (PCRE2's sentence and the offset), EK_EUNSUP (the construct),
 * EK_ENOMEM. */
int ek_tok_regex_new(struct ek_tok_regex **re, const char *pattern, size_t n,
                     struct ek_err *err) EK_MUST_USE;
void ek_tok_regex_free(struct ek_tok_regex *re);

int ek_tok_regex_work_new(struct ek_tok_regex_work **work) EK_MUST_USE;
void ek_tok_regex_work_free(struct ek_tok_regex_work *work);

/* The next match in the valid UTF-8 s[0,n) at or after `from`: 1 with [*lo,*hi) not
 * empty, 0 none. Errors: EK_ENOMEM, EK_ELIMIT (gave up backtracking). */
int ek_tok_regex_find(const struct ek_tok_regex *re, struct ek_tok_regex_work *work,
                      size_t *lo, size_t *hi, const char *s, size_t n,
                      size_t from) EK_MUST_USE;

/* The translation alone, for tests. Appends to out. */
int ek_tok_regex_translate(struct ek_buf *out, const char *pattern, size_t n,
                           struct ek_err *err) EK_MUST_USE;

#endif
