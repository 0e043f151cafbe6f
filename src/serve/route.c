/* route.c - which path is whose; everything that the loop answers by itself. */
#include "base/clock.h"
#include "net/static.h"
#include "serve/server_int.h"

#include <stdio.h>
#include <string.h>

#define JSON "application/json"

/* ---- replies ---- */

int ek_add_common_headers(const struct ek_server *s, struct ek_http_exchange *x)
{
    int rc = ek_load_add_header(s, x);
    if (rc || !s->o.cors)
        return rc;
    rc = ek_http_add_header(x, "Access-Control-Allow-Origin", s->o.cors);
    if (!rc && strcmp(s->o.cors, "*") != 0)
        rc = ek_http_add_header(x, "Vary", "Origin");
    return rc;
}

void ek_reply(struct ek_server *s, struct ek_http_exchange *x, int code,
              const char *type, const void *body, size_t n)
{
    struct ek_call *call = ek_http_get_user(x);
    char own[80];
    const char *id = call ? call->id : own;
    s->metrics.answers[code]++;
    if (call) {
        call->status = code;
    } else {
        snprintf(own, sizeof own, "req-%016llx%08llx", (unsigned long long)s->id_salt,
                 (unsigned long long)s->next_id++);
        ek_access_reply(s, ek_http_get_request(x), id, code);
    }
    int rc = ek_add_common_headers(s, x);
    if (!rc)
        rc = ek_http_add_header(x, "X-Request-Id", id);
    if (!rc)
        rc = ek_http_respond(x, code, type, body, n);
    if (rc)
        ek_http_abort(x);
}

void ek_reply_error(struct ek_server *s, struct ek_http_exchange *x, int code,
                    const char *param, const char *message)
{
    struct ek_buf body;
    ek_buf_init(&body, 1 << 16);
    int rc = 0;
    if (code == 429 || code == 503)
        rc = ek_http_add_header(x, "Retry-After", "1");
    if (!rc && code == 401)
        rc = ek_http_add_header(x, "WWW-Authenticate", "Bearer");
    if (!rc)
        rc = ek_api_write_error(&body, code, param, message);
    if (rc)
        ek_http_abort(x);
    else
        ek_reply(s, x, code, JSON, body.data, body.len);
    ek_buf_release(&body);
}

void ek_reply_api_error(struct ek_server *s, struct ek_http_exchange *x,
                        const struct ek_api_error *e)
{
    ek_reply_error(s, x, e->http, e->param, e->err.text);
}

/* Sends what `write` put together. */
static void reply_out(struct ek_server *s, struct ek_http_exchange *x, struct ek_out *o,
                      const char *type)
{
    if (o->rc)
        ek_reply_error(s, x, 500, "", "the server is out of memory");
    else
        ek_reply(s, x, 200, type, o->buf->data, o->buf->len);
    ek_buf_release(o->buf);
}

/* ---- endpoints ---- */

static void get_health(struct ek_server *s, struct ek_http_exchange *x)
{
    if (s->is_draining)
        ek_reply_error(s, x, 503, "", "the server is stopping");
    else
        ek_reply(s, x, 200, JSON, "{\"status\":\"ok\"}", 15);
}

static void get_version(struct ek_server *s, struct ek_http_exchange *x)
{
    static const char body[] = "{\"version\":\"" EK_VERSION "\"}";
    ek_reply(s, x, 200, JSON, body, sizeof body - 1);
}

static void put_model(struct ek_out *o, const struct ek_server *s)
{
    const char *id = s->o.model_id;
    ek_out_str(o, "{\"id\":");
    ek_out_json(o, id, strlen(id));
    ek_out_printf(o,
                  ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"evenkeel\",",
                  (long long)s->created_s);
    ek_out_str(o, "\"root\":");
    ek_out_json(o, id, strlen(id));
    ek_out_printf(o, ",\"parent\":null,\"max_model_len\":%d}", s->rt->ctx);
}

static void get_models(struct ek_server *s, struct ek_http_exchange *x)
{
    struct ek_buf body;
    ek_buf_init(&body, 1 << 16);
    struct ek_out o = {&body, 0};
    ek_out_str(&o, "{\"object\":\"list\",\"data\":[");
    put_model(&o, s);
    ek_out_str(&o, "]}");
    reply_out(s, x, &o, JSON);
}

