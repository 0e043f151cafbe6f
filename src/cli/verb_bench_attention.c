/* verb_bench_attention.c - keel bench attention: forward and backward of attention over
 * sequences of any lengths, counted in useful work. */
#include "base/mem.h"
#include "cli/bench.h"
#include "cli/bench_attention.h"
#include "cli/verb.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES (1 << 20)
#define LINE_BYTES  64
#define PEAK_TIMES  5

struct settings {
    struct ek_bench_settings bench;
    const char *lengths;
    int kind, dtype; /* places in their choices; 0: all */
    int64_t batch, heads, dim, keys, seed;
    bool jobs;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "lengths",
     .letter = 'l',
     .type = EK_OPT_STR,
     .offset = AT(lengths),
     .value = "SPEC",
     .fallback = "uniform:1:400",
     .help = "uniform:LO:HI, fixed:N, lognormal:MEDIAN:SIGMA, or a file of lengths"},
    {.name = "kind",
     .letter = 'k',
     .type = EK_OPT_CHOICE,
     .offset = AT(kind),
     .fallback = "all",
     .choices = "all|jfa|hstu|gdpa|block",
     .help = "which attention"},
    {.name = "dtype",
     .type = EK_OPT_CHOICE,
     .offset = AT(dtype),
     .fallback = "all",
     .choices = "all|f32|bf16",
     .help = "type of rows and of what is multiplied; sums are f32"},
    {.name = "batch",
     .letter = 'b',
     .type = EK_OPT_INT,
     .offset = AT(batch),
     .value = "N",
     .fallback = "64",
     .min = 1,
     .max = EK_BENCH_BATCH_MAX,
     .help = "sequences"},
    {.name = "heads",
     .type = EK_OPT_INT,
     .offset = AT(heads),
     .value = "N",
     .fallback = "4",
     .min = 1,
     .max = 256,
     .help = "heads"},
    {.name = "dim",
     .type = EK_OPT_INT,
     .offset = AT(dim),
     .value = "N",
     .fallback = "64",
     .min = 1,
     .max = EK_JAGGED_DIM_MAX,
     .help = "of a head"},
    {.name = "keys",
     .type = EK_OPT_INT,
     .offset = AT(keys),
     .value = "N",
     .fallback = "64",
     .min = 1,
     .max = EK_BENCH_LENGTH_MAX,
     .help = "gdpa: keys of each sequence"},
    {.name = "seed",
     .type = EK_OPT_INT,
     .offset = AT(seed),
     .value = "N",
     .fallback = "7",
     .min = 0,
     .max = 1e15,
     .help = "of random lengths"},
    EK_OPT_BENCH_THREADS(AT(bench)),
    EK_OPT_BENCH_REPEATS(AT(bench), "9"),
    EK_OPT_BENCH_ISA(AT(bench)),
    {.name = "jobs",
     .type = EK_OPT_FLAG,
     .offset = AT(jobs),
     .help = "take rows from standard input, for measuring in turn with others"},
    EK_OPT_BENCH_JSON(AT(bench)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "bench attention",
    .summary = "measure attention over sequences of uneven lengths",
    .arguments = "",
    .details =
        "Forward and backward, as training runs them: jfa is causal softmax, hstu "
        "causal silu over the longest length, gdpa gelu of --keys keys a sequence, "
        "block softmax in blocks of 64.\n\n"
        "GFLOP/s (10^9) count the pairs of query and key that a mask shows, 4 dim a "
        "pair and head forward and 2.5 times that backward: padding never counts. The "
        "share is of the dot products of --dtype alone, measured in the same run. "
        "Memory is what inputs, outputs and gradients take, and, beside them, what the "
        "pass needs. `uneven` is the most work of a thread over the mean of all if "
        "each "
        "took as many tiles of the backward pass, in their order, and `dealt` as they "
        "are dealt.\n\n"
        "With --jobs each line on standard input, `KIND DTYPE`, is one repetition, and "
        "is answered by one JSON object when it is done.",
    .examples = "keel bench attention\n"
                "keel bench attention --kind hstu --lengths lognormal:60:1.2 --json",
    .opts = opts,
    .min_args = 0,
    .max_args = 0,
};

enum { F32, BF16, N_DTYPES };
static const enum ek_dtype dtypes[] = {EK_DTYPE_F32, EK_DTYPE_BF16};
static const enum ek_weight_format formats[] = {EK_WEIGHT_F32, EK_WEIGHT_BF16};

/* Everything a measurement holds; closed whole. */
struct work {
    const struct settings *set;
    struct ek_bench bench;
    int64_t *lengths;                                                 /* (batch) */
    struct ek_bench_attention *batches[EK_ATTENTION_COUNT][N_DTYPES]; /* once needed */
    double peak[N_DTYPES];                                            /* GFLOP/s */
    struct ek_buf out;
};

