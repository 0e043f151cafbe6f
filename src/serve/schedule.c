/* schedule.c - who works in the next step, and on which pages. The policy and why:
 * docs/design/scheduler.md. Invariants here:
 *   a choice that is planned keeps its pages until the step is over
 *   no page number enters the step but from the last pass, ek_pages_check of all of
 *   it, after which the book does not change until the forward pass is done */
#include "base/clock.h"
#include "base/log.h"
#include "serve/engine_int.h"

#include <assert.h>
#include <limits.h>

/* ---- lists ---- */

static bool goes_before(const struct ek_choice *a, const struct ek_choice *b)
{
    int32_t x = a->request->priority, y = b->request->priority;
    return x != y ? x < y : a->order < b->order;
}

static void insert(struct ek_choice_list *l, struct ek_choice *c)
{
    struct ek_choice **link = &l->first;
    if (l->last && !goes_before(c, l->last))
        link = &l->last->next;
    while (*link && goes_before(*link, c))
        link = &(*link)->next;
    c->next = *link;
    *link = c;
    if (!c->next)
        l->last = c;
    l->n++;
}

static struct ek_choice_list *list_of(struct ek_engine *e, const struct ek_choice *c)
{
    switch (c->state) {
    case EK_CHOICE_HELD:
    case EK_CHOICE_WAITING:
        return &e->waiting;
    case EK_CHOICE_RUNNING:
        return &e->running;
    case EK_CHOICE_ENDED:
    case EK_CHOICE_GONE:
        break;
    }
    return &e->ended;
}

/* Takes the choices whose state is another list's out of l, onto *moved. */
static void take_strays(struct ek_choice **moved, struct ek_engine *e,
                        struct ek_choice_list *l)
{
    struct ek_choice **link = &l->first;
    l->last = NULL;
    while (*link) {
        struct ek_choice *c = *link;
        if (list_of(e, c) == l) {
            l->last = c;
            link = &c->next;
            continue;
        }
        *link = c->next;
        l->n--;
        c->next = *moved;
        *moved = c;
    }
}

void ek_schedule_sweep(struct ek_engine *e)
{
    if (!e->is_unsorted)
        return;
    e->is_unsorted = false;
    struct ek_choice *moved = NULL;
    take_strays(&moved, e, &e->waiting);
    take_strays(&moved, e, &e->running);
    while (moved) {
        struct ek_choice *c = moved;
        moved = c->next;
        insert(list_of(e, c), c);
    }
}

void ek_choice_set_state(struct ek_engine *e, struct ek_choice *c,
                         enum ek_choice_state state)
{
    e->n_running += (state == EK_CHOICE_RUNNING) - (c->state == EK_CHOICE_RUNNING);
    if (c->n_generated > 0)
        e->n_resting += (state == EK_CHOICE_WAITING) - (c->state == EK_CHOICE_WAITING);
    c->state = state;
    e->is_unsorted = true;
    e->has_moved = true;
}

void ek_schedule_wait(struct ek_engine *e, struct ek_choice *c)
{
    insert(&e->waiting, c);
    int64_t deadline_us = c->request->deadline_us;
    if (deadline_us && deadline_us < e->wake_us)
        e->wake_us = deadline_us;
}

void ek_schedule_end(struct ek_engine *e, struct ek_choice *c)
{
    insert(&e->ended, c);
}

/* ---- deadlines ---- */

/* Ends those of a list that are due at now; returns the next deadline of the others. */
static int64_t expire_list(struct ek_engine *e, struct ek_choice_list *l, int64_t now)
{
    int64_t next = INT64_MAX;
    for (struct ek_choice *c = l->first; c; c = c->next) {
        int64_t at = c->request->deadline_us;
        if (!at || c->state >= EK_CHOICE_ENDED)
            continue;
        if (at > now) {
            next = at < next ? at : next;
            continue;
        }
        e->stats.n_expired++;
        c->is_expired = true;
        ek_choice_end(c, e, EK_FINISH_ERROR,
                      "the request's deadline passed before its answer was complete");
    }
    return next;
}

void ek_schedule_expire(struct ek_engine *e)
{
    int64_t now = e->wake_us == INT64_MAX ? 0 : ek_clock_us();
    if (now < e->wake_us)
        return;
    int64_t a = expire_list(e, &e->waiting, now);
    int64_t b = expire_list(e, &e->running, now);
    e->wake_us = a < b ? a : b;
    ek_schedule_sweep(e);
}

