/* framekit.h - what the kits of rec share: a model on a team and parameters of its own,
 * every parameter random. */
#ifndef EVENKEEL_TESTS_REC_FRAMEKIT_H
#define EVENKEEL_TESTS_REC_FRAMEKIT_H

#include "base/rng.h"
#include "base/team.h"
#include "rec/model.h"
#include "testkit.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

struct frame {
    struct ek_team *team;
    struct ek_params *params;
    struct ek_rec *m;
};

struct frame_how {
    int n_threads; /* 0: 1 */
    bool is_training, keeps_init, is_bf16;
};

/* Gains of 1, biases of 0 and small bases would hide what reads them. */
static inline void frame_scramble(struct ek_params *params)
{
    struct ek_rng rng;
    ek_rng_init(&rng, 9);
    for (int i = 0; i < ek_params_count(params); i++) {
        struct ek_param *p = ek_params_get(params, i);
        for (int64_t j = 0; j < p->rows * p->cols; j++)
            p->value[j] = (float)((ek_rng_uniform(&rng) - 0.5) * 1.2);
    }
}

static inline struct frame frame_open(const struct ek_rec_config *c,
                                      const struct ek_rec_shape *shape,
                                      struct frame_how how)
{
    struct frame f = {.m = NULL};
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(
        ek_team_new(&f.team, how.n_threads ? how.n_threads : 1, false, &err), 0);
    assert_int_equal(ek_params_new(&f.params, 5, &err), 0);
    struct ek_graph_options o = {.team = f.team,
                                 .isa = ek_isa_best(),
                                 .is_training = how.is_training,
                                 .is_bf16 = how.is_bf16,
                                 .seed = 3};
    if (ek_rec_new(&f.m, f.params, c, shape, &o, &err))
        fail_msg("%s: %s", ek_rec_kind_name(c->kind), err.text);
    if (!how.keeps_init)
        frame_scramble(f.params);
    return f;
}

static inline void frame_close(struct ek_rec *m, struct ek_params *params,
                               struct ek_team *team)
{
    ek_rec_free(m);
    ek_params_free(params);
    ek_team_free(team);
}

static inline void frame_forward(struct ek_rec *m, const struct ek_rec_batch *batch)
{
    assert_int_equal(ek_rec_bind(m, batch), 0);
    ek_graph_forward(ek_rec_graph(m), 1);
}

#endif