static int need(struct work *w, int kind, int dtype, struct ek_err *err)
{
    const struct settings *set = w->set;
    const struct ek_attention_shape shape = {.kind = (enum ek_attention_kind)kind,
                                             .dtype = dtypes[dtype],
                                             .B = set->batch,
                                             .heads = set->heads,
                                             .dim = set->dim,
                                             .keys = set->keys,
                                             .lengths = w->lengths};
    struct ek_bench_attention **b = &w->batches[kind][dtype];
    return *b ? 0 : ek_bench_attention_new(b, &shape, w->bench.team, w->bench.ops, err);
}

static void measure_peak(struct work *w, int dtype, int n_times)
{
    w->peak[dtype] =
        ek_bench_peak(&w->bench, formats[dtype], ek_team_size(w->bench.team), n_times)
            .median;
}

struct result {
    int kind, dtype;
    struct ek_bench_stat both, forward, backward; /* GFLOP/s */
    struct ek_attention_facts facts;
};

static int print_json(struct work *w, const struct result *r, struct ek_err *err)
{
    const struct ek_attention_facts *f = &r->facts;
    const double f_ms = f->flop / r->forward.median / 1e6;
    const double b_ms = 2.5 * f->flop / r->backward.median / 1e6;
    int rc = ek_buf_addf(&w->out, "{\"name\":\"%s\",\"dtype\":\"%s\",",
                         ek_attention_name((enum ek_attention_kind)r->kind),
                         ek_dtype_name(dtypes[r->dtype]));
    if (!rc)
        rc = ek_bench_add_stat(&w->out, "GFLOP/s", &r->both);
    if (!rc)
        rc = ek_buf_addf(&w->out,
                         ",\"forward_ms\":%.4f,\"backward_ms\":%.4f,\"forward\":%.3f,"
                         "\"backward\":%.3f,\"peak\":%.3f,\"share\":%.4f",
                         f_ms, b_ms, r->forward.median, r->backward.median,
                         w->peak[r->dtype], r->both.median / w->peak[r->dtype]);
    if (!rc)
        rc = ek_buf_addf(&w->out,
                         ",\"sequences\":%" PRId64 ",\"rows\":%" PRId64
                         ",\"flop\":%.0f,\"bytes\":%zu,\"beside_bytes\":%zu,"
                         "\"imbalance_before\":%.3f,\"imbalance\":%.3f,",
                         w->set->batch, f->rows, 3.5 * f->flop, f->bytes, f->beside,
                         f->before, f->after);
    if (!rc)
        rc = ek_bench_add_machine(&w->out, &w->bench);
    if (!rc)
        rc = ek_buf_add_char(&w->out, '}');
    return ek_bench_print(&w->out, rc, err);
}

static int print_row(struct work *w, const struct result *r, struct ek_err *err)
{
    const struct ek_attention_facts *f = &r->facts;
    if (w->set->bench.json || w->set->jobs)
        return print_json(w, r, err);
    printf("%-6s %-5s %9.3f %9.3f %8.1f %8.1f %8.1f %7.1f %% %9.1f %8.1f %7.2f %6.2f\n",
           ek_attention_name((enum ek_attention_kind)r->kind),
           ek_dtype_name(dtypes[r->dtype]), f->flop / r->forward.median / 1e6,
           2.5 * f->flop / r->backward.median / 1e6, r->both.min, r->both.median,
           r->both.max, 100 * r->both.median / w->peak[r->dtype],
           (double)f->bytes / 1048576, (double)f->beside / 1048576, f->before,
           f->after);
    return fflush(stdout) ? ek_err_set(err, EK_EIO, "standard output") : 0;
}

static int row(struct work *w, int kind, int dtype, int n_repeats, struct ek_err *err)
{
    double both[EK_BENCH_REPEATS_MAX] = {0}, forward[EK_BENCH_REPEATS_MAX] = {0};
    double backward[EK_BENCH_REPEATS_MAX] = {0};
    const bool is_fresh = !w->batches[kind][dtype];
    int rc = need(w, kind, dtype, err);
    if (rc)
        return rc;
    struct result r = {.kind = kind, .dtype = dtype};
    struct ek_bench_attention *b = w->batches[kind][dtype];
    r.facts = ek_bench_attention_facts(b);
    for (int i = is_fresh ? -1 : 0; i < n_repeats; i++) {
        double f_s, b_s;
        ek_bench_attention_run(b, &f_s, &b_s);
        if (i < 0)
            continue;
        forward[i] = r.facts.flop / f_s / 1e9;
        backward[i] = 2.5 * r.facts.flop / b_s / 1e9;
        both[i] = 3.5 * r.facts.flop / (f_s + b_s) / 1e9;
    }
    r.both = ek_bench_stat_of(both, n_repeats);
    r.forward = ek_bench_stat_of(forward, n_repeats);
    r.backward = ek_bench_stat_of(backward, n_repeats);
    return print_row(w, &r, err);
}

