#include "cli/load.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "load/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define KEY_FILE_MAX     (1 << 16)
#define REPORT_BYTES_MAX (1 << 20)
#define DURATION_US      30000000 /* when nothing ends the run */
#define OPEN_UNDER_WAY   1024     /* --concurrency of an open loop */
#define WARM_UP_AT_ONCE  16
#define DESCRIPTORS      64 /* that are no connection to the server */
#define MARGIN_TOKENS    8  /* prompts are near their length, not always below it */

/* Everything a run holds; closed whole. */
struct bench {
    const struct ek_load_settings *set;
    struct ek_load_options o;
    struct ek_trace trace;
    struct ek_buf key;
    json_t *extra;
    struct ek_loop *loop;
    struct ek_client *client;
    struct ek_load_result *r;
    struct ek_progress progress;
    char model[512];
};

/* "ttft:200,tpot:50,e2e:5000", each at most once. */
static int parse_slo(struct ek_load_slo *slo, const char *text, struct ek_err *err)
{
    const struct {
        const char *name;
        double *ms;
    } limits[] = {
        {"ttft:", &slo->ttft_ms}, {"tpot:", &slo->tpot_ms}, {"e2e:", &slo->e2e_ms}};
    for (const char *p = text;;) {
        size_t i = 0;
        while (i < 3 && strncmp(p, limits[i].name, strlen(limits[i].name)) != 0)
            i++;
        char *end = NULL;
        const char *number = i < 3 ? p + strlen(limits[i].name) : p;
        double ms = strtod(number, &end);
        size_t n = (size_t)(end - number);
        bool is_good = i < 3 && n > 0 && strspn(number, "0123456789.") == n &&
                       ms > 0.0 && ms < 1e12 && *limits[i].ms <= 0.0 &&
                       (*end == ',' || !*end);
        if (!is_good)
            return ek_err_set(err, EK_EINVAL,
                              "--slo: '%.200s' is not understood, expected limits in "
                              "milliseconds such as ttft:200,tpot:50,e2e:5000",
                              text);
        *limits[i].ms = ms;
        if (!*end)
            return 0;
        p = end + 1;
    }
}

/* The first line of --api-key-file, or the environment's key; NULL without. */
static int find_key(const char **key, struct bench *b, struct ek_err *err)
{
    *key = b->set->api_key;
    if (!b->set->api_key_file)
        return 0;
    int rc = ek_file_read(&b->key, b->set->api_key_file, err);
    if (rc)
        return rc;
    size_t n = b->key.len ? strcspn(b->key.data, "\r\n") : 0;
    if (n == 0)
        return ek_err_set(err, EK_EFORMAT, "%s: its first line holds no key",
                          b->set->api_key_file);
    b->key.data[n] = 0;
    *key = b->key.data;
    return 0;
}

static int read_extra(struct bench *b, struct ek_err *err)
{
    const char *text = b->set->body;
    if (!text)
        return 0;
    int rc = ek_json_parse(&b->extra, text, strlen(text), NULL, err);
    if (!rc && !json_is_object(b->extra))
        rc = ek_err_set(err, EK_EINVAL, "expected a JSON object");
    if (rc)
        ek_err_prefix(err, "--body");
    b->o.extra = b->extra;
    return rc == EK_ENOMEM || !rc ? rc : EK_EINVAL;
}

static bool was_interrupted(void)
{
    return ek_interrupt_seen();
}

static void on_tick(void *arg, uint64_t n_done, uint64_t n_running, int64_t us)
{
    struct bench *b = arg;
    char note[64];
    snprintf(note, sizeof note, "%llu under way", (unsigned long long)n_running);
    if (b->o.workload.n_max)
        ek_progress_show(&b->progress, (int64_t)n_done, (int64_t)b->o.workload.n_max,
                         note);
    else if (b->o.duration_us)
        ek_progress_show(&b->progress, us / 1000000, b->o.duration_us / 1000000, note);
}

