/* verb_serve.c - keel serve: options to a running server and back to an exit code. */
#include "base/file.h"
#include "base/log.h"
#include "base/notify.h"
#include "cli/model.h"
#include "cli/verb.h"
#include "serve/server.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES (16u << 20)

struct settings {
    const char *listen;
    struct ek_model_settings model;
    int64_t max_seqs;
    int64_t max_queue;
    int64_t max_batch_tokens;
    int64_t prefill_chunk;
    int64_t itl_target;
    int64_t kv_memory;
    int64_t reserve_tokens;
    int page_check; /* as enum ek_page_check */
    int prefix_cache;
    const char *model_name;
    const char *api_key_file;
    const char *tls_cert;
    const char *tls_key;
    const char *cors;
    int64_t drain;
    int64_t request_timeout;
    int64_t keep_alive;
    int log_level;
    bool check;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "listen",
     .type = EK_OPT_STR,
     .offset = AT(listen),
     .value = "HOST:PORT",
     .fallback = "127.0.0.1:8080",
     .help =
         "address to serve on; port 0 takes a free one; unix:PATH is a socket file"},
    EK_OPT_MODEL_THREADS(AT(model)),
    EK_OPT_MODEL_CTX(AT(model)),
    {.name = "max_seqs",
     .type = EK_OPT_INT,
     .offset = AT(max_seqs),
     .value = "N",
     .fallback = "8",
     .min = 1,
     .max = 1024,
     .help = "answers computed at once"},
    {.name = "max_queue",
     .type = EK_OPT_INT,
     .offset = AT(max_queue),
     .value = "N",
     .fallback = "64",
     .min = 0,
     .max = 65536,
     .help = "answers that may wait; more requests are refused with 429"},
    {.name = "max_batch_tokens",
     .type = EK_OPT_INT,
     .offset = AT(max_batch_tokens),
     .value = "N",
     .fallback = "512",
     .min = 16,
     .max = 65536,
     .help = "tokens of one step; at least max_seqs"},
    {.name = "prefill_chunk",
     .type = EK_OPT_INT,
     .offset = AT(prefill_chunk),
     .value = "N",
     .fallback = "128",
     .min = 1,
     .max = 65536,
     .help = "prompt tokens of one request in a step, and of all of them while answers "
             "are under way: how long prompts may hold those up at most"},
    {.name = "itl_target",
     .type = EK_OPT_MS,
     .offset = AT(itl_target),
     .value = "TIME",
     .fallback = "20ms",
     .min = 0,
     .max = 60000,
     .help =
         "time between two tokens of an answer that prompts should leave: their part "
         "of a step is cut to fit, to no less than a quarter of it; a backlog of "
         "prompts of over a second cuts less; 0s: always prefill_chunk"},
    EK_OPT_MODEL_KV_DTYPE(AT(model)),
    {.name = "kv_memory",
     .type = EK_OPT_BYTES,
     .offset = AT(kv_memory),
     .value = "BYTES",
     .fallback = "0",
     .help = "memory for keys and values; 0: max_seqs full contexts, at most a quarter "
             "of the machine's"},
    {.name = "reserve_tokens",
     .type = EK_OPT_INT,
     .offset = AT(reserve_tokens),
     .value = "N",
     .fallback = "256",
     .min = 0,
     .max = 1048576,
     .help = "an answer starts when there is memory for so many more tokens of each "
             "one under way; fewer: more at once, more computed again"},
    {.name = "prefix_cache",
     .type = EK_OPT_CHOICE,
     .offset = AT(prefix_cache),
     .fallback = "on",
     .choices = "off|on",
     .help = "keep the pages of prompts and answers for requests that begin alike, "
             "until the memory is needed"},
    {.name = "page_check",
     .type = EK_OPT_CHOICE,
     .offset = AT(page_check),
     .fallback = "pages",
     .choices = "off|pages|full",
     .help = "what is compared before keys and values are read: nothing, every page's "
             "owner and state, or every token too"},
    EK_OPT_MODEL_WEIGHTS(AT(model)),
    EK_OPT_MODEL_PHASE_WEIGHTS(AT(model)),
    {.name = "model_name",
     .type = EK_OPT_STR,
     .offset = AT(model_name),
     .value = "NAME",
     .help = "the model's name for clients; otherwise the file's"},
    {.name = "api_key_file",
     .type = EK_OPT_STR,
     .offset = AT(api_key_file),
     .value = "FILE",
     .help = "keys that clients must present, one a line; EVENKEEL_API_KEY in the "
             "environment adds one"},
    {.name = "tls_cert",
     .type = EK_OPT_STR,
     .offset = AT(tls_cert),
     .value = "FILE",
     .help = "certificate chain, PEM; serves HTTPS"},
    {.name = "tls_key",
     .type = EK_OPT_STR,
     .offset = AT(tls_key),
     .value = "FILE",
     .help = "the certificate's private key, PEM"},
    {.name = "cors",
     .type = EK_OPT_STR,
     .offset = AT(cors),
     .value = "ORIGIN",
     .help = "origin whose pages may call this server, or *; otherwise none"},
    {.name = "drain",
     .type = EK_OPT_MS,
     .offset = AT(drain),
     .value = "TIME",
     .fallback = "30s",
     .min = 0,
     .max = 86400000,
     .help = "how long answers under way may take after SIGTERM or SIGINT"},
    {.name = "request_timeout",
     .type = EK_OPT_MS,
     .offset = AT(request_timeout),
     .value = "TIME",
     .fallback = "0s",
     .min = 0,
     .max = 86400000,
     .help =
         "how long an answer may take from its request's arrival, waiting included; "
         "a request's own timeout may be shorter; 0s: no limit"},
    {.name = "keep_alive",
     .type = EK_OPT_MS,
     .offset = AT(keep_alive),
     .value = "TIME",
     .fallback = "10s",
     .min = 250,
     .max = 86400000,
     .help = "how often a stream that has nothing to say yet gets a comment"},
    {.name = "log_level",
     .type = EK_OPT_CHOICE,
     .offset = AT(log_level),
     .fallback = "info",
     .choices = "error|warn|info|debug",
     .help = "what is logged on standard error"},
    {.name = "check",
     .type = EK_OPT_FLAG,
     .offset = AT(check),
     .help = "load and check everything, bind nothing, and end",
     .is_flag_only = true},
    {0},
};

