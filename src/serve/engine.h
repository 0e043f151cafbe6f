/* engine.h - turns requests into tokens: admission, batches of steps, sampling, text.
 *
 * The engine belongs to one thread, which calls submit, step, cancel and give_back.
 * What it has to say leaves as deltas, through one callback, at the end of a step:
 *
 *     submit(request) --> waiting --> running: prefill in chunks, then decode
 *                            ^           |  on_delta(delta)   text that is decided
 *                            |           |  <-- give_back(delta) -- reader is done
 *                            + preempted +
 *                                        v
 *                         on_delta(final delta of each choice); after the last one the
 *                         request is the submitter's again
 *
 * A request's memory is its own arena, filled by ek_request_prepare before submit, on
 * any thread. A step allocates nothing. A choice whose delta is full waits until its
 * reader gave one back: a slow reader holds up nobody else.
 *
 * Waiting ones come in by (priority, arrival), as pages for their prompt and a
 * reservation for answers allow (docs/design/scheduler.md has the formula). When pages
 * run out, the last in that order gives its own up and is recomputed later: nothing is
 * lost, nothing is said twice, and its tokens are those it would have had anyway.
 * Pages are checked before each step (pages.h): on a fault that sequence ends with
 * EK_FINISH_ERROR and nothing else does.
 */
#ifndef EVENKEEL_SERVE_ENGINE_H
#define EVENKEEL_SERVE_ENGINE_H

#include "base/arena.h"
#include "base/buf.h"
#include "data/tokenizer.h"
#include "lm/model.h"
#include "serve/pages.h"
#include "serve/sampler.h"
#include "serve/stop.h"

#include <stdbool.h>
#include <stdint.h>

#define EK_CHOICES_MAX      16 /* n of one request */
#define EK_DELTA_TOKENS_MAX (EK_STOP_BYTES_MAX + 64)
#define EK_STEP_BUCKETS     18

/* What the engine asks of a model; ek_lm_forward's contract. */
struct ek_engine_model {
    int32_t (*forward)(void *arg, const struct ek_lm_seq *seqs, int32_t n_seqs,
                       float *logits);
    /* Keys and values of a whole page, all layers. copy_page serves n > 1; poison may
     * be NULL: it fills a page that nobody holds any more, so a stale read shows. */
    void (*copy_page)(void *arg, int32_t to, int32_t from);
    void (*poison)(void *arg, int32_t page);
    /* Runs fn(work, member, n_members) on each of the n_members threads that compute
     * forward, and returns when all are done; NULL: there is the caller alone. */
    void (*together)(void *arg, void (*fn)(void *work, int member, int n_members),
                     void *work);
    int n_members;
    /* What a step took is told by this, monotonic microseconds; NULL: ek_clock_us. */
    int64_t (*now_us)(void *arg);
    void *arg;
    int32_t V;
    bool has_own_decode; /* answers are computed with other weights than prompts are:
                            only a prompt's pages may serve as another's prefix */
    const int64_t *kv_saturated; /* the model's count so far; NULL: none is kept */
};

struct ek_engine_options {
    int32_t ctx;              /* positions a sequence may have */
    int32_t n_pages;          /* of the KV storage behind the model */
    int32_t max_seqs;         /* sequences running at once */
    int32_t max_batch_tokens; /* tokens a step may have, >= max_seqs */
    int32_t prefill_chunk;    /* prompt tokens of one sequence in one step; of all of
                                 them when the step has answers' tokens too */
    int64_t itl_target_us;    /* what a step with answers' tokens should take at most:
                                 prompts get what is left, as scheduler.md says; 0:
                                 always prefill_chunk */
    int32_t reserve_tokens;   /* of each answer, kept free at admission; >= 0 */
    enum ek_page_check page_check;
    bool caches_prefixes; /* full pages stay for whoever has the same beginning */
};

enum ek_finish {
    EK_FINISH_NONE,   /* goes on */
    EK_FINISH_STOP,   /* end token, stop token or stop string */
    EK_FINISH_LENGTH, /* max_tokens */
    EK_FINISH_ABORT,  /* cancelled */
    EK_FINISH_ERROR,  /* see ek_delta.error */
};
const char *ek_finish_name(enum ek_finish f); /* "stop", ...; "" for NONE */

