#include "load/client.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS 10000L
#define URL_MAX            1024

struct ek_client {
    struct ek_client_options o; /* its strings are borrowed */
    struct ek_loop *loop;
    CURLM *multi;
    struct curl_slist *headers;
    struct ek_timer timer; /* what libcurl asked for */
    char url[URL_MAX];     /* without a slash at the end */
    int rc;                /* of ek_client_check */
};

/* A socket of libcurl's that the loop watches. */
struct socket_watch {
    struct ek_watch watch;
    struct ek_client *client;
};

static void finish(struct ek_call *call, CURLcode code)
{
    CURL *easy = call->easy;
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    call->status = (int)status;
    call->client = NULL;
    if (call->rc || code == CURLE_OK)
        return;
    call->rc = code == CURLE_OUT_OF_MEMORY ? EK_ENOMEM : EK_EIO;
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        call->rc = EK_ECANCELED;
        snprintf(call->why, sizeof call->why, "interrupted");
    }
    if (!call->why[0])
        snprintf(call->why, sizeof call->why, "%s",
                 call->curl_text[0] ? call->curl_text : curl_easy_strerror(code));
}

/* on_end may begin calls, so none is in a list of ours here. */
static void reap(struct ek_client *c)
{
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(c->multi, &left)) != NULL) {
        if (m->msg != CURLMSG_DONE)
            continue;
        CURL *easy = m->easy_handle;
        CURLcode code = m->data.result;
        struct ek_call *call = NULL;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&call);
        curl_multi_remove_handle(c->multi, easy);
        finish(call, code);
        call->on_end(call);
    }
}

static void on_socket_ready(struct ek_watch *w, int events)
{
    struct socket_watch *s = w->owner;
    struct ek_client *c = s->client;
    if (c->rc) {
        ek_watch_stop(w);
        return;
    }
    int mask = (events & EK_READABLE ? CURL_CSELECT_IN : 0) |
               (events & EK_WRITABLE ? CURL_CSELECT_OUT : 0);
    if (events & EK_HANGUP)
        mask |= CURL_CSELECT_IN; /* reading tells libcurl what happened */
    int running;
    curl_multi_socket_action(c->multi, w->fd, mask, &running);
    reap(c);
}

static void on_timer(struct ek_timer *t)
{
    struct ek_client *c = t->owner;
    int running;
    if (c->rc)
        return;
    curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    reap(c);
}

static int set_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct ek_client *c = arg;
    (void)multi;
    if (timeout_ms < 0) {
        ek_timer_stop(&c->timer);
        return 0;
    }
    if (ek_timer_start(&c->timer, (int64_t)timeout_ms * 1000))
        c->rc = EK_ENOMEM;
    return 0; /* see ek_client_check; libcurl 7.88 crashes after a -1 */
}

static int watch_socket(struct ek_client *c, curl_socket_t fd, int interest)
{
    struct socket_watch *s = ek_calloc(1, sizeof *s);
    if (!s)
        return EK_ENOMEM;
    *s = (struct socket_watch){
        .watch = {.fd = fd, .on_ready = on_socket_ready, .owner = s}, .client = c};
    int rc = ek_watch_start(c->loop, &s->watch, interest);
    if (rc)
        ek_free(s);
    else
        curl_multi_assign(c->multi, fd, s);
    return rc;
}

static int set_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *of_fd)
{
    struct ek_client *c = arg;
    struct socket_watch *s = of_fd;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (s)
            ek_watch_stop(&s->watch);
        ek_free(s);
        curl_multi_assign(c->multi, fd, NULL);
        return 0;
    }
    int interest = (what & CURL_POLL_IN ? EK_READABLE : 0) |
                   (what & CURL_POLL_OUT ? EK_WRITABLE : 0);
    int rc = s ? ek_watch_change(&s->watch, interest) : watch_socket(c, fd, interest);
    if (rc)
        c->rc = rc;
    return 0; /* as above */
}

/* The base URL: what people paste often ends in a slash or in /v1. */
static int take_url(struct ek_client *c, const char *url, struct ek_err *err)
{
    size_t n = strlen(url);
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return ek_err_set(err, EK_EINVAL,
                          "'%.200s' is no URL, expected http://HOST:PORT or "
                          "https://HOST:PORT",
                          url);
    while (n > 0 && url[n - 1] == '/')
        n--;
    if (n >= 3 && !memcmp(url + n - 3, "/v1", 3))
        n -= 3;
    if (n >= sizeof c->url)
        return ek_err_set(err, EK_EINVAL, "the URL is longer than %d bytes",
                          URL_MAX - 1);
    memcpy(c->url, url, n);
    return 0;
}

/* Appends to *list; curl's list is left alone when memory runs out. */
static bool add_header(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer)
        *list = longer;
    return longer != NULL;
}

static int take_headers(struct ek_client *c)
{
    char auth[4096];
    bool is_good =
        add_header(&c->headers, "Content-Type: application/json") &&
        add_header(&c->headers, "Accept: text/event-stream, */*") &&
        add_header(&c->headers, "Expect:"); /* a long prompt waits for none */
    if (is_good && c->o.api_key) {
        snprintf(auth, sizeof auth, "Authorization: Bearer %s", c->o.api_key);
        is_good = add_header(&c->headers, auth);
    }
    return is_good ? 0 : EK_ENOMEM;
}

static void set_multi(struct ek_client *c)
{
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)c->o.max_kept);
    curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
}

