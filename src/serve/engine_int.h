/* engine_int.h - the inside of the engine: engine.c plans steps, choice.c lives one
 * sequence's life from its sampled token to its deltas. */
#ifndef EVENKEEL_SERVE_ENGINE_INT_H
#define EVENKEEL_SERVE_ENGINE_INT_H

#include "serve/engine.h"

/* Text a delta may hold before its choice waits for the reader. */
#define EK_DELTA_TEXT_BYTES 2048

enum ek_choice_state {
    EK_CHOICE_WAITING, /* no pages yet */
    EK_CHOICE_RUNNING,
    EK_CHOICE_ENDED, /* finish is set, pages are free, the final delta is due */
    EK_CHOICE_GONE,  /* final delta handed over */
};

/* One sequence: choice `index` of its request. Lives in the request's arena. */
struct ek_choice {
    struct ek_request *request;
    struct ek_choice *next; /* in the waiting or the running list */
    int32_t index;
    enum ek_choice_state state;
    struct ek_page_table table;
    struct ek_sampler sampler;
    struct ek_stop stop;
    struct ek_detok detok;
    struct ek_buf piece; /* text of one token on its way to `stop` */
    int32_t last_id;     /* sampled, not yet computed */
    int32_t n_generated;
    uint64_t n_text;     /* bytes decoded */
    uint64_t n_released; /* of them decided and handed on; held: the difference */
    enum ek_finish finish;
    int32_t stop_id;
    const char *error;
    int64_t admit_us, first_us, end_us; /* as in the delta */
    struct ek_delta deltas[2]; /* one may be with the reader while the other fills */
    int32_t filling;           /* index of the engine's */
    bool is_lent;              /* the other one is with the reader */
};

struct ek_choice_list {
    struct ek_choice *first;
    struct ek_choice **end; /* where the next one is linked */
    int32_t n;
};

/* One row of work of the step being made. */
struct ek_planned {
    struct ek_choice *choice;
    int32_t n_tokens;
    bool is_prefill;
    bool has_logits;
};

struct ek_engine {
    struct ek_engine_model model;
    struct ek_engine_options o;
    const struct ek_tokenizer *tokenizer; /* borrowed */
    ek_on_delta_fn *on_delta;
    void *arg;
    struct ek_pages pages;
    struct ek_sampler_room room;
    struct ek_choice_list waiting; /* FIFO */
    struct ek_choice_list running; /* in order of admission */
    struct ek_engine_stats stats;
    uint64_t next_owner;
    int32_t *ends; /* (n_ends) the vocabulary's end tokens, owned */
    int32_t n_ends;
    size_t longest_piece; /* bytes of the longest token */
    /* the step: (max_seqs) each, owned */
    struct ek_planned *planned;
    struct ek_lm_seq *seqs;
    int32_t *numbers; /* page numbers of all sequences, max_seqs * pages of ctx */
    float *logits;    /* (n_rows, V) */
    int32_t n_rows;
    int32_t n_planned;
};

/* choice.c */
int ek_choice_prepare(struct ek_choice *c, struct ek_request *r, int32_t index,
                      const struct ek_engine *e) EK_MUST_USE;
void ek_choice_release(struct ek_choice *c);

/* The delta being filled can take another token. */
bool ek_choice_has_room(const struct ek_choice *c);

/* Samples from the row and takes the token in. */
void ek_choice_advance(struct ek_choice *c, struct ek_engine *e, const float *row);

/* Ends the choice: frees its pages. Text that was held for a stop string comes out with
 * STOP by token and LENGTH only. */
void ek_choice_end(struct ek_choice *c, struct ek_engine *e, enum ek_finish finish,
                   const char *error);

/* Hands the filling delta to the reader when there is something to say. */
void ek_choice_flush(struct ek_choice *c, struct ek_engine *e);

#endif
