/* json.h - jansson's values behind two doors: what comes in is limited before it is
 * parsed, what goes out is written without a tree.
 *
 * In: RFC 8259 UTF-8, duplicate keys refused, lone surrogates refused, \u0000 allowed
 * inside strings, numbers that do not fit int64 or a finite double refused.
 */
#ifndef EVENKEEL_BASE_JSON_H
#define EVENKEEL_BASE_JSON_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

#define EK_JSON_DEPTH_DEFAULT 64

struct ek_json_limits {
    size_t max_bytes;  /* 0: no ceiling of its own */
    size_t max_values; /* objects, arrays, strings, numbers, literals; 0: no ceiling */
    size_t max_depth;  /* 0: EK_JSON_DEPTH_DEFAULT */
};

/* Parses text[0,n); the caller owns *out (json_decref). Before anything is built, size,
 * depth and number of values are counted in one pass without allocation.
 * From the first call on jansson allocates through ek_alloc.
 * Errors: EK_ELIMIT (which limit, both numbers), EK_EFORMAT (line, column, what was
 * found), EK_ENOMEM. Threads: any. */
int ek_json_parse(json_t **out, const char *text, size_t n,
                  const struct ek_json_limits *limits, struct ek_err *err) EK_MUST_USE;

/* Appends s[0,n) as a JSON string with quotes; bytes that are not UTF-8 become U+FFFD.
 * Errors: those of ek_buf_add. */
int ek_json_add_str(struct ek_buf *b, const char *s, size_t n) EK_MUST_USE;

/* Appends the shortest decimal that reads back as v, whole numbers without exponent;
 * NaN and infinities are written as -9999.0 (a missing log-probability: JSON has no
 * word for them). */
int ek_json_add_double(struct ek_buf *b, double v) EK_MUST_USE;

#endif
