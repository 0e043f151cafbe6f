/* chat_remote.c - answers from an OpenAI-compatible server, by libcurl. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/chat.h"

#include <curl/curl.h>
#include <string.h>

#define BODY_MAX ((size_t)64 << 20)

struct remote {
    const struct ek_chat_options *o; /* borrowed from the verb */
    CURL *curl;
    char url[1024];  /* base, without a slash at the end */
    char model[256]; /* id sent with each request */
};

/* One answer under way; curl calls back with it. */
struct transfer {
    CURL *curl;
    struct ek_chat_sink *sink; /* NULL: the body is only collected */
    struct ek_buf body; /* bytes not yet understood: a partial event, or an error */
    int64_t start_us;
    int rc; /* first failure inside a callback */
    struct ek_err *err;
};

static void take_usage(struct ek_chat_sink *sink, const json_t *event)
{
    const json_t *usage = json_object_get(event, "usage");
    if (!json_is_object(usage))
        return;
    sink->n_prompt = json_integer_value(json_object_get(usage, "prompt_tokens"));
    sink->n_answer = json_integer_value(json_object_get(usage, "completion_tokens"));
}

static int take_event(struct transfer *t, const char *data, size_t n)
{
    json_t *event = NULL;
    int rc = ek_json_parse(&event, data, n, NULL, t->err);
    if (rc)
        return rc;
    const json_t *error = json_object_get(event, "error");
    if (error) {
        const char *text = json_string_value(json_object_get(error, "message"));
        rc = ek_err_set(t->err, EK_EIO, "%s",
                        text ? text : "the server reports an error");
        goto out;
    }
    take_usage(t->sink, event);
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *content =
        json_object_get(json_object_get(choice, "delta"), "content");
    const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
    if (reason)
        t->sink->is_cut = strcmp(reason, "length") == 0;
    if (json_string_length(content) > 0) {
        if (t->sink->first_us == 0)
            t->sink->first_us = ek_clock_us() - t->start_us;
        t->sink->on_text(t->sink->arg, json_string_value(content),
                         json_string_length(content));
    }
out:
    json_decref(event);
    return rc;
}

/* Takes every whole line of the body that is a `data:` line. */
static int take_lines(struct transfer *t)
{
    size_t at = 0;
    int rc = 0;
    for (;;) {
        const char *line = t->body.data + at;
        const char *end = memchr(line, '\n', t->body.len - at);
        if (!end || rc)
            break;
        size_t n = (size_t)(end - line);
        at += n + 1;
        if (n > 0 && line[n - 1] == '\r')
            n--;
        if (n < 5 || memcmp(line, "data:", 5) != 0)
            continue;
        line += 5;
        n -= 5;
        if (n > 0 && *line == ' ') {
            line++;
            n--;
        }
        if (n == 6 && memcmp(line, "[DONE]", 6) == 0)
            continue;
        rc = take_event(t, line, n);
    }
    ek_buf_consume(&t->body, at);
    return rc;
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    long code = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    t->rc = ek_buf_add(&t->body, p, size * n);
    if (!t->rc && t->sink && code == 200)
        t->rc = take_lines(t);
    return t->rc ? 0 : size * n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c,
                       curl_off_t d)
{
    const struct transfer *t = arg;
    (void)a, (void)b, (void)c, (void)d;
    return t->sink && t->sink->is_stopped && t->sink->is_stopped();
}

/* The sentence for a transfer that did not yield 200. */
static int explain(struct transfer *t, CURLcode code, const char *url)
{
    if (t->rc)
        return t->err && t->err->text[0]
                   ? t->rc
                   : ek_err_set(t->err, t->rc, "%s: %s", url, ek_status_text(t->rc));
    if (code != CURLE_OK)
        return ek_err_set(t->err, EK_EIO, "%s: %s", url, curl_easy_strerror(code));
    long http = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &http);
    json_t *body = NULL;
    const char *text = NULL;
    if (t->body.len > 0 && !ek_json_parse(&body, t->body.data, t->body.len, NULL, NULL))
        text = json_string_value(
            json_object_get(json_object_get(body, "error"), "message"));
    int rc = text
                 ? ek_err_set(t->err, EK_EIO, "%s", text)
                 : ek_err_set(t->err, EK_EIO, "%s: the server answered %ld", url, http);
    json_decref(body);
    return rc;
}

