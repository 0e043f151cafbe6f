/* engine.c - the object and its step. Who works in one is schedule.c. */
#include "serve/engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "serve/engine_int.h"

#include <assert.h>
#include <string.h>

/* Rows from which the team draws tokens together: for fewer, waking it costs as
 * much. */
#define DRAW_TOGETHER 4

static int find_ends(struct ek_engine *e)
{
    int32_t n = 0;
    for (int32_t id = 0; id < e->model.V; id++) {
        struct ek_str piece = ek_tokenizer_piece(e->tokenizer, id, true);
        n += ek_tokenizer_is_end(e->tokenizer, id);
        if (piece.n > e->longest_piece)
            e->longest_piece = piece.n;
    }
    e->ends = ek_alloc_array((size_t)n, sizeof *e->ends);
    if (!e->ends)
        return EK_ENOMEM;
    for (int32_t id = 0; e->n_ends < n; id++) {
        if (ek_tokenizer_is_end(e->tokenizer, id))
            e->ends[e->n_ends++] = id;
    }
    return 0;
}

static int alloc_step(struct ek_engine *e)
{
    const struct ek_engine_options *o = &e->o;
    size_t n = (size_t)o->max_seqs;
    size_t n_pages = (size_t)ek_pages_for_tokens(o->ctx);
    size_t n_logits;
    if (!ek_mul_size(&n_logits, n + EK_PROMPT_ROWS, (size_t)e->model.V))
        return EK_ENOMEM;
    e->planned = ek_alloc_array(n, sizeof *e->planned);
    e->seqs = ek_alloc_array(n, sizeof *e->seqs);
    e->numbers = ek_alloc_array(n * n_pages, sizeof *e->numbers);
    e->logits = ek_alloc_array(n_logits, sizeof *e->logits);
    return e->planned && e->seqs && e->numbers && e->logits ? 0 : EK_ENOMEM;
}

/* A room for the engine's thread and, where a team draws, one for each member. Their
 * memory is the system's until it is used. */
static int open_rooms(struct ek_engine *e, const struct ek_ops *ops)
{
    int rc = ek_sampler_room_init(&e->room, e->model.V, ops);
    if (rc || !e->model.together)
        return rc;
    e->rooms = ek_calloc((size_t)e->model.n_members, sizeof *e->rooms);
    if (!e->rooms)
        return EK_ENOMEM;
    while (!rc && e->n_rooms < e->model.n_members)
        rc = ek_sampler_room_init(&e->rooms[e->n_rooms++], e->model.V, ops);
    return rc;
}

int ek_engine_new(struct ek_engine **out, const struct ek_engine_model *model,
                  const struct ek_tokenizer *tokenizer,
                  const struct ek_engine_options *o, const struct ek_ops *ops,
                  ek_on_delta_fn *on_delta, void *arg, struct ek_err *err)
{
    assert(o->max_seqs >= 1 && o->max_batch_tokens >= o->max_seqs);
    assert(o->prefill_chunk >= 1 && o->ctx >= 1 && o->reserve_tokens >= 0);
    assert(o->itl_target_us >= 0);
    assert(o->ctx <= EK_PAGES_PER_SEQ_MAX * EK_PAGE_TOKENS);
    struct ek_engine *e = ek_calloc(1, sizeof *e);
    if (!e)
        return ek_err_set(err, EK_ENOMEM, "no memory for the engine");
    e->model = *model;
    e->o = *o;
    e->tokenizer = tokenizer;
    e->on_delta = on_delta;
    e->arg = arg;
    e->next_owner = 2; /* 1: tables that have no pages yet */
    e->next_order = 1;
    e->wake_us = INT64_MAX;
    ek_pace_init(&e->pace);
    const struct ek_pages_options po = {
        .n_pages = o->n_pages,
        .check = o->page_check,
        .caches_prefixes = o->caches_prefixes,
        .copy = model->copy_page,
        .on_free = model->poison,
        .arg = model->arg,
    };
    int rc = ek_pages_init(&e->pages, &po, err);
    if (!rc &&
        ((rc = open_rooms(e, ops)) || (rc = find_ends(e)) || (rc = alloc_step(e))))
        ek_err_set(err, rc, "no memory for the engine");
    if (rc) {
        ek_engine_free(e);
        return rc;
    }
    e->stats.n_pages = o->n_pages;
    e->stats.n_free_pages = o->n_pages;
    *out = e;
    return 0;
}