static const struct ek_opt_verb table = {
    .name = "serve",
    .summary = "answer over an OpenAI-compatible HTTP API",
    .arguments = "MODEL",
    .details =
        "MODEL is a GGUF file or a Hugging Face folder. Endpoints: "
        "/v1/chat/completions, "
        "/v1/completions, /v1/models, /tokenize, /detokenize, /health, /version, "
        "/metrics, and a chat page at /.\n\n"
        "SIGTERM or SIGINT (Ctrl-C) stops it: no new requests, those under way are "
        "finished; a second signal cancels them.\n\n"
        "Exit codes: 0 stopped by SIGTERM, 130 by SIGINT, 1 failed while running (the "
        "address is taken, for one), 2 bad options, 3 the model file is bad.",
    .examples = "keel serve model.gguf\n"
                "keel serve model.gguf --listen 0.0.0.0:8080 --api-key-file keys.txt\n"
                "keel serve ./SmolLM2-135M --ctx 4096 --max-seqs 16 --kv-memory 2GiB\n"
                "curl http://127.0.0.1:8080/v1/chat/completions -d "
                "'{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

/* A signal handler has no argument of its own: the one server of this process. */
static struct ek_server *running;
static volatile sig_atomic_t last_signal;

static void on_signal(int sig)
{
    int saved = errno;
    last_signal = sig;
    if (running)
        ek_server_stop(running);
    errno = saved;
}

static void catch_signals(void)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
}

