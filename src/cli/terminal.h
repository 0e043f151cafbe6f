/* terminal.h - text that somebody else wrote (a model file, a model, a server) on its
 * way to a person. A terminal obeys what it is sent: such text must not move the
 * cursor, set the clipboard or retitle the window. */
#ifndef EVENKEEL_CLI_TERMINAL_H
#define EVENKEEL_CLI_TERMINAL_H

#include "base/buf.h"

#include <stddef.h>
#include <stdio.h>

/* Appends p[0,n) with control characters (C1 included) but those in `kept`, and bytes
 * that are no UTF-8, written as \xNN. Errors: those of ek_buf_add. */
int ek_terminal_add(struct ek_buf *out, const char *p, size_t n,
                    const char *kept) EK_MUST_USE;

/* Writes whole characters and flushes. On a terminal as above, line ends and tabs kept;
 * a file or a pipe gets the bytes as they are. Errors: EK_EIO, EK_ENOMEM. */
int ek_terminal_write(FILE *to, const char *p, size_t n) EK_MUST_USE;

#endif
