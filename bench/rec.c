/* rec.c - a training step of a recommender, taken apart: tokens/s, and where they go.
 *
 *   bench_rec [--data FILE] [--model sasrec|hstu] [--length N] [--threads N] [--bf16 1]
 *             [--table 1] [--negatives N] [--loss full] [--batch N] [--seconds S]
 *             [--blocks N] [--heads N] [--dim N] [--steps N] [--jobs 1] [--pad 1]
 *             [--median N] [--longest N]
 *
 * --steps runs so many and prints nothing of single operations: for counters of cycles.
 * --jobs answers each line of standard input, seconds, by a JSON line of one repetition
 * (bench/train.sh). --pad lengthens every sequence to its batch's longest, without loss
 * there; tokens are counted as before. planned and grown: bytes of arena, parameters,
 * gradients and moments, and what the process grew by at most while it trained. --median and --longest: lengths of the made log.
 * One step: the loader's next batch, zeroed gradients, forward, backward, the norm that
 * clipping needs, AdamW (and row-wise adagrad with --table). Without --data a made log
 * of Beauty's size. Of each phase the best tenth and the median of its steps. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/events_read.h"
#include "data/events_synth.h"
#include "rec/model.h"
#include "train/adagrad.h"
#include "train/adamw.h"
#include "train/loader.h"
#include "train/resident.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_STEPS 20000

struct options {
    const char *data, *model, *loss;
    long length, threads, bf16, table, negatives, batch, seconds, blocks, heads, dim,
        steps, jobs, pad, median, longest;
};

enum phase { LOAD, ZERO, FORWARD, BACKWARD, NORM, UPDATE, ALL, N_PHASES };
static const char *const phase_names[N_PHASES] = {
    "loader", "zero", "forward", "backward", "norm", "update", "step"};

struct bench {
    struct options o;
    struct ek_team *team;
    struct ek_events events;
    struct ek_split split;
    struct ek_loader *loader;
    struct ek_params *params;
    struct ek_rec *m;
    struct ek_adamw_state *adamw;
    struct ek_adagrad_state *adagrad;
    struct ek_rng rng;
    int32_t *negatives;
    int64_t *us[N_PHASES];
    int64_t n_steps, tokens;
    int64_t resident; /* bytes, before the model */
    /* --pad: a batch made rectangular, and its rows so far */
    int64_t *pad_offsets, pad_rows;
    int32_t *pad_items, *pad_targets;
};

static void die(const struct ek_err *err)
{
    (void)fprintf(stderr, "bench_rec: %s\n", err->text);
    exit(1);
}

static void parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){.model = "sasrec",
                          .loss = "sampled",
                          .length = 50,
                          .negatives = 256,
                          .batch = 128,
                          .seconds = 5,
                          .blocks = 1,
                          .heads = 1,
                          .dim = 64,
                          .median = 7,
                          .longest = 204};
    const struct {
        const char *name, **text;
        long *number;
    } all[] = {{"--data", &o->data, NULL},       {"--model", &o->model, NULL},
               {"--loss", &o->loss, NULL},       {"--length", NULL, &o->length},
               {"--threads", NULL, &o->threads}, {"--bf16", NULL, &o->bf16},
               {"--table", NULL, &o->table},     {"--negatives", NULL, &o->negatives},
               {"--batch", NULL, &o->batch},     {"--seconds", NULL, &o->seconds},
               {"--blocks", NULL, &o->blocks},   {"--heads", NULL, &o->heads},
               {"--dim", NULL, &o->dim},         {"--steps", NULL, &o->steps},
               {"--jobs", NULL, &o->jobs},       {"--pad", NULL, &o->pad},
               {"--median", NULL, &o->median},   {"--longest", NULL, &o->longest}};
    for (int i = 1; i + 1 < argc; i += 2)
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
            if (strcmp(argv[i], all[k].name) == 0) {
                if (all[k].text)
                    *all[k].text = argv[i + 1];
                else
                    *all[k].number = strtol(argv[i + 1], NULL, 10);
            }
}

static void open_data(struct bench *b)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_synth_options made = {.n_users = 22363,
                                    .n_items = 12101,
                                    .median = (double)b->o.median,
                                    .sigma = 0.6,
                                    .min_length = 5,
                                    .max_length = b->o.longest,
                                    .zipf = 0.8,
                                    .follow = 0.5,
                                    .seed = 1};
    struct ek_events_options read = {0};
    int rc = b->o.data ? ek_events_read(&b->events, NULL, b->o.data, &read, &err)
                       : ek_events_synth(&b->events, &made, &err);
    struct ek_loader_options lo = {.part = EK_PART_TRAIN,
                                   .seed = 1,
                                   .max_length = b->o.length,
                                   .batch = b->o.batch};
    if (rc || ek_split_leave_one_out(&b->split, &b->events, &err) ||
        ek_loader_new(&b->loader, &b->events, &b->split, &lo, &err))
        die(&err);
}