static int open_runtime(struct ek_runtime *rt, const struct settings *set,
                        const char *path, struct ek_err *err)
{
    struct ek_runtime_options o;
    ek_model_options(&o, path, &set->model);
    o.kv_memory = set->kv_memory;
    o.max_seqs = (int32_t)set->max_seqs;
    o.max_batch_tokens = (int32_t)set->max_batch_tokens;
    o.prefill_chunk = (int32_t)set->prefill_chunk;
    o.itl_target_us = set->itl_target * 1000;
    o.reserve_tokens = (int32_t)set->reserve_tokens;
    o.page_check = (enum ek_page_check)set->page_check;
    o.caches_prefixes = set->prefix_cache == 1;
    return ek_model_open(rt, &o, err);
}

/* What a client would call the model: the last part of the path, without .gguf. */
static void name_of_path(char *out, size_t cap, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    if (n - start > 5 && !memcmp(path + n - 5, ".gguf", 5))
        n -= 5;
    snprintf(out, cap, "%.*s", (int)(n - start), path + start);
}

static void say_ready(const struct ek_runtime *rt, const struct settings *set,
                      const char *id, const char *address)
{
    char kv[32], weights[32], prefill[32], crossover[256], name[256], why[EK_ERR_CAP];
    size_t page = ek_kv_page_bytes(ek_lm_get_params(rt->lm), rt->kv.dtype);
    int64_t tokens = (int64_t)rt->kv.n_pages * EK_PAGE_TOKENS;
    ek_format_bytes(kv, (uint64_t)page * (uint64_t)rt->kv.n_pages);
    ek_format_bytes(weights, ek_lm_weight_bytes(rt->lm));
    ek_format_bytes(prefill, ek_lm_prefill_bytes(rt->lm));
    bool has_host = strncmp(address, "unix:", 5) != 0;
    ek_log(EK_LOG_INFO, "ready",
           "url=%s%s%s model=\"%s\" ctx=%d weights=\"%s\" prefill_copy=\"%s\" "
           "kv=\"%s %s\" kv_tokens=%lld "
           "kv_token_bytes=%zu full_contexts=%.1f prefix_cache=%s max_seqs=%lld "
           "threads=%d isa=%s load_ms=%lld",
           has_host ? set->tls_cert ? "https://" : "http://" : "", address,
           has_host ? "/" : "", ek_log_quote(name, sizeof name, id), rt->ctx, weights,
           prefill, kv, ek_dtype_name(rt->kv.dtype), (long long)tokens,
           page / EK_PAGE_TOKENS, (double)tokens / rt->ctx,
           rt->engine_options.caches_prefixes ? "on" : "off", (long long)set->max_seqs,
           ek_team_size(rt->team), ek_isa_name(rt->ops->isa),
           (long long)(rt->load_us / 1000));
    if (*ek_model_crossover_text(crossover, sizeof crossover, rt))
        ek_log(EK_LOG_INFO, "crossover", "tokens_decode_ms_prefill_ms=\"%s\"",
               crossover);
    if (rt->chat_err.text[0])
        ek_log(EK_LOG_WARN, "no_chat", "model=\"%s\" why=\"%s\"", name,
               ek_log_quote(why, sizeof why, rt->chat_err.text));
}

static int read_keys(struct ek_auth *auth, const struct settings *set,
                     struct ek_err *err)
{
    const char *key = getenv("EVENKEEL_API_KEY");
    int rc = key ? ek_auth_add(auth, key, err) : 0;
    if (rc)
        ek_err_prefix(err, "EVENKEEL_API_KEY");
    if (!rc && set->api_key_file)
        rc = ek_auth_add_file(auth, set->api_key_file, err);
    return rc;
}

