/* choice.c - one sequence from its sampled token to its deltas: end tokens, text, stop
 * strings, log-probabilities, hand-over. */
#include "base/clock.h"
#include "serve/engine_int.h"

#include <assert.h>
#include <string.h>

/* Text one token can add: its bytes and an unfinished character before it, each of
 * which may become a U+FFFD of three bytes. */
static size_t piece_bytes(const struct ek_engine *e)
{
    return 3 * (e->longest_piece + 4);
}

static int prepare_delta(struct ek_delta *d, struct ek_choice *c,
                         const struct ek_engine *e)
{
    struct ek_request *r = c->request;
    size_t bytes = EK_DELTA_TEXT_BYTES + piece_bytes(e) + EK_STOP_BYTES_MAX;
    d->request = r;
    d->choice = c->index;
    ek_buf_init(&d->text, bytes);
    d->tokens = ek_arena_calloc(&r->arena, EK_DELTA_TOKENS_MAX, sizeof *d->tokens);
    size_t n_top = (size_t)EK_DELTA_TOKENS_MAX * (size_t)r->n_top;
    d->top = ek_arena_calloc(&r->arena, n_top, sizeof *d->top);
    if (!d->tokens || !d->top)
        return EK_ENOMEM;
    return ek_buf_reserve(&d->text, bytes);
}

/* Both tables, and the tokens with room for the answer. */
static int prepare_sequence(struct ek_choice *c, struct ek_request *r)
{
    int32_t most = r->n_prompt + r->max_tokens;
    int32_t n_pages = ek_pages_for_tokens(most);
    struct ek_page_ref *refs =
        ek_arena_alloc(&r->arena, 2 * (size_t)n_pages * sizeof *refs);
    c->tokens = ek_arena_alloc(&r->arena, (size_t)most * sizeof *c->tokens);
    if (!refs || !c->tokens)
        return EK_ENOMEM;
    memcpy(c->tokens, r->prompt, (size_t)r->n_prompt * sizeof *c->tokens);
    c->n_tokens = r->n_prompt;
    /* Owner 1 is nobody's: each gets its own when it gets pages. */
    ek_page_table_init(&c->prefill, 1, r->salt, refs, n_pages);
    ek_page_table_init(&c->decode, 1, r->salt, refs + n_pages, n_pages);
    return 0;
}

int ek_choice_prepare(struct ek_choice *c, struct ek_request *r, int32_t index,
                      const struct ek_engine *e)
{
    c->request = r;
    c->index = index;
    c->stop_id = -1;
    c->stop = r->stop;
    ek_detok_init(&c->detok, e->tokenizer, false, r->shows_special);
    int rc = prepare_sequence(c, r);
    if (rc)
        return rc;
    rc = ek_sampler_init(&c->sampler, &r->sampling, (uint64_t)index, e->model.V,
                         &r->arena, r->prompt, r->n_prompt, r->max_tokens);
    c->sampler.ends = e->ends;
    c->sampler.n_ends = e->n_ends;
    ek_buf_init(&c->piece, piece_bytes(e));
    if (!rc)
        rc = ek_buf_reserve(&c->piece, piece_bytes(e));
    for (int i = 0; !rc && i < 2; i++)
        rc = prepare_delta(&c->deltas[i], c, e);
    return rc;
}

void ek_choice_release(struct ek_choice *c)
{
    ek_buf_release(&c->piece);
    for (int i = 0; i < 2; i++)
        ek_buf_release(&c->deltas[i].text);
}

bool ek_choice_has_room(const struct ek_choice *c)
{
    const struct ek_delta *d = &c->deltas[c->filling];
    return d->text.len <= EK_DELTA_TEXT_BYTES && d->n_tokens < EK_DELTA_TOKENS_MAX;
}

/* The buffers were sized so that one more token always fits. */
static void must(int rc)
{
    assert(rc == 0);
    (void)rc;
}

