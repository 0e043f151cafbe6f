/* verb_generate.c - keel generate: completes a text, once, on standard output. */
#include "base/mem.h"
#include "cli/model.h"
#include "cli/progress.h"
#include "cli/sampling.h"
#include "cli/terminal.h"
#include "cli/verb.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define ARENA_BYTES       (1 << 20)
#define PROMPT_BYTES_MAX  ((size_t)64 << 20)
#define REQUEST_BYTES_MAX ((size_t)1 << 30)
#define ANSWER_BYTES_MAX  ((size_t)256 << 20)

struct settings {
    const char *prompt, *prompt_file;
    struct ek_opt_list stop;
    struct ek_sampling_settings sampling;
    struct ek_model_settings model;
    bool json, quiet;
};

static const struct ek_opt opts[] = {
    {.name = "prompt",
     .letter = 'p',
     .type = EK_OPT_STR,
     .offset = offsetof(struct settings, prompt),
     .value = "TEXT",
     .help = "the text to go on from; special tokens in it are read as such"},
    {.name = "prompt_file",
     .type = EK_OPT_STR,
     .offset = offsetof(struct settings, prompt_file),
     .value = "FILE",
     .help = "read the text from FILE instead; - is standard input"},
    EK_OPT_SAMPLING(offsetof(struct settings, sampling), "0.8", "128"),
    {.name = "stop",
     .type = EK_OPT_LIST,
     .offset = offsetof(struct settings, stop),
     .value = "TEXT",
     .help = "end before this text; may be repeated"},
    EK_OPT_MODEL_THREADS(offsetof(struct settings, model)),
    EK_OPT_MODEL_CTX(offsetof(struct settings, model)),
    EK_OPT_MODEL_WEIGHTS(offsetof(struct settings, model)),
    EK_OPT_MODEL_PHASE_WEIGHTS(offsetof(struct settings, model)),
    EK_OPT_MODEL_KV_DTYPE(offsetof(struct settings, model)),
    {.name = "json",
     .type = EK_OPT_FLAG,
     .offset = offsetof(struct settings, json),
     .help = "print one JSON object with text and figures instead of streaming"},
    {.name = "quiet",
     .letter = 'q',
     .type = EK_OPT_FLAG,
     .offset = offsetof(struct settings, quiet),
     .help = "no summary on standard error"},
    {0},
};

