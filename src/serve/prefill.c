/* prefill.c - from prompt tokens to a choice that decodes. A prefill is a unit of work
 * of its own: it ends in struct ek_prefilled, and a decode starts from that and nothing
 * else. A preempted choice is a prefill again, of its prompt and its answer so far. */
#include "serve/engine_int.h"

#include <assert.h>

struct ek_page_table *ek_choice_table(struct ek_choice *c)
{
    return c->is_decoding ? &c->decode : &c->prefill;
}

int32_t ek_choice_shareable(const struct ek_engine *e, const struct ek_choice *c)
{
    return e->model.has_own_decode ? c->request->n_prompt : INT32_MAX;
}

void ek_choice_open_table(struct ek_engine *e, const struct ek_choice *c,
                          struct ek_page_table *t)
{
    ek_page_table_init(t, e->next_owner++, c->request->salt, t->refs, t->cap);
    t->n_public = ek_choice_shareable(e, c);
}

bool ek_prefill_scores(const struct ek_choice *c)
{
    const struct ek_request *r = c->request;
    return r->wants_prompt_logprobs && c->index == r->leader &&
           r->n_prompt_done < r->n_prompt;
}

int32_t ek_prefill_chunk(const struct ek_engine *e, const struct ek_choice *c,
                         int32_t room, int32_t free_rows, enum ek_lm_want *want)
{
    int32_t n = c->n_tokens - c->prefill.n_tokens;
    n = n < e->o.prefill_chunk ? n : e->o.prefill_chunk;
    n = n < room ? n : room;
    if (ek_prefill_scores(c)) {
        n = n < free_rows ? n : free_rows;
        *want = EK_LM_WANT_ALL;
    } else {
        bool is_end = c->prefill.n_tokens + n == c->n_tokens;
        *want = is_end ? EK_LM_WANT_LAST : EK_LM_WANT_NONE;
    }
    return n;
}

/* Row i tells about the token after it. */
void ek_prefill_take_rows(struct ek_engine *e, struct ek_choice *c, int32_t pos0,
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

void ek_decode_adopt(struct ek_engine *e, struct ek_choice *c,
                     const struct ek_prefilled *p)
{
    assert(p->pages->n_tokens == c->n_tokens && c->decode.n_pages == 0);
    ek_choice_open_table(e, c, &c->decode);
    ek_pages_adopt(&e->pages, p->pages, &c->decode);
    c->is_decoding = true;
    ek_choice_take(c, e, p->first_id, p->row);
}

static void hand_over(struct ek_engine *e, struct ek_choice *c, const float *row)
{
    struct ek_prefilled p = {.pages = &c->prefill, .row = row};
    if (ek_choice_draw(c, &p.first_id, row, &e->room))
        ek_choice_fail(c, e);
    else
        ek_decode_adopt(e, c, &p);
}

/* The held choice f goes on from the leader's pages: full ones are shared, what is in
 * the last one is copied. False: there is no page for that now. */
static bool fork_to(struct ek_engine *e, struct ek_choice *f, struct ek_choice *leader)
{
    ek_choice_open_table(e, f, &f->prefill);
    if (ek_pages_fork(&e->pages, &leader->prefill, &f->prefill))
        return false;
    f->n_computed = f->n_tokens;
    f->admit_us = leader->admit_us;
    return true;
}

void ek_prefill_finish(struct ek_engine *e, struct ek_choice *c, const float *row)
{
    struct ek_request *r = c->request;
    if (r->leader == c->index) {
        /* Seats were promised to as many as there were. The rest waits in its turn, and
         * finds the prompt in the prefix cache. */
        int32_t n_promised = r->n_promised;
        e->n_promised -= n_promised;
        r->n_promised = 0;
        r->leader = -1;
        for (int32_t i = 0; i < r->n; i++) {
            struct ek_choice *f = &r->choices[i];
            if (f->state != EK_CHOICE_HELD)
                continue;
            bool is_in = n_promised > 0 && fork_to(e, f, c);
            ek_choice_set_state(e, f, is_in ? EK_CHOICE_RUNNING : EK_CHOICE_WAITING);
            n_promised--;
            if (is_in)
                hand_over(e, f, row);
        }
    }
    hand_over(e, c, row);
}