static void get_model(struct ek_server *s, struct ek_http_exchange *x)
{
    const char *id = ek_http_get_request(x)->path + strlen("/v1/models/");
    struct ek_api_error e;
    if (ek_job_check_model(&s->model, *id ? id : "?", &e)) {
        ek_reply_api_error(s, x, &e);
        return;
    }
    struct ek_buf body;
    ek_buf_init(&body, 1 << 16);
    struct ek_out o = {&body, 0};
    put_model(&o, s);
    reply_out(s, x, &o, JSON);
}

static void get_metrics(struct ek_server *s, struct ek_http_exchange *x)
{
    struct ek_buf body;
    ek_buf_init(&body, 1 << 20);
    struct ek_out o = {&body, 0};
    struct ek_metrics_now now = {
        .engine = ek_worker_stats(s->worker),
        .n_choices = ek_worker_choices(s->worker),
        .n_connections = ek_http_server_connections(s->http),
        .model = s->o.model_id,
        .kv_dtype = ek_dtype_name(s->rt->kv.dtype),
        .ctx = s->rt->ctx,
        .max_seqs = s->rt->engine_options.max_seqs,
    };
    ek_metrics_write(&o, &s->metrics, &now);
    char load[EK_TRACKER_ENCODED_MAX];
    size_t n;
    if (!ek_load_put(s, EK_TRACKER_PROMETHEUS, load, sizeof load, &n))
        ek_out_str(&o, load);
    reply_out(s, x, &o, "text/plain; version=0.0.4; charset=utf-8");
}

static void get_load(struct ek_server *s, struct ek_http_exchange *x)
{
    char load[EK_TRACKER_ENCODED_MAX];
    size_t n;
    if (ek_load_put(s, EK_TRACKER_JSON, load, sizeof load, &n))
        ek_reply_error(s, x, 500, "", "the load could not be written");
    else
        ek_reply(s, x, 200, JSON, load, n);
}

/* The member, or NULL when it is absent or null. */
static json_t *member(const json_t *root, const char *name)
{
    json_t *v = json_object_get(root, name);
    return json_is_null(v) ? NULL : v;
}

static int check_model(const struct ek_job_model *m, const json_t *root,
                       struct ek_api_error *e)
{
    const char *name = NULL;
    int rc = ek_api_read_string(&name, root, "model", e);
    return rc ? rc : ek_job_check_model(m, name, e);
}

static int read_flag(const json_t *root, const char *name, bool *flag,
                     struct ek_api_error *e)
{
    const json_t *v = member(root, name);
    if (v && !json_is_boolean(v))
        return ek_api_fail(e, 400, name, "%s: expected true or false", name);
    if (json_is_boolean(v))
        *flag = json_is_true(v);
    return 0;
}

/* {prompt} or {messages} -> ids. */
static int tokenize(struct ek_ids *ids, bool *with_strings,
                    const struct ek_job_model *m, json_t *root, struct ek_api_error *e)
{
    struct ek_api_params p = {
        .kind = EK_API_CHAT, .add_generation_prompt = true, .add_special_tokens = true};
    const json_t *prompt = member(root, "prompt");
    p.messages = member(root, "messages");
    int rc = check_model(m, root, e);
    if (!rc)
        rc = read_flag(root, "add_special_tokens", &p.add_special_tokens, e);
    if (!rc)
        rc = read_flag(root, "add_generation_prompt", &p.add_generation_prompt, e);
    if (!rc)
        rc = read_flag(root, "return_token_strs", with_strings, e);
    if (rc)
        return rc;
    if (p.messages) {
        rc = ek_api_check_messages(p.messages, e);
        return rc ? rc : ek_job_chat_tokens(ids, m, &p, e);
    }
    if (!json_is_string(prompt))
        return ek_api_fail(e, 400, "prompt", "prompt: expected a string (or messages)");
    struct ek_str text = {json_string_value(prompt), json_string_length(prompt)};
    return ek_job_text_tokens(ids, m, text, p.add_special_tokens, e);
}