/* Puts text through the stop strings into the delta. */
static void take_text(struct ek_choice *c, const char *text, size_t n)
{
    const struct ek_request *r = c->request;
    struct ek_delta *d = &c->deltas[c->filling];
    size_t before = d->text.len;
    bool is_early = c->n_generated < r->min_tokens;
    must(ek_stop_feed(&c->stop, &d->text, text, n, is_early, r->keeps_stop));
    c->n_text += n;
    c->n_released += d->text.len - before;
}

/* No token follows: out with the unfinished character and the held text. */
static void take_rest(struct ek_choice *c)
{
    ek_buf_reset(&c->piece);
    must(ek_detok_finish(&c->detok, &c->piece));
    take_text(c, c->piece.data, c->piece.len);
    struct ek_delta *d = &c->deltas[c->filling];
    size_t before = d->text.len;
    must(ek_stop_finish(&c->stop, &d->text));
    c->n_released += d->text.len - before;
}

static void list_token(struct ek_choice *c, struct ek_engine *e, int32_t id,
                       const float *row)
{
    const struct ek_request *r = c->request;
    struct ek_delta *d = &c->deltas[c->filling];
    struct ek_token *t = &d->tokens[d->n_tokens];
    *t = (struct ek_token){.id = id, .start = c->n_text};
    if (r->wants_logprobs)
        t->logprob = ek_logprobs(d->top + (size_t)d->n_tokens * (size_t)r->n_top,
                                 r->n_top, row, id, &e->room)
                         .logprob;
    d->n_tokens++;
}

