/* http_int.h - what the files of the HTTP server share: http_server.c (listening),
 * http_conn.c (one connection's life), http_exchange.c (answers).
 *
 * One connection carries one exchange at a time; requests sent ahead wait unparsed.
 *
 *   HANDSHAKE -> REQUEST -> HANDLER -> ANSWERED -+-> REQUEST     keep-alive
 *     (TLS)        |                      ^      +-> LINGER -> closed
 *                  +--- bad, slow --------+
 *
 * Nothing of the handler is called from inside an ek_http_* call: those only fill `out`
 * and put the connection on the server's `soon` list, which a timer of delay 0 works
 * off in the same turn. So x stays valid for the caller, and the pieces of one turn
 * leave in one write.
 */
#ifndef EVENKEEL_NET_HTTP_INT_H
#define EVENKEEL_NET_HTTP_INT_H

#include "base/link.h"
#include "net/http.h"
#include "net/http1.h"

/* Headers that one answer may add; the caller knows them all, so this is generous. */
enum { EK_HTTP_MAX_EXTRA_BYTES = 16384 };

enum ek_http_state {
    EK_HTTP_HANDSHAKE, /* TLS is being agreed on */
    EK_HTTP_REQUEST,   /* reading; the parser knows how far */
    EK_HTTP_HANDLER,   /* the handler holds the exchange; nothing is read */
    EK_HTTP_ANSWERED,  /* the answer is whole, some of it may be unsent */
    EK_HTTP_LINGER,    /* our side is shut; what comes in is dropped until the peer ends
                          too, because closing over unread bytes resets the connection
                          and the peer may lose the answer */
};

struct ek_http_exchange {
    struct ek_http_conn *conn;
    void *user;
    struct ek_buf extra; /* header lines added by the handler */
    bool is_open;        /* on_request was called, on_closed not yet */
    bool has_begun;      /* the answer's head is in conn->out */
    bool has_body;       /* not HEAD, 204, 304 */
    bool is_chunked;     /* the answer is */
};

struct ek_http_conn {
    struct ek_link all;  /* of server->conns */
    struct ek_link soon; /* of server->soon, or alone */
    struct ek_http_server *server;
    struct ek_tls *tls; /* owned; NULL: plain */
    struct ek_watch watch;
    struct ek_timer timer; /* always started, so that moving it cannot fail */
    enum ek_http_state state;
    int64_t since_us; /* when the wait began that `timer` limits */
    struct ek_http1 parser;
    struct ek_buf in;  /* received, not parsed: requests sent ahead */
    struct ek_buf out; /* to send; data[0,n_sent) is sent */
    size_t n_sent;
    struct ek_http_exchange x;
    int read_wants;  /* what a read that would block waits for */
    int write_wants; /* and a write: they differ from the plain ones under TLS */
    bool must_close; /* after this answer */
    bool is_broken;  /* aborted, out of memory or failed: close at the next chance */
    bool is_driving; /* ek_http_conn_drive is on the stack: no need for `soon` */
    bool has_sent_continue;
    bool has_served; /* bytes of HTTP/1 came; `in` holds no preface of HTTP/2 */
};

struct ek_http_server {
    struct ek_loop *loop;
    struct ek_tls_context *tls; /* borrowed; NULL: plain */
    struct ek_http_limits limits;
    struct ek_http_handler handler;
    struct ek_watch listener; /* fd -1 when closed */
    struct ek_timer retry;    /* accepts again after EMFILE */
    struct ek_timer later;    /* works off `soon`; always started */
    struct ek_link conns;
    struct ek_link soon;
    int32_t n_conns;
    bool is_draining;
    char address[128];   /* what was bound */
    char *unix_path;     /* owned; removed at the end; NULL: TCP */
    char scratch[16384]; /* where reads land */
};

/* http_conn.c. new takes fd in any case. */
int ek_http_conn_new(struct ek_http_server *s, int fd) EK_MUST_USE;
/* Ends an open exchange as aborted, then frees c. */
void ek_http_conn_close(struct ek_http_conn *c);
/* Goes on as far as it can without waiting; closes c when its time has come. */
void ek_http_conn_drive(struct ek_http_conn *c);
/* Has ek_http_conn_drive called in this turn, from a clean stack. Cannot fail. */
void ek_http_conn_soon(struct ek_http_conn *c);

/* http_exchange.c: appends a whole answer of the server's own (plain errors, OPTIONS *)
 * and moves to ANSWERED. Errors: EK_ENOMEM. */
int ek_http_answer_self(struct ek_http_conn *c, int code,
                        const char *reason) EK_MUST_USE;

#endif