/* ---- pages ---- */

void ek_schedule_preempt(struct ek_engine *e, struct ek_choice *c)
{
    ek_log(EK_LOG_DEBUG, "preempted", "sequence=%llu tokens=%d pages=%d",
           (unsigned long long)ek_choice_table(c)->owner, c->n_tokens,
           ek_choice_table(c)->n_pages);
    ek_choice_drop(c, e, false);
    ek_choice_set_state(e, c, EK_CHOICE_WAITING);
    e->stats.n_preempted++;
}

/* The running choice that gives up its pages next: one that waits for its reader, else
 * any; the last in order. NULL: with `is_stalled`, nobody waits for a reader. */
static struct ek_choice *find_victim(const struct ek_engine *e, bool is_stalled)
{
    struct ek_choice *last = NULL, *stalled = NULL;
    for (struct ek_choice *c = e->running.first; c; c = c->next) {
        if (c->state != EK_CHOICE_RUNNING)
            continue;
        last = c;
        if (!ek_choice_has_room(c))
            stalled = c;
    }
    return stalled || is_stalled ? stalled : last;
}

/* Gets the page for the choice's next token, from whoever goes after it if need be.
 * False: it gave up its own, or was alone and there was none. */
static bool grow(struct ek_engine *e, struct ek_choice *c)
{
    while (ek_pages_reserve(&e->pages, &c->decode, c->n_tokens)) {
        struct ek_choice *victim = find_victim(e, false);
        if (victim == c && e->n_running == 1) {
            ek_choice_end(c, e, EK_FINISH_ERROR,
                          "the server has too few KV pages left");
            return false;
        }
        ek_schedule_preempt(e, victim);
        if (victim == c)
            return false;
    }
    return true;
}

/* Pages for a choice's tokens and its reservation, if it had none of them. */
static int32_t target_pages(const struct ek_engine *e, const struct ek_choice *c)
{
    int32_t end = c->request->n_prompt + c->request->max_tokens;
    int32_t more = end - c->n_tokens;
    more = more < e->o.reserve_tokens ? more : e->o.reserve_tokens;
    return ek_pages_for_tokens(c->n_tokens + more);
}

/* Pages that a running choice, and those it leads, may still ask for by reservation. */
static int32_t promised_pages(const struct ek_engine *e, struct ek_choice *c)
{
    int32_t target = target_pages(e, c);
    int32_t n = target - ek_choice_table(c)->n_pages;
    n = n > 0 ? n : 0;
    if (c->request->leader == c->index)
        n += c->request->n_promised * (target - c->request->n_prompt / EK_PAGE_TOKENS);
    return n;
}

/* Pages that are there and promised to nobody who runs. May be negative. */
static int32_t spare_pages(const struct ek_engine *e)
{
    int32_t n = ek_pages_available(&e->pages);
    for (struct ek_choice *c = e->running.first; c; c = c->next) {
        if (c->state == EK_CHOICE_RUNNING)
            n -= promised_pages(e, c);
    }
    return n;
}

/* ---- admission ---- */

static int32_t n_held(const struct ek_request *r)
{
    int32_t n = 0;
    for (int32_t i = 0; i < r->n; i++)
        n += r->choices[i].state == EK_CHOICE_HELD;
    return n;
}

/* Attaches what the prefix cache has of the choice's tokens and takes pages for the
 * others, when what is left covers every reservation. False: unchanged. */