/* GET (body NULL) or POST of JSON; the answer goes to t. */
static int perform(struct remote *r, struct transfer *t, const char *path,
                   const char *body)
{
    char url[1200], auth[4096];
    snprintf(url, sizeof url, "%s%s", r->url, path);
    struct curl_slist *headers = NULL;
    headers = curl_slist_append(headers, "Content-Type: application/json");
    if (r->o->api_key) {
        snprintf(auth, sizeof auth, "Authorization: Bearer %s", r->o->api_key);
        headers = curl_slist_append(headers, auth);
    }
    curl_easy_reset(r->curl);
    curl_easy_setopt(r->curl, CURLOPT_URL, url);
    curl_easy_setopt(r->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(r->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(r->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(r->curl, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(r->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(r->curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(r->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(r->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(r->curl, CURLOPT_XFERINFODATA, t);
    if (body)
        curl_easy_setopt(r->curl, CURLOPT_POSTFIELDS, body);
    t->curl = r->curl;
    t->start_us = ek_clock_us();
    CURLcode code = curl_easy_perform(r->curl);
    curl_slist_free_all(headers);
    if (code == CURLE_ABORTED_BY_CALLBACK && !t->rc)
        return 0; /* the person stopped the answer */
    long http = 0;
    curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &http);
    if (code == CURLE_OK && http == 200 && !t->rc)
        return 0;
    return explain(t, code, url);
}

static int set_number(json_t *body, const char *key, double v)
{
    return json_object_set_new(body, key, json_real(v)) ? EK_ENOMEM : 0;
}

static int set_integer(json_t *body, const char *key, int64_t v)
{
    if (v < 0)
        return 0;
    return json_object_set_new(body, key, json_integer(v)) ? EK_ENOMEM : 0;
}

/* The request as text (ek_free is jansson's free), or NULL without memory. */
static char *request_text(const struct remote *r, const json_t *messages)
{
    json_t *body =
        json_pack("{s:s, s:O, s:b, s:{s:b}}", "model", r->model, "messages", messages,
                  "stream", 1, "stream_options", "include_usage", 1);
    char *text = NULL;
    const struct ek_sampling_settings *how = &r->o->sampling;
    if (!body || set_integer(body, "max_tokens", how->max_tokens) ||
        set_integer(body, "top_k", how->top_k) ||
        set_integer(body, "seed", how->seed) ||
        set_number(body, "temperature", how->temperature) ||
        set_number(body, "top_p", how->top_p) || set_number(body, "min_p", how->min_p))
        goto out;
    text = json_dumps(body, JSON_COMPACT);
out:
    json_decref(body);
    return text;
}

static int remote_answer(void *ctx, const json_t *messages, struct ek_chat_sink *sink,
                         struct ek_err *err)
{
    struct remote *r = ctx;
    json_malloc_t json_alloc;
    json_free_t json_release;
    json_get_alloc_funcs(&json_alloc, &json_release);
    char *text = request_text(r, messages);
    if (!text)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    struct transfer t = {.sink = sink, .err = err};
    ek_buf_init(&t.body, BODY_MAX);
    int rc = perform(r, &t, "/v1/chat/completions", text);
    sink->total_us = ek_clock_us() - t.start_us;
    ek_buf_release(&t.body);
    json_release(text);
    return rc;
}

static void remote_close(void *ctx)
{
    struct remote *r = ctx;
    curl_easy_cleanup(r->curl);
    ek_free(r);
    curl_global_cleanup();
}

/* Fills r->model: the one asked for, or the first the server lists. */
static int find_model(struct remote *r, struct ek_err *err)
{
    struct transfer t = {.err = err};
    json_t *list = NULL;
    ek_buf_init(&t.body, BODY_MAX);
    int rc = perform(r, &t, "/v1/models", NULL);
    if (!rc)
        rc = ek_json_parse(&list, t.body.data, t.body.len, NULL, err);
    if (rc)
        goto out;
    const char *id = r->o->model_name;
    if (!id)
        id = json_string_value(
            json_object_get(json_array_get(json_object_get(list, "data"), 0), "id"));
    if (!id)
        rc = ek_err_set(err, EK_EFORMAT, "%s/v1/models: lists no model", r->url);
    else
        snprintf(r->model, sizeof r->model, "%s", id);
out:
    json_decref(list);
    ek_buf_release(&t.body);
    return rc;
}

int ek_chat_remote_open(struct ek_chat_backend *b, const struct ek_chat_options *o,
                        struct ek_err *err)
{
    size_t n = strlen(o->url);
    while (n > 0 && o->url[n - 1] == '/')
        n--;
    if (n >= 3 && memcmp(o->url + n - 3, "/v1", 3) == 0)
        n -= 3;
    struct remote *r = ek_calloc(1, sizeof *r);
    if (!r)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    snprintf(r->url, sizeof r->url, "%.*s", (int)n, o->url);
    r->o = o;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    r->curl = curl_easy_init();
    int rc = r->curl ? find_model(r, err) : ek_err_set(err, EK_ENOMEM, "out of memory");
    if (rc) {
        remote_close(r);
        return rc;
    }
    *b = (struct ek_chat_backend){
        .ctx = r, .answer = remote_answer, .close = remote_close};
    snprintf(b->name, sizeof b->name, "%s", r->model);
    return 0;
}
