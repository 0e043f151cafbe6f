/* echo.h - a backend that says everything back, for measuring what stands before it:
 * WebSockets (each frame), gRPC and other POSTs over HTTP/2 in clear (each byte, status
 * 0 at the end), and a body of 128 bytes for every other request, in HTTP/1.1 and
 * HTTP/2. One thread. It counts nothing and burns nothing: examples/voice.c does.
 */
#ifndef EVENKEEL_LOAD_ECHO_H
#define EVENKEEL_LOAD_ECHO_H

#include "base/err.h"

#include <stdbool.h>

struct ek_echo_options {
    const char *listen; /* HOST:PORT, port 0: a free one; unix:PATH */
    /* Told once it listens; may be NULL. */
    void (*on_ready)(void *arg, const char *address);
    void *arg;
    bool (*is_stopped)(void); /* asked ten times a second */
};

/* Serves until is_stopped. Errors: those of ek_address_listen, EK_EIO, EK_ENOMEM. */
int ek_echo_run(const struct ek_echo_options *o, struct ek_err *err) EK_MUST_USE;

#endif
