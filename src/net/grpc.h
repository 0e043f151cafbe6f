/* grpc.h - gRPC on a stream of h2.h, both ends: messages behind their five bytes,
 * status in trailers, deadlines. No compression, no generated code: who needs a message
 * takes its fields apart himself.
 * Source: grpc/doc/PROTOCOL-HTTP2.md, statuscodes.md, http-grpc-status-mapping.md.
 */
#ifndef EVENKEEL_NET_GRPC_H
#define EVENKEEL_NET_GRPC_H

#include "base/buf.h"
#include "net/h2.h"

enum ek_grpc_status {
    EK_GRPC_OK = 0,
    EK_GRPC_CANCELLED = 1,
    EK_GRPC_UNKNOWN = 2,
    EK_GRPC_INVALID_ARGUMENT = 3,
    EK_GRPC_DEADLINE_EXCEEDED = 4,
    EK_GRPC_RESOURCE_EXHAUSTED = 8,
    EK_GRPC_UNIMPLEMENTED = 12,
    EK_GRPC_INTERNAL = 13,
    EK_GRPC_UNAVAILABLE = 14,
    EK_GRPC_UNAUTHENTICATED = 16,
    EK_GRPC_PERMISSION_DENIED = 7,
};

enum { EK_GRPC_PREFIX = 5 }; /* not compressed; length, big endian */

/* Is this a call of gRPC? POST, and a content-type that begins so. */
bool ek_grpc_is_call(const struct ek_head *h);

/* What is left of a call's time by grpc-timeout; INT64_MAX: no limit, or none that can
 * be read. */
int64_t ek_grpc_timeout_us(const struct ek_head *h);

/* Cuts a stream of bytes into messages. */
struct ek_grpc_reader {
    struct ek_buf buf; /* what is not a whole message yet */
    size_t max;        /* bytes of a message */
    size_t n_given;    /* of buf: the message that next gave, with its prefix */
};
void ek_grpc_reader_init(struct ek_grpc_reader *r, size_t max_message_bytes);
void ek_grpc_reader_release(struct ek_grpc_reader *r);
/* Adds bytes. Errors: EK_ENOMEM, EK_ELIMIT. */
int ek_grpc_reader_add(struct ek_grpc_reader *r, const char *p, size_t n) EK_MUST_USE;
/* The next whole message, readable until add or next. EK_EAGAIN: there is none.
 * Errors, for good: EK_ELIMIT (longer than max), EK_EUNSUP (compressed). */
int ek_grpc_reader_next(struct ek_grpc_reader *r, struct ek_text *message) EK_MUST_USE;

/* Server. begin: the answer's head. end: trailers. fail, instead of both: one head
 * (Trailers-Only). message may be any bytes; NULL: none. Errors: as ek_h2_answer. */
int ek_grpc_begin(struct ek_h2_stream *s) EK_MUST_USE;
int ek_grpc_end(struct ek_h2_stream *s, enum ek_grpc_status status,
                const char *message) EK_MUST_USE;
int ek_grpc_fail(struct ek_h2_stream *s, enum ek_grpc_status status,
                 const char *message) EK_MUST_USE;

struct ek_grpc_target {
    struct ek_text authority;
    const char *path;
    const char *authorization; /* NULL: not said */
};

/* Client: opens a call with one message and ends its side. Errors: as ek_h2_open and
 * ek_h2_send. */
int ek_grpc_call(struct ek_h2_stream **s, struct ek_h2 *c,
                 const struct ek_grpc_target *target, const void *message, size_t n,
                 void *user) EK_MUST_USE;

/* The status in trailers, or in a head that is all there is; -1: none. */
int ek_grpc_status_in(const struct ek_field *fields, size_t n);
/* What an answer without a grpc-status means, and what a reset does. */
enum ek_grpc_status ek_grpc_status_of_http(int status);
enum ek_grpc_status ek_grpc_status_of_reset(uint32_t code);

/* grpc-message: printable ASCII but '%' as it is, other bytes as %XX. At most size - 1
 * bytes, cut between them. */
void ek_grpc_escape(char *out, size_t size, const char *text);

#endif