/* The settings as the load generator takes them; all but what the server tells. */
static int make_options(struct bench *b, struct ek_err *err)
{
    const struct ek_load_settings *set = b->set;
    struct ek_load_options *o = &b->o;
    o->is_chat = set->endpoint == EK_ENDPOINT_CHAT;
    o->ignore_eos = set->ignore_eos;
    o->temperature = set->temperature;
    o->scale = (struct ek_prompt_scale){.per_word = 1.0};
    o->block_tokens = EK_TRACE_BLOCK_TOKENS * set->length_scale;
    o->is_open = set->rate > 0.0 || (set->trace && set->concurrency == 0);
    o->concurrency = set->concurrency ? set->concurrency
                     : o->is_open     ? OPEN_UNDER_WAY
                                      : 1;
    o->duration_us = set->duration_ms * 1000;
    if (!set->duration_ms && !set->requests && !set->trace)
        o->duration_us = DURATION_US;
    o->is_stopped = was_interrupted;
    o->on_tick = on_tick;
    o->tick_arg = b;
    o->workload = (struct ek_workload_options){
        .trace = set->trace ? &b->trace : NULL,
        .prompt_tokens = set->prompt_tokens,
        .output_tokens = set->output_tokens,
        .length_scale = set->length_scale,
        .max_tokens = set->max_tokens,
        .rate = set->rate,
        .burstiness = set->burstiness,
        .time_scale = set->scale,
        .n_max = (uint64_t)set->requests,
        .seed = (uint64_t)set->seed,
    };
    if (set->trace && set->scale != 1.0 && set->rate > 0.0)
        return ek_err_set(err, EK_EINVAL, "--scale and --rate: expected one of them");
    if (!set->trace && (set->scale != 1.0 || set->length_scale != 1.0))
        return ek_err_set(err, EK_EINVAL,
                          "--scale and --length-scale are of a trace: --trace FILE is "
                          "missing");
    if (set->burstiness > 0.0 && set->rate <= 0.0)
        return ek_err_set(err, EK_EINVAL,
                          "--burstiness is of --rate, which is missing");
    return set->slo ? parse_slo(&o->slo, set->slo, err) : 0;
}

/* A connection is a descriptor; the usual soft limit of 1024 is raised as far as it may
 * be. */
static int make_room(int64_t concurrency, struct ek_err *err)
{
    struct rlimit limit;
    rlim_t want = (rlim_t)concurrency + DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= want)
        return 0;
    rlim_t had = limit.rlim_cur;
    limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
    if (limit.rlim_cur == want && !setrlimit(RLIMIT_NOFILE, &limit))
        return 0;
    return ek_err_set(
        err, EK_ELIMIT,
        "--concurrency %lld needs %llu open files, the limit is %llu "
        "(ulimit -n)",
        (long long)concurrency, (unsigned long long)want,
        (unsigned long long)(had > limit.rlim_max ? had : limit.rlim_max));
}

/* Everything that needs no server. */
static int open_files(struct bench *b, bool *is_input, struct ek_err *err)
{
    const char *key = NULL;
    int rc = make_options(b, err);
    if (!rc)
        rc = read_extra(b, err);
    if (!rc)
        rc = make_room(b->o.concurrency, err);
    if (rc)
        return rc;
    *is_input = true;
    rc = find_key(&key, b, err);
    if (!rc && b->set->trace)
        rc = ek_trace_read(&b->trace, b->set->trace, err);
    if (rc)
        return rc;
    *is_input = false;
    if (b->o.workload.trace && !b->o.workload.n_max)
        b->o.workload.n_max = b->trace.n; /* for the progress line */
    struct ek_client_options client = {.url = b->set->url,
                                       .api_key = key,
                                       .ca_file = b->set->ca_file,
                                       .timeout_ms = b->set->timeout_ms,
                                       .max_kept = b->o.concurrency + 4,
                                       .is_stopped = was_interrupted};
    rc = ek_loop_new(&b->loop, err);
    return rc ? rc : ek_client_new(&b->client, b->loop, &client, err);
}

/* What the run is to be about: the model, its context, the cost of words. */
static int ask_server(struct bench *b, struct ek_err *err)
{
    struct ek_load_options *o = &b->o;
    int64_t max_len = 0, n_in = o->workload.prompt_tokens;
    int rc = ek_load_find_model(b->model, sizeof b->model, &max_len, b->client,
                                b->set->model_name, err);
    o->model = b->model;
    if (rc)
        return rc;
    if (o->workload.trace && !o->workload.max_tokens && max_len) {
        int64_t margin = MARGIN_TOKENS + max_len / 50;
        o->workload.max_tokens =
            max_len > 2 * margin ? max_len - margin : max_len / 2 + 1;
    }
    if (!b->set->calibrate)
        return 0;
    if (o->workload.trace)
        n_in = b->trace.rows[0].n_in;
    if (max_len && n_in > max_len / 2)
        n_in = max_len / 2;
    return ek_load_calibrate(&o->scale, b->client, o, n_in, err);
}

