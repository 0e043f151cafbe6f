/* setup.c - a run's parts from its configuration: loader first, since its ceilings say
 * how large a batch can be; then the graphs, then optimizers over their parameters. */
#include "base/mem.h"
#include "train/resident.h"
#include "train/run_int.h"

#include <inttypes.h>
#include <string.h>

/* Clicks say what is best only where the validation part has both kinds. */
static int check_clicks(const struct ek_train *t, struct ek_err *err)
{
    const struct ek_events *e = &t->data->events;
    const struct ek_split *s = &t->data->split;
    int64_t n = 0, n_clicks = 0;
    char metric[24];
    if (t->c->eval.metric < EK_TRAIN_ENTROPY || t->data->click < 0)
        return 0;
    const float *clicks = e->columns[t->data->click].numbers;
    for (int64_t u = 0; u < e->n_users; u++) {
        int64_t first = s->train_end[u];
        first += first == e->offsets[u]; /* without a row before it: no sample */
        for (int64_t i = first; i < s->valid_end[u]; i++) {
            n++;
            n_clicks += clicks[i] > 0;
        }
    }
    if (n == 0 || (n_clicks > 0 && n_clicks < n)) /* none at all: the loader says so */
        return 0;
    return ek_err_set(err, EK_EINVAL,
                      "eval.metric: %s needs clicks and others in the validation part, "
                      "all of its %" PRId64 " samples are %s in column '%.100s'; "
                      "expected ndcg@K, recall@K or mrr@K, or another data.split",
                      ek_train_metric_name(metric, t->c), n, n_clicks ? "1" : "0",
                      t->c->data.click);
}

static int open_loader(struct ek_train *t, struct ek_err *err)
{
    struct ek_loader_options o;
    ek_train_loader_options(&o, t->c);
    int rc = ek_loader_new(&t->loader, &t->data->events, &t->data->split, &o, err);
    if (rc)
        return rc;
    ek_loader_ceiling(t->loader, &t->max_sequences, &t->max_rows);
    int64_t steps = ek_loader_steps(t->loader), epochs = t->c->train.epochs;
    if (__builtin_mul_overflow(steps, epochs, &t->steps_planned))
        t->steps_planned = INT64_MAX;
    if (t->c->train.max_steps && t->c->train.max_steps < t->steps_planned)
        t->steps_planned = t->c->train.max_steps;
    t->rate = (struct ek_rate){.warmup = t->c->train.warmup_steps,
                               .total = t->steps_planned,
                               .is_cosine = t->c->train.schedule == EK_TRAIN_COSINE,
                               .end = t->c->train.lr_end};
    return 0;
}

/* Raises the ceilings to those of a part that will be ranked. */
static int raise_ceiling(const struct ek_train *t, enum ek_part part,
                         struct ek_rec_shape *shape, struct ek_err *err)
{
    struct ek_loader_options o = {
        .part = part, .max_length = t->c->model.max_length, .batch = t->c->eval.batch};
    struct ek_loader *l = NULL;
    int64_t sequences, rows;
    int rc = ek_loader_new(&l, &t->data->events, &t->data->split, &o, err);
    if (rc)
        return rc;
    ek_loader_ceiling(l, &sequences, &rows);
    ek_loader_free(l);
    if (sequences > shape->max_sequences)
        shape->max_sequences = sequences;
    if (rows > shape->max_rows)
        shape->max_rows = rows;
    return 0;
}

/* A value that the model refuses is told by the configuration's key, "model.seeds". */
static void name_key(struct ek_err *err)
{
    const size_t n = strcspn(err->text, ":"), section = strlen("model.");
    for (const struct ek_opt *o = ek_train_keys; o->name; o++)
        if (!strncmp(o->name, "model.", section) && strlen(o->name) == section + n &&
            !strncmp(o->name + section, err->text, n)) {
            char text[sizeof err->text];
            memcpy(text, err->text, sizeof text);
            (void)ek_err_set(err, err->status, "model.%s", text);
            return;
        }
}

static int build_models(struct ek_train *t, struct ek_err *err)
{
    struct ek_graph_options o = {.team = t->team,
                                 .isa = t->isa,
                                 .is_bf16 = t->c->train.dtype == 1,
                                 .is_training = true,
                                 .seed = (uint64_t)t->c->run.seed,
                                 .max_bytes = (uint64_t)t->c->train.max_bytes};
    struct ek_rec_shape shape = {.n_items = t->data->events.n_items,
                                 .max_sequences = t->max_sequences,
                                 .max_rows = t->max_rows,
                                 .n_columns = t->data->n_columns,
                                 .columns = t->data->columns,
                                 .lacks_times = !t->data->events.times};
    ek_train_rec_config(&t->rec, t->c);
    int rc = ek_rec_new(&t->model, t->params, &t->rec, &shape, &o, err);
    if (rc == EK_EINVAL && err)
        name_key(err);
    if (rc)
        return rc;
    shape.max_rows = shape.max_sequences = 0;
    rc = raise_ceiling(t, EK_PART_VALID, &shape, err);
    if (!rc && t->data->split.n_test > 0)
        rc = raise_ceiling(t, EK_PART_TEST, &shape, err);
    if (rc)
        return rc;
    o.is_training = false;
    return ek_rec_new(&t->forward, t->params, &t->rec, &shape, &o, err);
}