void ek_engine_free(struct ek_engine *e)
{
    if (!e)
        return;
    assert(e->waiting.n == 0 && e->running.n == 0 && e->ended.n == 0);
    ek_pages_release(&e->pages);
    ek_sampler_room_release(&e->room);
    for (int i = 0; i < e->n_rooms; i++)
        ek_sampler_room_release(&e->rooms[i]);
    ek_free(e->rooms);
    ek_free(e->ends);
    ek_free(e->planned);
    ek_free(e->seqs);
    ek_free(e->numbers);
    ek_free(e->logits);
    ek_free(e);
}

void ek_engine_submit(struct ek_engine *e, struct ek_request *r)
{
    r->submit_us = ek_clock_us();
    r->n_open = r->n;
    r->leader = 0;
    for (int32_t i = 0; i < r->n; i++) {
        struct ek_choice *c = &r->choices[i];
        c->state = i == 0 ? EK_CHOICE_WAITING : EK_CHOICE_HELD;
        c->order = e->next_order++;
        ek_schedule_wait(e, c);
    }
}

static void refresh_stats(struct ek_engine *e)
{
    e->stats.n_running = e->n_running;
    e->stats.n_waiting = e->waiting.n;
    e->stats.n_free_pages = e->pages.n_free + e->pages.n_cached;
    e->stats.n_cached_pages = e->pages.n_cached;
    e->stats.n_quarantined = e->pages.n_quarantined;
    e->stats.n_evicted = e->pages.n_evicted;
    if (e->model.kv_saturated)
        e->stats.kv_saturated = *e->model.kv_saturated;
}

/* Says what there is to say and lets go of the choices that are gone. A choice is
 * unlinked before its last delta leaves, since the request may be freed then. */
void ek_engine_flush(struct ek_engine *e)
{
    ek_schedule_sweep(e);
    refresh_stats(e);
    for (struct ek_choice *c = e->running.first; c; c = c->next)
        ek_choice_flush(c, e);
    int32_t n = e->n_resting; /* they may have words left */
    for (struct ek_choice *c = e->waiting.first; n > 0; c = c->next) {
        n -= c->n_generated > 0;
        ek_choice_flush(c, e);
    }
    struct ek_choice *ended = e->ended.first;
    e->ended = (struct ek_choice_list){0};
    while (ended) {
        struct ek_choice *c = ended;
        ended = c->next;
        if (c->is_lent)
            ek_schedule_end(e, c);
        else
            ek_choice_flush(c, e);
    }
}

static void end_all_of(struct ek_engine *e, struct ek_choice *c,
                       const struct ek_request *r)
{
    for (; c; c = c->next) {
        if (c->request == r && c->state < EK_CHOICE_ENDED)
            ek_choice_end(c, e, EK_FINISH_ABORT, NULL);
    }
}

void ek_engine_cancel(struct ek_engine *e, const struct ek_request *r)
{
    end_all_of(e, e->waiting.first, r);
    end_all_of(e, e->running.first, r);
    ek_engine_flush(e);
}

void ek_engine_give_back(struct ek_engine *e, struct ek_delta *delta)
{
    (void)e;
    struct ek_choice *c = &delta->request->choices[delta->choice];
    assert(c->is_lent && delta == &c->deltas[1 - c->filling]);
    c->is_lent = false;
}

/* Books the step's work on a choice: positions of its prompt that are new, and any that
 * were computed before. */
static void count_work(struct ek_engine *e, struct ek_choice *c, int32_t pos0,
                       int32_t n)
{
    int32_t end = pos0 + n;
    int32_t first_new = c->n_computed > pos0 ? c->n_computed : pos0;
    int32_t prompt_end = end < c->request->n_prompt ? end : c->request->n_prompt;
    if (prompt_end > first_new)
        e->stats.prompt_tokens += prompt_end - first_new;
    e->stats.recomputed_tokens += (first_new < end ? first_new : end) - pos0;
    if (c->n_computed < end)
        c->n_computed = end;
}

/* Where each planned choice's last row stands; returns how many of them decode. */
static int32_t find_rows(struct ek_engine *e)
{
    const float *row = e->logits;
    size_t V = (size_t)e->model.V;
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_planned; i++) {
        struct ek_planned *p = &e->planned[i];
        p->is_drawn = false;
        p->row = p->want == EK_LM_WANT_NONE ? NULL : row;
        if (p->want == EK_LM_WANT_ALL)
            p->row += (size_t)(p->n_tokens - 1) * V;
        if (p->row)
            row = p->row + V;
        n += p->choice->is_decoding;
    }
    return n;
}