int ek_client_new(struct ek_client **client, struct ek_loop *loop,
                  const struct ek_client_options *o, struct ek_err *err)
{
    struct ek_client *c = ek_calloc(1, sizeof *c);
    if (!c)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    c->o = *o;
    c->loop = loop;
    ek_timer_init(&c->timer, loop, on_timer, c);
    int rc = take_url(c, o->url, err);
    if (!rc && (curl_global_init(CURL_GLOBAL_DEFAULT) ||
                !(c->multi = curl_multi_init()) || take_headers(c)))
        rc = ek_err_set(err, EK_ENOMEM, "out of memory");
    if (rc) {
        ek_client_free(c);
        return rc;
    }
    set_multi(c);
    *client = c;
    return 0;
}

void ek_client_free(struct ek_client *c)
{
    if (!c)
        return;
    if (c->multi)
        curl_multi_cleanup(c->multi);
    curl_slist_free_all(c->headers);
    ek_timer_stop(&c->timer);
    ek_free(c);
}

int ek_client_check(const struct ek_client *c)
{
    return c->rc;
}

const char *ek_client_url(const struct ek_client *c)
{
    return c->url;
}

/* Keeps what fits: an error's sentence stands at the beginning. */
static int keep(struct ek_call *call, const char *p, size_t n)
{
    size_t room = call->answer.max - call->answer.len;
    if (call->status == 200 && n > room)
        return EK_ELIMIT;
    return ek_buf_add(&call->answer, p, n < room ? n : room);
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
    struct ek_call *call = arg;
    int64_t now_us = ek_clock_us();
    if (call->status == 0) {
        long status = 0;
        curl_easy_getinfo((CURL *)call->easy, CURLINFO_RESPONSE_CODE, &status);
        call->status = (int)status;
    }
    int rc;
    if (call->status == 200 && call->on_data)
        rc = call->on_data(call, p, size * n, now_us) ? EK_ECANCELED : 0;
    else
        rc = keep(call, p, size * n);
    if (rc && !call->why[0])
        snprintf(call->why, sizeof call->why, "the answer's body: %s",
                 ek_status_text(rc));
    call->rc = rc;
    return rc ? 0 : size * n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c,
                       curl_off_t d)
{
    const struct ek_client *client = arg;
    (void)a, (void)b, (void)c, (void)d;
    return client->o.is_stopped && client->o.is_stopped();
}

int ek_call_init(struct ek_call *call)
{
    *call = (struct ek_call){0};
    ek_buf_init(&call->answer, EK_CALL_BODY_MAX);
    call->easy = curl_easy_init();
    return call->easy ? 0 : EK_ENOMEM;
}

void ek_call_release(struct ek_call *call)
{
    ek_client_cancel(call);
    if (call->easy)
        curl_easy_cleanup(call->easy);
    ek_buf_release(&call->answer);
    *call = (struct ek_call){0};
}

static bool set_request(struct ek_client *c, struct ek_call *call)
{
    char url[URL_MAX + 128];
    CURL *e = call->easy;
    call->status = call->rc = 0;
    call->why[0] = call->curl_text[0] = 0;
    ek_buf_reset(&call->answer);
    curl_easy_reset(e); /* its buffers stay */
    snprintf(url, sizeof url, "%s%s", c->url, call->path);
    bool is_good = curl_easy_setopt(e, CURLOPT_URL, url) == CURLE_OK &&
                   curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)c->o.timeout_ms);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(e, CURLOPT_PRIVATE, (char *)call);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, call->curl_text);
    if (c->o.ca_file)
        is_good =
            is_good && curl_easy_setopt(e, CURLOPT_CAINFO, c->o.ca_file) == CURLE_OK;
    if (call->body) {
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body->len);
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, call->body->data);
    }
    return is_good;
}

int ek_client_start(struct ek_client *c, struct ek_call *call)
{
    if (c->rc || !set_request(c, call))
        return c->rc ? c->rc : EK_ENOMEM;
    CURLMcode code = curl_multi_add_handle(c->multi, call->easy);
    if (code != CURLM_OK)
        return code == CURLM_OUT_OF_MEMORY ? EK_ENOMEM : EK_ELIMIT;
    call->client = c;
    return 0;
}

void ek_client_cancel(struct ek_call *call)
{
    if (call->client)
        curl_multi_remove_handle(call->client->multi, call->easy);
    call->client = NULL;
}

int ek_client_perform(struct ek_client *c, struct ek_call *call)
{
    if (!set_request(c, call))
        return call->rc = EK_ENOMEM;
    curl_easy_setopt((CURL *)call->easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt((CURL *)call->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt((CURL *)call->easy, CURLOPT_XFERINFODATA, c);
    CURLcode code = curl_easy_perform(call->easy);
    finish(call, code);
    return call->rc;
}

int ek_call_explain(const struct ek_call *call, struct ek_err *err)
{
    json_t *body = NULL;
    const char *text = NULL;
    if (call->rc)
        return ek_err_set(err, call->rc, "%s",
                          call->why[0] ? call->why : ek_status_text(call->rc));
    if (call->answer.len > 0 &&
        !ek_json_parse(&body, call->answer.data, call->answer.len, NULL, NULL)) {
        const json_t *error = json_object_get(body, "error");
        text = json_string_value(json_object_get(error, "message"));
        text = text ? text : json_string_value(error);
    }
    if (text)
        ek_err_set(err, EK_EIO, "status %d: %.300s", call->status, text);
    else
        ek_err_set(err, EK_EIO, "status %d", call->status);
    json_decref(body);
    return EK_EIO;
}
