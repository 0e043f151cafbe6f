/* verb_bench_model.c - keel bench model: tokens a second of prefill and decode. */
#include "base/json.h"
#include "base/mem.h"
#include "cli/bench_model.h"
#include "cli/model.h"
#include "cli/verb.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES (1 << 20)
#define LINE_BYTES  256
#define READ_BYTES  ((size_t)256 << 20) /* where the bandwidth is measured */
#define READ_TIMES  5

struct settings {
    struct ek_bench_settings bench;
    struct ek_model_settings model; /* its threads and ctx are not used */
    struct ek_opt_list prefill, depth, batch;
    int64_t tokens, max_batch_tokens;
    bool jobs;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "prefill",
     .letter = 'p',
     .type = EK_OPT_LIST,
     .offset = AT(prefill),
     .value = "N",
     .help = "prompts of N tokens; without it 512; 0: none"},
    {.name = "depth",
     .letter = 'd',
     .type = EK_OPT_LIST,
     .offset = AT(depth),
     .value = "N",
     .help = "decode behind N positions; without it 0"},
    {.name = "batch",
     .letter = 'b',
     .type = EK_OPT_LIST,
     .offset = AT(batch),
     .value = "N",
     .help = "decode N sequences at once; without it 1; 0: none"},
    {.name = "tokens",
     .letter = 'n',
     .type = EK_OPT_INT,
     .offset = AT(tokens),
     .value = "N",
     .fallback = "32",
     .min = 1,
     .max = 65536,
     .help = "decode steps of a repetition"},
    {.name = "max_batch_tokens",
     .type = EK_OPT_INT,
     .offset = AT(max_batch_tokens),
     .value = "N",
     .fallback = "512",
     .min = 16,
     .max = 65536,
     .help = "tokens of one step: longer prompts go in chunks"},
    EK_OPT_MODEL_WEIGHTS(AT(model)),
    EK_OPT_MODEL_PHASE_WEIGHTS(AT(model)),
    EK_OPT_MODEL_KV_DTYPE(AT(model)),
    EK_OPT_BENCH_THREADS(AT(bench)),
    EK_OPT_BENCH_REPEATS(AT(bench), "5"),
    EK_OPT_BENCH_ISA(AT(bench)),
    {.name = "jobs",
     .type = EK_OPT_FLAG,
     .offset = AT(jobs),
     .help = "take rows from standard input, for measuring in turn with others"},
    EK_OPT_BENCH_JSON(AT(bench)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "bench model",
    .summary = "measure prefill and decode of a model",
    .arguments = "MODEL",
    .details =
        "Decode rows are all of --depth with all of --batch. The positions behind "
        "which "
        "a row decodes are not computed: their keys and values are random. Sampling is "
        "left out. For decode the bytes a token needs (its share of the weights, and "
        "its keys and values) are told, and what share their rate is of the memory "
        "bandwidth, measured in the same run; a share above 100 % says that the caches "
        "served a part. For prefill the share is that of the peak of the dot products "
        "that "
        "its weights take (8-bit for kept files), attention not counted.\n\n"
        "One thread is timed by its own processor time, which leaves out what else "
        "runs on "
        "a busy machine; more threads are timed by the clock.\n\n"
        "With --jobs each line on standard input is one repetition, and is answered by "
        "one JSON object when it is done:\n\n"
        "  prefill TOKENS\n"
        "  decode DEPTH BATCH STEPS",
    .examples = "keel bench model model.gguf\n"
                "keel bench model model.gguf --prefill 0 --depth 0 --depth 4096 \\\n"
                "    --batch 1 --batch 16 --kv-dtype fp8 --json",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

/* Everything a measurement holds; closed whole. */
struct work {
    const struct settings *set;
    const char *path;
    struct ek_runtime rt;
    struct ek_bench bench;
    struct ek_bench_model model;
    struct ek_buf out;
    double read_gb_s, peak_gflop_s;
};

static int open_model(struct work *w, struct ek_err *err)
{
    const struct settings *set = w->set;
    struct ek_runtime_options o;
    struct ek_model_settings model = set->model;
    model.threads = set->bench.threads;
    model.ctx = EK_PAGE_TOKENS; /* the runtime's own KV serves nobody here */
    ek_bench_choose_isa(&set->bench);
    ek_model_options(&o, w->path, &model);
    o.max_batch_tokens = (int32_t)set->max_batch_tokens;
    int rc = ek_model_open(&w->rt, &o, err);
    if (rc)
        return rc;
    ek_bench_model_init(&w->model, &w->rt);
    return ek_bench_open(&w->bench, &set->bench, w->rt.team, err);
}

/* The weights that prompts are multiplied by; a file is mostly kept as int4,
 * int6 or int8. */
static enum ek_weight_format prefill_format(const struct settings *set)
{
    int weights = set->model.weights;
    if (set->model.prefill_weights)
        weights = set->model.prefill_weights - 1;
    if (weights == EK_LM_WEIGHTS_F32)
        return EK_WEIGHT_F32;
    bool is_half = weights == EK_LM_WEIGHTS_BF16 || weights == EK_LM_WEIGHTS_FP8;
    return is_half ? EK_WEIGHT_BF16 : EK_WEIGHT_I8;
}

/* What the shares are of. */
static int measure_roof(struct work *w, int n_times, struct ek_err *err)
{
    struct ek_bench_stat s;
    int n = ek_team_size(w->rt.team);
    int rc = ek_bench_bandwidth(&s, &w->bench, READ_BYTES, n, n_times, err);
    if (rc)
        return rc;
    w->read_gb_s = s.median;
    w->peak_gflop_s =
        ek_bench_peak(&w->bench, prefill_format(w->set), n, n_times).median;
    return 0;
}

/* The row's name, and its rate against the roof. */
static void describe(char name[64], double *per_token, double *share,
                     const struct work *w, const struct ek_bench_job *job,
                     double tokens_s)
{
    if (job->kind == EK_BENCH_PREFILL) {
        snprintf(name, 64, "prefill %" PRId64, job->n_tokens);
        *per_token = ek_bench_model_flop(&w->model);
        *share =
            w->peak_gflop_s > 0 ? tokens_s * *per_token / w->peak_gflop_s / 1e9 : 0;
    } else {
        snprintf(name, 64, "decode d%" PRId64 " b%" PRId64, job->depth, job->batch);
        *per_token = ek_bench_model_bytes(&w->model, job);
        *share = w->read_gb_s > 0 ? tokens_s * *per_token / w->read_gb_s / 1e9 : 0;
    }
}

static int print_row(struct work *w, const struct ek_bench_job *job,
                     const struct ek_bench_stat *s, struct ek_err *err)
{
    char name[64];
    double per_token, share;
    bool is_prefill = job->kind == EK_BENCH_PREFILL;
    describe(name, &per_token, &share, w, job, s->median);
    if (!w->set->bench.json && !w->set->jobs) {
        printf("%-18s %10.1f %10.1f %10.1f %12.2f %9.1f %%\n", name, s->min, s->median,
               s->max, per_token / 1e6, 100 * share);
        return fflush(stdout) ? ek_err_set(err, EK_EIO, "standard output") : 0;
    }
    int rc = ek_buf_addf(&w->out,
                         "{\"name\":\"%s\",\"n\":%" PRId64 ",\"depth\":%" PRId64
                         ",\"batch\":%" PRId64 ",",
                         is_prefill ? "prefill" : "decode", job->n_tokens, job->depth,
                         job->batch);
    if (!rc)
        rc = ek_bench_add_stat(&w->out, "tokens/s", s);
    if (!rc)
        rc = ek_buf_addf(&w->out, ",\"%s\":%.0f,\"roof\":%.3f,\"share\":%.4f",
                         is_prefill ? "flop_per_token" : "bytes_per_token", per_token,
                         is_prefill ? w->peak_gflop_s : w->read_gb_s, share);
    if (!rc)
        rc = ek_buf_addf(&w->out, ",\"kv_dtype\":\"%s\",\"weight_bytes\":%zu,",
                         ek_dtype_name(w->rt.kv.dtype), ek_lm_weight_bytes(w->rt.lm));
    if (!rc)
        rc = ek_bench_add_machine(&w->out, &w->bench);
    if (!rc)
        rc = ek_buf_add_str(&w->out, ",\"model\":");
    if (!rc)
        rc = ek_json_add_str(&w->out, w->path, strlen(w->path));
    if (!rc)
        rc = ek_buf_add_char(&w->out, '}');
    return ek_bench_print(&w->out, rc, err);
}

static int run_job(struct work *w, const struct ek_bench_job *job, int n_repeats,
                   struct ek_err *err)
{
    double v[EK_BENCH_REPEATS_MAX] = {0};
    int rc = ek_bench_model_fit(&w->model, job, err);
    if (!rc && w->set->jobs) /* the machine may be another one since the last job */
        rc = measure_roof(w, 1, err);
    if (rc)
        return rc;
    for (int r = w->set->jobs ? 0 : -1; r < n_repeats; r++) {
        double tokens_s = ek_bench_model_run(&w->model, job);
        if (r >= 0)
            v[r] = tokens_s;
    }
    struct ek_bench_stat s = ek_bench_stat_of(v, n_repeats);
    return print_row(w, job, &s, err);
}

static bool parse_job(struct ek_bench_job *job, const char *line)
{
    int end = -1;
    if (sscanf(line, "prefill %" SCNd64 " %n", &job->n_tokens, &end) == 1 && end > 0) {
        *job = (struct ek_bench_job){EK_BENCH_PREFILL, job->n_tokens, 0, 1};
    } else {
        job->kind = EK_BENCH_DECODE;
        if (sscanf(line, "decode %" SCNd64 " %" SCNd64 " %" SCNd64 " %n", &job->depth,
                   &job->batch, &job->n_tokens, &end) != 3)
            return false;
    }
    return end > 0 && !line[end];
}

static int serve_jobs(struct work *w, struct ek_err *err)
{
    char line[LINE_BYTES];
    int rc = 0;
    while (!rc && fgets(line, sizeof line, stdin)) {
        struct ek_bench_job job = {0};
        if (!parse_job(&job, line))
            return ek_err_set(err, EK_EINVAL,
                              "standard input: '%.*s': expected prefill TOKENS or "
                              "decode DEPTH BATCH STEPS",
                              (int)strcspn(line, "\n"), line);
        rc = run_job(w, &job, 1, err);
    }
    return rc;
}

/* Item i of a list, or the one that stands for an empty list. */
static int64_t item(const struct ek_opt_list *list, size_t i, int64_t fallback)
{
    return i < list->n ? strtoll(list->items[i], NULL, 10) : fallback;
}

static int rows(struct work *w, struct ek_err *err)
{
    const struct settings *set = w->set;
    int rc = 0, n = (int)set->bench.repeats;
    size_t n_prefill = set->prefill.n ? set->prefill.n : 1;
    size_t n_depth = set->depth.n ? set->depth.n : 1;
    size_t n_batch = set->batch.n ? set->batch.n : 1;
    for (size_t i = 0; !rc && i < n_prefill; i++) {
        struct ek_bench_job job = {EK_BENCH_PREFILL, item(&set->prefill, i, 512), 0, 1};
        rc = job.n_tokens ? run_job(w, &job, n, err) : 0;
    }
    for (size_t i = 0; !rc && i < n_depth * n_batch; i++) {
        struct ek_bench_job job = {EK_BENCH_DECODE, set->tokens,
                                   item(&set->depth, i / n_batch, 0),
                                   item(&set->batch, i % n_batch, 1)};
        rc = job.batch ? run_job(w, &job, n, err) : 0;
    }
    return rc;
}

static void print_head(const struct work *w)
{
    char weights[32], kv[32];
    const struct ek_lm_params *p = ek_lm_get_params(w->rt.lm);
    size_t bytes = ek_lm_weight_bytes(w->rt.lm);
    size_t token = ek_kv_page_bytes(p, w->rt.kv.dtype) / EK_PAGE_TOKENS;
    ek_bench_print_machine(&w->bench);
    printf("weights %s (%s the L3 cache), KV %s %s a token; memory reads %.1f GB/s, "
           "dot products %.0f GFLOP/s\n\n%-18s %10s %10s %10s %12s %11s\n",
           ek_format_bytes(weights, bytes),
           bytes > w->bench.topology.l3_bytes ? "larger than" : "fit",
           ek_dtype_name(w->rt.kv.dtype), ek_format_bytes(kv, token), w->read_gb_s,
           w->peak_gflop_s, "", "min", "median", "max tok/s", "MB or MFLOP", "of roof");
}

static int measure(const char *path, const struct settings *set)
{
    struct ek_err err = EK_ERR_INIT;
    struct work w = {.set = set, .path = path};
    int code = EK_EXIT_OK;
    bool is_input = true;
    ek_buf_init(&w.out, 1 << 16);
    int rc = open_model(&w, &err);
    if (!rc) {
        is_input = false;
        rc = measure_roof(&w, READ_TIMES, &err);
    }
    if (!rc && set->jobs) {
        rc = serve_jobs(&w, &err);
    } else if (!rc) {
        if (!set->bench.json)
            print_head(&w);
        rc = rows(&w, &err);
    }
    if (rc)
        code = ek_verb_fail(&ek_verb_bench_model, &err, is_input);
    if (rc == EK_EINVAL && !is_input)
        code = EK_EXIT_USAGE;
    ek_bench_model_release(&w.model);
    ek_bench_close(&w.bench);
    ek_runtime_close(&w.rt);
    ek_buf_release(&w.out);
    return code;
}

static bool are_numbers(const char *flag, const struct ek_opt_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        char *end;
        long long v = strtoll(list->items[i], &end, 10);
        if (*end || end == list->items[i] || v < 0 || v > EK_BENCH_TOKENS_MAX) {
            fprintf(stderr,
                    "keel bench model: --%s '%s': expected a whole number from 0 to "
                    "%d\n",
                    flag, list->items[i], EK_BENCH_TOKENS_MAX);
            return false;
        }
    }
    return true;
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    if (ek_verb_options(&ek_verb_bench_model, &set, &args, argc, argv, &arena, &code)) {
        bool is_right = are_numbers("prefill", &set.prefill) &&
                        are_numbers("depth", &set.depth) &&
                        are_numbers("batch", &set.batch);
        code = is_right ? measure(args.args[0], &set) : EK_EXIT_USAGE;
    }
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_bench_model = {&table, run};
