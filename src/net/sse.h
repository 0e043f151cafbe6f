/* sse.h - server-sent events (WHATWG HTML, 9.2) as bytes in a buffer, so that one event
 * leaves as one ek_http_send.
 */
#ifndef EVENKEEL_NET_SSE_H
#define EVENKEEL_NET_SSE_H

#include "base/buf.h"
#include "net/http.h"

#include <stddef.h>

/* Begins the answer: 200, text/event-stream, and the headers that keep caches and
 * proxies from collecting events. Errors: those of ek_http_begin. */
int ek_sse_begin(struct ek_http_exchange *x) EK_MUST_USE;

/* Appends one event whose data is p[0,n): "data: ...\n\n", with a "data: " in front of
 * each of its lines (LF, CR or CR LF end one; the reader sees LF).
 * Errors: EK_ENOMEM, EK_ELIMIT; out is unchanged. */
int ek_sse_add(struct ek_buf *out, const char *p, size_t n) EK_MUST_USE;

/* Appends a comment, which readers skip; keeps idle connections open. `text` is one
 * line. Errors as above. */
int ek_sse_add_comment(struct ek_buf *out, const char *text) EK_MUST_USE;

#endif
