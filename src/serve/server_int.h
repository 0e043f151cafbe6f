/* server_int.h - the inside of the server: server.c owns the loop and the stop, route.c
 * answers what needs no engine, call.c carries completions, access.c logs them. All on
 * the loop's thread.
 */
#ifndef EVENKEEL_SERVE_SERVER_INT_H
#define EVENKEEL_SERVE_SERVER_INT_H

#include "serve/answer.h"
#include "serve/job.h"
#include "serve/metrics.h"
#include "serve/server.h"
#include "serve/worker.h"

#include <evenkeel/session.h>

struct ek_call;

struct ek_server {
    struct ek_server_options o;
    struct ek_runtime *rt; /* borrowed */
    int64_t created_s;     /* wall clock of the start, seconds since 1970 */
    struct ek_job_model model;
    struct ek_loop *loop;
    struct ek_http_server *http;
    struct ek_worker *worker;
    struct ek_timer tick; /* runs while there are calls */
    struct ek_metrics metrics;
    struct ek_orca *orca;       /* owned: the tracker's reports over HTTP/2 */
    struct ek_tracker *tracker; /* owned: a session is a call */
    int seats, kv_pages;        /* its resources */
    struct ek_call *calls;      /* doubly linked */
    int32_t n_calls;
    bool is_draining;
    bool is_forced; /* calls under way were cancelled */
    int64_t drain_until_us;
    struct ek_watch stops; /* eventfd that counts ek_server_stop calls */
    uint64_t next_id;      /* of answers, mixed with id_salt */
    uint64_t id_salt;
    int64_t arrived_us; /* when the request came that is being routed */
};

/* What one choice has said so far. */
struct ek_call_choice {
    struct ek_buf text;   /* whole answers: everything */
    struct ek_buf tokens; /* of struct ek_token */
    struct ek_buf top;    /* of struct ek_logprob */
    uint64_t text_offset; /* streams: characters sent */
    int32_t n_generated;
    enum ek_finish finish;
    int32_t stop_id;
    int32_t stop_string;
    bool has_begun;  /* streams: the first chunk was sent */
    int64_t last_us; /* when the latest news came */
};

/* One completion request. Freed when the engine has let go of all its jobs and the
 * exchange is closed. */
struct ek_call {
    struct ek_server *server;
    struct ek_http_exchange *x; /* NULL once closed */
    struct ek_call *prev, *next;
    struct ek_session session;
    struct ek_arena arena; /* lists of params */
    struct ek_api_params params;
    struct ek_job *jobs; /* (n_jobs) owned */
    int32_t n_jobs;
    int32_t n_open;                 /* jobs the engine still has */
    struct ek_call_choice *choices; /* (n_jobs * n) owned */
    struct ek_answer_head head;
    struct ek_answer_usage usage;
    char id[EK_API_REQUEST_ID_MAX + 17];
    struct ek_buf out;
    int status;        /* HTTP status that was sent; 0: none yet */
    bool has_begun;    /* a streamed answer was begun */
    bool has_answered; /* nothing more may be sent */
    bool is_cancelled;
    int64_t start_us;
    int64_t sent_us; /* latest bytes of a stream */
};

/* route.c */
void ek_route(struct ek_server *s, struct ek_http_exchange *x);

/* Answers x with a body or an error, names it in X-Request-Id, counts and logs it (a
 * call's line is written when it is over). A failure closes the connection. */
void ek_reply(struct ek_server *s, struct ek_http_exchange *x, int code,
              const char *type, const void *body, size_t n);
void ek_reply_error(struct ek_server *s, struct ek_http_exchange *x, int code,
                    const char *param, const char *message);
void ek_reply_api_error(struct ek_server *s, struct ek_http_exchange *x,
                        const struct ek_api_error *e);

/* Headers of every answer: CORS, and the load where the request asks for it. */
int ek_add_common_headers(const struct ek_server *s,
                          struct ek_http_exchange *x) EK_MUST_USE;

/* access.c: the line of a request that the loop answered by itself, of a call whose
 * jobs are all over, of bytes that were no request. Reading that went well is debug. */
void ek_access_reply(const struct ek_server *s, const struct ek_http_request *r,
                     const char *id, int code);
void ek_access_call(const struct ek_call *c);
void ek_access_bad(int code, const char *reason);

/* load.c. Errors: EK_ENOMEM; put: EK_ELIMIT. */
int ek_load_start(struct ek_server *s, struct ek_err *err) EK_MUST_USE;
int ek_load_put(const struct ek_server *s, enum ek_tracker_encoding e, char *out,
                size_t size, size_t *n) EK_MUST_USE;
int ek_load_add_header(const struct ek_server *s,
                       struct ek_http_exchange *x) EK_MUST_USE;

/* call.c */
void ek_call_start(struct ek_server *s, struct ek_http_exchange *x,
                   enum ek_api_kind kind);
void ek_call_on_delta(struct ek_server *s, struct ek_delta *delta);
void ek_call_on_closed(struct ek_call *call); /* frees it, or cancels what runs */
void ek_call_on_tick(struct ek_call *call, int64_t now_us);
void ek_call_cancel(struct ek_call *call);

#endif
