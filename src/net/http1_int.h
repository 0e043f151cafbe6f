/* http1_int.h - what http1.c (framing) and http1_head.c (request line and fields)
 * share. */
#ifndef EVENKEEL_NET_HTTP1_INT_H
#define EVENKEEL_NET_HTTP1_INT_H

#include "net/http1.h"

/* Reads the whole head in p->head, ended by an empty line: fills the request, framing
 * and connection facts; p->phase stays HEAD or becomes FAILED. */
void ek_http1_parse_head(struct ek_http1 *p);

void ek_http1_fail(struct ek_http1 *p, int code, const char *reason);

bool ek_http1_is_token_char(unsigned char c);
bool ek_http1_is_value_char(unsigned char c); /* HTAB, SP, visible, obs-text */

#endif
