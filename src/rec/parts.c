/* parts.c - the layers that models share, with their parameters by name. */
#include "rec/model_int.h"

#include <math.h>
#include <stdio.h>

void ek_rec_part(struct ek_rec *m, const char *region, int index)
{
    if (index < 0)
        (void)snprintf(m->part, sizeof m->part, "%s", region);
    else
        (void)snprintf(m->part, sizeof m->part, "%s%d", region, index);
    ek_graph_region(m->g, m->part);
}

static int param(struct ek_rec *m, const char *name, struct ek_param_spec spec)
{
    char full[96]; /* the set refuses what is over 63 */
    (void)snprintf(full, sizeof full, "%s.%s", m->part, name);
    spec.name = full;
    return ek_graph_param(m->g, &spec);
}

int ek_rec_param(struct ek_rec *m, const char *name, int64_t rows, int64_t cols,
                 enum ek_init_kind init, float scale)
{
    return param(m, name,
                 (struct ek_param_spec){
                     .rows = rows, .cols = cols, .init = init, .scale = scale});
}

int ek_rec_table(struct ek_rec *m, const char *name, int64_t rows, int64_t cols,
                 float scale)
{
    return param(m, name,
                 (struct ek_param_spec){.rows = rows,
                                        .cols = cols,
                                        .init = EK_INIT_NORMAL,
                                        .scale = scale,
                                        .is_table = m->c.has_row_optimizer});
}

/* "<name>.<what>" (1, cols): a bias or a gain, which decay leaves alone. */
static int vector(struct ek_rec *m, const char *name, const char *what,
                  struct ek_param_spec spec)
{
    char full[48];
    (void)snprintf(full, sizeof full, "%s.%s", name, what);
    spec.rows = 1;
    spec.has_no_decay = true;
    return param(m, full, spec);
}

int ek_rec_bias(struct ek_rec *m, const char *name, int64_t cols, float scale)
{
    return vector(
        m, name, "bias",
        (struct ek_param_spec){.cols = cols,
                               .init = scale > 0 ? EK_INIT_UNIFORM : EK_INIT_ZERO,
                               .scale = scale});
}

int ek_rec_linear(struct ek_rec *m, const char *name, int x, int64_t cols,
                  enum ek_act act)
{
    int64_t rows = ek_graph_cols(m->g, x);
    if (rows < 1)
        return -1;
    int w = ek_rec_param(m, name, rows, cols, EK_INIT_XAVIER_NORMAL, 1.0f);
    return ek_linear(m->g, x, w, ek_rec_bias(m, name, cols, 0), act);
}

int ek_rec_norm(struct ek_rec *m, const char *name, int x, float eps)
{
    int64_t cols = ek_graph_cols(m->g, x);
    if (cols < 1)
        return -1;
    int gain = vector(m, name, "gain",
                      (struct ek_param_spec){.cols = cols, .init = EK_INIT_ONE});
    return ek_layer_norm(m->g, x, gain, ek_rec_bias(m, name, cols, 0), eps);
}

struct ek_attention ek_rec_attention(int heads, int64_t dim)
{
    return (struct ek_attention){.heads = heads,
                                 .kv_heads = heads,
                                 .dim = (int)dim,
                                 .alpha = 1.0f / sqrtf((float)dim),
                                 .scale = 1.0f,
                                 .out_axis = -1,
                                 .pos = -1,
                                 .time = -1,
                                 .t_query = -1,
                                 .t_key = -1,
                                 .seq_scale = -1,
                                 .targets = -1};
}
