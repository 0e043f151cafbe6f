/* table.c - a large table in training: look-up, gradient and row-wise adagrad of a step.
 *
 *   bench_table [--threads N] [--bag 20] [--rounds N] [--jobs 1]
 *
 * 1,048,576 rows of 64 floats; 81,920 ids a step, Zipf 1.05, in bags whose rows are summed
 * (--bag 1: every row by itself, which is how events are looked up). A step is what is
 * timed: the look-up, a loss that is the product with a constant and its gradient of one
 * row a bag, the sums of rows that came more than once, the update. --jobs: each line of
 * standard input, seconds, is answered by a JSON line of one repetition (bench/train.sh).
 * One thread is timed by its processor time. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "graph/ops.h"
#include "train/adagrad.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { V = 1 << 20, D = 64, IDS = 81920, SETS = 8 };

struct table {
    struct ek_team *team;
    struct ek_params *params;
    struct ek_graph *g;
    struct ek_adagrad_state *adagrad;
    int ids_in, offsets_in, weights_in;
    int32_t *ids;     /* (SETS, IDS) */
    int64_t *offsets; /* (IDS / bag + 1) */
    float *weights;   /* (IDS / bag, D): the gradient of the output */
    int64_t n_bags, n_steps;
};

static void *needed(void *p)
{
    if (!p)
        exit(1);
    return p;
}

static double now_s(const struct table *t)
{
    struct timespec at;
    if (ek_team_size(t->team) > 1)
        return (double)ek_clock_us() * 1e-6;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* Row k of the ranking has probability ~ (k+1)^-1.05, and a place anywhere in the table. */
static void draw(struct table *t)
{
    double *sum = needed(ek_alloc_array(V, sizeof *sum)), total = 0;
    struct ek_rng rng;
    ek_rng_init(&rng, 1);
    for (int i = 0; i < V; i++)
        sum[i] = total += pow(i + 1, -1.05);
    for (int i = 0; i < SETS * IDS; i++) {
        double x = ek_rng_uniform(&rng) * total;
        int lo = 0, hi = V - 1;
        while (lo < hi) {
            int mid = (lo + hi) / 2;
            if (sum[mid] < x)
                lo = mid + 1;
            else
                hi = mid;
        }
        t->ids[i] = (int32_t)((uint32_t)lo * 2654435761u % V);
    }
    ek_free(sum);
}

static void open_table(struct table *t, int bag)
{
    struct ek_graph_options o = {.team = t->team, .isa = ek_isa_best()};
    struct ek_adagrad_options ao = {.eps = 1e-8f, .max_rows = IDS};
    if (ek_params_new(&t->params, 1, NULL) || ek_graph_new(&t->g, t->params, &o, NULL))
        exit(1);
    t->n_bags = IDS / bag;
    t->ids = needed(ek_alloc_array((size_t)SETS * IDS, sizeof *t->ids));
    t->offsets = needed(ek_alloc_array((size_t)t->n_bags + 1, sizeof *t->offsets));
    t->weights = needed(ek_alloc_array((size_t)t->n_bags * D, sizeof *t->weights));
    for (int64_t i = 0; i <= t->n_bags; i++)
        t->offsets[i] = i * bag;
    for (int64_t i = 0; i < t->n_bags * D; i++)
        t->weights[i] = 1.0f;
    draw(t);
    struct ek_param_spec spec = {.name = "t", .rows = V, .cols = D, .is_table = true};
    int entries = ek_graph_axis(t->g, "entries", IDS);
    int bags = ek_graph_axis(t->g, "bags", t->n_bags);
    int ends = ek_graph_axis(t->g, "ends", t->n_bags + 1);
    t->ids_in = ek_graph_input(t->g, "ids", entries, 1, EK_DTYPE_I32);
    t->offsets_in = ek_graph_input(t->g, "offsets", ends, 1, EK_DTYPE_I64);
    t->weights_in = ek_graph_input(t->g, "weights", bags, D, EK_DTYPE_F32);
    int param = ek_graph_param(t->g, &spec);
    int y = bag == 1 ? ek_lookup(t->g, param, t->ids_in, 1.0f)
                     : ek_bag(t->g, param, t->ids_in, t->offsets_in, bags, false);
    if (bag == 1)
        t->weights_in = ek_graph_input(t->g, "rows", entries, D, EK_DTYPE_F32);
    ek_graph_loss(t->g, ek_inner(t->g, y, t->weights_in));
    if (ek_graph_plan(t->g, NULL) || ek_graph_set_axis(t->g, entries, IDS) ||
        ek_graph_set_axis(t->g, bags, t->n_bags) ||
        ek_graph_set_axis(t->g, ends, t->n_bags + 1) ||
        ek_adagrad_new(&t->adagrad, t->params, ek_isa_best(), &ao, NULL))
        exit(1);
    ek_graph_bind(t->g, t->offsets_in, t->offsets);
    ek_graph_bind(t->g, t->weights_in, t->weights);
}

static void step(struct table *t)
{
    struct ek_row_grad rows[EK_ROW_SOURCES];
    ek_graph_bind(t->g, t->ids_in, t->ids + t->n_steps % SETS * IDS);
    ek_graph_forward(t->g, (uint64_t)t->n_steps);
    ek_graph_backward(t->g, 1.0f);
    ek_adagrad_step(t->adagrad, t->team, 0, rows, ek_graph_row_grads(t->g, 0, rows),
                    0.01f, 1.0f);
    t->n_steps++;
}

/* Rows a second of the best step and of all. */
static void repeat(struct table *t, double seconds, double *best, double *mean)
{
    double start = now_s(t), at = start, least = 1e9;
    int64_t n = t->n_steps;
    while (at - start < seconds) {
        double before = at;
        step(t);
        at = now_s(t);
        least = fmin(least, at - before);
    }
    *best = IDS / least;
    *mean = (double)(t->n_steps - n) * IDS / (at - start);
}

static void answer(struct table *t)
{
    char line[64];
    double best, mean;
    while (fgets(line, sizeof line, stdin)) {
        repeat(t, strtod(line, NULL), &best, &mean);
        printf("{\"median\": %.1f, \"best\": %.1f, \"threads\": %d}\n", mean, best,
               ek_team_size(t->team));
        (void)fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static struct table t;
    int threads = 0, bag = 20, rounds = 5, jobs = 0;
    const struct {
        const char *name;
        int *value;
    } all[] = {{"--threads", &threads},
               {"--bag", &bag},
               {"--rounds", &rounds},
               {"--jobs", &jobs}};
    for (int i = 1; i + 1 < argc; i += 2)
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (strcmp(argv[i], all[k].name) == 0)
                *all[k].value = (int)strtol(argv[i + 1], NULL, 10);
    if (bag < 1 || IDS % bag || ek_team_new(&t.team, threads, true, NULL)) {
        (void)fprintf(stderr, "bench_table: --bag: expected a divisor of %d\n", IDS);
        return 1;
    }
    open_table(&t, bag);
    for (int i = 0; i < SETS; i++)
        step(&t);
    if (jobs)
        answer(&t);
    for (int i = 0; !jobs && i < rounds; i++) {
        double best, mean;
        repeat(&t, 1, &best, &mean);
        printf("%d threads, bags of %d: %.2f M rows/s, the best step %.2f\n",
               ek_team_size(t.team), bag, mean * 1e-6, best * 1e-6);
    }
    ek_adagrad_free(t.adagrad);
    ek_graph_free(t.g);
    ek_params_free(t.params);
    ek_team_free(t.team);
    ek_free(t.ids);
    ek_free(t.offsets);
    ek_free(t.weights);
    return 0;
}
