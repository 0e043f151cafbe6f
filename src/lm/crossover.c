/* crossover.c - times steps of one sequence from position 0: attention and norms are
 * the same for both copies, so the difference is the matrices'. */
#include "lm/crossover.h"

#include "base/clock.h"
#include "lm/model_int.h"

#include <assert.h>

#define REPEATS   3 /* of each copy, in turns; the best counts */
#define BUDGET_US 2000000
#define MAX_ROWS  (1 << (EK_LM_CROSSOVER_ROWS - 1))

int32_t ek_lm_crossover_of(const struct ek_lm_crossover *x)
{
    int32_t tokens = EK_LM_CROSSOVER_NEVER;
    for (int32_t i = x->n; i-- > 0;) {
        if (x->at[i].prefill_us > x->at[i].decode_us)
            break;
        tokens = x->at[i].tokens;
    }
    return tokens;
}

/* One step of n rows with the prefill copy or the decode copy. */
static int64_t time_step(struct ek_lm *lm, struct ek_kv *kv, int32_t n, bool is_prefill)
{
    static const int32_t ids[MAX_ROWS]; /* token 0: every model has it */
    static const int32_t pages[MAX_ROWS / EK_PAGE_TOKENS] = {
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct ek_lm_seq s = {.tokens = ids, .n_tokens = n, .pages = pages};
    ek_lm_choose_by_tokens(lm, is_prefill ? 1 : EK_LM_CROSSOVER_NEVER);
    int64_t start = ek_clock_us();
    ek_lm_forward(lm, kv, &s, 1, NULL);
    return ek_clock_us() - start;
}

static void time_both(struct ek_lm_crossover *x, struct ek_lm *lm, struct ek_kv *kv,
                      int32_t n)
{
    int64_t best[2] = {INT64_MAX, INT64_MAX};
    for (int i = 0; i < 2 * REPEATS; i++) {
        int64_t us = time_step(lm, kv, n, i % 2 == 1);
        best[i % 2] = us < best[i % 2] ? us : best[i % 2];
    }
    x->at[x->n].tokens = n;
    x->at[x->n].decode_us = best[0];
    x->at[x->n++].prefill_us = best[1];
}

/* The last two entries were the prefill copy's, and clearly. */
static bool is_decided(const struct ek_lm_crossover *x)
{
    int n_won = 0;
    for (int32_t i = x->n; i-- > 0 && n_won < 2; n_won++) {
        if (x->at[i].prefill_us + x->at[i].prefill_us / 32 > x->at[i].decode_us)
            break;
    }
    return n_won == 2;
}

int ek_lm_find_crossover(struct ek_lm_crossover *x, struct ek_lm *lm,
                         struct ek_err *err)
{
    struct ek_kv kv;
    assert(lm->prefill_bytes > 0);
    *x = (struct ek_lm_crossover){0};
    int rc = ek_kv_init(&kv, &lm->p, EK_DTYPE_BF16, MAX_ROWS / EK_PAGE_TOKENS, err);
    if (rc)
        return rc;
    int64_t end = ek_clock_us() + BUDGET_US;
    for (int32_t n = 1; n <= MAX_ROWS && n <= lm->plan.T; n *= 2) {
        time_both(x, lm, &kv, n);
        if (is_decided(x) || ek_clock_us() > end)
            break;
    }
    ek_kv_release(&kv);
    x->tokens = ek_lm_crossover_of(x);
    ek_lm_choose_by_tokens(lm, x->tokens);
    return 0;
}