/* One token of an answer or prompt. Tokens whose text is a stop string, and the token
 * that ended the answer, are not listed. */
struct ek_token {
    int32_t id;
    float logprob;  /* 0 unless wanted */
    uint64_t start; /* bytes of the choice's text before it */
};

struct ek_engine_stats {
    int64_t n_steps;
    int64_t prompt_tokens;        /* computed, each once */
    int64_t recomputed_tokens;    /* of prompts and answers, after a preemption */
    int64_t generated_tokens;     /* sampled */
    int64_t n_preempted;          /* times a sequence gave up its pages */
    int64_t n_expired;            /* choices ended by their deadline */
    int64_t n_corrupted;          /* choices ended by a row that is not finite */
    int64_t prefix_lookup_tokens; /* looked up in the prefix cache at admission */
    int64_t prefix_hit_tokens;    /* of them found */
    int64_t n_evicted;            /* pages that left the prefix cache for another use */
    int32_t n_running;            /* sequences in the batch */
    int32_t n_waiting;            /* preempted ones included */
    int32_t n_pages, n_quarantined;
    int32_t n_free_pages;   /* that no sequence holds, cached ones included */
    int32_t n_cached_pages; /* of them kept by the prefix cache until they are needed */
    int32_t n_step_tokens;  /* in the latest step */
    int64_t step_tokens;    /* of all steps */
    int64_t steps_by_tokens[EK_STEP_BUCKETS]; /* [i]: of at most 2^i tokens and more
                                                 than 2^(i-1); the last: of more */
    int64_t n_checked_pages;                  /* compared with the book before a read */
    int64_t kv_saturated; /* values of KV that the cache's format cut to its range */
    int64_t faults[EK_PAGE_FAULT_COUNT_OF];
};

struct ek_request;

/* News of one choice. Owner: the engine while it fills it, the reader from on_delta to
 * give_back. A final delta (finish != NONE) is not given back. */
struct ek_delta {
    struct ek_request *request;
    int32_t choice;
    struct ek_buf text;      /* whole characters, decided */
    struct ek_token *tokens; /* (n_tokens) whose text is decided */
    struct ek_logprob *top;  /* (n_tokens, n_top) */
    int32_t n_tokens;        /* <= EK_DELTA_TOKENS_MAX */
    int32_t n_generated;     /* tokens sampled for this choice so far */
    int32_t n_new;           /* of them since the delta before */
    enum ek_finish finish;   /* NONE: more follows */
    int32_t stop_id;         /* token that ended it, or -1 */
    int32_t stop_string;     /* index of the stop string that ended it, or -1 */
    const char *error;       /* static sentence with EK_FINISH_ERROR, else NULL */
    bool is_expired;         /* with EK_FINISH_ERROR: the deadline passed */
    int64_t admit_us;        /* of this choice; monotonic; 0: not yet */
    int64_t first_us;        /* its first token */
    int64_t end_us;
    bool is_last; /* every choice is finished: the request is yours */
};

struct ek_choice; /* engine_int.h */

/* What the submitter fills in, and what the engine leaves. Start from
 * ek_request_init; ek_request_prepare checks it. */
struct ek_request {
    struct ek_arena arena; /* all memory of the request; release with the request */
    void *user;            /* the submitter's */
    const int32_t *prompt; /* (n_prompt) >= 1 */
    int32_t n_prompt;
    int32_t n;          /* choices, 1..EK_CHOICES_MAX */
    int32_t max_tokens; /* >= 1 */
    int32_t min_tokens; /* end tokens and stop strings do not count before */
    struct ek_sampling sampling;
    struct ek_stop stop; /* strings added with ek_stop_add on `arena` */
    const int32_t *stop_ids;
    int32_t n_stop_ids;
    bool has_no_end;            /* the model's end tokens are never drawn */
    bool keeps_stop;            /* the stop string stays in the text */
    bool shows_special;         /* special tokens appear as text */
    bool wants_logprobs;        /* of answer tokens */
    bool wants_prompt_logprobs; /* of prompt tokens, into prompt_tokens */
    int32_t n_top;              /* alternatives, 0..EK_TOP_LOGPROBS_MAX */
    struct ek_salt salt;        /* whose prefixes it may share; {0,0}: nobody's own */
    int32_t priority;           /* lower is served earlier; equal: by arrival */
    int64_t deadline_us;        /* monotonic; open choices end then. 0: none */