/* Place of the word in names, or -1. */
static int kind_of(const char *word)
{
    for (int k = 0; k < EK_ATTENTION_COUNT; k++)
        if (!strcmp(word, ek_attention_name((enum ek_attention_kind)k)))
            return k;
    return -1;
}

static int dtype_of(const char *word)
{
    for (int t = 0; t < N_DTYPES; t++)
        if (!strcmp(word, ek_dtype_name(dtypes[t])))
            return t;
    return -1;
}

static int serve_jobs(struct work *w, struct ek_err *err)
{
    char line[LINE_BYTES];
    int rc = 0;
    while (!rc && fgets(line, sizeof line, stdin)) {
        char kind[16] = "", dtype[16] = "";
        int end = -1;
        if (sscanf(line, "%15s %15s %n", kind, dtype, &end) != 2 || end < 0 ||
            line[end] || kind_of(kind) < 0 || dtype_of(dtype) < 0)
            return ek_err_set(err, EK_EINVAL,
                              "standard input: '%.*s': expected KIND DTYPE, as `jfa "
                              "bf16`",
                              (int)strcspn(line, "\n"), line);
        measure_peak(w, dtype_of(dtype), 1); /* the machine may be another one by now */
        rc = row(w, kind_of(kind), dtype_of(dtype), 1, err);
    }
    return rc;
}

static int rows(struct work *w, struct ek_err *err)
{
    const struct settings *set = w->set;
    int rc = 0;
    for (int t = 0; t < N_DTYPES; t++)
        if (set->dtype == 0 || set->dtype - 1 == t)
            measure_peak(w, t, PEAK_TIMES);
    if (!set->bench.json) {
        ek_bench_print_machine(&w->bench);
        printf("%" PRId64 " sequences, %" PRId64 " heads of %" PRId64
               "; dot products alone: f32 %.0f, bf16 %.0f GFLOP/s\n\n"
               "%-6s %-5s %9s %9s %8s %8s %8s %9s %9s %8s %7s %6s\n",
               set->batch, set->heads, set->dim, w->peak[F32], w->peak[BF16], "", "",
               "fwd ms", "bwd ms", "min", "median", "max", "of peak", "MiB", "beside",
               "uneven", "dealt");
    }
    for (int k = 0; k < EK_ATTENTION_COUNT; k++)
        for (int t = 0; t < N_DTYPES; t++) {
            bool is_asked = (set->kind == 0 || set->kind - 1 == k) &&
                            (set->dtype == 0 || set->dtype - 1 == t);
            if (is_asked && !rc)
                rc = row(w, k, t, (int)set->bench.repeats, err);
            ek_bench_attention_free(w->batches[k][t]);
            w->batches[k][t] = NULL;
        }
    return rc;
}

/* *is_input: what failed is what was asked for. */
static int measure(const struct settings *set, bool *is_input, struct ek_err *err)
{
    struct work w = {.set = set};
    ek_buf_init(&w.out, 1 << 12);
    ek_bench_choose_isa(&set->bench);
    *is_input = true;
    int rc = 0;
    w.lengths = ek_alloc_array((size_t)set->batch, sizeof *w.lengths);
    if (!w.lengths)
        rc = ek_err_set(err, EK_ENOMEM, "out of memory");
    if (!rc)
        rc = ek_bench_lengths(w.lengths, set->batch, set->lengths, (uint64_t)set->seed,
                              err);
    if (!rc) {
        *is_input = false;
        rc = ek_bench_open(&w.bench, &set->bench, NULL, err);
    }
    if (!rc)
        rc = set->jobs ? serve_jobs(&w, err) : rows(&w, err);
    for (int k = 0; k < EK_ATTENTION_COUNT; k++)
        for (int t = 0; t < N_DTYPES; t++)
            ek_bench_attention_free(w.batches[k][t]);
    ek_bench_close(&w.bench);
    ek_free(w.lengths);
    ek_buf_release(&w.out);
    return rc;
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_err err = EK_ERR_INIT;
    bool is_input = false;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    if (ek_verb_options(&ek_verb_bench_attention, &set, &args, argc, argv, &arena,
                        &code) &&
        measure(&set, &is_input, &err)) {
        code = ek_verb_fail(&ek_verb_bench_attention, &err, is_input);
        if (err.status == EK_EINVAL)
            code = EK_EXIT_USAGE;
    }
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_bench_attention = {&table, run};