static bool take_pages(struct ek_engine *e, struct ek_choice *c, int32_t spare)
{
    struct ek_request *r = c->request;
    struct ek_page_table *t = &c->prefill;
    ek_choice_open_table(e, c, t);
    int32_t before = ek_pages_available(&e->pages);
    int32_t n_hit = 0, n_alike = ek_choice_shareable(e, c);
    if (!ek_prefill_scores(c)) /* those need every row */
        n_hit = ek_pages_match(&e->pages, t, c->tokens,
                               n_alike < c->n_tokens ? n_alike + 1 : c->n_tokens);
    /* Cached pages that nobody held are available no more. */
    int32_t taken = before - ek_pages_available(&e->pages);
    int32_t need = ek_pages_for_tokens(c->n_tokens) - t->n_pages;
    bool is_alone = e->n_running == 0 && r->n_promised == 0;
    bool fits = is_alone ? ek_pages_available(&e->pages) >= need
                         : spare >= taken + promised_pages(e, c);
    if (!fits || ek_pages_reserve(&e->pages, t, c->n_tokens)) {
        ek_pages_free(&e->pages, t);
        return false;
    }
    e->stats.prefix_lookup_tokens += ek_prefill_scores(c) ? 0 : c->n_tokens;
    e->stats.prefix_hit_tokens += n_hit;
    if (r->admit_us == 0)
        r->n_cached = n_hit;
    if (c->n_computed < n_hit)
        c->n_computed = n_hit;
    return true;
}

/* It was refused, and nothing came free since. */
static bool is_refused(const struct ek_engine *e, const struct ek_choice *c,
                       int32_t spare)
{
    return e->n_running > 0 && e->refused_order == c->order &&
           spare <= e->refused_spare && e->pages.prefix.n_indexed == e->refused_indexed;
}

/* Lets the choice in if there are a seat and pages. */
static bool admit(struct ek_engine *e, struct ek_choice *c)
{
    struct ek_request *r = c->request;
    int32_t seats = e->o.max_seqs - e->n_running - e->n_promised;
    int32_t spare = spare_pages(e);
    if (seats < 1 || is_refused(e, c, spare))
        return false;
    if (r->leader == c->index) {
        int32_t n = n_held(r);
        r->n_promised = n < seats - 1 ? n : seats - 1;
    }
    /* A leader comes in with as many of its others as there are pages for. */
    bool is_in = take_pages(e, c, spare);
    while (!is_in && r->n_promised > 0) {
        r->n_promised /= 2;
        is_in = take_pages(e, c, spare);
    }
    if (!is_in) {
        e->refused_order = c->order;
        e->refused_spare = spare;
        e->refused_indexed = e->pages.prefix.n_indexed;
        return false;
    }
    if (r->leader == c->index)
        e->n_promised += r->n_promised;
    ek_choice_set_state(e, c, EK_CHOICE_RUNNING);
    if (c->admit_us == 0)
        c->admit_us = ek_clock_us();
    if (r->admit_us == 0)
        r->admit_us = c->admit_us;
    return true;
}

/* The first waiting choice that could work: a preempted one whose reader is slow is
 * passed over until there is room for its words. */
static struct ek_choice *find_ready(const struct ek_engine *e)
{
    struct ek_choice *c = e->waiting.first;
    while (c && (c->state != EK_CHOICE_WAITING || !ek_choice_has_room(c)))
        c = c->next;
    return c;
}

/* ---- the step ---- */

/* Prompt tokens that a step beside answers has whatever they take, so that every prompt
 * comes to its end; with the answers' own rows, kernels reach their rate. */
#define LEAST_PROMPT_TOKENS 8

/* More prompts than this takes, waiting for their turn, stretch the steps' target. */
#define BACKLOG_US 1000000.0

struct room {
    int32_t tokens; /* of max_batch_tokens */
    int32_t rows;   /* for scored prompts, beyond one a sequence */
    bool is_timed;  /* the next two hold */
    int32_t least;  /* tokens that it has in any case */
    double us;      /* what more than that may take; below 0: no more */
};

static void plan_one(struct ek_engine *e, struct ek_choice *c, int32_t n,
                     enum ek_lm_want want)
{
    assert(e->n_planned < e->o.max_seqs && n >= 1);
    e->planned[e->n_planned++] =
        (struct ek_planned){.choice = c, .n_tokens = n, .want = want};
}

static int32_t prompt_left(const struct ek_choice *c)
{
    return c->n_tokens - c->prefill.n_tokens;
}

/* x has less to compute than c, or is more urgent: it should not wait for all of c. */
static bool is_quicker(const struct ek_choice *x, const struct ek_choice *c)
{
    return prompt_left(x) < prompt_left(c) ||
           x->request->priority < c->request->priority;
}

