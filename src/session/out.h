/* out.h - text and bytes into a caller's buffer, counted on when it is full.
 *
 * Invariant: len is what was put; p holds its first bytes, as far as cap reaches.
 */
#ifndef EVENKEEL_SESSION_OUT_H
#define EVENKEEL_SESSION_OUT_H

#include <stddef.h>
#include <stdint.h>

struct ek_session_out {
    char *p;
    size_t cap, len;
};

void ek_put(struct ek_session_out *o, const void *p, size_t n);
void ek_put_str(struct ek_session_out *o, const char *s);

/* Up to ten digits, a dot whatever the locale; what is not finite is written as 0 or
 * the largest double: no format here has a word for it. */
void ek_put_number(struct ek_session_out *o, double v);

/* A number as printf wrote it: its point, of one byte or several, becomes a dot. */
void ek_put_with_dot(struct ek_session_out *o, const char *text);

void ek_put_base64(struct ek_session_out *o, const void *p, size_t n);

#endif