static const struct ek_opt_verb table = {
    .name = "generate",
    .summary = "complete a text on standard output",
    .arguments = "MODEL",
    .details =
        "The prompt goes to the model as it is, without a chat template (that is keel "
        "chat). The completion streams to standard output; a summary of speed and "
        "memory follows on standard error. The same seed, prompt and build give the "
        "same text, whatever the number of threads.\n\n"
        "Ctrl-C ends the text early; the exit code is 130.",
    .examples = "keel generate model.gguf -p 'The capital of France is' -n 16\n"
                "keel generate model.gguf -p 'Once' --temperature 0 --stop $'\\n'\n"
                "keel generate model.gguf --prompt-file story.txt --json",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

/* One completion from start to end; closed whole. */
struct work {
    const struct settings *set;
    const char *path;
    struct ek_runtime runtime;
    struct ek_engine *engine;
    struct ek_request request;
    struct ek_ids ids;
    struct ek_buf answer; /* with --json */
    uint64_t seed;
    int32_t n_generated;
    enum ek_finish finish;
    const char *error;
    bool is_output_gone; /* standard output takes no more */
};

static void on_delta(void *arg, struct ek_delta *d)
{
    struct work *w = arg;
    w->n_generated = d->n_generated;
    if (d->text.len > 0 && w->set->json) {
        if (ek_buf_add(&w->answer, d->text.data, d->text.len))
            w->is_output_gone = true;
    } else if (d->text.len > 0) {
        if (ek_terminal_write(stdout, d->text.data, d->text.len))
            w->is_output_gone = true;
    }
    if (d->finish == EK_FINISH_NONE) {
        ek_engine_give_back(w->engine, d);
        return;
    }
    w->finish = d->finish;
    w->error = d->error;
}

static int open_model(struct work *w, struct ek_err *err)
{
    struct ek_runtime_options o;
    ek_model_options(&o, w->path, &w->set->model);
    int rc = ek_model_open(&w->runtime, &o, err);
    if (rc)
        return rc;
    return ek_engine_new(&w->engine, &w->runtime.engine_model, w->runtime.tokenizer,
                         &w->runtime.engine_options, w->runtime.ops, on_delta, w, err);
}

/* The prompt's ids, and room behind them for the answer. */
static int read_prompt(struct work *w, struct ek_err *err)
{
    struct ek_buf text;
    const char *p = w->set->prompt;
    size_t n = p ? strlen(p) : 0;
    ek_buf_init(&text, PROMPT_BYTES_MAX);
    int rc = 0;
    if (!p) {
        rc = ek_file_read(&text, w->set->prompt_file, err);
        p = text.data ? text.data : "";
        n = text.len;
    }
    if (rc)
        goto out;
    rc = ek_tokenizer_encode(w->runtime.tokenizer, &w->ids, p, n, NULL,
                             EK_SPECIALS_PARSE, true);
    int32_t bos = ek_tokenizer_bos(w->runtime.tokenizer);
    if (!rc && w->ids.n == 0 && bos >= 0)
        rc = ek_ids_add(&w->ids, bos); /* an empty prompt starts a text */
    if (rc)
        ek_err_set(err, rc, "the prompt: %s", ek_status_text(rc));
    else if (w->ids.n == 0)
        rc = ek_err_set(err, EK_EINVAL, "the prompt is empty: expected a text");
    else if ((int64_t)w->ids.n >= w->runtime.ctx)
        rc = ek_err_set(err, EK_ELIMIT,
                        "the prompt has %zu tokens: expected fewer than the context of "
                        "%d",
                        w->ids.n, w->runtime.ctx);
out:
    ek_buf_release(&text);
    return rc;
}

static int set_request(struct work *w, struct ek_err *err)
{
    const struct settings *set = w->set;
    struct ek_request *r = &w->request;
    int64_t room = w->runtime.ctx - (int64_t)w->ids.n;
    int rc = ek_sampling_apply(r, &w->seed, &set->sampling, room, err);
    r->prompt = w->ids.ids;
    r->n_prompt = (int32_t)w->ids.n;
    for (size_t i = 0; i < set->stop.n && !rc; i++) {
        const char *s = set->stop.items[i];
        rc = ek_stop_add(&r->stop, &r->arena, s, strlen(s));
        if (rc)
            ek_err_set(err, rc, "--stop '%s': expected 1 to %d bytes, at most %d times",
                       s, EK_STOP_BYTES_MAX, EK_STOP_STRINGS_MAX);
    }
    return rc ? rc : ek_request_prepare(r, w->engine, err);
}

static int complete(struct work *w, struct ek_err *err)
{
    bool is_cancelled = false;
    ek_engine_submit(w->engine, &w->request);
    while (w->finish == EK_FINISH_NONE) {
        if (!is_cancelled && (ek_interrupt_seen() || w->is_output_gone)) {
            ek_engine_cancel(w->engine, &w->request);
            is_cancelled = true;
        }
        ek_engine_step(w->engine);
    }
    if (w->finish == EK_FINISH_ERROR)
        return ek_err_set(err, EK_EIO, "%s", w->error);
    if (w->is_output_gone)
        return ek_err_set(err, EK_EIO, "standard output: %s", ek_status_text(EK_EIO));
    return 0;
}

/* What the summary says, in both forms. */
struct figures {
    double load_s, first_s; /* opening; from the request to the first token */
    double prefill, decode; /* tokens a second; 0: too few to tell */
    size_t weight_bytes, prefill_bytes, kv_bytes, peak_bytes;
};

static void measure(struct figures *f, const struct work *w)
{
    const struct ek_request *r = &w->request;
    const struct ek_lm_params *p = ek_lm_get_params(w->runtime.lm);
    struct rusage usage;
    double first = (double)(r->first_us - r->submit_us) / 1e6;
    double rest = (double)(r->end_us - r->first_us) / 1e6;
    int32_t n = w->n_generated - 1; /* the first one is prefill's */
    *f = (struct figures){.load_s = (double)w->runtime.load_us / 1e6};
    if (r->first_us > 0) {
        f->first_s = first;
        f->prefill = first > 0 ? r->n_prompt / first : 0;
        f->decode = rest > 0 && n > 0 ? n / rest : 0;
    }
    f->weight_bytes = ek_lm_weight_bytes(w->runtime.lm);
    f->prefill_bytes = ek_lm_prefill_bytes(w->runtime.lm);
    f->kv_bytes = (size_t)ek_pages_for_tokens(r->n_prompt + w->n_generated) *
                  ek_kv_page_bytes(p, w->runtime.kv.dtype);
    if (!getrusage(RUSAGE_SELF, &usage))
        f->peak_bytes = (size_t)usage.ru_maxrss * 1024;
}

static void print_summary(const struct work *w)
{
    struct figures f;
    char a[32], b[32], c[32], d[32], crossover[256];
    measure(&f, w);
    if (f.prefill_bytes > 0)
        fprintf(stderr, "%stwo copies of weights; the prefill copy takes %s\n",
                w->set->json ? "" : "\n", ek_format_bytes(d, f.prefill_bytes));
    if (*ek_model_crossover_text(crossover, sizeof crossover, &w->runtime))
        fprintf(stderr, "tokens a step, ms with decode/prefill weights: %s\n",
                crossover);
    fprintf(
        stderr,
        "%sprefill %d tokens, %.1f tok/s; decode %d tokens, %.1f tok/s; first token "
        "after %.3f s; load %.2f s; memory %s (weights %s, KV used %s); seed %llu\n",
        w->set->json || f.prefill_bytes > 0 ? "" : "\n", w->request.n_prompt, f.prefill,
        w->n_generated, f.decode, f.first_s, f.load_s, ek_format_bytes(a, f.peak_bytes),
        ek_format_bytes(b, f.weight_bytes), ek_format_bytes(c, f.kv_bytes),
        (unsigned long long)w->seed);
}

static int print_json(const struct work *w)
{
    struct figures f;
    struct ek_buf out;
    ek_buf_init(&out, 6 * ANSWER_BYTES_MAX);
    measure(&f, w);
    int rc = ek_buf_add_str(&out, "{\"text\":");
    if (!rc)
        rc = ek_json_add_str(&out, w->answer.data ? w->answer.data : "", w->answer.len);
    if (!rc)
        rc = ek_buf_addf(
            &out,
            ",\"finish_reason\":\"%s\",\"prompt_tokens\":%d,\"completion_tokens\":%d,"
            "\"seed\":%llu,\"prefill_tokens_per_second\":%.2f,"
            "\"decode_tokens_per_second\":%.2f,\"first_token_seconds\":%.4f,"
            "\"load_seconds\":%.3f,\"memory_bytes\":%zu,\"weight_bytes\":%zu,"
            "\"prefill_weight_bytes\":%zu,\"kv_used_bytes\":%zu,\"isa\":\"%s\","
            "\"threads\":%d}\n",
            ek_finish_name(w->finish), w->request.n_prompt, w->n_generated,
            (unsigned long long)w->seed, f.prefill, f.decode, f.first_s, f.load_s,
            f.peak_bytes, f.weight_bytes, f.prefill_bytes, f.kv_bytes,
            ek_isa_name(w->runtime.ops->isa), ek_team_size(w->runtime.team));
    if (!rc && (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout)))
        rc = EK_EIO;
    ek_buf_release(&out);
    return rc;
}

