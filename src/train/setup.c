/* setup.c - a run's parts from its configuration, twice over: first all of them are
 * declared (samples listed, since they say how large a batch can be; graphs planned)
 * and their memory summed; what does not fit is refused, else it is taken. */
#include "base/mem.h"
#include "base/proc.h"
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

/* --- declaring -------------------------------------------------------------------- */

static int measure_batches(struct ek_train *t, struct ek_err *err)
{
    struct ek_loader_options o;
    struct ek_loader_size size;
    ek_train_loader_options(&o, t->c);
    int rc = ek_loader_measure(&size, &t->data->events, &t->data->split, &o, err);
    if (rc)
        return rc;
    t->max_sequences = size.max_sequences;
    t->max_rows = size.max_rows;
    t->n_micro = size.n_micro;
    t->need.bytes[EK_NEED_BATCHES] = size.bytes;
    return 0;
}

/* Raises the ceilings to those of a part that will be ranked. */
static int raise_ceiling(const struct ek_train *t, enum ek_part part,
                         struct ek_rec_shape *shape, struct ek_err *err)
{
    struct ek_loader_options o = {
        .part = part, .max_length = t->c->model.max_length, .batch = t->c->eval.batch};
    struct ek_loader_size size;
    int rc = ek_loader_measure(&size, &t->data->events, &t->data->split, &o, err);
    if (rc)
        return rc;
    if (size.max_sequences > shape->max_sequences)
        shape->max_sequences = size.max_sequences;
    if (size.max_rows > shape->max_rows)
        shape->max_rows = size.max_rows;
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

static int declare_models(struct ek_train *t, struct ek_err *err)
{
    struct ek_graph_options o = {.team = t->team,
                                 .isa = t->isa,
                                 .is_bf16 = t->c->train.dtype == 1,
                                 .is_training = true,
                                 .seed = (uint64_t)t->c->run.seed,
                                 .max_bytes = (uint64_t)t->c->train.max_bytes,
                                 .is_deferred = true};
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

static struct ek_tables_options tables_options(const struct ek_train *t)
{
    return (struct ek_tables_options){.params = t->params,
                                      .graph = ek_rec_graph(t->model),
                                      .team = t->team,
                                      .isa = t->isa,
                                      .n_micro = t->n_micro,
                                      .has_norm = t->c->train.clip_norm > 0.0};
}

/* What a micro-batch is bound with beside the loader's. */
static void list_buffers(struct ek_train_extra *x, int32_t **negatives,
                         const struct ek_train *t, struct ek_taker *taker)
{
    x->next_times = ek_take_array(taker, t->max_rows, sizeof *x->next_times);
    x->clicks = ek_take_zeroed(taker, t->max_rows, sizeof *x->clicks);
    if (t->rec.loss == EK_REC_SAMPLED)
        *negatives = ek_take_zeroed(taker, t->rec.negatives, sizeof **negatives);
}

/* --- the sum ---------------------------------------------------------------------- */

static bool sum_params(struct ek_need *n, const struct ek_train *t,
                       enum ek_need_part *part)
{
    for (int i = 0; i < ek_params_count(t->params); i++) {
        const struct ek_param *p = ek_params_get(t->params, i);
        *part = ek_need_of_param(p->name);
        size_t *sum = &n->bytes[*part];
        if (!ek_param_bytes(sum, p) || !ek_adamw_bytes(sum, p) ||
            !ek_adagrad_bytes(sum, p))
            return false;
    }
    return true;
}

/* What both optimizers of tables and their norm take for the rows of a step. */
static bool sum_rows(struct ek_need *n, const struct ek_train *t)
{
    const struct ek_tables_options o = tables_options(t);
    size_t *sum = &n->bytes[EK_NEED_ROWS];
    int64_t max_rows;
    return !ek_tables_measure(sum, &max_rows, &o) &&
           (max_rows == 0 || ek_adagrad_scratch_bytes(sum, max_rows));
}

static bool sum_batches(struct ek_need *n, const struct ek_train *t)
{
    struct ek_taker taker = {.is_dry = true};
    struct ek_train_extra x;
    int32_t *negatives;
    size_t *sum = &n->bytes[EK_NEED_BATCHES]; /* the loader's are there */
    list_buffers(&x, &negatives, t, &taker);
    return !taker.status && ek_add_size(sum, *sum, taker.bytes);
}

/* One part is ranked at a time: the larger one counts. */
static int sum_ranking(struct ek_need *n, const struct ek_train *t, struct ek_err *err)
{
    struct ek_evaluate o = {.model = t->forward,
                            .config = &t->rec,
                            .params = t->params,
                            .data = t->data,
                            .part = EK_PART_VALID,
                            .batch = t->c->eval.batch,
                            .team = t->team,
                            .isa = t->isa};
    size_t valid = 0, test = 0, *sum = &n->bytes[EK_NEED_RANKING];
    int rc = ek_evaluate_measure(&valid, &o, err);
    o.part = EK_PART_TEST;
    if (!rc && t->data->split.n_test > 0)
        rc = ek_evaluate_measure(&test, &o, err);
    if (rc)
        return rc;
    return ek_rec_bytes(sum, t->forward) &&
                   ek_add_size(sum, *sum, valid > test ? valid : test)
               ? 0
               : ek_need_overflow(EK_NEED_RANKING, t->c, err);
}

static int check_memory(struct ek_train *t, struct ek_err *err)
{
    struct ek_need *n = &t->need;
    enum ek_need_part part = EK_NEED_LAYERS;
    if (!sum_params(n, t, &part))
        return ek_need_overflow(part, t->c, err);
    if (!ek_rec_bytes(&n->bytes[EK_NEED_STEP], t->model))
        return ek_need_overflow(EK_NEED_STEP, t->c, err);
    if (!sum_rows(n, t))
        return ek_need_overflow(EK_NEED_ROWS, t->c, err);
    if (!sum_batches(n, t))
        return ek_need_overflow(EK_NEED_BATCHES, t->c, err);
    int rc = sum_ranking(n, t, err);
    t->available_bytes = t->hooks.available_bytes ? t->hooks.available_bytes
                                                  : ek_memory_available("/proc");
    return rc ? rc : ek_need_check(n, t->available_bytes, t->c, err);
}

/* --- taking ----------------------------------------------------------------------- */

static int open_loader(struct ek_train *t, struct ek_err *err)
{
    struct ek_loader_options o;
    ek_train_loader_options(&o, t->c);
    int rc = ek_loader_new(&t->loader, &t->data->events, &t->data->split, &o, err);
    if (rc)
        return rc;
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

static int take_models(struct ek_train *t, struct ek_err *err)
{
    struct ek_taker taker = {.is_dry = false};
    int rc = ek_params_take(t->params, err);
    if (!rc)
        rc = ek_rec_take(t->model, err);
    if (!rc)
        rc = ek_rec_take(t->forward, err);
    if (rc)
        return rc;
    list_buffers(&t->extra, &t->negatives, t, &taker);
    return taker.status ? ek_err_set(err, taker.status, "train: %s",
                                     ek_status_text(taker.status))
                        : 0;
}

static int build_optimizers(struct ek_train *t, struct ek_err *err)
{
    const struct ek_tables_options o = tables_options(t);
    struct ek_adamw_options dense = {.beta1 = (float)t->c->train.beta1,
                                     .beta2 = (float)t->c->train.beta2,
                                     .eps = (float)t->c->train.eps,
                                     .decay = (float)t->c->train.weight_decay};
    int rc = ek_tables_new(&t->tables, &o, err);
    if (!rc)
        rc = ek_adamw_new(&t->adamw, t->params, t->isa, &dense, err);
    if (rc || ek_tables_count(t->tables) == 0)
        return rc;
    struct ek_adagrad_options rows = {.eps = (float)t->c->train.items_eps,
                                      .max_rows = ek_tables_max_rows(t->tables)};
    return ek_adagrad_new(&t->adagrad, t->params, t->isa, &rows, err);
}

static int declare(struct ek_train *t, struct ek_err *err)
{
    int rc = ek_isa_choose(&t->isa, err);
    if (!rc)
        rc = check_clicks(t, err);
    if (!rc)
        rc = measure_batches(t, err);
    if (!rc)
        rc = ek_team_new(&t->team, (int)t->c->run.threads, false, err);
    if (!rc)
        rc = ek_params_new(&t->params, (uint64_t)t->c->run.seed, err);
    if (rc)
        return rc;
    ek_params_defer(t->params);
    return declare_models(t, err);
}

int ek_train_setup(struct ek_train *t, struct ek_err *err)
{
    t->resident_bytes = ek_resident_bytes();
    ek_resident_mark();
    int rc = declare(t, err);
    if (!rc)
        rc = check_memory(t, err);
    if (!rc)
        rc = open_loader(t, err);
    if (!rc)
        rc = take_models(t, err);
    return rc ? rc : build_optimizers(t, err);
}
