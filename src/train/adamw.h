/* adamw.h - AdamW of the dense parameters, and the norm that clipping needs.
 *
 *   m = b1 m + (1-b1) g        v = b2 v + (1-b2) g^2
 *   w = (1 - lr decay) w - lr/(1-b1^t) m / (sqrt(v / (1-b2^t)) + eps)
 *
 * Tables are left to ek_adagrad. Work is cut in fixed blocks: the same bits on any
 * number of threads. Source: Loshchilov & Hutter 2019.
 */
#ifndef EVENKEEL_TRAIN_ADAMW_H
#define EVENKEEL_TRAIN_ADAMW_H

#include "base/team.h"
#include "graph/params.h"
#include "num/cpu.h"

struct ek_adamw_options {
    float beta1, beta2, eps;
    float decay; /* decoupled; parameters with has_no_decay keep out */
};

struct ek_adamw_state;

/* Moments of every dense parameter that is in the set now, zeroed.
 * Errors: EK_EINVAL an option out of range, EK_ENOMEM. */
int ek_adamw_new(struct ek_adamw_state **s, struct ek_params *params, enum ek_isa isa,
                 const struct ek_adamw_options *options,
                 struct ek_err *err) EK_MUST_USE;
void ek_adamw_free(struct ek_adamw_state *s); /* NULL is fine */

/* Adds what the state holds for one parameter to *sum: moments, none of a table, and
 * blocks; the sizes that are taken. False: it overflows (*sum of no use). */
bool ek_adamw_bytes(size_t *sum, const struct ek_param *p) EK_MUST_USE;

/* sqrt of the sum of squares of all dense gradients. */
double ek_adamw_grad_norm(struct ek_adamw_state *s, struct ek_team *team);

/* One step with the gradients as they stand, times grad_scale (clipping). */
void ek_adamw_step(struct ek_adamw_state *s, struct ek_team *team, float lr,
                   float grad_scale);

/* For checkpoints: steps done, and the moments of a parameter, both (rows, cols);
 * NULL for a table. Borrowed, writable. */
int64_t ek_adamw_steps(const struct ek_adamw_state *s);
void ek_adamw_set_steps(struct ek_adamw_state *s, int64_t steps);
float *ek_adamw_moment(struct ek_adamw_state *s, int param, int which); /* 1 or 2 */

#endif
