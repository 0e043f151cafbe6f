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
    *r = (struct ek_sampler_room){.V = V, .ops = ops};
    r->x = ek_alloc_array((size_t)V, sizeof *r->x);
    r->p = ek_alloc_array((size_t)V, sizeof *r->p);
    r->ids = ek_alloc_array((size_t)V, sizeof *r->ids);
    if (r->x && r->p && r->ids)
        return 0;
    ek_sampler_room_release(r);
    return EK_ENOMEM;
}

void ek_sampler_room_release(struct ek_sampler_room *r)
{
    ek_free(r->x);
    ek_free(r->p);
    ek_free(r->ids);
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
static void adjust(const struct ek_sampler *s, float *x, bool is_early)
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
    for (int32_t i = 0; is_early && i < s->n_ends; i++)
        x[s->ends[i]] = OUT;
}

static bool is_finite_row(const float *x, int32_t n)
{
    /* x * 0 is 0 for every finite x and NaN for the others; sums keep a NaN. */
    float sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += x[i] * 0.0f;
    return sum == 0;
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

/* The ids with p >= floor; returns how many there are. */
static int32_t gather(int32_t *ids, const float *p, int32_t n, float floor)
{
    int32_t n_ids = 0;
    for (int32_t i = 0; i < n; i++) {
        ids[n_ids] = i;
        n_ids += p[i] >= floor;
    }
    return n_ids;
}

static double sum_of(const float *p, const int32_t *ids, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)p[ids[i]];
    return sum;
}

/* Sorts into `ids` the largest of p[0,n) that are >= floor: at least min_n of them, and
 * at least as many as sum to min_sum, or all. Takes a falling threshold, so that the
 * sort sees tens of tokens and not the vocabulary. */
static int32_t sorted_top(int32_t *ids, float *p, int32_t n, float floor, int32_t min_n,
                          double min_sum)
{
    int32_t n_ids = 0;
    float max = p[0];
    for (int32_t i = 1; i < n; i++)
        max = p[i] > max ? p[i] : max;
    for (float f = max * 0.125f;; f = f < 1e-30f ? 0 : f * 0.125f) {
        n_ids = gather(ids, p, n, f > floor ? f : floor);
        if (f <= floor || (n_ids >= min_n && sum_of(p, ids, n_ids) >= min_sum))
            break;
    }
    qsort_r(ids, (size_t)n_ids, sizeof *ids, compare_ids, p);
    return n_ids;
}

/* Steps 7 to 9 on the probabilities r->p: leaves the candidates in r->ids. */
static int32_t narrow(const struct ek_sampling *how, struct ek_sampler_room *r,
                      float p_max)
{
    float floor = how->min_p * p_max;
    int32_t n = gather(r->ids, r->p, r->V, floor);
    bool has_k = how->top_k > 0 && how->top_k < n;
    if (!has_k && how->top_p >= 1)
        return n;
    double target = has_k ? 0 : (double)how->top_p * sum_of(r->p, r->ids, n);
    n = sorted_top(r->ids, r->p, r->V, floor, has_k ? how->top_k : 1, target);
    if (has_k) {
        n = how->top_k;
        target = (double)how->top_p * sum_of(r->p, r->ids, n);
    }
    if (how->top_p >= 1)
        return n;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)r->p[r->ids[i]];
        if (sum >= target)
            return i + 1;
    }
    return n;
}

static int32_t draw(struct ek_rng *rng, const float *p, const int32_t *ids, int32_t n)
{
    double mark = ek_rng_uniform(rng) * sum_of(p, ids, n);
    double sum = 0;
    int32_t last = ids[0];
    for (int32_t i = 0; i < n; i++) {
        sum += (double)p[ids[i]];
        if (p[ids[i]] > 0)
            last = ids[i]; /* rounding may leave sum just under mark at the end */
        if (sum > mark)
            break;
    }
    return last;
}

int ek_sampler_next(struct ek_sampler *s, int32_t *id, const float *logits,
                    bool is_early, struct ek_sampler_room *room)
{
    const struct ek_sampling *how = s->how;
    int32_t V = room->V;
    if (!is_finite_row(logits, V))
        return EK_EFORMAT;
    const float *x = logits;
    if (how->n_bias > 0 || s->n_seen > 0 || is_early) {
        memcpy(room->x, logits, (size_t)V * sizeof *room->x);
        adjust(s, room->x, is_early);
        x = room->x;
    }
    int32_t pick = (int32_t)room->ops->argmax(x, V);
    if (how->temperature >= COLDEST) {
        room->ops->softmax(room->p, x, V, how->temperature);
        int32_t n = narrow(how, room, room->p[pick]);
        pick = draw(&s->rng, room->p, room->ids, n);
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
    assert(n_top <= room->V);
    double lse = room->ops->softmax(room->p, logits, room->V, 1.0f);
    if (n_top > 0)
        sorted_top(room->ids, room->p, room->V, 0, n_top, 0);
    for (int32_t i = 0; i < n_top; i++) {
        int32_t v = room->ids[i];
        top[i] = (struct ek_logprob){v, (float)((double)logits[v] - lse)};
    }
    return (struct ek_logprob){id, (float)((double)logits[id] - lse)};
}
