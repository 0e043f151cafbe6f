/* client.h - many HTTP requests at once to one server: libcurl's multi interface on the
 * event loop of net/loop. HTTP/1.1, one connection a request under way, kept for the
 * next one. TLS, names, chunked bodies and framing are libcurl's.
 *
 * Owner thread: the loop's. Callbacks come from inside ek_loop_run; on_end may start
 * the next call, on_data may not.
 */
#ifndef EVENKEEL_LOAD_CLIENT_H
#define EVENKEEL_LOAD_CLIENT_H

#include "base/buf.h"
#include "base/err.h"
#include "net/loop.h"

#include <stdbool.h>
#include <stdint.h>

struct ek_client;

struct ek_client_options {
    const char *url;     /* base, http or https; a / or /v1 at its end is taken off */
    const char *api_key; /* NULL: none */
    const char *ca_file; /* PEM of the authorities to trust; NULL: the system's */
    int64_t timeout_ms;  /* of a whole request */
    int64_t max_kept;    /* connections kept open between requests */
    bool (*is_stopped)(void); /* ends ek_client_perform early; may be NULL */
};

/* Errors: EK_EINVAL (url), EK_ENOMEM. */
int ek_client_new(struct ek_client **client, struct ek_loop *loop,
                  const struct ek_client_options *o, struct ek_err *err) EK_MUST_USE;
void ek_client_free(struct ek_client *c); /* no call may be under way; NULL is fine */

/* EK_ENOMEM or EK_EIO when a socket or timer of libcurl's could not be watched: no call
 * under way ends any more then. Whoever waits asks now and then; what is left is to
 * cancel the calls. */
int ek_client_check(const struct ek_client *c) EK_MUST_USE;

const char *ek_client_url(const struct ek_client *c); /* base, borrowed */

#define EK_CALL_BODY_MAX ((size_t)1 << 20) /* of an answer that is no stream */

/* One request; the struct is the caller's and stays put while under way. */
struct ek_call {
    /* Set by the caller. */
    const char *path;          /* "/v1/completions" */
    const struct ek_buf *body; /* JSON, borrowed until the end; NULL: GET */
    /* Bytes of an answer of status 200, which came at now_us. Not 0 ends the call with
     * EK_ECANCELED. NULL: they are kept in `answer`. */
    int (*on_data)(struct ek_call *call, const char *p, size_t n, int64_t now_us);
    void (*on_end)(struct ek_call *call); /* not called by ek_client_perform */
    void *owner;
    /* Valid in on_end. */
    int status;           /* HTTP's; 0: none came */
    int rc;               /* 0: an answer came whole, whatever its status; or EK_EIO,
                             EK_ECANCELED, EK_ELIMIT, EK_ENOMEM */
    char why[256];        /* of rc; on_data may write its own before it fails */
    struct ek_buf answer; /* body of any other status, its first EK_CALL_BODY_MAX */
    /* private */
    void *easy;
    char curl_text[256];      /* libcurl's sentence */
    struct ek_client *client; /* while under way */
};

int ek_call_init(struct ek_call *call) EK_MUST_USE; /* zeroes it; EK_ENOMEM */
void ek_call_release(struct ek_call *call);         /* ends it if it is under way */

/* Begins the request; on_end follows in a later turn. Errors: EK_ENOMEM, EK_ELIMIT;
 * on_end does not follow then. */
int ek_client_start(struct ek_client *c, struct ek_call *call) EK_MUST_USE;
void ek_client_cancel(struct ek_call *call); /* without on_end */

/* The request at once, outside of the loop: returns call->rc. */
int ek_client_perform(struct ek_client *c, struct ek_call *call) EK_MUST_USE;

/* The sentence of a call that is not a 200: `why`, or status and the server's words.
 * Returns err's status. */
int ek_call_explain(const struct ek_call *call, struct ek_err *err);

#endif