static int take_buffers(struct ek_train *t)
{
    size_t T = (size_t)t->max_rows;
    t->extra.next_times = ek_alloc_array(T, sizeof *t->extra.next_times);
    t->extra.clicks = ek_calloc(T, sizeof *t->extra.clicks);
    if (!t->extra.next_times || !t->extra.clicks)
        return EK_ENOMEM;
    if (t->rec.loss != EK_REC_SAMPLED)
        return 0;
    t->negatives = ek_calloc((size_t)t->rec.negatives, sizeof *t->negatives);
    return t->negatives ? 0 : EK_ENOMEM;
}

/* A batch as large as there can be one, of item 0: what tables measure their room
 * by. */
static int bind_ceiling(struct ek_train *t, struct ek_err *err)
{
    int64_t T = t->max_rows, B = t->max_sequences < T ? t->max_sequences : T;
    int64_t *offsets = ek_alloc_array((size_t)B + 1, sizeof *offsets);
    int32_t *items = ek_calloc((size_t)T, sizeof *items);
    void *zeros = ek_calloc((size_t)T, sizeof(int64_t));
    int rc = EK_ENOMEM;
    if (!offsets || !items || !zeros)
        goto out;
    for (int64_t b = 0; b <= B; b++)
        offsets[b] = T / B * b + (b < T % B ? b : T % B);
    struct ek_rec_batch batch = {.B = B,
                                 .T = T,
                                 .offsets = offsets,
                                 .items = items,
                                 .targets = items,
                                 .negatives = t->negatives,
                                 .clicks = zeros};
    if (t->data->events.times)
        batch.times = batch.next_times = zeros;
    for (int i = 0; i < t->data->n_columns; i++) {
        batch.columns[i].numbers = zeros;
        batch.columns[i].levels = zeros;
    }
    rc = ek_rec_bind(t->model, &batch);
    struct ek_tables_options o = {.params = t->params,
                                  .graph = ek_rec_graph(t->model),
                                  .team = t->team,
                                  .isa = t->isa,
                                  .n_micro = (int)t->c->train.micro_batches,
                                  .has_norm = t->c->train.clip_norm > 0.0};
    if (!rc)
        rc = ek_tables_new(&t->tables, &o, NULL);
out:
    ek_free(offsets);
    ek_free(items);
    ek_free(zeros);
    return rc ? ek_err_set(err, rc, "train: room for %" PRId64 " rows: %s", T,
                           ek_status_text(rc))
              : 0;
}

static int build_optimizers(struct ek_train *t, struct ek_err *err)
{
    struct ek_adamw_options dense = {.beta1 = (float)t->c->train.beta1,
                                     .beta2 = (float)t->c->train.beta2,
                                     .eps = (float)t->c->train.eps,
                                     .decay = (float)t->c->train.weight_decay};
    int rc = ek_adamw_new(&t->adamw, t->params, t->isa, &dense, err);
    if (rc || ek_tables_count(t->tables) == 0)
        return rc;
    struct ek_adagrad_options rows = {.eps = (float)t->c->train.items_eps,
                                      .max_rows = ek_tables_max_rows(t->tables)};
    return ek_adagrad_new(&t->adagrad, t->params, t->isa, &rows, err);
}

int ek_train_setup(struct ek_train *t, struct ek_err *err)
{
    int rc = ek_isa_choose(&t->isa, err);
    t->resident_bytes = ek_resident_bytes();
    ek_resident_mark();
    if (!rc)
        rc = check_clicks(t, err);
    if (!rc)
        rc = open_loader(t, err);
    if (!rc)
        rc = ek_team_new(&t->team, (int)t->c->run.threads, false, err);
    if (!rc)
        rc = ek_params_new(&t->params, (uint64_t)t->c->run.seed, err);
    if (!rc)
        rc = build_models(t, err);
    if (!rc && take_buffers(t))
        rc = ek_err_set(err, EK_ENOMEM, "train: out of memory");
    if (!rc)
        rc = bind_ceiling(t, err);
    return rc ? rc : build_optimizers(t, err);
}
