/* click.c - the head that tells whether the item that comes is clicked: h, the item and
 * what a model knows besides meet in a low-rank factorisation machine, below two
 * layers. */
#include "rec/model_int.h"

#include <math.h>

#define EPS  1e-5f
#define RANK 8

int ek_rec_click_head(struct ek_rec *m, int h, int context)
{
    const int64_t dim = m->c.dim;
    ek_rec_part(m, "click", -1);
    int target = ek_lookup(m->g, m->items, m->targets, sqrtf((float)dim));
    int parts[] = {h, target, context}, n_parts = context < 0 ? 2 : 3;
    int x = ek_concat(m->g, parts, n_parts);
    int64_t n = ek_graph_cols(m->g, x) / dim;
    int p = ek_rec_param(m, "fm", n > 0 ? n : 1, RANK, EK_INIT_XAVIER_NORMAL, 1.0f);
    int fm = ek_rec_norm(m, "fm.norm", ek_low_rank(m->g, x, p, n), EPS);
    int y = ek_concat(m->g, (int[]){fm, x, ek_mul(m->g, h, target)}, 3);
    y = ek_rec_linear(m, "up", y, dim, EK_ACT_GELU);
    return ek_rec_linear(m, "logit", y, 1, EK_ACT_NONE);
}
