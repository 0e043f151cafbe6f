/* echo_int.h - what the two halves of the echo backend share. */
#ifndef EVENKEEL_LOAD_ECHO_INT_H
#define EVENKEEL_LOAD_ECHO_INT_H

#include "base/link.h"
#include "load/echo.h"
#include "net/h2.h"

enum { EK_ECHO_BODY = 128, EK_ECHO_SCRATCH = 65536 };

/* Owner thread: the loop's. */
struct ek_echo {
    const struct ek_echo_options *o;
    struct ek_loop *loop;
    struct ek_h2_context *h2;
    struct ek_link conns; /* of struct conn */
    struct ek_watch accepts;
    struct ek_timer tick;
    char *unix_path;  /* owned; NULL: TCP */
    uint8_t *scratch; /* (EK_ECHO_SCRATCH) owned */
};

/* Makes e->h2. Errors: EK_ENOMEM. */
int ek_echo_h2_new(struct ek_echo *e) EK_MUST_USE;

#endif
