/* model.c - loading and freeing; the forward pass is in forward.c. */
#include "lm/model.h"

#include "base/mem.h"
#include "lm/model_int.h"

int ek_lm_load(struct ek_lm **out, const struct ek_modelfile *m,
               const struct ek_lm_options *o, const struct ek_ops *ops,
               struct ek_team *team, struct ek_err *err)
{
    int rc;
    struct ek_lm *lm = ek_calloc(1, sizeof *lm);
    if (!lm)
        return ek_err_set(err, EK_ENOMEM, "%s: no memory for the model", m->path);
    lm->ops = ops;
    lm->team = team;
    if ((rc = ek_lm_params_read(&lm->p, m, err)) != 0 ||
        (rc = ek_lm_weights_load(lm, m, o, err)) != 0 ||
        (rc = ek_lm_plan_init(&lm->plan, lm, o->max_batch_tokens, err)) != 0)
        goto out;
    *out = lm;
    lm = NULL;
out:
    ek_lm_free(lm);
    return rc;
}

void ek_lm_free(struct ek_lm *lm)
{
    if (!lm)
        return;
    ek_lm_plan_release(&lm->plan);
    ek_free(lm->packed);
    ek_free(lm->layers);
    ek_free(lm->kv_scales);
    ek_free(lm);
}

const struct ek_lm_params *ek_lm_get_params(const struct ek_lm *lm)
{
    return &lm->p;
}

int64_t ek_lm_n_params(const struct ek_lm *lm)
{
    return lm->n_params;
}

size_t ek_lm_weight_bytes(const struct ek_lm *lm)
{
    return lm->packed_bytes;
}

size_t ek_lm_prefill_bytes(const struct ek_lm *lm)
{
    return lm->prefill_bytes;
}

void ek_lm_choose_by_tokens(struct ek_lm *lm, int32_t crossover)
{
    lm->is_by_tokens = true;
    lm->crossover = crossover;
}
