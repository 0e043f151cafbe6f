/* verb_quantize.c - keel quantize: a model file rewritten in a smaller format. */
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/progress.h"
#include "cli/quantize.h"
#include "cli/verb.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES (1 << 20)

#define AT(member) offsetof(struct ek_quantize_settings, member)

/* Index 0 of --to; the others are enum ek_quantize_to, one further on. */
enum { TO_NONE };

static const struct ek_opt opts[] = {
    {.name = "to",
     .type = EK_OPT_CHOICE,
     .offset = AT(to),
     .fallback = "none",
     .choices = "none|int4|fp8|bf16",
     .help = "the format of the blocks' matrices; it must be given"},
    {.name = "symmetric",
     .type = EK_OPT_FLAG,
     .offset = AT(symmetric),
     .help =
         "int4 without a minimum or zero points, a tenth smaller and less exact; in "
         "folders the default"},
    {.name = "asymmetric",
     .type = EK_OPT_FLAG,
     .offset = AT(asymmetric),
     .help = "int4 with a minimum or zero points; in GGUF the default"},
    {.name = "embed",
     .type = EK_OPT_CHOICE,
     .offset = AT(embed),
     .fallback = "auto",
     .choices = "auto|keep|int4|int8|bf16",
     .help =
         "the embedding; auto: Q8_0 in GGUF, BF16 in a folder, and never wider than "
         "it is"},
    {.name = "head",
     .type = EK_OPT_CHOICE,
     .offset = AT(head),
     .fallback = "auto",
     .choices = "auto|keep|int4|int8|bf16",
     .help = "the head, where it is not the embedding; auto: likewise"},
    {.name = "calibrate",
     .type = EK_OPT_STR,
     .offset = AT(calibrate),
     .value = "FILE",
     .help = "run the model over this text first, and weigh int4's errors by how "
             "strongly it drives each column; - is standard input"},
    {.name = "check",
     .is_flag_only = true,
     .type = EK_OPT_STR,
     .offset = AT(check),
     .value = "FILE",
     .help = "run both models over this text afterwards, and tell perplexity and KL "
             "divergence"},
    {.name = "ctx",
     .letter = 'c',
     .type = EK_OPT_INT,
     .offset = AT(ctx),
     .value = "N",
     .fallback = "512",
     .min = 4,
     .max = 1 << 24,
     .help = "tokens a chunk of these texts"},
    {.name = "max_bytes",
     .type = EK_OPT_BYTES,
     .offset = AT(max_bytes),
     .value = "SIZE",
     .min = 0,
     .max = 1 << 30,
     .help = "use the first SIZE bytes of each text; 0: all of it"},
    EK_VERB_THREADS(AT(threads)),
    {.name = "force",
     .is_flag_only = true,
     .type = EK_OPT_FLAG,
     .offset = AT(force),
     .help = "replace OUT where it is there already"},
    {.name = "quiet",
     .letter = 'q',
     .type = EK_OPT_FLAG,
     .offset = AT(quiet),
     .help = "no line for each matrix"},
    EK_VERB_JSON(AT(json)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "quantize",
    .summary = "rewrite a model with smaller weights",
    .arguments = "IN OUT",
    .details =
        "IN is any model that keel reads; OUT is of the same kind: a GGUF file, or a "
        "Hugging Face folder. Tokenizer, keys and vectors are carried over. OUT "
        "appears "
        "when it is whole; what was there stays until then.\n\n"
        "int4: groups of 32 columns with a scale and a minimum (GGUF: Q4_1, or Q4_0 "
        "with --symmetric; folders: compressed-tensors pack-quantized, or with zero "
        "points if --asymmetric). Scales are searched for the least error. fp8: e4m3 "
        "with a scale a block of 128x128 "
        "(folders alone). bf16: rounded to nearest.\n\n"
        "For each matrix the relative root mean square error and the signal-to-noise "
        "ratio are told. The error is what a loader will see, measured on the bytes "
        "that were written.\n\n"
        "Memory: a slab of rows; with --calibrate the model runs in the formats it is "
        "kept in, and with --check both do.",
    .examples =
        "keel quantize model-bf16.gguf model-q4.gguf --to int4 --calibrate book.txt\n"
        "keel quantize model.gguf small.gguf --to int4 --symmetric --check wiki.txt\n"
        "keel quantize ./Qwen3-0.6B ./Qwen3-0.6B-fp8 --to fp8 --json",
    .opts = opts,
    .min_args = 2,
    .max_args = 2,
};

static bool on_progress(void *arg, int64_t done, int64_t total)
{
    ek_progress_bytes(arg, done, total);
    return !ek_interrupt_seen();
}

/* Everything the verb holds; closed whole. */
struct work {
    const struct ek_quantize_settings *set;
    const char *in, *out;
    struct ek_modelfile m;
    struct ek_lm_params p;
    struct ek_team *team;
    struct ek_calibration calibration;
    struct ek_quantize_report report;
    struct ek_score score;
    int64_t took_us; /* of rounding and writing */
};

static int write_out(struct work *w, struct ek_err *err)
{
    const struct ek_quantize_settings *set = w->set;
    struct ek_progress progress;
    struct ek_quantize job = {
        .m = &w->m,
        .p = &w->p,
        .path = w->out,
        .to = (enum ek_quantize_to)(set->to - 1),
        .is_symmetric = set->symmetric || (!w->m.gguf && !set->asymmetric),
        .embed = (enum ek_quantize_wide)set->embed,
        .head = (enum ek_quantize_wide)set->head,
        .calibration = w->calibration.n_tokens ? &w->calibration : NULL,
        .team = w->team,
        .overwrites = set->force,
        .on_progress = on_progress,
        .arg = &progress};
    int64_t start = ek_clock_us();
    ek_progress_begin(&progress, "quantising", true);
    int rc = ek_quantize_run(&w->report, &job, err);
    ek_progress_end(&progress);
    w->took_us = ek_clock_us() - start;
    return rc;
}

/* That the texts can be used, before anything takes long. */
static int check_texts(const struct work *w, struct ek_err *err)
{
    const char *const texts[] = {w->set->calibrate, w->set->check};
    for (int i = 0; i < 2; i++) {
        struct ek_file f = {0};
        if (!texts[i])
            continue;
        if (w->set->ctx > w->p.ctx)
            return ek_err_set(err, EK_EINVAL,
                              "--ctx %lld: expected at most the model's %d",
                              (long long)w->set->ctx, w->p.ctx);
        int rc = strcmp(texts[i], "-") ? ek_file_open(&f, texts[i], err) : 0;
        ek_file_close(&f);
        if (rc)
            return rc;
    }
    return 0;
}

/* *is_input: what failed is IN's or a text's fault. */
static int work(struct work *w, bool *is_input, struct ek_err *err)
{
    const struct ek_quantize_settings *set = w->set;
    *is_input = true;
    int rc = ek_modelfile_open(&w->m, w->in, err);
    if (!rc)
        rc = ek_lm_params_read(&w->p, &w->m, err);
    if (!rc)
        rc = check_texts(w, err);
    if (!rc)
        rc = ek_team_new(&w->team, (int)set->threads, true, err);
    if (!rc && set->calibrate)
        rc = ek_quantize_calibrate(&w->calibration, w->in, set, w->team, err);
    if (rc)
        return rc;
    *is_input = false;
    rc = write_out(w, err);
    if (rc == EK_EFORMAT)
        *is_input = true;
    if (rc || !set->check)
        return rc;
    *is_input = true;
    return ek_quantize_check(&w->score, w->in, w->out, set, w->team, err);
}

static int quantize(const char *in, const char *out,
                    const struct ek_quantize_settings *set)
{
    struct ek_err err = EK_ERR_INIT;
    struct work w = {.set = set, .in = in, .out = out};
    bool is_input;
    int code = EK_EXIT_OK;
    ek_interrupt_catch();
    ek_interrupt_catch_also(SIGTERM);
    signal(SIGXFSZ, SIG_IGN); /* a limit on files is an error of writing, with a line */
    int rc = work(&w, &is_input, &err);
    struct ek_quantize_result result = {.in = in,
                                        .out = out,
                                        .set = set,
                                        .report = &w.report,
                                        .calibration =
                                            set->calibrate ? &w.calibration : NULL,
                                        .score = set->check ? &w.score : NULL,
                                        .seconds = (double)w.took_us / 1e6};
    if (rc) {
        code = ek_verb_fail(&ek_verb_quantize, &err, is_input);
    } else if (!ek_quantize_print(&result)) {
        ek_err_set(&err, EK_EIO, "standard output: %s", ek_status_text(EK_EIO));
        code = ek_verb_fail(&ek_verb_quantize, &err, false);
    }
    ek_quantize_report_release(&w.report);
    ek_calibration_release(&w.calibration);
    ek_team_free(w.team);
    ek_modelfile_close(&w.m);
    return code;
}

static int run(int argc, char **argv)
{
    struct ek_quantize_settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    if (ek_verb_options(&ek_verb_quantize, &set, &args, argc, argv, &arena, &code)) {
        const char *wrong = NULL;
        if (set.to == TO_NONE)
            wrong = "--to is missing: expected int4, fp8 or bf16";
        else if (set.symmetric && set.asymmetric)
            wrong = "--symmetric and --asymmetric: expected one of them";
        if (!wrong) {
            code = quantize(args.args[0], args.args[1], &set);
        } else {
            fprintf(stderr, "keel quantize: %s\n", wrong);
            code = EK_EXIT_USAGE;
        }
    }
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_quantize = {&table, run};