/* Somebody behind c, running or about to come in, is quicker. */
static bool is_followed(const struct ek_engine *e, const struct ek_choice *c)
{
    for (const struct ek_choice *x = c->next; x; x = x->next) {
        if (x->state == EK_CHOICE_RUNNING && !x->is_decoding && ek_choice_has_room(x) &&
            is_quicker(x, c))
            return true;
    }
    const struct ek_choice *head = find_ready(e);
    return head && is_quicker(head, c) && !is_refused(e, head, spare_pages(e)) &&
           e->n_running + e->n_promised < e->o.max_seqs;
}

/* Tokens that the room has for a prompt from pos0 on; >= 1 while it has any. */
static int32_t room_for(const struct ek_engine *e, const struct room *room,
                        int32_t pos0)
{
    if (!room->is_timed)
        return room->tokens;
    int32_t n = ek_pace_prompt_tokens(&e->pace, pos0, room->us, room->tokens);
    n = n > room->least ? n : room->least;
    n = n > 1 ? n : 1;
    return n < room->tokens ? n : room->tokens;
}

static void leave_room(const struct ek_engine *e, struct room *room, int32_t pos0,
                       int32_t n)
{
    room->tokens -= n;
    if (!room->is_timed)
        return;
    room->least -= n;
    room->us -= ek_pace_prompt_us(&e->pace, pos0, n);
    if (room->least <= 0 && ek_pace_prompt_tokens(&e->pace, 0, room->us, 1) < 1)
        room->tokens = 0;
}

/* A prompt that the room can finish takes what it needs. A longer one leaves half to
 * quicker ones behind it, which would wait for all of its chunks. */
static void plan_chunk(struct ek_engine *e, struct ek_choice *c, struct room *room)
{
    enum ek_lm_want want;
    int32_t pos0 = c->prefill.n_tokens;
    int32_t tokens = room_for(e, room, pos0);
    if (prompt_left(c) > tokens && tokens > 1 && is_followed(e, c))
        tokens -= tokens / 2;
    int32_t n = ek_prefill_chunk(e, c, tokens, room->rows + 1, &want);
    plan_one(e, c, n, want);
    leave_room(e, room, pos0, n);
    room->rows -= want == EK_LM_WANT_ALL ? n - 1 : 0;
}

static bool can_work(const struct ek_choice *c)
{
    return c->state == EK_CHOICE_RUNNING && ek_choice_has_room(c);
}

/* Lets in whoever is next while the step has room for its first tokens: so it finds in
 * the prefix cache all that was computed before it starts. */
static void plan_admissions(struct ek_engine *e, struct room *room)
{
    while (room->tokens > 0) {
        struct ek_choice *c = find_ready(e);
        if (!c)
            break;
        if (admit(e, c)) {
            plan_chunk(e, c, room);
            ek_schedule_sweep(e);
            continue;
        }
        struct ek_choice *stalled = find_victim(e, true);
        if (stalled) {
            ek_schedule_preempt(e, stalled);
            e->refused_order = 0;
        } else if (e->n_running == 0) {
            /* Nobody holds pages and still there are too few: quarantine ate them. */
            ek_choice_end(c, e, EK_FINISH_ERROR,
                          "the server has too few KV pages left");
        } else {
            break; /* somebody who runs will end */
        }
    }
    ek_schedule_sweep(e);
}

static void end_by_fault(struct ek_engine *e, struct ek_choice *c,
                         enum ek_page_fault fault, int32_t bad)
{
    struct ek_page_table *t = ek_choice_table(c);
    e->stats.faults[fault]++;
    ek_log(EK_LOG_ERROR, "page_check_failed",
           "kind=%s sequence=%llu entry=%d page=%d tokens=%d",
           ek_page_fault_text(fault), (unsigned long long)t->owner, bad,
           bad < t->n_pages ? t->refs[bad].page : -1, t->n_tokens);
    ek_pages_fault(&e->pages, t, bad);
    ek_choice_end(c, e, EK_FINISH_ERROR,
                  "the page check failed before a read; the answer was stopped");
}

/* Entry i is a shared page that another holder's check took out of use: this sequence
 * did nothing wrong and read nothing wrong. */
static bool is_lost_share(const struct ek_engine *e, const struct ek_page_table *t,
                          int32_t i)
{
    if (i >= t->n_shared || t->refs[i].page < 0 || t->refs[i].page >= e->pages.n_pages)
        return false;
    return e->pages.pages[t->refs[i].page].state == EK_PAGE_QUARANTINE;
}