static void open_model(struct bench *b)
{
    struct ek_err err = EK_ERR_INIT;
    const struct options *o = &b->o;
    struct ek_rec_config c = {
        .kind = strcmp(o->model, "hstu") == 0 ? EK_REC_HSTU : EK_REC_SASREC,
        .dim = o->dim,
        .blocks = (int)o->blocks,
        .heads = (int)o->heads,
        .dropout = 0.2,
        .max_length = o->length,
        .loss = strcmp(o->loss, "full") == 0 ? EK_REC_FULL : EK_REC_SAMPLED,
        .negatives = o->negatives,
        .is_cosine = true,
        .temperature = 0.05,
        .has_row_optimizer = o->table};
    struct ek_rec_shape shape = {.n_items = b->events.n_items};
    struct ek_graph_options go = {.team = b->team,
                                  .isa = ek_isa_best(),
                                  .is_bf16 = o->bf16,
                                  .is_training = true,
                                  .seed = 1};
    struct ek_adamw_options ao = {.beta1 = 0.9f, .beta2 = 0.98f, .eps = 1e-8f};
    ek_loader_ceiling(b->loader, &shape.max_sequences, &shape.max_rows);
    if (o->pad)
        shape.max_rows = shape.max_sequences * o->length;
    struct ek_adagrad_options to = {
        .eps = 1e-8f, .max_rows = 2 * shape.max_rows + o->negatives + shape.n_items};
    if (ek_params_new(&b->params, 1, &err) ||
        ek_rec_new(&b->m, b->params, &c, &shape, &go, &err) ||
        ek_adamw_new(&b->adamw, b->params, ek_isa_best(), &ao, &err) ||
        (o->table && ek_adagrad_new(&b->adagrad, b->params, ek_isa_best(), &to, &err)))
        die(&err);
    b->negatives = ek_alloc_array((size_t)o->negatives, sizeof *b->negatives);
    if (o->pad) {
        size_t n = (size_t)shape.max_rows;
        b->pad_offsets =
            ek_alloc_array((size_t)shape.max_sequences + 1, sizeof(int64_t));
        b->pad_items = ek_alloc_array(n, sizeof *b->pad_items);
        b->pad_targets = ek_alloc_array(n, sizeof *b->pad_targets);
        if (!b->pad_offsets || !b->pad_items || !b->pad_targets)
            exit(1);
    }
    for (int i = 0; i < N_PHASES; i++)
        b->us[i] = ek_calloc(MAX_STEPS, sizeof **b->us);
    if (!b->negatives || !b->us[ALL])
        exit(1);
    (void)fprintf(stderr,
                  "%s %s: %lld users, %lld items, arena %.1f MiB, saved %.1f MiB\n",
                  o->model, o->data ? o->data : "made log",
                  (long long)b->events.n_users, (long long)b->events.n_items,
                  (double)ek_graph_arena_bytes(ek_rec_graph(b->m)) / 1048576,
                  (double)ek_graph_saved_bytes(ek_rec_graph(b->m)) / 1048576);
}

static void pad(struct bench *b, struct ek_rec_batch *x)
{
    int64_t longest = 0;
    for (int64_t s = 0; s < x->B; s++)
        if (x->offsets[s + 1] - x->offsets[s] > longest)
            longest = x->offsets[s + 1] - x->offsets[s];
    for (int64_t s = 0; s < x->B; s++) {
        int64_t n = x->offsets[s + 1] - x->offsets[s], at = s * longest;
        b->pad_offsets[s] = at;
        for (int64_t i = 0; i < longest; i++) {
            int64_t from = x->offsets[s] + i;
            b->pad_items[at + i] = i < n ? x->items[from] : 0;
            b->pad_targets[at + i] = i < n ? x->targets[from] : EK_BATCH_NO_TARGET;
        }
    }
    x->T = b->pad_offsets[x->B] = x->B * longest;
    x->offsets = b->pad_offsets;
    x->items = b->pad_items;
    x->targets = b->pad_targets;
    b->pad_rows += x->T;
}

static void load(struct bench *b)
{
    struct ek_batch x;
    while (!ek_loader_next(b->loader, &x))
        continue;
    for (long i = 0; i < b->o.negatives; i++)
        b->negatives[i] = (int32_t)ek_rng_below(&b->rng, (uint64_t)b->events.n_items);
    struct ek_rec_batch rb = {.B = x.B,
                              .T = x.T,
                              .offsets = x.offsets,
                              .items = x.items,
                              .targets = x.targets,
                              .negatives = b->negatives};
    if (b->o.pad)
        pad(b, &rb);
    if (ek_rec_bind(b->m, &rb))
        exit(1);
    b->tokens += x.T;
}

static void update(struct bench *b)
{
    struct ek_row_grad rows[EK_ROW_SOURCES];
    ek_adamw_step(b->adamw, b->team, 1e-3f, 1.0f);
    if (b->adagrad)
        ek_adagrad_step(
            b->adagrad, b->team, ek_rec_items(b->m), rows,
            ek_graph_row_grads(ek_rec_graph(b->m), ek_rec_items(b->m), rows), 0.01f,
            1.0f);
}

