#include "cli/model.h"

#include "cli/progress.h"

enum ek_dtype ek_model_kv_dtype(const struct ek_model_settings *s)
{
    static const enum ek_dtype dtypes[] = {EK_DTYPE_BF16, EK_DTYPE_F32, EK_DTYPE_E4M3};
    return dtypes[s->kv_dtype];
}

void ek_model_options(struct ek_runtime_options *o, const char *path,
                      const struct ek_model_settings *s)
{
    *o = (struct ek_runtime_options){
        .path = path,
        .n_threads = (int32_t)s->threads,
        .ctx = (int32_t)s->ctx,
        .kv_dtype = ek_model_kv_dtype(s),
        .weights = (enum ek_lm_weights)s->weights,
        .max_seqs = 1,
    };
}

int ek_model_open(struct ek_runtime *rt, const struct ek_runtime_options *o,
                  struct ek_err *err)
{
    struct ek_progress progress;
    struct ek_runtime_options with_progress = *o;
    ek_progress_begin(&progress, "loading weights", true);
    with_progress.on_progress = ek_progress_bytes;
    with_progress.progress_arg = &progress;
    int rc = ek_runtime_open(rt, &with_progress, err);
    ek_progress_end(&progress);
    return rc;
}
