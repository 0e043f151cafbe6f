/* service.h - one model made ready to answer: file, tokenizer, template, weights, KV
 * storage, threads; and the engine over them. */
#ifndef EVENKEEL_SERVE_SERVICE_H
#define EVENKEEL_SERVE_SERVICE_H

#include "base/team.h"
#include "data/modelfile.h"
#include "lm/model.h"
#include "serve/engine.h"

#include <stdbool.h>
#include <stdint.h>

struct ek_service_options {
    const char *path;
    const char *id;    /* the name clients use; NULL: the file's own */
    int32_t n_threads; /* 0: one a physical core */
    int32_t ctx;       /* 0: what the model was made for, at most 8192 */
    int32_t max_seqs;
    int32_t max_batch_tokens;
    int32_t prefill_chunk;
    enum ek_dtype kv_dtype;
    int64_t kv_bytes; /* 0: max_seqs full contexts, at most a quarter of the RAM */
    enum ek_lm_weights weights;
    void (*on_progress)(void *arg, int64_t done_bytes, int64_t total_bytes);
    void *progress_arg;
};
void ek_service_options_default(struct ek_service_options *o);

struct ek_service {
    struct ek_modelfile file; /* open while the service is: strings are borrowed */
    struct ek_tokenizer *tokenizer; /* owned, like all below */
    struct ek_template *chat;       /* NULL: the model has none */
    struct ek_team *team;
    struct ek_lm *lm;
    struct ek_kv kv;
    const struct ek_ops *ops;
    char id[256];
    int32_t ctx;
    int32_t n_pages;
    size_t longest_piece; /* bytes of the vocabulary's longest token */
    struct ek_engine_options engine;
    int64_t created_s; /* wall clock of opening, seconds since 1970 */
};

/* Errors: those of the parts, with the file's name; s is closed then. */
int ek_service_open(struct ek_service *s, const struct ek_service_options *o,
                    struct ek_err *err) EK_MUST_USE;
void ek_service_close(struct ek_service *s); /* its engine was freed before */

/* An engine over the service, which must outlive it. */
int ek_service_engine(struct ek_engine **e, struct ek_service *s,
                      ek_on_delta_fn *on_delta, void *arg,
                      struct ek_err *err) EK_MUST_USE;

#endif
