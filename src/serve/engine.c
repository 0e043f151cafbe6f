/* engine.c - admission and steps. The per-token life of a sequence is choice.c. */
#include "serve/engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "serve/engine_int.h"

#include <assert.h>
#include <string.h>

/* Rows of logits beyond one a sequence: what a chunk whose prompt log-probabilities are
 * wanted may add. */
#define PROMPT_ROWS 32

const char *ek_finish_name(enum ek_finish f)
{
    static const char *const names[] = {"", "stop", "length", "abort", "error"};
    return names[f];
}

void ek_request_init(struct ek_request *r, size_t max_arena_bytes)
{
    *r = (struct ek_request){.n = 1};
    ek_arena_init(&r->arena, max_arena_bytes);
    ek_sampling_default(&r->sampling);
    ek_stop_init(&r->stop);
}

void ek_request_release(struct ek_request *r)
{
    for (int32_t i = 0; r->choices && i < r->n; i++)
        ek_choice_release(&r->choices[i]);
    ek_arena_release(&r->arena);
    r->choices = NULL;
}

int ek_request_prepare(struct ek_request *r, const struct ek_engine *e,
                       struct ek_err *err)
{
    const struct ek_engine_options *o = &e->o;
    assert(r->n >= 1 && r->n <= EK_CHOICES_MAX && r->n_prompt >= 1);
    assert(r->max_tokens >= 1 && r->n_top <= EK_TOP_LOGPROBS_MAX);
    if (r->n_prompt > o->ctx || r->max_tokens > o->ctx - r->n_prompt)
        return ek_err_set(err, EK_ELIMIT,
                          "%d prompt tokens and %d answer tokens are more than the "
                          "context of %d tokens",
                          r->n_prompt, r->max_tokens, o->ctx);
    /* A tokenizer may know more tokens than the model (Gemma 3's image token). */
    for (int32_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= e->model.V)
            return ek_err_set(
                err, EK_EINVAL,
                "token %d of the prompt has id %d: the model knows 0 to %d", i,
                r->prompt[i], e->model.V - 1);
    }
    int32_t n_pages = ek_pages_for_tokens(r->n_prompt + r->max_tokens);
    if (n_pages > o->n_pages)
        return ek_err_set(err, EK_ELIMIT,
                          "%d prompt tokens and %d answer tokens take %d KV pages; the "
                          "server has %d",
                          r->n_prompt, r->max_tokens, n_pages, o->n_pages);
    int rc = 0;
    if (r->wants_prompt_logprobs) {
        size_t n_top = (size_t)r->n_prompt * (size_t)r->n_top;
        r->prompt_tokens =
            ek_arena_calloc(&r->arena, (size_t)r->n_prompt, sizeof *r->prompt_tokens);
        r->prompt_top = ek_arena_calloc(&r->arena, n_top, sizeof *r->prompt_top);
        if (!r->prompt_tokens || !r->prompt_top)
            rc = EK_ENOMEM;
    }
    r->choices = ek_arena_calloc(&r->arena, (size_t)r->n, sizeof *r->choices);
    if (!r->choices)
        rc = EK_ENOMEM;
    for (int32_t i = 0; !rc && i < r->n; i++)
        rc = ek_choice_prepare(&r->choices[i], r, i, e);
    return rc ? ek_err_set(err, rc, "no memory for the request") : 0;
}

static void list_init(struct ek_choice_list *l)
{
    *l = (struct ek_choice_list){NULL, &l->first, 0};
}

static void list_append(struct ek_choice_list *l, struct ek_choice *c)
{
    c->next = NULL;
    *l->end = c;
    l->end = &c->next;
    l->n++;
}

static struct ek_choice *list_pop(struct ek_choice_list *l)
{
    struct ek_choice *c = l->first;
    l->first = c->next;
    if (!l->first)
        l->end = &l->first;
    l->n--;
    return c;
}

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
    e->n_rows = o->max_seqs + PROMPT_ROWS;
    if (!ek_mul_size(&n_logits, (size_t)e->n_rows, (size_t)e->model.V))
        return EK_ENOMEM;
    e->planned = ek_alloc_array(n, sizeof *e->planned);
    e->seqs = ek_alloc_array(n, sizeof *e->seqs);
    e->numbers = ek_alloc_array(n * n_pages, sizeof *e->numbers);
    e->logits = ek_alloc_array(n_logits, sizeof *e->logits);
    return e->planned && e->seqs && e->numbers && e->logits ? 0 : EK_ENOMEM;
}