static bool is_listed(const int32_t *ids, int32_t n, int32_t id)
{
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

/* The next held choice of a request computes the prompt. */
static void find_leader(struct ek_request *r, struct ek_engine *e)
{
    r->leader = -1;
    for (int32_t i = 0; i < r->n; i++) {
        if (r->choices[i].state != EK_CHOICE_HELD)
            continue;
        r->leader = i;
        ek_choice_set_state(e, &r->choices[i], EK_CHOICE_WAITING);
        return;
    }
}

void ek_choice_drop(struct ek_choice *c, struct ek_engine *e, bool is_over)
{
    struct ek_request *r = c->request;
    ek_pages_free(&e->pages, &c->prefill);
    ek_pages_free(&e->pages, &c->decode);
    c->is_decoding = false;
    if (r->leader != c->index)
        return;
    e->n_promised -= r->n_promised;
    r->n_promised = 0;
    if (is_over)
        find_leader(r, e);
}

void ek_choice_end(struct ek_choice *c, struct ek_engine *e, enum ek_finish finish,
                   const char *error)
{
    bool is_by_string = c->stop.hit >= 0;
    if (!is_by_string && (finish == EK_FINISH_STOP || finish == EK_FINISH_LENGTH))
        take_rest(c);
    /* Held text may complete a stop string only now. */
    if (c->stop.hit >= 0 && finish == EK_FINISH_LENGTH)
        finish = EK_FINISH_STOP;
    ek_choice_set_state(e, c, EK_CHOICE_ENDED);
    ek_choice_drop(c, e, true);
    c->finish = finish;
    c->error = error;
    c->request->end_us = c->end_us = ek_clock_us();
}

int ek_choice_draw(struct ek_choice *c, int32_t *id, const float *row,
                   struct ek_sampler_room *room)
{
    const struct ek_request *r = c->request;
    bool has_no_end = r->has_no_end || c->n_generated < r->min_tokens;
    return ek_sampler_next(&c->sampler, id, row, has_no_end, room);
}

void ek_choice_fail(struct ek_choice *c, struct ek_engine *e)
{
    e->stats.n_corrupted++;
    ek_choice_end(c, e, EK_FINISH_ERROR,
                  "the model's output is not finite; no token can come of it");
}

void ek_choice_take(struct ek_choice *c, struct ek_engine *e, int32_t id,
                    const float *row)
{
    struct ek_request *r = c->request;
    c->n_generated++;
    c->deltas[c->filling].n_new++;
    e->stats.generated_tokens++;
    if (c->first_us == 0)
        c->first_us = ek_clock_us();
    if (r->first_us == 0)
        r->first_us = c->first_us;
    bool is_end = ek_tokenizer_is_end(e->tokenizer, id);
    bool is_stop =
        c->n_generated > r->min_tokens && is_listed(r->stop_ids, r->n_stop_ids, id);
    if (is_end || is_stop) {
        c->stop_id = is_stop ? id : -1;
        ek_choice_end(c, e, EK_FINISH_STOP, NULL);
        return;
    }
    list_token(c, e, id, row);
    ek_buf_reset(&c->piece);
    must(ek_detok_feed(&c->detok, &c->piece, id));
    take_text(c, c->piece.data, c->piece.len);
    c->tokens[c->n_tokens++] = id;
    if (c->stop.hit >= 0)
        ek_choice_end(c, e, EK_FINISH_STOP, NULL);
    else if (c->n_generated == r->max_tokens)
        ek_choice_end(c, e, EK_FINISH_LENGTH, NULL);
}

/* How many of the delta's tokens may be shown: those that begin in released text. A
 * token at its end has no text yet: it may be the beginning of a character, and the
 * character a stop string's. At an end by stop string the others are dropped with the
 * text they stand for. So what is shown hangs on the tokens, never on when the reader
 * came. */
static int32_t n_decided(const struct ek_choice *c, const struct ek_delta *d)
{
    bool is_over = c->finish != EK_FINISH_NONE;
    if (is_over && c->n_released == c->n_text)
        return d->n_tokens;
    int32_t n = 0;
    while (n < d->n_tokens && d->tokens[n].start < c->n_released)
        n++;
    /* Nothing but tokens without text: the next one needs their room. */
    bool is_full = n == 0 && d->n_tokens == EK_DELTA_TOKENS_MAX && !is_over;
    return is_full ? d->n_tokens : n;
}

/* Moves the tokens from n on, whose text is held, to the other delta. */
static void carry_over(struct ek_delta *to, struct ek_delta *from, int32_t n)
{
    size_t n_top = (size_t)from->request->n_top;
    size_t rest = (size_t)(from->n_tokens - n);
    memcpy(to->tokens, from->tokens + n, rest * sizeof *to->tokens);
    if (n_top > 0)
        memcpy(to->top, from->top + (size_t)n * n_top, rest * n_top * sizeof *to->top);
    to->n_tokens = (int32_t)rest;
    from->n_tokens = n;
}

static void reset_delta(struct ek_delta *d)
{
    ek_buf_reset(&d->text);
    d->n_tokens = 0;
    d->n_new = 0;
}

void ek_choice_flush(struct ek_choice *c, struct ek_engine *e)
{
    struct ek_delta *d = &c->deltas[c->filling];
    bool is_final = c->state == EK_CHOICE_ENDED;
    if (c->is_lent)
        return; /* the reader has one: this one grows until it comes back */
    int32_t n = n_decided(c, d);
    if (!is_final && d->text.len == 0 && (n == 0 || n < d->n_tokens))
        return;
    struct ek_delta *other = &c->deltas[1 - c->filling];
    reset_delta(other);
    if (is_final)
        d->n_tokens = n;
    else
        carry_over(other, d, n);
    d->n_generated = c->n_generated;
    d->finish = c->finish;
    d->stop_id = c->stop_id;
    d->stop_string = c->stop.hit;
    d->error = c->error;
    d->is_expired = c->is_expired;
    d->admit_us = c->admit_us;
    d->first_us = c->first_us;
    d->end_us = c->end_us;
    d->is_last = false;
    if (is_final) {
        c->state = EK_CHOICE_GONE;
        d->is_last = --c->request->n_open == 0;
    } else {
        c->filling = 1 - c->filling;
        c->is_lent = true;
    }
    e->has_moved = true;    /* a choice that was full may work again */
    e->on_delta(e->arg, d); /* after a last delta, c may be gone */
}
