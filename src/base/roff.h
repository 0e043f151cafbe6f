/* roff.h - text inside a man(7) page. */
#ifndef EVENKEEL_BASE_ROFF_H
#define EVENKEEL_BASE_ROFF_H

#include "base/buf.h"

#include <stddef.h>

/* Appends s[0,n) so that the page shows it as it is: a leading dot or quote,
 * backslashes and hyphens are escaped, ` ' ^ ~ stay ASCII, other characters are named
 * by code point; bytes that are not UTF-8 become U+FFFD. The text is taken to begin a
 * line. Errors: those of ek_buf_add; what was appended so far stays. */
int ek_roff_add(struct ek_buf *out, const char *s, size_t n) EK_MUST_USE;

/* The same between two pieces of markup that are appended as they are. */
int ek_roff_add_str(struct ek_buf *out, const char *before, const char *s,
                    const char *after) EK_MUST_USE;

#endif
