/* buf.h - a growable byte buffer that knows its ceiling.
 *
 * Invariant: len <= cap <= max, and data[len] is NUL once anything was appended, so
 * the bytes may be read as a C string where they hold no NUL.
 */
#ifndef EVENKEEL_BASE_BUF_H
#define EVENKEEL_BASE_BUF_H

#include "base/status.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct ek_buf {
    char *data; /* heap, owned; NULL while cap == 0 */
    size_t len; /* bytes in use */
    size_t cap; /* bytes allocated, less the one for the NUL */
    size_t max; /* ceiling of len; appending past it is EK_ELIMIT */
};

/* No allocation happens before the first append. */
void ek_buf_init(struct ek_buf *b, size_t max);
void ek_buf_release(struct ek_buf *b);
void ek_buf_reset(struct ek_buf *b); /* len = 0, memory kept */

/* Errors of all appends: EK_ELIMIT past max, EK_ENOMEM; the buffer is unchanged. What
 * is appended must not lie in the buffer itself, which may move. */
int ek_buf_reserve(struct ek_buf *b, size_t extra) EK_MUST_USE;
int ek_buf_add(struct ek_buf *b, const void *p, size_t n) EK_MUST_USE;
int ek_buf_add_char(struct ek_buf *b, char c) EK_MUST_USE;
int ek_buf_add_str(struct ek_buf *b, const char *s) EK_MUST_USE;
int ek_buf_addf(struct ek_buf *b, const char *fmt, ...) EK_MUST_USE EK_PRINTF(2, 3);
int ek_buf_addv(struct ek_buf *b, const char *fmt, va_list args) EK_MUST_USE
    EK_PRINTF(2, 0);

/* Removes the first n <= len bytes. Cost: O(len). */
void ek_buf_consume(struct ek_buf *b, size_t n);

/* The caller owns the NUL-terminated bytes (ek_free); b is empty again. NULL when
 * nothing was ever appended. */
char *ek_buf_take(struct ek_buf *b, size_t *len);

#endif