/* Checks one planned choice's pages and lists it for the model. False: it is out. */
static bool check_one(struct ek_engine *e, int32_t i)
{
    struct ek_choice *c = e->planned[i].choice;
    struct ek_page_table *t = ek_choice_table(c);
    int32_t n = e->planned[i].n_tokens;
    int32_t *numbers = e->numbers + (size_t)i * (size_t)ek_pages_for_tokens(e->o.ctx);
    int32_t bad = 0;
    if (e->o.page_check != EK_PAGE_CHECK_OFF)
        e->stats.n_checked_pages += t->n_pages;
    enum ek_page_fault fault =
        ek_pages_check(&e->pages, t, c->tokens, n, numbers, &bad);
    if (fault) {
        if (is_lost_share(e, t, bad))
            ek_schedule_preempt(e, c);
        else
            end_by_fault(e, c, fault, bad);
        return false;
    }
    e->seqs[i] = (struct ek_lm_seq){
        .tokens = c->tokens + t->n_tokens,
        .n_tokens = n,
        .pos0 = t->n_tokens,
        .pages = numbers,
        .want = e->planned[i].want,
        .decode_from = c->request->n_prompt,
    };
    return true;
}

/* A fault changes the book, so everything is checked once more after one. */
static void check_all(struct ek_engine *e)
{
    for (int32_t i = 0; i < e->n_planned; i++) {
        if (check_one(e, i))
            continue;
        e->n_planned--;
        for (int32_t k = i; k < e->n_planned; k++)
            e->planned[k] = e->planned[k + 1];
        i = -1;
    }
}

/* What the prompts under way will take, and those there are seats and pages for. */
static double backlog_us(const struct ek_engine *e)
{
    double us = 0;
    for (const struct ek_choice *c = e->running.first; c; c = c->next) {
        if (can_work(c) && !c->is_decoding)
            us += ek_pace_prompt_us(&e->pace, c->prefill.n_tokens, prompt_left(c));
    }
    int32_t seats = e->o.max_seqs - e->n_running - e->n_promised;
    const struct ek_choice *head = find_ready(e);
    if (!head || is_refused(e, head, spare_pages(e)))
        return us;
    for (const struct ek_choice *c = head; c && seats > 0; c = c->next) {
        if (c->state != EK_CHOICE_WAITING || !ek_choice_has_room(c))
            continue;
        us += ek_pace_prompt_us(&e->pace, 0, c->n_tokens);
        seats--;
    }
    return us;
}

/* Answers under way wait for one chunk, whoever's prompts it is made of, and for less
 * where that would take longer than they should wait. */
static void limit_room(const struct ek_engine *e, struct room *room)
{
    if (room->tokens > e->o.prefill_chunk)
        room->tokens = e->o.prefill_chunk;
    if (e->o.itl_target_us == 0)
        return;
    struct ek_pace_work work = {{1}};
    for (int32_t i = 0; i < e->n_planned; i++)
        ek_pace_add_answer(&work, e->planned[i].choice->n_tokens - 1);
    double answers = ek_pace_us(&e->pace, &work), late = backlog_us(e) / BACKLOG_US;
    double us = (double)e->o.itl_target_us * (late > 1 ? late : 1) - answers;
    room->is_timed = true;
    room->least = LEAST_PROMPT_TOKENS;
    room->us = us > answers / 3 ? us : answers / 3;
}

void ek_schedule_plan(struct ek_engine *e)
{
    struct room room = {.tokens = e->o.max_batch_tokens, .rows = EK_PROMPT_ROWS};
    e->n_planned = 0;
    for (struct ek_choice *c = e->running.first; c; c = c->next) {
        if (!can_work(c) || !c->is_decoding || !grow(e, c))
            continue;
        plan_one(e, c, 1, EK_LM_WANT_LAST);
        room.tokens--;
    }
    if (e->n_planned > 0)
        limit_room(e, &room);
    for (struct ek_choice *c = e->running.first; c && room.tokens > 0; c = c->next) {
        if (can_work(c) && !c->is_decoding)
            plan_chunk(e, c, &room);
    }
    ek_schedule_sweep(e);
    plan_admissions(e, &room);
    check_all(e);
    ek_schedule_sweep(e);
}
