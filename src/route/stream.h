/* stream.h - halves of sessions on streams of HTTP/2: balanced one by one, whatever
 * connection they share. docs/design/route-h2.md. */
#ifndef EVENKEEL_ROUTE_STREAM_H
#define EVENKEEL_ROUTE_STREAM_H

#include "net/h2.h"
#include "net/sock.h"
#include "route/reactor.h"

extern const struct ek_half_ops ek_stream_ops;

struct ek_streams; /* a reactor's connections of HTTP/2 */

/* Errors: EK_ENOMEM. */
int ek_streams_new(struct ek_streams **s, struct ek_reactor *w) EK_MUST_USE;
/* Its limits of time are those of the configuration in force. */
void ek_streams_set(struct ek_streams *s);
/* The sessions were ended. Closes everything at once. */
void ek_streams_free(struct ek_streams *s);
/* Clients are told to go elsewhere; their streams go on. */
void ek_streams_drain(struct ek_streams *s);

/* Lets go of connections to backends that are gone, or are reached otherwise now: their
 * streams go on, no new ones come. */
void ek_streams_drop_stale(struct ek_streams *s);

/* What was counted of clients' connections, or of those to backends; for any thread. */
const struct ek_h2_counts *ek_streams_counts(const struct ek_streams *s,
                                             bool of_clients);

/* A client's connection that speaks HTTP/2: *sock is taken in any case, and bytes[0,n)
 * were read from it. client: as ek_relay_begin. Errors: EK_ENOMEM, EK_EIO. */
int ek_stream_accept(struct ek_streams *s, struct ek_sock *sock, struct ek_text client,
                     const char *bytes, size_t n) EK_MUST_USE;

/* A half towards that upstream, on a connection with room for a stream or on a new one;
 * as ek_h1_open. */
int ek_stream_open(struct ek_half **half, struct ek_streams *s, int32_t upstream,
                   bool *is_connected) EK_MUST_USE;

#endif