static void draw_share(void *work, int member, int n_members)
{
    struct ek_engine *e = work;
    int turn = 0;
    for (int32_t i = 0; i < e->n_planned; i++) {
        struct ek_planned *p = &e->planned[i];
        if (!p->choice->is_decoding || turn++ % n_members != member)
            continue;
        p->rc = ek_choice_draw(p->choice, &p->id, p->row, &e->rooms[member]);
        p->is_drawn = true;
    }
}

static void take_decoded(struct ek_engine *e, struct ek_planned *p)
{
    if (!p->is_drawn)
        p->rc = ek_choice_draw(p->choice, &p->id, p->row, &e->room);
    if (p->rc)
        ek_choice_fail(p->choice, e);
    else
        ek_choice_take(p->choice, e, p->id, p->row);
}

static void take_results(struct ek_engine *e)
{
    size_t V = (size_t)e->model.V;
    if (find_rows(e) >= DRAW_TOGETHER && e->model.together)
        e->model.together(e->model.arg, draw_share, e);
    for (int32_t i = 0; i < e->n_planned; i++) {
        struct ek_planned *p = &e->planned[i];
        struct ek_choice *c = p->choice;
        struct ek_page_table *t = ek_choice_table(c);
        count_work(e, c, t->n_tokens, p->n_tokens);
        if (p->want == EK_LM_WANT_ALL)
            ek_prefill_take_rows(e, c, t->n_tokens, p->n_tokens,
                                 p->row - (size_t)(p->n_tokens - 1) * V);
        ek_pages_commit(&e->pages, t, c->tokens, p->n_tokens);
        if (t->n_tokens == c->n_tokens && c->is_decoding)
            take_decoded(e, p);
        else if (t->n_tokens == c->n_tokens)
            ek_prefill_finish(e, c, p->row);
    }
}

static void count_tokens(struct ek_engine_stats *stats, int32_t n_tokens)
{
    int32_t i = 0;
    while (i < EK_STEP_BUCKETS - 1 && n_tokens > 1 << i)
        i++;
    stats->steps_by_tokens[i]++;
    stats->n_step_tokens = n_tokens;
    stats->step_tokens += n_tokens;
}

static int64_t now_us(const struct ek_engine *e)
{
    return e->model.now_us ? e->model.now_us(e->model.arg) : ek_clock_us();
}

/* Computes what was planned, and learns what it took since start_us. */
static void run_planned(struct ek_engine *e, int64_t start_us)
{
    struct ek_pace_work work = {{1}};
    int32_t n_tokens = 0;
    for (int32_t i = 0; i < e->n_planned; i++) {
        const struct ek_planned *p = &e->planned[i];
        n_tokens += p->n_tokens;
        if (p->choice->is_decoding)
            ek_pace_add_answer(&work, e->seqs[i].pos0);
        else
            ek_pace_add_prompt(&work, e->seqs[i].pos0, p->n_tokens);
    }
    e->model.forward(e->model.arg, e->seqs, e->n_planned, e->logits);
    take_results(e);
    e->stats.n_steps++;
    count_tokens(&e->stats, n_tokens);
    e->has_moved = true;
    if (e->o.itl_target_us > 0)
        ek_pace_learn(&e->pace, &work, (double)(now_us(e) - start_us));
}

bool ek_engine_step(struct ek_engine *e)
{
    int64_t start_us = e->o.itl_target_us > 0 ? now_us(e) : 0;
    e->has_moved = false;
    ek_schedule_expire(e);
    ek_schedule_plan(e);
    if (e->n_planned > 0)
        run_planned(e, start_us);
    ek_engine_flush(e);
    return e->has_moved;
}

int64_t ek_engine_wake_us(const struct ek_engine *e)
{
    return e->wake_us;
}

const struct ek_engine_options *ek_engine_get_options(const struct ek_engine *e)
{
    return &e->o;
}

const struct ek_engine_stats *ek_engine_get_stats(const struct ek_engine *e)
{
    return &e->stats;
}

struct ek_pages *ek_engine_get_pages(struct ek_engine *e)
{
    return &e->pages;
}
