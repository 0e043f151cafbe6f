#include "cli/model.h"

#include "cli/progress.h"

#include <stdio.h>

enum ek_dtype ek_model_kv_dtype(const struct ek_model_settings *s)
{
    static const enum ek_dtype dtypes[] = {EK_DTYPE_BF16, EK_DTYPE_F32, EK_DTYPE_E4M3};
    return dtypes[s->kv_dtype];
}

void ek_model_options(struct ek_runtime_options *o, const char *path,
                      const struct ek_model_settings *s)
{
    int decode = s->decode_weights ? s->decode_weights - 1 : s->weights;
    int prefill = s->prefill_weights ? s->prefill_weights - 1 : s->weights;
    *o = (struct ek_runtime_options){
        .path = path,
        .n_threads = (int32_t)s->threads,
        .ctx = (int32_t)s->ctx,
        .kv_dtype = ek_model_kv_dtype(s),
        .weights = (enum ek_lm_weights)decode,
        .has_prefill_weights = prefill != decode,
        .prefill_weights = (enum ek_lm_weights)prefill,
        .is_by_tokens = s->weights_rule == 1,
        .max_seqs = 1,
        .page_check = EK_PAGE_CHECK_PAGES,
        .caches_prefixes = true,
    };
}

const char *ek_model_crossover_text(char *out, size_t cap, const struct ek_runtime *rt)
{
    const struct ek_lm_crossover *x = &rt->crossover;
    size_t n = 0;
    out[0] = 0;
    if (x->n == 0)
        return out;
    for (int32_t i = 0; i < x->n && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%d %.2f/%.2f", i ? ", " : "",
                              x->at[i].tokens, (double)x->at[i].decode_us / 1e3,
                              (double)x->at[i].prefill_us / 1e3);
    if (n < cap && x->tokens == EK_LM_CROSSOVER_NEVER)
        snprintf(out + n, cap - n, "; decode weights always");
    else if (n < cap)
        snprintf(out + n, cap - n, "; prefill weights from %d tokens on", x->tokens);
    return out;
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