static void step(struct bench *b)
{
    int64_t at[N_PHASES];
    struct ek_graph *g = ek_rec_graph(b->m);
    at[0] = ek_clock_us();
    load(b);
    at[1] = ek_clock_us();
    ek_params_zero_grad(b->params);
    at[2] = ek_clock_us();
    ek_graph_forward(g, (uint64_t)b->n_steps);
    at[3] = ek_clock_us();
    ek_graph_backward(g, 1.0f);
    at[4] = ek_clock_us();
    (void)ek_adamw_grad_norm(b->adamw, b->team);
    at[5] = ek_clock_us();
    update(b);
    at[6] = ek_clock_us();
    for (int i = 0; i < ALL; i++)
        b->us[i][b->n_steps] = at[i + 1] - at[i];
    b->us[ALL][b->n_steps++] = at[ALL] - at[0];
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_ops(const struct bench *b)
{
    struct ek_graph_row x, y;
    const struct ek_graph *g = ek_rec_graph(b->m);
    int n = ek_graph_rows(g);
    for (int i = 0; i < n; i++) {
        double ms = 0;
        int64_t flops = 0;
        bool is_first = true;
        ek_graph_explain(g, i, &x);
        for (int j = 0; j < n; j++) {
            ek_graph_explain(g, j, &y);
            if (strcmp(x.op, y.op) != 0 || strcmp(x.phase, y.phase) != 0)
                continue;
            is_first &= j >= i;
            ms += y.ms;
            flops += y.flops;
        }
        if (is_first && ms > 0.001)
            printf("  %-9s %-16s %8.3f ms %8.1f GFLOP/s\n", x.phase, x.op, ms,
                   (double)flops / ms * 1e-6);
    }
}

/* One thread: the process's own processor time, which leaves out what else runs. */
static double now_s(const struct bench *b)
{
    struct timespec t;
    if (ek_team_size(b->team) > 1)
        return (double)ek_clock_us() * 1e-6;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Steps for so many seconds; the seconds that it took. */
static double run(struct bench *b, double seconds)
{
    double start = now_s(b);
    b->n_steps = b->tokens = b->pad_rows = 0;
    while (b->n_steps < MAX_STEPS && now_s(b) - start < seconds)
        step(b);
    return now_s(b) - start;
}

static int64_t planned(const struct bench *b)
{
    const int64_t huge = (int64_t)2 << 20; /* pages of an arena that is as large */
    int64_t sum = (int64_t)ek_graph_arena_bytes(ek_rec_graph(b->m));
    sum = sum < huge ? sum : (sum + huge - 1) / huge * huge;
    for (int i = 0; i < ek_params_count(b->params); i++) {
        const struct ek_param *p = ek_params_get(b->params, i);
        sum += p->rows * (p->is_table ? p->cols + 1 : 4 * p->cols) * 4;
    }
    return sum;
}

static void answer(struct bench *b)
{
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        double s = run(b, strtod(line, NULL));
        int64_t rows = b->o.pad ? b->pad_rows : b->tokens;
        printf("{\"median\": %.1f, \"waste\": %.4f, \"steps\": %lld, \"threads\": %d, "
               "\"planned\": %lld, \"grown\": %lld}\n",
               (double)b->tokens / s, 1.0 - (double)b->tokens / (double)rows,
               (long long)b->n_steps, ek_team_size(b->team), (long long)planned(b),
               (long long)(ek_resident_peak() - b->resident));
        (void)fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct ek_err err = EK_ERR_INIT;
    parse(&b.o, argc, argv);
    ek_rng_init(&b.rng, 7);
    if (ek_team_new(&b.team, (int)b.o.threads, true, &err))
        die(&err);
    open_data(&b);
    b.resident = ek_resident_bytes();
    ek_resident_mark();
    open_model(&b);
    for (int i = 0; i < (b.o.steps ? b.o.steps : 20); i++)
        step(&b);
    if (b.o.steps)
        return 0;
    if (b.o.jobs) {
        answer(&b);
        return 0;
    }
    double s = run(&b, (double)b.o.seconds);
    printf("%d threads: %.0f tokens/s (%.0f a step, %lld steps)", ek_team_size(b.team),
           (double)b.tokens / s, (double)b.tokens / (double)b.n_steps,
           (long long)b.n_steps);
    for (int i = 0; i < N_PHASES; i++) {
        qsort(b.us[i], (size_t)b.n_steps, sizeof **b.us, compare);
        if (i == ALL)
            printf("; at the median step %.0f tokens/s\n",
                   (double)b.tokens / (double)b.n_steps /
                       (double)b.us[ALL][b.n_steps / 2] * 1e6);
    }
    for (int i = 0; i < N_PHASES; i++)
        printf("  %-9s %8.3f %8.3f ms\n", phase_names[i],
               (double)b.us[i][b.n_steps / 10] * 1e-3,
               (double)b.us[i][b.n_steps / 2] * 1e-3);
    ek_graph_profile(ek_rec_graph(b.m), true);
    int64_t steps = b.n_steps < 200 ? b.n_steps : 200;
    for (b.n_steps = 0; b.n_steps < steps;)
        step(&b);
    print_ops(&b);
    return 0;
}