static int generate(const char *path, const struct settings *set)
{
    struct ek_err err = EK_ERR_INIT;
    struct work w = {.set = set, .path = path};
    bool is_input = true; /* while files are read, they are to blame */
    int code = EK_EXIT_OK, rc;
    ek_ids_init(&w.ids, (size_t)1 << 28);
    ek_buf_init(&w.answer, ANSWER_BYTES_MAX);
    ek_request_init(&w.request, REQUEST_BYTES_MAX);
    ek_interrupt_catch();
    if ((rc = open_model(&w, &err)) != 0)
        goto out;
    is_input = set->prompt_file != NULL;
    if ((rc = read_prompt(&w, &err)) != 0)
        goto out;
    is_input = false;
    if ((rc = set_request(&w, &err)) != 0 || (rc = complete(&w, &err)) != 0)
        goto out;
    if (set->json && (rc = print_json(&w)) != 0)
        ek_err_set(&err, rc, "standard output: %s", ek_status_text(rc));
    if (!set->quiet)
        print_summary(&w);
    if (w.finish == EK_FINISH_ABORT)
        code = EK_EXIT_INTERRUPTED;
out:
    if (rc)
        code = ek_verb_fail(&ek_verb_generate, &err, is_input);
    ek_request_release(&w.request);
    ek_engine_free(w.engine);
    ek_runtime_close(&w.runtime);
    ek_buf_release(&w.answer);
    ek_ids_release(&w.ids);
    return code;
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    if (ek_verb_options(&ek_verb_generate, &set, &args, argc, argv, &arena, &code)) {
        if (!set.prompt == !set.prompt_file) {
            fprintf(stderr, "keel generate: expected one of -p TEXT and --prompt-file "
                            "FILE\n");
            code = EK_EXIT_USAGE;
        } else {
            code = generate(args.args[0], &set);
        }
    }
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_generate = {&table, run};
