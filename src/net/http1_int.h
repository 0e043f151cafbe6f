/* http1_int.h - what http1.c (framing) and http1_head.c (request line and fields)
 * share. */
#ifndef EVENKEEL_NET_HTTP1_INT_H
#define EVENKEEL_NET_HTTP1_INT_H

#include "net/http1.h"
#include "net/message.h"

/* Reads the whole head in p->head, ended by an empty line: fills the request, framing
 * and connection facts; p->phase stays HEAD or becomes FAILED. */
void ek_http1_parse_head(struct ek_http1 *p);

void ek_http1_fail(struct ek_http1 *p, int code, const char *reason);

/* http1_message.c: trailer lines, each with its CR LF, without those of framing.
 * Errors: EK_EFORMAT. */
int ek_http1_read_trailers(struct ek_field fields[EK_HEAD_MAX_FIELDS], size_t *n,
                           const char *p, size_t len) EK_MUST_USE;

bool ek_http1_is_token_char(unsigned char c);
bool ek_http1_is_value_char(unsigned char c); /* HTAB, SP, visible, obs-text */

#endif
