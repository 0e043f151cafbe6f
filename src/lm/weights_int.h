/* weights_int.h - what the two passes of loading share: weights.c finds every matrix
 * and vector, weights_pack.c checks every number and packs. */
#ifndef EVENKEEL_LM_WEIGHTS_INT_H
#define EVENKEEL_LM_WEIGHTS_INT_H

#include "lm/model_int.h"
#include "lm/source.h"

/* One matrix or vector to be packed: exactly one of w and vec is set. */
struct ek_lm_job {
    struct ek_source src;
    struct ek_weight *w;
    const float **vec;
    size_t at; /* offset in lm->packed */
    /* Of a matrix: it is with[i], and forward deals out the panels of all n together.
     * */
    const struct ek_weight *with;
    int n, i;
};

struct ek_lm_packing {
    struct ek_lm *lm;
    const struct ek_modelfile *m;
    const struct ek_lm_options *o;
    struct ek_lm_job *jobs;
    size_t n_jobs;
    size_t bytes;        /* of all jobs, packed */
    int64_t max_k;       /* longest row of a matrix */
    int64_t total_bytes; /* of the file's tensors that are used */
    size_t scratch_rows; /* 128, or 256 where a matrix is no plain tensor */
};

/* kv_scale.c: lm->kv_scales of a folder whose decoder's names begin with `decoder`;
 * marks what it took. Errors: EK_EFORMAT, EK_ENOMEM. */
int ek_lm_kv_scales_load(struct ek_lm *lm, const struct ek_modelfile *m,
                         const char *decoder, unsigned char *is_used,
                         struct ek_err *err) EK_MUST_USE;

/* Takes lm->packed and packs all jobs into it. Errors: EK_ENOMEM; EK_EFORMAT a number
 * that is not finite, named. */
int ek_lm_pack_all(const struct ek_lm_packing *p, struct ek_err *err) EK_MUST_USE;

#endif
