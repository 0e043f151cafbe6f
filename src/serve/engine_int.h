/* engine_int.h - the inside of the engine.
 *
 *   engine.c    the object: new, submit, cancel, one step, deltas out
 *   request.c   a request's memory, before the engine sees it
 *   schedule.c  who works in this step: deadlines, pages, preemption, admission, check
 *   pace.c      what a step will take
 *   prefill.c   from prompt tokens to a choice that decodes
 *   choice.c    one sequence from its sampled token to its deltas
 *
 *            submit                admit               last prompt row
 *    HELD ----------> WAITING -------------> RUNNING: prefill ------> decode
 *     |  leader died     ^                      |                       |
 *     |                  +------ preempt -------+-----------------------+
 *     +-- prompt is computed: shares its pages --> RUNNING              | end
 *    any of them -- cancel, deadline, fault --> ENDED <-----------------+
 *                                                 | final delta handed over
 *                                                 v
 *                                                GONE
 * A choice changes its state at once (ek_choice_set_state) and its list at the next
 * sweep, so lists are never changed under a loop over them.
 */
#ifndef EVENKEEL_SERVE_ENGINE_INT_H
#define EVENKEEL_SERVE_ENGINE_INT_H

#include "serve/engine.h"
#include "serve/pace.h"

/* Text a delta may hold before its choice waits for the reader. */
#define EK_DELTA_TEXT_BYTES 2048

/* Rows of logits beyond one a sequence: what a chunk whose prompt log-probabilities are
 * wanted may add. */
#define EK_PROMPT_ROWS 32

enum ek_choice_state {
    EK_CHOICE_HELD,    /* another choice computes the prompt for it */
    EK_CHOICE_WAITING, /* no pages yet, or none any more */
    EK_CHOICE_RUNNING,
    EK_CHOICE_ENDED, /* finish is set, pages are free, the final delta is due */
    EK_CHOICE_GONE,  /* final delta handed over */
};

/* One sequence: choice `index` of its request. Lives in the request's arena. */
struct ek_choice {
    struct ek_request *request;
    struct ek_choice *next; /* in its list */
    int32_t index;
    enum ek_choice_state state;
    uint64_t order;     /* of arrival, unique */
    int32_t *tokens;    /* (n_prompt + max_tokens) prompt, then answer */
    int32_t n_tokens;   /* known: all but the last are computed when it decodes */
    int32_t n_computed; /* positions computed at least once */
    /* Pages: the prefill's until the last known token is computed, the decode's then.
     * The other table is empty. */
    struct ek_page_table prefill, decode;
    bool is_decoding;
    struct ek_sampler sampler;
    struct ek_stop stop;
    struct ek_detok detok;
    struct ek_buf piece; /* text of one token on its way to `stop` */
    int32_t n_generated;
    uint64_t n_text;     /* bytes decoded */
    uint64_t n_released; /* of them decided and handed on; held: the difference */
    enum ek_finish finish;
    int32_t stop_id;
    const char *error;
    bool is_expired;                    /* it is that of the deadline */
    int64_t admit_us, first_us, end_us; /* as in the delta */
    struct ek_delta deltas[2]; /* one may be with the reader while the other fills */
    int32_t filling;           /* index of the engine's */
    bool is_lent;              /* the other one is with the reader */
};

struct ek_choice_list {
    struct ek_choice *first, *last;
    int32_t n;
};

/* One sequence's work in the step being made. */
struct ek_planned {
    struct ek_choice *choice;
    int32_t n_tokens;
    enum ek_lm_want want;
    const float *row; /* its last row of logits, NULL: none */
    bool is_drawn;    /* id is its next token, or rc why there is none */
    int32_t id;
    int rc;
};

/* What a prefill ends in, and all that a decode is given: pages with their fill
 * (pages->n_tokens), the first token, and the logits it came of. Nothing else of the
 * prefill may be assumed: it may have been done elsewhere. */
struct ek_prefilled {
    struct ek_page_table *pages;
    int32_t first_id;
    const float *row; /* (V) */
};

