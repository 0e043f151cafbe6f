/* crossover.h - from how many rows of a step on the prefill copy of the weights is the
 * faster one: measured on this machine, with this model, at start.
 *
 * Decode streams every weight for few rows, so the smaller format wins; with more
 * rows arithmetic decides. Where they cross depends on cores, caches and memory: it is
 * timed, not computed, and the figures are kept so that the choice can be printed.
 */
#ifndef EVENKEEL_LM_CROSSOVER_H
#define EVENKEEL_LM_CROSSOVER_H

#include "lm/model.h"

#define EK_LM_CROSSOVER_ROWS  9         /* 1, 2, 4 .. 256 rows a step */
#define EK_LM_CROSSOVER_NEVER INT32_MAX /* the decode copy was the faster throughout */

struct ek_lm_crossover {
    int32_t n; /* entries below that were measured */
    struct {
        int32_t tokens;     /* rows of the step */
        int64_t decode_us;  /* best of three, all rows with the decode copy */
        int64_t prefill_us; /* and with the prefill copy */
    } at[EK_LM_CROSSOVER_ROWS];
    int32_t tokens; /* the choice: least rows from which the prefill copy stays ahead */
};

/* Times whole steps with both copies of lm, which must have two, in turns, and has the
 * model choose by tokens from then on. Stops once the prefill copy has won twice in a
 * row or two seconds are spent. Errors: EK_ENOMEM (the model chooses as before). */
int ek_lm_find_crossover(struct ek_lm_crossover *x, struct ek_lm *lm,
                         struct ek_err *err) EK_MUST_USE;

/* The choice that n measured entries of x stand for. Cannot fail. */
int32_t ek_lm_crossover_of(const struct ek_lm_crossover *x);

#endif
