/* gemkit.h - small gem models with columns of every kind, and batches whose sequences end
 * within chunks, at their edges, and behind a block of attention. */
#ifndef EVENKEEL_TESTS_REC_GEMKIT_H
#define EVENKEEL_TESTS_REC_GEMKIT_H

#include "framekit.h"

#include <math.h>
#include <stdio.h>

#define N_ITEMS 19
#define MAX_B   8
#define MAX_T   128

enum { SEGMENT, AGE, DEVICE, RATING, N_COLUMNS };

static const struct ek_rec_column gk_columns[N_COLUMNS] = {
    [SEGMENT] = {"segment", true, 5},
    [AGE] = {"age", true, 0},
    [DEVICE] = {"device", false, 3},
    [RATING] = {"rating", false, 0},
};

static const struct ek_rec_shape gk_shape = {.n_items = N_ITEMS,
                                             .max_sequences = MAX_B,
                                             .max_rows = MAX_T,
                                             .n_columns = N_COLUMNS,
                                             .columns = gk_columns};

static const int64_t gk_lengths[] = {5, 1, 70, 4, 8, 13};

struct gemkit {
    struct ek_team *team;
    struct ek_params *params;
    struct ek_rec *m;
    struct ek_rec_config c;
    struct ek_rec_batch b;
    int64_t offsets[MAX_B + 1];
    int32_t items[MAX_T], targets[MAX_T], negatives[8];
    int32_t segment[MAX_B], device[MAX_T];
    float age[MAX_B], rating[MAX_T], clicks[MAX_T];
    int64_t times[MAX_T], next_times[MAX_T];
};

/* 0 blocks of 64, 1 a window and times, 2 alternating blocks with one expert, 3 tables
 * of categories with a width of their own, one of them hashed. */
#define GK_VARIANTS 4
static inline struct ek_rec_config gk_config(int variant)
{
    return (struct ek_rec_config){.kind = EK_REC_GEM,
                                  .dim = 8,
                                  .blocks = 2,
                                  .heads = 2,
                                  .ffn = 6,
                                  .max_length = 72,
                                  .has_times = variant == 1,
                                  .loss = EK_REC_SAMPLED,
                                  .negatives = 8,
                                  .temperature = 0.5,
                                  .seeds = 2,
                                  .rank = 3,
                                  .experts = variant == 2 ? 1 : 2,
                                  .window = variant == 1 ? 6 : 0,
                                  .chunk = 4,
                                  .column_dim = variant == 3 ? 3 : 0,
                                  .column_rows = variant == 3 ? 4 : 0,
                                  .alternates = variant == 2,
                                  .click_weight = 0.7};
}

/* Sequences [from, to) of the lengths, the same rows whichever are taken. */
static inline void gk_fill(struct gemkit *k, size_t from, size_t to)
{
    struct ek_rng rng;
    int64_t t = 0;
    for (size_t s = from; s < to; s++) {
        ek_rng_init(&rng, 100 + s);
        int64_t now = (int64_t)1000000 * (int64_t)(s + 1);
        k->segment[s - from] = (int32_t)ek_rng_below(&rng, 5);
        k->age[s - from] = (float)ek_rng_uniform(&rng) * 90.0f;
        for (int64_t i = 0; i < gk_lengths[s]; i++, t++) {
            k->items[t] = (int32_t)ek_rng_below(&rng, N_ITEMS);
            k->targets[t] = (int32_t)ek_rng_below(&rng, N_ITEMS + 2) - 2;
            k->device[t] = (int32_t)ek_rng_below(&rng, 3);
            k->rating[t] = (float)ek_rng_normal(&rng);
            k->clicks[t] = (float)ek_rng_below(&rng, 2);
            k->times[t] = now;
            now += (int64_t)ek_rng_below(&rng, 100) * 700000;
            k->next_times[t] = now;
        }
        k->offsets[s - from + 1] = t;
    }
    for (size_t j = 0; j < COUNT(k->negatives); j++)
        k->negatives[j] = (int32_t)(2 * j);
    k->b = (struct ek_rec_batch){.B = (int64_t)(to - from),
                                 .T = t,
                                 .offsets = k->offsets,
                                 .items = k->items,
                                 .times = k->times,
                                 .next_times = k->next_times,
                                 .targets = k->targets,
                                 .negatives = k->negatives,
                                 .clicks = k->clicks};
    k->b.columns[SEGMENT].levels = k->segment;
    k->b.columns[AGE].numbers = k->age;
    k->b.columns[DEVICE].levels = k->device;
    k->b.columns[RATING].numbers = k->rating;
}

enum gk_use { GK_RUNS, GK_TRAINS, GK_TRAINS_FRESH }; /* fresh: initial values stay */

static inline void gk_open(struct gemkit *k, const struct ek_rec_config *c,
                           int n_threads, enum gk_use use)
{
    memset(k, 0, sizeof *k);
    struct frame f =
        frame_open(c, &gk_shape,
                   (struct frame_how){.n_threads = n_threads,
                                      .is_training = use != GK_RUNS,
                                      .keeps_init = use == GK_TRAINS_FRESH});
    k->c = *c;
    k->team = f.team;
    k->params = f.params;
    k->m = f.m;
    gk_fill(k, 0, COUNT(gk_lengths));
}

static inline void gk_close(struct gemkit *k)
{
    frame_close(k->m, k->params, k->team);
}

static inline void gk_forward(struct gemkit *k)
{
    frame_forward(k->m, &k->b);
}

static inline const float *gk_h(const struct gemkit *k)
{
    return ek_graph_mat(ek_rec_graph(k->m), ek_rec_h(k->m)).f;
}

static inline const float *gk_logits(const struct gemkit *k)
{
    return ek_graph_mat(ek_rec_graph(k->m), ek_rec_click(k->m)).f;
}

#endif