static void put_ids(struct ek_out *o, const struct ek_server *s,
                    const struct ek_ids *ids, bool with_strings)
{
    ek_out_printf(o, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", ids->n,
                  s->rt->ctx);
    for (size_t i = 0; i < ids->n; i++)
        ek_out_printf(o, "%s%d", i ? "," : "", ids->ids[i]);
    ek_out_str(o, "],\"token_strs\":");
    for (size_t i = 0; with_strings && i < ids->n; i++) {
        struct ek_str piece = ek_tokenizer_piece(s->rt->tokenizer, ids->ids[i], true);
        ek_out_str(o, i ? "," : "[");
        ek_out_json(o, piece.n ? piece.p : "", piece.n);
    }
    ek_out_str(o, !with_strings ? "null" : ids->n ? "]" : "[]");
    ek_out_str(o, "}");
}

static void post_tokenize(struct ek_server *s, struct ek_http_exchange *x)
{
    const struct ek_http_request *r = ek_http_get_request(x);
    struct ek_api_error e;
    struct ek_ids ids;
    bool with_strings = false;
    json_t *root = NULL;
    ek_ids_init(&ids, EK_API_BODY_BYTES_MAX);
    int rc = ek_api_object(&root, r->body, r->body_n, &e);
    if (!rc)
        rc = tokenize(&ids, &with_strings, &s->model, root, &e);
    if (rc) {
        ek_reply_api_error(s, x, &e);
    } else {
        struct ek_buf body;
        ek_buf_init(&body, 16 * EK_API_BODY_BYTES_MAX);
        struct ek_out o = {&body, 0};
        put_ids(&o, s, &ids, with_strings);
        reply_out(s, x, &o, JSON);
    }
    json_decref(root);
    ek_ids_release(&ids);
}

/* {tokens} -> text. */
static int detokenize(struct ek_buf *text, const struct ek_job_model *m,
                      const json_t *root, struct ek_api_error *e)
{
    const json_t *tokens = json_object_get(root, "tokens");
    struct ek_ids ids;
    ek_ids_init(&ids, EK_API_VALUES_MAX);
    int rc = check_model(m, root, e);
    if (!rc && !json_is_array(tokens))
        rc = ek_api_fail(e, 400, "tokens", "tokens: expected a list of token ids");
    for (size_t i = 0; !rc && i < json_array_size(tokens); i++) {
        const json_t *id = json_array_get(tokens, i);
        char what[64];
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= m->rt->engine_model.V)
            rc = ek_api_fail(e, 400, "tokens",
                             "tokens: expected ids from 0 to %d, got %s",
                             m->rt->engine_model.V - 1, ek_api_describe(what, id));
        else if (ek_ids_add(&ids, (int32_t)json_integer_value(id)))
            rc = ek_api_fail(e, 500, "", "the server is out of memory");
    }
    if (!rc && ek_tokenizer_decode(m->rt->tokenizer, text, ids.ids, ids.n, true))
        rc = ek_api_fail(e, 400, "tokens", "tokens: the text is over the limit of %zu",
                         text->max);
    ek_ids_release(&ids);
    return rc;
}

static void post_detokenize(struct ek_server *s, struct ek_http_exchange *x)
{
    const struct ek_http_request *r = ek_http_get_request(x);
    struct ek_api_error e;
    struct ek_buf text, body;
    json_t *root = NULL;
    ek_buf_init(&text, 4 * EK_API_BODY_BYTES_MAX);
    ek_buf_init(&body, 32 * EK_API_BODY_BYTES_MAX);
    int rc = ek_api_object(&root, r->body, r->body_n, &e);
    if (!rc)
        rc = detokenize(&text, &s->model, root, &e);
    if (rc) {
        ek_reply_api_error(s, x, &e);
    } else {
        struct ek_out o = {&body, 0};
        ek_out_str(&o, "{\"prompt\":");
        ek_out_json(&o, text.len ? text.data : "", text.len);
        ek_out_str(&o, "}");
        reply_out(s, x, &o, JSON);
    }
    json_decref(root);
    ek_buf_release(&text);
}

static void post_chat(struct ek_server *s, struct ek_http_exchange *x)
{
    ek_call_start(s, x, EK_API_CHAT);
}

static void post_completion(struct ek_server *s, struct ek_http_exchange *x)
{
    ek_call_start(s, x, EK_API_COMPLETION);
}

