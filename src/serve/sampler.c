/* sampler.c - one pass over the row tells its largest and whether it is finite, a
 * second one weighs it; from there on only blocks that can matter are read again. */
#include "serve/sampler.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IN_PROMPT 0x80000000u
#define OUT       (-1e9f) /* logit of a token that must not come; finite under any T */
#define COLDEST   1e-5f   /* temperatures under it are greedy */

void ek_sampling_default(struct ek_sampling *s)
{
    *s = (struct ek_sampling){
        .temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
}

int ek_sampler_room_init(struct ek_sampler_room *r, int32_t V, const struct ek_ops *ops)
{
    size_t n = (size_t)V, n_blocks = (size_t)ek_pick_blocks(V);
    *r = (struct ek_sampler_room){.V = V, .ops = ops};
    r->x = ek_alloc_array(n, sizeof *r->x);
    r->e = ek_alloc_array(n, sizeof *r->e);
    r->ids = ek_alloc_array(n, sizeof *r->ids);
    r->max = ek_alloc_array(n_blocks, sizeof *r->max);
    r->sum = ek_alloc_array(n_blocks, sizeof *r->sum);
    if (r->x && r->e && r->ids && r->max && r->sum)
        return 0;
    ek_sampler_room_release(r);
    return EK_ENOMEM;
}

void ek_sampler_room_release(struct ek_sampler_room *r)
{
    ek_free(r->x);
    ek_free(r->e);
    ek_free(r->ids);
    ek_free(r->max);
    ek_free(r->sum);
    *r = (struct ek_sampler_room){0};
}

static void note(struct ek_sampler *s, int32_t id, uint32_t what)
{
    if (s->counts[id] == 0) {
        assert(s->n_seen < s->cap_seen);
        s->seen[s->n_seen++] = id;
    }
    if (what == IN_PROMPT)
        s->counts[id] |= IN_PROMPT;
    else
        s->counts[id]++;
}

int ek_sampler_init(struct ek_sampler *s, const struct ek_sampling *how,
                    uint64_t seed_offset, int32_t V, struct ek_arena *arena,
                    const int32_t *prompt, int32_t n_prompt, int32_t max_tokens)
{
    *s = (struct ek_sampler){.how = how};
    ek_rng_init(&s->rng, how->seed + seed_offset);
    bool has_repetition = how->repetition_penalty != 1.0f;
    if (!has_repetition && how->frequency_penalty == 0 && how->presence_penalty == 0)
        return 0;
    int64_t most = (int64_t)n_prompt + max_tokens;
    s->cap_seen = most < V ? (int32_t)most : V;
    s->counts = ek_arena_calloc(arena, (size_t)V, sizeof *s->counts);
    s->seen = ek_arena_alloc(arena, (size_t)s->cap_seen * sizeof *s->seen);
    if (!s->counts || !s->seen)
        return EK_ENOMEM;
    for (int32_t i = 0; has_repetition && i < n_prompt; i++)
        note(s, prompt[i], IN_PROMPT);
    return 0;
}

/* Steps 2 to 5. */
static void adjust(const struct ek_sampler *s, float *x, bool has_no_end)
{
    const struct ek_sampling *how = s->how;
    for (int32_t i = 0; i < how->n_bias; i++)
        x[how->bias[i].id] += how->bias[i].bias;
    for (int32_t i = 0; i < s->n_seen; i++) {
        int32_t v = s->seen[i];
        float r = how->repetition_penalty;
        uint32_t n = s->counts[v] & ~IN_PROMPT;
        x[v] = x[v] > 0 ? x[v] / r : x[v] * r;
        if (n > 0)
            x[v] -= how->frequency_penalty * (float)n + how->presence_penalty;
    }
    for (int32_t i = 0; has_no_end && i < s->n_ends; i++)
        x[s->ends[i]] = OUT;
}

/* Larger value first, lower id at a tie. */
static int compare_ids(const void *a, const void *b, void *values)
{
    const float *x = values;
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (x[i] != x[j])
        return x[i] > x[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

/* The ids with e >= floor; returns how many there are. */
static int32_t gather(struct ek_sampler_room *r, float floor)
{
    int32_t n_ids = 0;
    for (int32_t b = 0, i = 0; i < r->V; b++, i += EK_PICK_BLOCK) {
        int32_t end = r->V - i < EK_PICK_BLOCK ? r->V : i + EK_PICK_BLOCK;
        for (int32_t j = i; r->max[b] >= floor && j < end; j++) {
            r->ids[n_ids] = j;
            n_ids += r->e[j] >= floor;
        }
    }
    return n_ids;
}

static double sum_of_ids(const struct ek_sampler_room *r, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)r->e[r->ids[i]];
    return sum;
}

static double sum_of_all(const struct ek_sampler_room *r)
{
    double sum = 0;
    for (int64_t b = 0; b < ek_pick_blocks(r->V); b++)
        sum += r->sum[b];
    return sum;
}

/* Sorts into `ids` the largest of e that are >= floor: at least min_n of them, and at
 * least as many as sum to min_sum, or all. Takes a falling threshold, so that the sort
 * sees tens of tokens and not the vocabulary. The largest e is 1. */
static int32_t sorted_top(struct ek_sampler_room *r, float floor, int32_t min_n,
                          double min_sum)
{
    int32_t n = 0;
    for (float f = 0.125f;; f = f < 1e-30f ? 0 : f * 0.125f) {
        n = gather(r, f > floor ? f : floor);
        if (f <= floor || (n >= min_n && sum_of_ids(r, n) >= min_sum))
            break;
    }
    qsort_r(r->ids, (size_t)n, sizeof *r->ids, compare_ids, r->e);
    return n;
}

/* Steps 7 to 9 on the weights r->e, where any of them applies: leaves the candidates in
 * r->ids. */
static int32_t narrow(const struct ek_sampling *how, struct ek_sampler_room *r)
{
    bool has_k = how->top_k > 0 && how->top_k < r->V, has_p = how->top_p < 1;
    if (!has_k && !has_p)
        return gather(r, how->min_p);
    double target = 0;
    if (!has_k && how->min_p > 0)
        target = (double)how->top_p * sum_of_ids(r, gather(r, how->min_p));
    else if (!has_k)
        target = (double)how->top_p * sum_of_all(r);
    int32_t n = sorted_top(r, how->min_p, has_k ? how->top_k : 1, target);
    if (has_k && how->top_k < n)
        n = how->top_k;
    if (!has_p)
        return n;
    if (has_k)
        target = (double)how->top_p * sum_of_ids(r, n);
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)r->e[r->ids[i]];
        if (sum >= target)
            return i + 1;
    }
    return n;
}

