/* fault.c - what is not finite, as a sentence: of a loss where in the model it began,
 * and in whose sequence; of a parameter its name and row. Runs the batch again, and may
 * do so once a sequence; training is over then anyway. */
#include "base/mem.h"
#include "train/run_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct where {
    struct ek_graph_fault fault;
    bool has_fault;
    int64_t sequence, row; /* of the batch; -1: not known */
};

/* The sequence that a row of the batch belongs to. */
static int64_t sequence_of(const struct ek_batch *b, int64_t row)
{
    int64_t at = 0;
    while (at + 1 < b->B && b->offsets[at + 1] <= row)
        at++;
    return at;
}

/* The first sequence whose own targets make the loss not finite; -1: none alone. */
static int64_t find_sequence(struct ek_train *t)
{
    struct ek_batch b = t->batch;
    struct ek_graph *g = ek_rec_graph(t->model);
    int32_t *targets = ek_alloc_array((size_t)b.T, sizeof *targets);
    int64_t found = -1;
    for (int64_t s = 0; targets && s < b.B && found < 0; s++) {
        for (int64_t i = 0; i < b.T; i++)
            targets[i] = EK_BATCH_NO_TARGET;
        size_t n = (size_t)(b.offsets[s + 1] - b.offsets[s]);
        memcpy(targets + b.offsets[s], t->batch.targets + b.offsets[s],
               n * sizeof *targets);
        b.targets = targets;
        if (ek_train_bind(t, &b, NULL))
            break;
        ek_graph_forward(g, ek_train_graph_step(t, b.micro));
        if (!isfinite(ek_graph_scalar(g, ek_rec_loss(t->model))))
            found = s;
    }
    /* bound to targets that are about to go */
    if (targets && ek_train_bind(t, &t->batch, NULL))
        found = -1;
    ek_free(targets);
    return found;
}

static void locate(struct ek_train *t, struct where *w)
{
    const struct ek_batch *b = &t->batch;
    struct ek_graph *g = ek_rec_graph(t->model);
    *w = (struct where){.sequence = -1, .row = -1};
    w->has_fault = ek_graph_find_fault(g, &w->fault);
    int v = w->has_fault ? ek_graph_find(g, w->fault.name) : -1;
    int64_t rows = v >= 0 ? ek_graph_mat(g, v).rows : 0;
    if (rows == b->T && w->fault.row < b->T)
        w->row = w->fault.row;
    if (w->row >= 0)
        w->sequence = sequence_of(b, w->row);
    else if (rows == b->B && rows > 1)
        w->sequence = w->fault.row;
    else
        w->sequence = find_sequence(t);
}

/* Names are not terminated, and as long as somebody made them. */
static void add_sample(char *out, size_t cap, const struct ek_train *t,
                       const struct where *w)
{
    const struct ek_batch *b = &t->batch;
    const struct ek_events *e = &t->data->events;
    size_t n = 0, m = 0;
    out[0] = 0;
    if (w->sequence < 0)
        return;
    int64_t user = b->users[w->sequence];
    const char *name = ek_names_get(&e->users, user, &n);
    int at = snprintf(out, cap, "; user '%.*s'", n < 100 ? (int)n : 100, name);
    if (w->row < 0 || at < 0 || (size_t)at >= cap)
        return;
    const char *item = ek_names_get(&e->item_names, b->items[w->row], &m);
    snprintf(out + at, cap - (size_t)at,
             ", event %" PRId64 " of %" PRId64 ", item '%.*s'",
             b->events[w->row] - e->offsets[user] + 1,
             e->offsets[user + 1] - e->offsets[user], m < 100 ? (int)m : 100, item);
}

/* An exponent of ones is an infinity or no number. */
static bool has_fault(const float *x, int64_t n)
{
    uint32_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        found |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return found != 0;
}

int ek_train_check_params(const struct ek_train *t, struct ek_err *err)
{
    for (int i = 0; i < ek_params_count(t->params); i++) {
        const struct ek_param *p = ek_params_get(t->params, i);
        for (int64_t r = 0; r < p->rows; r++)
            if (has_fault(p->value + r * p->cols, p->cols))
                return ek_err_set(err, EK_EINVAL,
                                  "step %" PRId64 ": parameter '%s', row %" PRId64
                                  " is not finite: the checkpoint before stays; lower "
                                  "train.lr",
                                  t->progress.steps, p->name, r);
    }
    return 0;
}

int ek_train_fault(struct ek_train *t, double loss, struct ek_err *err)
{
    struct where w;
    char sample[400], op[300] = "";
    locate(t, &w);
    add_sample(sample, sizeof sample, t, &w);
    if (w.has_fault)
        snprintf(op, sizeof op,
                 ": operation '%s', value '%.100s', row %" PRId64 ", column %" PRId64
                 " is %g",
                 w.fault.op, w.fault.name, w.fault.row, w.fault.col,
                 (double)w.fault.value);
    return ek_err_set(err, EK_EINVAL,
                      "step %" PRId64 " (epoch %" PRId64 "): the loss is %g%s%s",
                      t->progress.steps, t->batch.epoch, loss, op, sample);
}