/* ---- routes ---- */

struct route {
    const char *path; /* ends with '/': a prefix */
    const char *method;
    const char *allow;
    bool needs_key;
    void (*run)(struct ek_server *s, struct ek_http_exchange *x);
};

static const struct route routes[] = {
    {"/v1/chat/completions", "POST", "POST, OPTIONS", true, post_chat},
    {"/v1/completions", "POST", "POST, OPTIONS", true, post_completion},
    {"/v1/models", "GET", "GET, HEAD, OPTIONS", true, get_models},
    {"/v1/models/", "GET", "GET, HEAD, OPTIONS", true, get_model},
    {"/tokenize", "POST", "POST, OPTIONS", true, post_tokenize},
    {"/detokenize", "POST", "POST, OPTIONS", true, post_detokenize},
    {"/metrics", "GET", "GET, HEAD, OPTIONS", true, get_metrics},
    {"/load", "GET", "GET, HEAD, OPTIONS", true, get_load},
    {"/version", "GET", "GET, HEAD, OPTIONS", false, get_version},
    {"/health", "GET", "GET, HEAD, OPTIONS", false, get_health},
    {"/ping", "GET", "GET, HEAD, OPTIONS", false, get_health},
};

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        size_t n = strlen(routes[i].path);
        bool is_prefix = routes[i].path[n - 1] == '/';
        if (is_prefix ? !strncmp(path, routes[i].path, n) && path[n]
                      : !strcmp(path, routes[i].path))
            return &routes[i];
    }
    return NULL;
}

static void send_static(struct ek_server *s, struct ek_http_exchange *x,
                        const struct ek_static_file *f)
{
    if (ek_static_add_headers(x))
        ek_http_abort(x);
    else
        ek_reply(s, x, 200, f->type, f->data, f->n);
}

static void send_options(struct ek_server *s, struct ek_http_exchange *x,
                         const char *allow)
{
    int rc = ek_http_add_header(x, "Allow", allow);
    if (!rc && s->o.cors) {
        rc = ek_http_add_header(x, "Access-Control-Allow-Methods", allow);
        if (!rc)
            rc = ek_http_add_header(x, "Access-Control-Allow-Headers",
                                    "Authorization, *");
        if (!rc)
            rc = ek_http_add_header(x, "Access-Control-Max-Age", "600");
    }
    if (rc)
        ek_http_abort(x);
    else
        ek_reply(s, x, 204, NULL, "", 0);
}

static void wrong_method(struct ek_server *s, struct ek_http_exchange *x,
                         const char *allow)
{
    char message[160];
    const struct ek_http_request *r = ek_http_get_request(x);
    snprintf(message, sizeof message, "%.20s is not allowed here; allowed: %s",
             r->method, allow);
    if (ek_http_add_header(x, "Allow", allow))
        ek_http_abort(x);
    else
        ek_reply_error(s, x, 405, "", message);
}

static bool is_get(const char *method)
{
    return !strcmp(method, "GET") || !strcmp(method, "HEAD");
}

void ek_route(struct ek_server *s, struct ek_http_exchange *x)
{
    const struct ek_http_request *r = ek_http_get_request(x);
    const struct route *route = find_route(r->path);
    const struct ek_static_file *file =
        route ? NULL : ek_static_find(ek_chat_files, r->path);
    const char *allow = route ? route->allow : "GET, HEAD, OPTIONS";
    if (!route && !file) {
        char message[256];
        snprintf(message, sizeof message, "there is nothing at %.200s", r->path);
        ek_reply_error(s, x, 404, "", message);
    } else if (!strcmp(r->method, "OPTIONS")) {
        send_options(s, x, allow);
    } else if (is_get(r->method) ? route && strcmp(route->method, "GET") != 0
                                 : !route || strcmp(route->method, r->method) != 0) {
        wrong_method(s, x, allow);
    } else if (file) {
        send_static(s, x, file);
    } else if (route->needs_key &&
               !ek_auth_allows(s->o.auth, ek_http_header_get(r, "authorization"))) {
        ek_reply_error(s, x, 401, "", "the API key is missing or wrong");
    } else {
        route->run(s, x);
    }
}