/* Requests that are not counted, with prompts of their own. */
static int warm_up(struct bench *b, struct ek_err *err)
{
    struct ek_load_options o = b->o;
    if (b->set->warm_up == 0)
        return 0;
    o.is_open = false;
    o.duration_us = 0;
    o.on_tick = NULL;
    if (b->o.is_open && o.concurrency > WARM_UP_AT_ONCE)
        o.concurrency = WARM_UP_AT_ONCE;
    o.workload.n_max = (uint64_t)b->set->warm_up;
    o.workload.seed = ~o.workload.seed;
    int rc = ek_load_run(b->r, b->client, b->loop, &o, err);
    if (!rc && b->r->is_interrupted)
        rc = ek_err_set(err, EK_ECANCELED, "interrupted while warming up");
    if (!rc && b->r->n_ok == 0)
        rc = ek_err_set(err, EK_EIO, "no request of the warm-up was answered: %s",
                        b->r->errors[0].text);
    *b->r = (struct ek_load_result){0};
    return rc;
}

static int write_to(const char *path, const struct ek_buf *text, struct ek_err *err)
{
    if (strcmp(path, "-") != 0)
        return ek_file_write(path, text->data, text->len, err);
    if (fwrite(text->data, 1, text->len, stdout) == text->len && !fflush(stdout))
        return 0;
    return ek_err_set(err, EK_EIO, "standard output: %s", ek_status_text(EK_EIO));
}

static int write_reports(const struct bench *b, struct ek_err *err)
{
    const struct ek_load_settings *set = b->set;
    struct ek_load_facts f = {.url = ek_client_url(b->client),
                              .model = b->model,
                              .endpoint = b->o.is_chat ? "chat" : "completions",
                              .trace = set->trace,
                              .o = &b->o,
                              .r = b->r};
    struct ek_buf text;
    ek_buf_init(&text, REPORT_BYTES_MAX);
    int rc = ek_load_report_table(&text, &f);
    if (!rc && !(set->json && !strcmp(set->json, "-")))
        rc = ek_terminal_write(stdout, text.data, text.len);
    if (!rc && set->json) {
        ek_buf_reset(&text);
        rc = ek_load_report_json(&text, &f);
        if (!rc)
            rc = write_to(set->json, &text, err);
    }
    if (!rc && set->svg) {
        ek_buf_reset(&text);
        rc = ek_load_report_svg(&text, &f);
        if (!rc)
            rc = write_to(set->svg, &text, err);
    }
    if (rc && !err->status)
        ek_err_set(err, rc, "standard output: %s", ek_status_text(rc));
    ek_buf_release(&text);
    return rc;
}

/* What the reports say is also the exit code's to tell. */
static int judge(const struct bench *b, struct ek_err *err)
{
    const struct ek_load_result *r = b->r;
    const char *why = r->n_errors ? r->errors[r->n_errors - 1].text : "no answer came";
    if (r->is_interrupted)
        return 0;
    if (r->is_server_gone)
        return ek_err_set(err, EK_EIO,
                          "%s: the server went away, %d requests in a row got no "
                          "answer: %s",
                          ek_client_url(b->client), EK_LOAD_GONE, why);
    if (r->n_ok == 0)
        return ek_err_set(err, EK_EIO, "%s: no request was answered: %s",
                          ek_client_url(b->client), why);
    return 0;
}

int ek_load_bench(const struct ek_load_settings *set, bool *is_input,
                  bool *is_interrupted, struct ek_err *err)
{
    struct bench b = {.set = set};
    ek_buf_init(&b.key, KEY_FILE_MAX);
    int rc = open_files(&b, is_input, err);
    if (rc)
        goto out;
    b.r = ek_calloc(1, sizeof *b.r);
    rc = b.r ? ask_server(&b, err) : ek_err_set(err, EK_ENOMEM, "out of memory");
    if (!rc)
        rc = warm_up(&b, err);
    if (rc)
        goto out;
    ek_progress_begin(&b.progress, "requests", false);
    rc = ek_load_run(b.r, b.client, b.loop, &b.o, err);
    ek_progress_end(&b.progress);
    *is_interrupted = b.r->is_interrupted;
    if (!rc)
        rc = write_reports(&b, err);
    if (!rc)
        rc = judge(&b, err);
out:
    ek_client_free(b.client);
    ek_loop_free(b.loop);
    json_decref(b.extra);
    ek_trace_release(&b.trace);
    ek_buf_release(&b.key);
    ek_free(b.r);
    return rc;
}
