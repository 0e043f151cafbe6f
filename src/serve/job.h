/* job.h - from checked parameters to engine requests: template, tokens, lengths. */
#ifndef EVENKEEL_SERVE_JOB_H
#define EVENKEEL_SERVE_JOB_H

#include "serve/api.h"
#include "serve/engine.h"
#include "serve/runtime.h"

/* What is needed of a model to build requests; all borrowed. */
struct ek_job_model {
    const struct ek_engine *engine; /* for ek_request_prepare */
    const struct ek_runtime *rt;    /* tokenizer, template, ctx */
    const char *id;                 /* the name clients use */
};

/* One prompt of a call. */
struct ek_job {
    struct ek_request request;
    bool has_news;      /* n_cached of the request is counted */
    struct ek_str echo; /* the prompt's text when it is to be repeated; in the arena */
};

/* Builds the call's jobs (one; a completion's list of prompts gives several).
 * The caller frees them with ek_jobs_free. On failure *e says what to answer:
 * 400 with both numbers for a prompt that is too long, 404 for another model's name. */
int ek_jobs_build(struct ek_job **jobs, int32_t *n_jobs, const struct ek_job_model *m,
                  struct ek_api_params *p, struct ek_api_error *e) EK_MUST_USE;
void ek_jobs_free(struct ek_job *jobs, int32_t n_jobs);

/* The tokens of a chat, appended: the template rendered over the messages, special
 * tokens read only where the template itself wrote them. */
int ek_job_chat_tokens(struct ek_ids *out, const struct ek_job_model *m,
                       const struct ek_api_params *p,
                       struct ek_api_error *e) EK_MUST_USE;

/* The tokens of raw text, appended: special tokens are read wherever they stand, BOS
 * as the model asks for it when `with_bos`. */
int ek_job_text_tokens(struct ek_ids *out, const struct ek_job_model *m,
                       struct ek_str text, bool with_bos,
                       struct ek_api_error *e) EK_MUST_USE;

/* 404 when a model was named that is not ours. */
int ek_job_check_model(const struct ek_job_model *m, const char *name,
                       struct ek_api_error *e) EK_MUST_USE;

#endif
