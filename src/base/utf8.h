/* utf8.h - UTF-8 by the Unicode standard (table 3-7): no overlong forms, no
 * surrogates, nothing above U+10FFFF. Text is (pointer, length) and may hold NUL. */
#ifndef EVENKEEL_BASE_UTF8_H
#define EVENKEEL_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at p. Returns its length 1..4 and writes *c, or 0 when the
 * bytes there are no whole well-formed character (n == 0 included; *c untouched). */
size_t ek_utf8_decode(uint32_t *c, const char *p, size_t n);

/* Writes c (a scalar value: not a surrogate, <= 0x10FFFF) as 1..4 bytes to out[4]. */
size_t ek_utf8_encode(char out[4], uint32_t c);

bool ek_utf8_is_valid(const char *p, size_t n);

/* Length of the longest prefix of p[0,n) that does not end inside a character: what
 * a stream may show now. Bytes that can never become a character count as whole. */
size_t ek_utf8_whole_prefix(const char *p, size_t n);

/* How many bytes at p to replace by one U+FFFD when ek_utf8_decode returns 0: the
 * maximal subpart of the standard's chapter 3 (as Python's "replace" does); n >= 1. */
size_t ek_utf8_bad_length(const char *p, size_t n);

#endif