static int read_tls(struct ek_tls_context **tls, const struct settings *set,
                    struct ek_err *err)
{
    if (!set->tls_cert && !set->tls_key)
        return 0;
    if (!set->tls_cert || !set->tls_key)
        return ek_err_set(err, EK_EINVAL,
                          "--tls-cert and --tls-key belong together; one is missing");
    int rc = ek_tls_context_new(tls, set->tls_cert, set->tls_key, err);
    if (rc)
        return rc;
    /* Over HTTP/2 there are reports of load alone: for who asks for nothing else. */
    return ek_tls_context_set_alpn(*tls, "http/1.1,h2");
}

/* A browser compares the origin byte by byte, so what could never be equal is refused
 * here; and it stands in a header of every answer. */
static int check_cors(const char *origin, struct ek_err *err)
{
    if (!origin || strcmp(origin, "*") == 0)
        return 0;
    const char *host = strstr(origin, "://");
    size_t n = 0;
    while (origin[n] > ' ' && origin[n] != 0x7f && origin[n] != ',')
        n++;
    if (host && host > origin && host[3] && !strchr(host + 3, '/') && !origin[n])
        return 0;
    return ek_err_set(err, EK_EINVAL,
                      "--cors: '%s' is no origin; expected * or one such as "
                      "https://app.example (no path, no slash at the end)",
                      origin);
}

/* Serves until a signal. Errors as ek_server_new and ek_server_run. */
static int serve(struct ek_runtime *rt, const struct settings *set,
                 struct ek_server_options *o, struct ek_err *err)
{
    struct ek_server *server = NULL;
    int rc = ek_server_new(&server, o, rt, err);
    if (rc)
        return rc;
    running = server;
    catch_signals();
    say_ready(rt, set, o->model_id, ek_server_address(server));
    ek_notify_ready(false, o->model_id);
    rc = ek_server_run(server, err);
    running = NULL;
    ek_server_free(server);
    return rc;
}

static int run_model(const struct settings *set, const char *path,
                     struct ek_server_options *o)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_runtime rt = {0};
    int rc = open_runtime(&rt, set, path, &err);
    /* A value that was asked for and cannot be is the asker's, not the file's. */
    if (rc == EK_EINVAL) {
        ek_verb_fail(&ek_verb_serve, &err, false);
        return EK_EXIT_USAGE;
    }
    if (rc)
        return ek_verb_fail(&ek_verb_serve, &err, true);
    if (!set->check)
        rc = serve(&rt, set, o, &err);
    ek_runtime_close(&rt);
    if (rc) {
        int code = ek_verb_fail(&ek_verb_serve, &err, false);
        return rc == EK_EINVAL ? EK_EXIT_USAGE : code; /* --listen names no address */
    }
    return last_signal == SIGINT ? EK_EXIT_INTERRUPTED : EK_EXIT_OK;
}

static int run_with(const struct settings *set, const char *path)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_auth auth;
    struct ek_tls_context *tls = NULL;
    struct ek_server_options o;
    char id[256];
    int code = EK_EXIT_USAGE;
    ek_log_setup((enum ek_log_level)set->log_level, EK_LOG_AUTO);
    ek_auth_init(&auth);
    int rc = read_keys(&auth, set, &err);
    if (!rc)
        rc = read_tls(&tls, set, &err);
    if (!rc)
        rc = check_cors(set->cors, &err);
    if (rc) {
        ek_verb_fail(&ek_verb_serve, &err, false);
    } else {
        ek_server_options_default(&o);
        name_of_path(id, sizeof id, path);
        o.model_id = set->model_name && *set->model_name ? set->model_name : id;
        o.listen = set->listen;
        o.tls = tls;
        o.auth = &auth;
        o.cors = set->cors;
        o.max_queue = (int32_t)set->max_queue;
        o.drain_us = set->drain * 1000;
        o.timeout_us = set->request_timeout * 1000;
        o.keep_alive_us = set->keep_alive * 1000;
        code = run_model(set, path, &o);
    }
    ek_tls_context_free(tls);
    ek_auth_release(&auth);
    return code;
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    if (ek_verb_options(&ek_verb_serve, &set, &args, argc, argv, &arena, &code))
        code = run_with(&set, args.args[0]);
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_serve = {&table, run};