    /* From ek_request_prepare and the engine; read-only to the submitter. */
    struct ek_choice *choices;
    struct ek_token *prompt_tokens; /* (n_prompt) or NULL; [0].logprob means nothing */
    struct ek_logprob *prompt_top;  /* (n_prompt, n_top) */
    int32_t n_prompt_done;          /* entries of prompt_tokens filled */
    int32_t
        n_cached;   /* prompt tokens found in the prefix cache; set before any delta */
    int32_t n_open; /* choices not finished */
    int32_t leader; /* choice that computes the prompt for all; -1: it is computed */
    int32_t n_promised; /* seats kept for the others until then */
    int64_t submit_us;  /* monotonic */
    /* Of the choices the first or last; 0: not yet. To be read after is_last only: the
     * engine may be at work for another choice before. */
    int64_t admit_us, first_us, end_us;
};

/* Zero and the defaults: n 1, sampling default; arena with that ceiling. */
void ek_request_init(struct ek_request *r, size_t max_arena_bytes);
void ek_request_release(struct ek_request *r); /* not while the engine has it */

struct ek_engine;

/* Sees deltas at the end of steps and in cancel; may call ek_engine_give_back. */
typedef void ek_on_delta_fn(void *arg, struct ek_delta *delta);

/* The tokenizer is borrowed and must outlive the engine. Errors: EK_ENOMEM,
 * EK_EIO (the system gives no random numbers). */
int ek_engine_new(struct ek_engine **e, const struct ek_engine_model *model,
                  const struct ek_tokenizer *tokenizer,
                  const struct ek_engine_options *o, const struct ek_ops *ops,
                  ek_on_delta_fn *on_delta, void *arg, struct ek_err *err) EK_MUST_USE;
void ek_engine_free(struct ek_engine *e); /* no request may be in it */

/* Allocates what the request will need. Any thread: reads only what never changes in
 * the engine. Errors: EK_EINVAL a prompt id outside [0,V), EK_ELIMIT (n_prompt,
 * max_tokens and ctx; more pages than there are), EK_ENOMEM; the request is only
 * releasable after that. */
int ek_request_prepare(struct ek_request *r, const struct ek_engine *e,
                       struct ek_err *err) EK_MUST_USE;

void ek_engine_submit(struct ek_engine *e, struct ek_request *r);

/* Ends the request's open choices with EK_FINISH_ABORT; their final deltas come at the
 * latest at the end of the next step. Does nothing (and reads nothing of r) when r is
 * not in the engine. */
void ek_engine_cancel(struct ek_engine *e, const struct ek_request *r);

void ek_engine_give_back(struct ek_engine *e, struct ek_delta *delta);

/* Hands over what there is to say, as every step does at its end: after give_back, so
 * that what a step could not hand over does not wait for the next one. Not from
 * on_delta. */
void ek_engine_flush(struct ek_engine *e);

/* One step over what is running. True when something moved; false when there is
 * nothing to do until the next submit, cancel or give_back, or ek_engine_wake_us. */
bool ek_engine_step(struct ek_engine *e);

/* When the next deadline is due, monotonic; INT64_MAX: there is none. */
int64_t ek_engine_wake_us(const struct ek_engine *e);

const struct ek_engine_options *ek_engine_get_options(const struct ek_engine *e);
const struct ek_engine_stats *ek_engine_get_stats(const struct ek_engine *e);
struct ek_pages *ek_engine_get_pages(struct ek_engine *e); /* tests inject faults */

#endif