int ek_engine_new(struct ek_engine **out, const struct ek_engine_model *model,
                  const struct ek_tokenizer *tokenizer,
                  const struct ek_engine_options *o, const struct ek_ops *ops,
                  ek_on_delta_fn *on_delta, void *arg, struct ek_err *err)
{
    assert(o->max_seqs >= 1 && o->max_batch_tokens >= o->max_seqs);
    assert(o->prefill_chunk >= 1 && o->ctx >= 1);
    assert(o->ctx <= EK_PAGES_PER_SEQ_MAX * EK_PAGE_TOKENS);
    struct ek_engine *e = ek_calloc(1, sizeof *e);
    if (!e)
        return ek_err_set(err, EK_ENOMEM, "no memory for the engine");
    e->model = *model;
    e->o = *o;
    e->tokenizer = tokenizer;
    e->on_delta = on_delta;
    e->arg = arg;
    e->next_owner = 1;
    list_init(&e->waiting);
    list_init(&e->running);
    struct ek_pages_options book = {.n_pages = o->n_pages,
                                    .check = EK_PAGE_CHECK_PAGES};
    int rc = ek_pages_init(&e->pages, &book, err);
    if (!rc)
        rc = ek_sampler_room_init(&e->room, model->V, ops);
    if (!rc)
        rc = find_ends(e);
    if (!rc)
        rc = alloc_step(e);
    if (rc) {
        ek_engine_free(e);
        return ek_err_set(err, rc, "no memory for the engine");
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
    assert(e->waiting.n == 0 && e->running.n == 0);
    ek_pages_release(&e->pages);
    ek_sampler_room_release(&e->room);
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
    for (int32_t i = 0; i < r->n; i++) {
        r->choices[i].table.owner = e->next_owner++;
        list_append(&e->waiting, &r->choices[i]);
    }
}

static void refresh_stats(struct ek_engine *e)
{
    e->stats.n_running = 0;
    for (const struct ek_choice *c = e->running.first; c; c = c->next)
        e->stats.n_running += c->state == EK_CHOICE_RUNNING;
    e->stats.n_waiting = e->waiting.n;
    e->stats.n_free_pages = e->pages.n_free;
    e->stats.n_quarantined = e->pages.n_quarantined;
    if (e->model.kv_saturated)
        e->stats.kv_saturated = *e->model.kv_saturated;
}

/* Says what there is to say and lets go of the choices that are gone. A choice is
 * unlinked before its last delta leaves, since the request may be freed then. Returns
 * whether any went, and so a seat is free. */
static bool flush(struct ek_engine *e)
{
    refresh_stats(e);
    int32_t n_before = e->running.n;
    struct ek_choice **link = &e->running.first;
    while (*link) {
        struct ek_choice *c = *link;
        if (c->state == EK_CHOICE_ENDED && !c->is_lent) {
            *link = c->next;
            e->running.n--;
        } else {
            link = &c->next;
        }
        ek_choice_flush(c, e);
    }
    e->running.end = link;
    return e->running.n < n_before;
}

/* Waiting choices that ended (cancelled) pass through `running` to be flushed. */
static void drop_ended_waiting(struct ek_engine *e)
{
    struct ek_choice_list rest;
    list_init(&rest);
    while (e->waiting.n > 0) {
        struct ek_choice *c = list_pop(&e->waiting);
        list_append(c->state == EK_CHOICE_ENDED ? &e->running : &rest, c);
    }
    e->waiting = rest;
    if (!rest.first)
        e->waiting.end = &e->waiting.first;
}

static void end_all_of(struct ek_engine *e, struct ek_choice *c,
                       const struct ek_request *r)
{
    for (; c; c = c->next) {
        if (c->request == r &&
            (c->state == EK_CHOICE_WAITING || c->state == EK_CHOICE_RUNNING))
            ek_choice_end(c, e, EK_FINISH_ABORT, NULL);
    }
}

void ek_engine_cancel(struct ek_engine *e, const struct ek_request *r)
{
    end_all_of(e, e->waiting.first, r);
    end_all_of(e, e->running.first, r);
    drop_ended_waiting(e);
    flush(e);
}

void ek_engine_give_back(struct ek_engine *e, struct ek_delta *delta)
{
    (void)e;
    struct ek_choice *c = &delta->request->choices[delta->choice];
    assert(c->is_lent && delta == &c->deltas[1 - c->filling]);
    c->is_lent = false;
}

/* Lets in the oldest waiting choices while there are seats and pages. Returns whether
 * any came in. */
static bool admit(struct ek_engine *e)
{
    bool has_moved = false;
    while (e->waiting.n > 0 && e->running.n < e->o.max_seqs) {
        struct ek_choice *c = e->waiting.first;
        struct ek_request *r = c->request;
        int rc = ek_pages_reserve(&e->pages, &c->table, r->n_prompt + r->max_tokens);
        if (rc && e->running.n > 0)
            break; /* pages come back when one of those ends */
        list_append(&e->running, list_pop(&e->waiting));
        has_moved = true;
        if (rc) {
            /* Nobody holds pages and still there are too few: quarantine ate them. */
            ek_choice_end(c, e, EK_FINISH_ERROR,
                          "the server has too few KV pages left");
            continue;
        }
        c->state = EK_CHOICE_RUNNING;
        c->admit_us = ek_clock_us();
        if (r->admit_us == 0)
            r->admit_us = c->admit_us;
    }
    return has_moved;
}

static void end_by_fault(struct ek_engine *e, struct ek_choice *c,
                         enum ek_page_fault fault, int32_t bad)
{
    e->stats.faults[fault]++;
    ek_log(EK_LOG_ERROR, "page_check_failed",
           "kind=%s sequence=%llu entry=%d page=%d tokens=%d",
           ek_page_fault_text(fault), (unsigned long long)c->table.owner, bad,
           bad < c->table.n_pages ? c->table.refs[bad].page : -1, c->table.n_tokens);
    ek_pages_fault(&e->pages, &c->table, bad);
    ek_choice_end(c, e, EK_FINISH_ERROR,
                  "the page check failed before a read; the answer was stopped");
}

/* Checks the pages and adds the choice's next n tokens to the step. */
static void plan_one(struct ek_engine *e, struct ek_choice *c, int32_t n,
                     enum ek_lm_want want)
{
    const struct ek_request *r = c->request;
    int32_t pos0 = c->table.n_tokens;
    int32_t *numbers =
        e->numbers + (size_t)e->n_planned * (size_t)ek_pages_for_tokens(e->o.ctx);
    int32_t bad = 0;
    enum ek_page_fault fault =
        ek_pages_check(&e->pages, &c->table, NULL, n, numbers, &bad);
    if (fault) {
        end_by_fault(e, c, fault, bad);
        return;
    }
    bool is_prefill = pos0 < r->n_prompt;
    e->planned[e->n_planned] =
        (struct ek_planned){c, n, is_prefill, want != EK_LM_WANT_NONE};
    e->seqs[e->n_planned++] = (struct ek_lm_seq){
        .tokens = is_prefill ? r->prompt + pos0 : &c->last_id,
        .n_tokens = n,
        .pos0 = pos0,
        .pages = numbers,
        .want = want,
        .decode_from = r->n_prompt,
    };
}

/* Tokens of a prompt's next chunk and the rows it wants; at most `room` tokens. */
static int32_t chunk_of(const struct ek_engine *e, const struct ek_choice *c,
                        int32_t room, int32_t free_rows, enum ek_lm_want *want)
{
    const struct ek_request *r = c->request;
    int32_t n = r->n_prompt - c->table.n_tokens;
    n = n < e->o.prefill_chunk ? n : e->o.prefill_chunk;
    n = n < room ? n : room;
    if (r->wants_prompt_logprobs && c->index == 0) {
        n = n < free_rows ? n : free_rows;
        *want = EK_LM_WANT_ALL;
    } else {
        bool is_end = c->table.n_tokens + n == r->n_prompt;
        *want = is_end ? EK_LM_WANT_LAST : EK_LM_WANT_NONE;
    }
    return n;
}

/* The prompt's scores are the first choice's work, and every other one's answer begins
 * with them when it echoes. */
static bool waits_for_scores(const struct ek_choice *c)
{
    const struct ek_request *r = c->request;
    return c->index > 0 && r->wants_prompt_logprobs &&
           r->choices[0].state == EK_CHOICE_RUNNING && r->n_prompt_done < r->n_prompt;
}

/* Decode tokens first, then prefill chunks in the room that is left. */
static void plan(struct ek_engine *e)
{
    int32_t room = e->o.max_batch_tokens;
    e->n_planned = 0;
    for (struct ek_choice *c = e->running.first; c; c = c->next) {
        bool is_decode = c->table.n_tokens >= c->request->n_prompt;
        if (c->state != EK_CHOICE_RUNNING || !is_decode || !ek_choice_has_room(c))
            continue;
        plan_one(e, c, 1, EK_LM_WANT_LAST);
        room--;
    }
    /* Every running choice may want one row; the others are for prompts. */
    int32_t rows = PROMPT_ROWS;
    for (struct ek_choice *c = e->running.first; c && room > 0; c = c->next) {
        bool is_prefill = c->table.n_tokens < c->request->n_prompt;
        if (c->state != EK_CHOICE_RUNNING || !is_prefill || !ek_choice_has_room(c) ||
            waits_for_scores(c))
            continue;
        enum ek_lm_want want;
        int32_t n = chunk_of(e, c, room, rows + 1, &want);
        plan_one(e, c, n, want);
        room -= n;
        rows -= want == EK_LM_WANT_ALL ? n - 1 : 0;
    }
}

/* Rows of a chunk of prompt: row i tells about the token after it. */
static void take_prompt_rows(struct ek_engine *e, struct ek_choice *c, int32_t pos0,
                             int32_t n, const float *rows)
{
    struct ek_request *r = c->request;
    if (pos0 == 0)
        r->prompt_tokens[0] = (struct ek_token){.id = r->prompt[0]};
    for (int32_t i = 0; i < n && pos0 + i + 1 < r->n_prompt; i++) {
        int32_t at = pos0 + i + 1;
        struct ek_token *t = &r->prompt_tokens[at];
        t->id = r->prompt[at];
        t->logprob =
            ek_logprobs(r->prompt_top + (size_t)at * (size_t)r->n_top, r->n_top,
                        rows + (size_t)i * (size_t)e->model.V, t->id, &e->room)
                .logprob;
    }
    r->n_prompt_done = pos0 + n < r->n_prompt ? pos0 + n + 1 : r->n_prompt;
}

static void take_results(struct ek_engine *e)
{
    const float *row = e->logits;
    size_t V = (size_t)e->model.V;
    for (int32_t i = 0; i < e->n_planned; i++) {
        struct ek_choice *c = e->planned[i].choice;
        const struct ek_request *r = c->request;
        int32_t n = e->planned[i].n_tokens;
        int32_t pos0 = e->seqs[i].pos0;
        bool has_all = e->seqs[i].want == EK_LM_WANT_ALL;
        ek_pages_commit(&e->pages, &c->table, NULL, n);
        e->stats.prompt_tokens += e->planned[i].is_prefill ? n : 0;
        if (has_all)
            take_prompt_rows(e, c, pos0, n, row);
        const float *last = has_all ? row + (size_t)(n - 1) * V : row;
        if (e->planned[i].has_logits)
            row = last + V;
        if (c->table.n_tokens >= r->n_prompt)
            ek_choice_advance(c, e, last);
    }
}

bool ek_engine_step(struct ek_engine *e)
{
    bool has_moved = admit(e);
    plan(e);
    if (e->n_planned > 0) {
        int32_t n_tokens = 0;
        for (int32_t i = 0; i < e->n_planned; i++)
            n_tokens += e->planned[i].n_tokens;
        e->model.forward(e->model.arg, e->seqs, e->n_planned, e->logits);
        take_results(e);
        e->stats.n_steps++;
        e->stats.n_step_tokens = n_tokens;
        has_moved = true;
    }
    bool has_gone = flush(e);
    return has_moved || has_gone;
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
