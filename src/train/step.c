/* step.c - micro-batches through the graph, their gradients summed by targets, clipped
 * by one norm over everything, applied. Nothing here allocates. */
#include "base/rng.h"
#include "train/run_int.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

void ek_train_draw(int32_t *out, int64_t n, int64_t n_items, uint64_t seed,
                   int64_t step, int micro)
{
    const uint64_t golden = 0x9e3779b97f4a7c15u;
    uint64_t key = ek_mix64(seed + golden);
    key = ek_mix64(key ^ ek_mix64((uint64_t)step * golden + 1));
    key = ek_mix64(key ^ ek_mix64((uint64_t)micro * golden + 2));
    /* 64 bits times n_items: the bias is below 2^-33 */
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = ek_mix64(key + golden * (uint64_t)(i + 1));
        out[i] = (int32_t)((x >> 32) * (uint64_t)n_items >> 32);
    }
}

uint64_t ek_train_graph_step(const struct ek_train *t, int micro)
{
    return (uint64_t)t->progress.steps * EK_LOADER_MICRO_MAX + (uint64_t)micro;
}

int ek_train_bind(struct ek_train *t, const struct ek_batch *batch, struct ek_err *err)
{
    struct ek_rec_batch b;
    ek_train_bind_batch(&b, batch, t->data, &t->extra);
    if (t->negatives) {
        ek_train_draw(t->negatives, t->rec.negatives, t->data->events.n_items,
                      t->progress.seed, t->progress.steps, batch->micro);
        b.negatives = t->negatives;
    }
    int rc = ek_rec_bind(t->model, &b);
    return rc ? ek_err_set(err, rc,
                           "epoch %" PRId64 ", step %" PRId64
                           ": the batch does not fit the model: %s",
                           batch->epoch, batch->step, ek_status_text(rc))
              : 0;
}

/* Forward and backward of one micro-batch; its share of the loss is added. */
static int take_micro(struct ek_train *t, const struct ek_batch *b, double *loss,
                      struct ek_err *err)
{
    struct ek_graph *g = ek_rec_graph(t->model);
    double share = (double)b->n_targets / (double)b->step_targets;
    t->batch = *b;
    int rc = ek_train_bind(t, b, err);
    if (rc)
        return rc;
    ek_graph_forward(g, ek_train_graph_step(t, b->micro));
    double own = (double)ek_graph_scalar(g, ek_rec_loss(t->model));
    if (!isfinite(own))
        return ek_train_fault(t, own, err);
    *loss += share * own;
    ek_graph_backward(g, (float)share);
    ek_tables_take(t->tables, b->n_micro);
    t->progress.interval.flops += ek_graph_flops(g);
    t->progress.interval.tokens += b->T;
    t->n_micro_done++;
    t->progress.tokens += b->T;
    return 0;
}

/* 1, or what brings the norm of all gradients to the ceiling. */
static int clip(struct ek_train *t, float *scale, struct ek_err *err)
{
    double max = t->c->train.clip_norm;
    *scale = 1.0f;
    if (max <= 0.0)
        return 0;
    double norm = ek_adamw_grad_norm(t->adamw, t->team);
    norm = sqrt(norm * norm + ek_tables_squares(t->tables));
    t->last_norm = norm;
    if (!isfinite(norm))
        return ek_err_set(err, EK_EINVAL,
                          "step %" PRId64 ": the gradients' norm is %g: lower train.lr",
                          t->progress.steps, norm);
    if (norm > max)
        *scale = (float)(max / norm);
    return 0;
}

void ek_train_close_interval(struct ek_train *t)
{
    const struct ek_train_sums *s = &t->progress.interval, *b = &t->before;
    t->all.loss += s->loss - b->loss;
    t->all.steps += s->steps - b->steps;
    t->all.sequences += s->sequences - b->sequences;
    t->all.tokens += s->tokens - b->tokens;
    t->all.flops += s->flops - b->flops;
    t->all.seconds += s->seconds - b->seconds;
    t->progress.interval = t->before = (struct ek_train_sums){.steps = 0};
}

int ek_train_step(struct ek_train *t, const struct ek_batch *first, double *loss,
                  struct ek_err *err)
{
    struct ek_batch b = *first;
    int64_t sequences = b.step_sequences;
    double sum = 0;
    float scale;
    ek_params_zero_grad(t->params);
    ek_tables_begin(t->tables);
    int rc = take_micro(t, &b, &sum, err);
    while (!rc && b.micro + 1 < b.n_micro) {
        bool is_more = ek_loader_next(t->loader, &b);
        assert(is_more); /* a step does not end an epoch half way */
        (void)is_more;
        rc = take_micro(t, &b, &sum, err);
    }
    if (!rc)
        rc = clip(t, &scale, err);
    if (rc)
        return rc;
    double rate = ek_rate_at(&t->rate, t->progress.steps);
    ek_adamw_step(t->adamw, t->team, (float)(t->c->train.lr * rate), scale);
    if (t->adagrad)
        ek_tables_step(t->tables, t->adagrad, (float)(t->c->train.items_lr * rate),
                       scale);
    t->progress.epoch = b.epoch;
    t->progress.step = b.step + 1;
    t->progress.steps++;
    t->progress.sequences += sequences;
    t->progress.interval.sequences += sequences;
    t->progress.interval.steps++;
    t->progress.interval.loss += sum;
    t->last_loss = *loss = sum;
    t->last_rate = rate;
    return 0;
}
