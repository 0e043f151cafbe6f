/* verb_perplexity.c - keel perplexity: how well a model predicts a text. */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/model.h"
#include "cli/progress.h"
#include "cli/verb.h"
#include "lm/perplexity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES    (1 << 20)
#define TEXT_BYTES_MAX ((size_t)1 << 30)
#define BATCH_TOKENS   256

/* Index 0 of --kl-against; the others are enum ek_lm_weights, one further on. */
enum { KL_NONE };

struct settings {
    const char *text;
    int64_t ctx, max_bytes;
    struct ek_model_settings model; /* its ctx is not used */
    int kl_against;
    bool json;
};

static const struct ek_opt opts[] = {
    {.name = "text",
     .letter = 'f',
     .type = EK_OPT_STR,
     .offset = offsetof(struct settings, text),
     .value = "FILE",
     .help = "the text to predict; - is standard input"},
    {.name = "ctx",
     .letter = 'c',
     .type = EK_OPT_INT,
     .offset = offsetof(struct settings, ctx),
     .value = "N",
     .fallback = "512",
     .min = 4,
     .max = 1 << 24,
     .help = "tokens a chunk"},
    {.name = "max_bytes",
     .type = EK_OPT_BYTES,
     .offset = offsetof(struct settings, max_bytes),
     .value = "SIZE",
     .min = 0,
     .max = 1 << 30,
     .help = "use the first SIZE bytes of the text; 0: all of it"},
    EK_OPT_MODEL_WEIGHTS(offsetof(struct settings, model)),
    EK_OPT_MODEL_KV_DTYPE(offsetof(struct settings, model)),
    {.name = "kl_against",
     .type = EK_OPT_CHOICE,
     .offset = offsetof(struct settings, kl_against),
     .fallback = "none",
     .choices = "none|" EK_WEIGHTS_CHOICES,
     .help = "compare each prediction with those of the same model in this format "
             "with an f32 KV cache"},
    EK_OPT_MODEL_THREADS(offsetof(struct settings, model)),
    EK_VERB_JSON(offsetof(struct settings, json)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "perplexity",
    .summary = "measure how well a model predicts a text",
    .arguments = "MODEL",
    .details =
        "The method is that of llama.cpp's perplexity tool: the text is cut into "
        "chunks "
        "of --ctx tokens that do not overlap (the rest is dropped), each chunk starts "
        "with an empty context (with BOS in place of its first token where the "
        "tokenizer "
        "adds one), and the predictions in its second half are scored. The standard "
        "error is that of the mean over all scored tokens.\n\n"
        "With --kl-against the same text goes through the model a second time in "
        "another format, and the Kullback-Leibler divergence of the predictions from "
        "those of the other (mean, standard error, largest) is told, and how often "
        "both "
        "find the same token most likely.",
    .examples =
        "keel perplexity model.gguf --text wiki.test.raw\n"
        "keel perplexity model.gguf --text wiki.test.raw --max-bytes 100000 \\\n"
        "    --weights f32 --kv-dtype f32\n"
        "keel perplexity model.gguf --text book.txt --kl-against f32 --json",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

/* Everything a measurement holds; closed whole. */
struct work {
    const struct settings *set;
    const char *path;
    struct ek_modelfile m;
    struct ek_tokenizer *tokenizer;
    struct ek_team *team;
    const struct ek_ops *ops;
    struct ek_lm *lm, *ref;
    struct ek_kv kv, ref_kv;
    struct ek_ids ids;
    struct ek_score score;
    int64_t n_bytes; /* of the text that is used */
    int64_t took_us; /* of the scoring alone */
};

static int load(struct work *w, struct ek_lm **lm, struct ek_kv *kv,
                enum ek_lm_weights weights, enum ek_dtype kv_dtype, struct ek_err *err)
{
    struct ek_progress progress;
    ek_progress_begin(&progress, "loading weights", true);
    struct ek_lm_options o = {.weights = weights,
                              .max_batch_tokens = BATCH_TOKENS,
                              .on_progress = ek_progress_bytes,
                              .progress_arg = &progress};
    int rc = ek_lm_load(lm, &w->m, &o, w->ops, w->team, err);
    ek_progress_end(&progress);
    if (rc)
        return rc;
    int64_t n_pages = (w->set->ctx + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS;
    return ek_kv_init(kv, ek_lm_get_params(*lm), kv_dtype, (int32_t)n_pages, err);
}

static int open_model(struct work *w, struct ek_err *err)
{
    enum ek_isa isa;
    int rc = ek_modelfile_open(&w->m, w->path, err);
    if (!rc)
        rc = ek_modelfile_tokenizer(&w->tokenizer, &w->m, err);
    if (!rc)
        rc = ek_isa_choose(&isa, err);
    if (rc)
        return rc;
    w->ops = ek_ops_get(isa);
    rc = ek_team_new(&w->team, (int)w->set->model.threads, true, err);
    if (!rc)
        rc = load(w, &w->lm, &w->kv, (enum ek_lm_weights)w->set->model.weights,
                  ek_model_kv_dtype(&w->set->model), err);
    if (!rc && w->set->kl_against != KL_NONE)
        rc = load(w, &w->ref, &w->ref_kv, (enum ek_lm_weights)(w->set->kl_against - 1),
                  EK_DTYPE_F32, err);
    return rc;
}

/* The text's ids, BOS first where the tokenizer adds one. */
static int read_text(struct work *w, struct ek_err *err)
{
    struct ek_buf text;
    int32_t V = ek_lm_get_params(w->lm)->V;
    ek_buf_init(&text, TEXT_BYTES_MAX);
    int rc = ek_file_read(&text, w->set->text, err);
    if (rc)
        goto out;
    size_t n = text.len;
    if (w->set->max_bytes > 0 && (uint64_t)w->set->max_bytes < n)
        n = (size_t)w->set->max_bytes;
    w->n_bytes = (int64_t)n;
    rc = ek_tokenizer_encode(w->tokenizer, &w->ids, text.data ? text.data : "", n, NULL,
                             EK_SPECIALS_PLAIN, true);
    if (rc) {
        ek_err_set(err, rc, "%s: %s", w->set->text, ek_status_text(rc));
        goto out;
    }
    for (size_t i = 0; i < w->ids.n && !rc; i++) {
        if (w->ids.ids[i] >= V)
            rc = ek_err_set(err, EK_EFORMAT,
                            "%s: the tokenizer's id %d is outside of the model's "
                            "vocabulary of %d",
                            w->path, w->ids.ids[i], V);
    }
out:
    ek_buf_release(&text);
    return rc;
}

static bool on_chunk(void *arg, int64_t done, int64_t total, const struct ek_score *s)
{
    char note[48];
    snprintf(note, sizeof note, "perplexity %.4f", ek_score_perplexity(s));
    ek_progress_show(arg, done, total, note);
    return !ek_interrupt_seen();
}

static int score(struct work *w, struct ek_err *err)
{
    struct ek_progress progress;
    int64_t start = ek_clock_us();
    bool adds_bos = ek_tokenizer_adds_bos(w->tokenizer);
    struct ek_perplexity job = {
        .model = {w->lm, &w->kv},
        .ref = {w->ref, &w->ref_kv},
        .team = w->team,
        .max_batch_tokens = BATCH_TOKENS,
        .ctx = (int32_t)w->set->ctx,
        .bos = adds_bos ? ek_tokenizer_bos(w->tokenizer) : -1,
        .ids = w->ids.ids,
        .n_ids = (int64_t)w->ids.n,
        .on_chunk = on_chunk,
        .arg = &progress,
    };
    ek_progress_begin(&progress, "scoring chunks", false);
    int rc = ek_perplexity_run(&w->score, &job, err);
    ek_progress_end(&progress);
    w->took_us = ek_clock_us() - start;
    if (rc == EK_EINVAL)
        ek_err_prefix(err, "%s", w->set->text);
    return rc;
}

static int print_json(const struct work *w)
{
    static const char *const weights[] = {"keep", "f32", "bf16", "fp8", "int8", "int4"};
    const struct ek_score *s = &w->score;
    struct ek_buf out;
    ek_buf_init(&out, 1 << 16);
    double n = (double)s->n;
    int rc = ek_buf_add_str(&out, "{\"model\":");
    if (!rc)
        rc = ek_json_add_str(&out, w->path, strlen(w->path));
    if (!rc)
        rc = ek_buf_addf(
            &out,
            ",\"weights\":\"%s\",\"kv_dtype\":\"%s\",\"isa\":\"%s\",\"threads\":%d,"
            "\"ctx\":%lld,\"text_bytes\":%lld,\"tokens\":%zu,\"chunks\":%lld,"
            "\"scored\":%lld,\"perplexity\":%.6f,\"standard_error\":%.6f,"
            "\"mean_nll\":%.8f,\"seconds\":%.3f",
            weights[w->set->model.weights], ek_dtype_name(w->kv.dtype),
            ek_isa_name(w->ops->isa), ek_team_size(w->team), (long long)w->set->ctx,
            (long long)w->n_bytes, w->ids.n, (long long)w->ids.n / w->set->ctx,
            (long long)s->n, ek_score_perplexity(s), ek_score_error(s), s->nll / n,
            (double)w->took_us / 1e6);
    if (!rc && w->ref)
        rc = ek_buf_addf(&out,
                         ",\"kl\":{\"against\":\"%s\",\"mean\":%.8f,"
                         "\"standard_error\":%.8f,\"max\":%.8f,\"agreement\":%.6f}",
                         weights[w->set->kl_against - 1], s->kl / n,
                         sqrt(fmax(s->kl_sq / n - s->kl / n * (s->kl / n), 0) / n),
                         s->kl_max, (double)s->n_agree / n);
    if (!rc)
        rc = ek_buf_add_str(&out, "}\n");
    if (!rc && fwrite(out.data, 1, out.len, stdout) != out.len)
        rc = EK_EIO;
    ek_buf_release(&out);
    return rc;
}

static void print_text(const struct work *w)
{
    const struct ek_score *s = &w->score;
    double n = (double)s->n;
    printf("perplexity %.4f +- %.4f  (%lld tokens scored in %lld chunks of %lld, "
           "%.1f s)\n",
           ek_score_perplexity(s), ek_score_error(s), (long long)s->n,
           (long long)w->ids.n / w->set->ctx, (long long)w->set->ctx,
           (double)w->took_us / 1e6);
    if (w->ref)
        printf("KL divergence: mean %.2e +- %.1e, largest %.2e; most likely token the "
               "same in %.2f %%\n",
               s->kl / n, sqrt(fmax(s->kl_sq / n - s->kl / n * (s->kl / n), 0) / n),
               s->kl_max, 100 * (double)s->n_agree / n);
}

static int measure(const char *path, const struct settings *set)
{
    struct ek_err err = EK_ERR_INIT;
    struct work w = {.set = set, .path = path};
    int code = EK_EXIT_OK;
    ek_ids_init(&w.ids, (size_t)1 << 30);
    ek_interrupt_catch();
    int rc = open_model(&w, &err);
    if (!rc)
        rc = read_text(&w, &err);
    if (!rc)
        rc = score(&w, &err);
    if (rc) {
        code = ek_verb_fail(&ek_verb_perplexity, &err, true);
        goto out;
    }
    if (set->json)
        rc = print_json(&w);
    else
        print_text(&w);
    if (rc || fflush(stdout)) {
        ek_err_set(&err, EK_EIO, "standard output: %s", ek_status_text(EK_EIO));
        code = ek_verb_fail(&ek_verb_perplexity, &err, false);
    }
out:
    ek_ids_release(&w.ids);
    ek_kv_release(&w.ref_kv);
    ek_kv_release(&w.kv);
    ek_lm_free(w.ref);
    ek_lm_free(w.lm);
    ek_team_free(w.team);
    ek_tokenizer_free(w.tokenizer);
    ek_modelfile_close(&w.m);
    return code;
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    if (ek_verb_options(&ek_verb_perplexity, &set, &args, argc, argv, &arena, &code)) {
        if (set.text) {
            code = measure(args.args[0], &set);
        } else {
            fprintf(stderr,
                    "keel perplexity: --text FILE is missing: it names the text "
                    "to predict\n");
            code = EK_EXIT_USAGE;
        }
    }
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_perplexity = {&table, run};