/* Step 10 among the first n of r->ids. */
static int32_t draw_of_ids(struct ek_rng *rng, const struct ek_sampler_room *r,
                           int32_t n)
{
    double mark = ek_rng_uniform(rng) * sum_of_ids(r, n), sum = 0;
    int32_t last = r->ids[0];
    for (int32_t i = 0; i < n && sum <= mark; i++) {
        float e = r->e[r->ids[i]];
        sum += (double)e;
        if (e > 0)
            last = r->ids[i]; /* rounding may leave sum just under mark at the end */
    }
    return last;
}

/* Step 10 among all: the block first. */
static int32_t draw_of_all(struct ek_rng *rng, const struct ek_sampler_room *r)
{
    double mark = ek_rng_uniform(rng) * sum_of_all(r), before = 0;
    int64_t n_blocks = ek_pick_blocks(r->V), block = 0;
    for (int64_t b = 0; b < n_blocks && before <= mark; b++) {
        if (r->sum[b] > 0) {
            block = b;
            before += r->sum[b];
        }
    }
    int32_t i = (int32_t)block * EK_PICK_BLOCK, last = i;
    int32_t end = r->V - i < EK_PICK_BLOCK ? r->V : i + EK_PICK_BLOCK;
    double sum = before - r->sum[block];
    for (; i < end && sum <= mark; i++) {
        sum += (double)r->e[i];
        if (r->e[i] > 0)
            last = i;
    }
    return last;
}

int ek_sampler_next(struct ek_sampler *s, int32_t *id, const float *logits,
                    bool has_no_end, struct ek_sampler_room *room)
{
    const struct ek_sampling *how = s->how;
    const struct ek_ops *ops = room->ops;
    int32_t V = room->V;
    const float *x = logits;
    if (!ops->peaks(room->max, x, V))
        return EK_EFORMAT;
    if (how->n_bias > 0 || s->n_seen > 0 || has_no_end) {
        memcpy(room->x, logits, (size_t)V * sizeof *room->x);
        adjust(s, room->x, has_no_end);
        x = room->x;
        if (!ops->peaks(room->max, x, V))
            return EK_EFORMAT;
    }
    int32_t pick = (int32_t)ek_peaks_argmax(x, V, room->max);
    if (how->temperature >= COLDEST) {
        ops->weigh(room->e, room->max, room->sum, x, V, x[pick], how->temperature);
        if (how->min_p > 0 || how->top_k > 0 || how->top_p < 1)
            pick = draw_of_ids(&s->rng, room, narrow(how, room));
        else
            pick = draw_of_all(&s->rng, room);
    }
    if (s->counts)
        note(s, pick, 1);
    *id = pick;
    return 0;
}

struct ek_logprob ek_logprobs(struct ek_logprob *top, int32_t n_top,
                              const float *logits, int32_t id,
                              struct ek_sampler_room *room)
{
    int32_t V = room->V;
    assert(n_top <= V);
    if (!room->ops->peaks(room->max, logits, V)) {
        /* A row like this yields no token either. */
        for (int32_t i = 0; i < n_top; i++)
            top[i] = (struct ek_logprob){i, -INFINITY};
        return (struct ek_logprob){id, -INFINITY};
    }
    float most = logits[ek_peaks_argmax(logits, V, room->max)];
    room->ops->weigh(room->e, room->max, room->sum, logits, V, most, 1.0f);
    double lse = (double)most + log(sum_of_all(room));
    if (n_top > 0)
        sorted_top(room, 0, n_top, 0);
    for (int32_t i = 0; i < n_top; i++) {
        int32_t v = room->ids[i];
        top[i] = (struct ek_logprob){v, (float)((double)logits[v] - lse)};
    }
    return (struct ek_logprob){id, (float)((double)logits[id] - lse)};
}