struct ek_engine {
    struct ek_engine_model model;
    struct ek_engine_options o;
    const struct ek_tokenizer *tokenizer; /* borrowed */
    ek_on_delta_fn *on_delta;
    void *arg;
    struct ek_pages pages;
    struct ek_sampler_room room;
    struct ek_sampler_room *rooms; /* (model.n_members) for drawing together, owned */
    int n_rooms;
    struct ek_choice_list waiting; /* by (priority, order); held ones too */
    struct ek_choice_list running; /* the same */
    struct ek_choice_list ended;   /* final delta is due */
    bool is_unsorted;              /* a choice's list is not its state's: sweep */
    bool has_moved;     /* in this step a state changed or a delta went out */
    int32_t n_running;  /* choices with state RUNNING, <= max_seqs */
    int32_t n_resting;  /* preempted ones that wait with part of an answer */
    int32_t n_promised; /* seats that running leaders keep for others */
    struct ek_engine_stats stats;
    struct ek_pace pace; /* with itl_target_us only */
    uint64_t next_owner, next_order;
    int64_t wake_us; /* no deadline is due before; INT64_MAX: there is none */
    /* The choice that was refused admission last, and the pages that were spare then:
     * with no more of them, and the same choice, trying again is idle. */
    uint64_t refused_order;
    int32_t refused_spare;
    int32_t refused_indexed; /* pages of the prefix cache then: new ones may be hits */
    int32_t *ends;           /* (n_ends) the vocabulary's end tokens, owned */
    int32_t n_ends;
    size_t longest_piece; /* bytes of the longest token */
    /* the step: (max_seqs) each, owned */
    struct ek_planned *planned;
    struct ek_lm_seq *seqs;
    int32_t *numbers; /* page numbers of all sequences, max_seqs * pages of ctx */
    float *logits;    /* (max_seqs + EK_PROMPT_ROWS, V) */
    int32_t n_planned;
};

/* ---- schedule.c ---- */

void ek_choice_set_state(struct ek_engine *e, struct ek_choice *c,
                         enum ek_choice_state state);

/* Puts every choice into the list of its state. */
void ek_schedule_sweep(struct ek_engine *e);

/* Adds a choice to the waiting ones, or back to the ended ones. */
void ek_schedule_wait(struct ek_engine *e, struct ek_choice *c);
void ek_schedule_end(struct ek_engine *e, struct ek_choice *c);

/* Ends what is past its deadline. */
void ek_schedule_expire(struct ek_engine *e);

/* Decides the step: e->planned and e->seqs [0,n_planned), every page checked. */
void ek_schedule_plan(struct ek_engine *e);

/* Takes the choice's pages; it waits until it is admitted again. */
void ek_schedule_preempt(struct ek_engine *e, struct ek_choice *c);

/* ---- prefill.c ---- */

/* The table the choice's pages are in now. */
struct ek_page_table *ek_choice_table(struct ek_choice *c);

/* Positions from the first on that any sequence would compute alike: what a cached page
 * may be of. */
int32_t ek_choice_shareable(const struct ek_engine *e, const struct ek_choice *c);

/* Makes one of the choice's tables empty, with a new owner. */
void ek_choice_open_table(struct ek_engine *e, const struct ek_choice *c,
                          struct ek_page_table *t);

/* Tokens of the choice's next chunk and the rows it wants; at most `room` tokens, of
 * which at most `free_rows` may have a row each. */
int32_t ek_prefill_chunk(const struct ek_engine *e, const struct ek_choice *c,
                         int32_t room, int32_t free_rows, enum ek_lm_want *want);

/* This choice's prompt tokens are to be scored, every one. */
bool ek_prefill_scores(const struct ek_choice *c);

/* Takes the rows of a scored chunk of n tokens from pos0. */
void ek_prefill_take_rows(struct ek_engine *e, struct ek_choice *c, int32_t pos0,
                          int32_t n, const float *rows);

/* Every known token is computed and `row` tells about the next one: the others of the
 * request share the pages, and each goes on as a decode. */
void ek_prefill_finish(struct ek_engine *e, struct ek_choice *c, const float *row);

/* A decode takes over what a prefill ended in, under an owner of its own. */
void ek_decode_adopt(struct ek_engine *e, struct ek_choice *c,
                     const struct ek_prefilled *p);

/* ---- choice.c ---- */

int ek_choice_prepare(struct ek_choice *c, struct ek_request *r, int32_t index,
                      const struct ek_engine *e) EK_MUST_USE;
void ek_choice_release(struct ek_choice *c);

/* The delta being filled can take another token. */
bool ek_choice_has_room(const struct ek_choice *c);

/* Draws the token after the row. Changes nothing but the choice's sampler: different
 * choices may draw at once, each thread its own room. Errors: EK_EFORMAT the row is not
 * finite, and ek_choice_fail is to follow. */
int ek_choice_draw(struct ek_choice *c, int32_t *id, const float *row,
                   struct ek_sampler_room *room) EK_MUST_USE;

/* Ends a choice that no token could be drawn for. */
void ek_choice_fail(struct ek_choice *c, struct ek_engine *e);

/* Takes a drawn token in: ends, text, log-probability of it in the row. */
void ek_choice_take(struct ek_choice *c, struct ek_engine *e, int32_t id,
                    const float *row);

/* Gives back the choice's pages. Its request's prompt is not computed by it any more:
 * with is_over the next held choice becomes the leader. */
void ek_choice_drop(struct ek_choice *c, struct ek_engine *e, bool is_over);

/* Ends the choice: frees its pages. Text that was held for a stop string comes out with
 * STOP by token and LENGTH only. */
void ek_choice_end(struct ek_choice *c, struct ek_engine *e, enum ek_finish finish,
                   const char *error);

/* Hands the filling delta to the reader when there is something to say. */
void ek_choice_flush(struct ek_choice *c, struct ek_engine *e);

#endif
