/* config.c - what the table of keys cannot say, and what the parts of a run are
 * given. */
#include "train/config.h"

#include "data/events_split.h"

#include <stdio.h>
#include <string.h>

/* Refuses a key with a sentence behind its name. */
#define REFUSE(name, ...)                                                              \
    (*key = (name), ek_err_set(err, EK_EINVAL, name ": " __VA_ARGS__))

static int check_data(const struct ek_train_config *c, const char **key,
                      struct ek_err *err)
{
    if (!c->data.path[0])
        return REFUSE("data.path", "is missing, expected the log of events");
    if (c->data.split == EK_SPLIT_BY_TIME && c->data.valid + c->data.test >= 1.0)
        return REFUSE("data.test",
                      "%g and data.valid %g leave nothing to train, expected a sum "
                      "below 1",
                      c->data.test, c->data.valid);
    if (c->data.split == EK_SPLIT_BY_TIME && c->data.valid <= 0.0)
        return REFUSE("data.valid",
                      "0 leaves nothing to say what is best, expected more");
    return 0;
}

static int check_model(const struct ek_train_config *c, const char **key,
                       struct ek_err *err)
{
    bool is_hstu = c->model.kind == EK_REC_HSTU;
    const char *kind = ek_rec_kind_name((enum ek_rec_kind)c->model.kind);
    bool has_own_dims = is_hstu && c->model.dim_qk && c->model.dim_v;
    if (c->model.dim % c->model.heads && !has_own_dims)
        return REFUSE("model.heads", "%lld does not divide model.dim %lld",
                      (long long)c->model.heads, (long long)c->model.dim);
    if (c->model.times && c->model.kind == EK_REC_SASREC)
        return REFUSE("model.times", "true is of hstu and gem, model.kind is %s", kind);
    if ((c->model.dim_qk || c->model.dim_v) && !is_hstu)
        return REFUSE("model.dim_qk", "and model.dim_v are of hstu, model.kind is %s",
                      kind);
    if (c->model.click_weight > 0.0 && !c->data.click[0])
        return REFUSE("model.click_weight",
                      "%g needs data.click, the column to be learnt",
                      c->model.click_weight);
    if (c->model.similarity && c->model.temperature > 1.0)
        return REFUSE("model.temperature",
                      "%g leaves a cosine no room, expected at most 1",
                      c->model.temperature);
    return 0;
}

static int check_train(const struct ek_train_config *c, const char **key,
                       struct ek_err *err)
{
    if (c->train.sub_batch && c->train.batch % c->train.sub_batch)
        return REFUSE("train.sub_batch", "%lld does not divide train.batch %lld",
                      (long long)c->train.sub_batch, (long long)c->train.batch);
    if (c->train.max_tokens && c->train.max_tokens < c->model.max_length)
        return REFUSE("train.max_tokens",
                      "%lld is below model.max_length %lld, expected 0 or more",
                      (long long)c->train.max_tokens, (long long)c->model.max_length);
    if (c->train.max_steps && c->train.warmup_steps > c->train.max_steps)
        return REFUSE("train.warmup_steps", "%lld is over train.max_steps %lld",
                      (long long)c->train.warmup_steps, (long long)c->train.max_steps);
    if (c->train.lr_end > 0.0 && c->train.schedule != EK_TRAIN_COSINE)
        return REFUSE("train.lr_end", "%g is of train.schedule: cosine",
                      c->train.lr_end);
    return 0;
}

static int check_eval(const struct ek_train_config *c, const char **key,
                      struct ek_err *err)
{
    if (c->eval.patience && !c->eval.every)
        return REFUSE("eval.patience", "%lld needs evaluations, eval.every is 0",
                      (long long)c->eval.patience);
    if (c->eval.metric >= EK_TRAIN_ENTROPY && c->model.click_weight <= 0.0)
        return REFUSE("eval.metric",
                      "%s is of a click head and model.click_weight is 0, expected "
                      "ndcg@K, recall@K or mrr@K",
                      c->eval.metric == EK_TRAIN_AUC ? "auc" : "normalised_entropy");
    return 0;
}

int ek_train_config_check(struct ek_train_config *c, const char **key,
                          struct ek_arena *arena, struct ek_err *err)
{
    *key = NULL;
    if (!c->run.name[0])
        return REFUSE("run.name", "is empty, expected a name");
    int rc = check_data(c, key, err);
    if (!rc)
        rc = check_model(c, key, err);
    if (!rc)
        rc = check_train(c, key, err);
    if (!rc)
        rc = check_eval(c, key, err);
    if (rc || c->run.dir[0])
        return rc;
    size_t n = strlen(c->run.name) + sizeof "runs/";
    char *dir = ek_arena_alloc(arena, n);
    if (!dir)
        return ek_err_set(err, EK_ENOMEM, "run.dir: out of memory");
    snprintf(dir, n, "runs/%s", c->run.name);
    c->run.dir = dir;
    return 0;
}

int ek_train_config_json(struct ek_buf *out, const struct ek_train_config *c)
{
    return ek_opt_keys_json(out, ek_train_keys, c);
}

int ek_train_config_read(struct ek_train_config *c, const char *name, const char *text,
                         size_t n, struct ek_arena *arena, struct ek_err *err)
{
    const char *key;
    memset(c, 0, sizeof *c);
    int rc = ek_opt_keys_read(ek_train_keys, c, name, text, n, arena, err);
    if (rc)
        return rc;
    rc = ek_train_config_check(c, &key, arena, err);
    if (rc)
        ek_err_prefix(err, "%s", name);
    return rc;
}

const struct ek_opt *ek_train_config_differ(const struct ek_train_config *a,
                                            const struct ek_train_config *b)
{
    static const char *const free_keys[] = {
        "run.name",        "run.dir",       "run.threads",  "data.path",
        "data.format",     "train.ahead",   "train.epochs", "train.max_steps",
        "train.max_bytes", "eval.patience", "eval.batch",   "log.every",
        "checkpoint.every"};
    size_t n = sizeof free_keys / sizeof free_keys[0];
    const struct ek_opt *key = ek_opt_keys_differ(ek_train_keys, a, b, free_keys, n);
    bool is_cosine = a->train.schedule == EK_TRAIN_COSINE;
    bool has_other_end =
        a->train.epochs != b->train.epochs || a->train.max_steps != b->train.max_steps;
    if (!key && is_cosine && has_other_end) /* the rates follow the end */
        for (const struct ek_opt *o = ek_train_keys; o->name; o++)
            if (!strcmp(o->name, a->train.epochs != b->train.epochs
                                     ? "train.epochs"
                                     : "train.max_steps"))
                return o;
    return key;
}

void ek_train_rec_config(struct ek_rec_config *out, const struct ek_train_config *c)
{
    *out = (struct ek_rec_config){
        .kind = (enum ek_rec_kind)c->model.kind,
        .dim = c->model.dim,
        .blocks = (int)c->model.blocks,
        .heads = (int)c->model.heads,
        .ffn = c->model.ffn,
        .dim_qk = c->model.dim_qk,
        .dim_v = c->model.dim_v,
        .dropout = c->model.dropout,
        .max_length = c->model.max_length,
        .has_times = c->model.times,
        .norm = (enum ek_rec_norm)c->model.norm,
        .loss = (enum ek_rec_loss)c->model.loss,
        .negatives = c->model.negatives,
        .is_cosine = c->model.similarity == 1,
        .temperature = c->model.temperature,
        .has_row_optimizer = c->train.items == EK_TRAIN_ROWWISE_ADAGRAD,
        .seeds = c->model.seeds,
        .rank = c->model.rank,
        .experts = (int)c->model.experts,
        .window = c->model.window,
        .chunk = c->model.chunk,
        .column_dim = c->model.column_dim,
        .column_rows = c->model.column_rows,
        .alternates = c->model.alternates,
        .click_weight = c->model.click_weight,
    };
}

void ek_train_loader_options(struct ek_loader_options *out,
                             const struct ek_train_config *c)
{
    *out = (struct ek_loader_options){
        .part = EK_PART_TRAIN,
        .seed = (uint64_t)c->run.seed,
        .max_length = c->model.max_length,
        .batch = c->train.batch,
        .n_micro = (int)c->train.micro_batches,
        .sub_batch = c->train.sub_batch,
        .max_tokens = c->train.max_tokens,
        .cuts_windows = c->train.cuts_windows,
        .n_ahead = (int)c->train.ahead,
    };
}

static struct ek_events_list list_of(const struct ek_opt_list *l)
{
    return (struct ek_events_list){l->items, l->n};
}

void ek_train_events_options(struct ek_events_options *out,
                             const struct ek_train_config *c)
{
    enum ek_events_format format = EK_EVENTS_AUTO;
    if (c->data.format > EK_TRAIN_PACK) /* the rest is in the readers' order */
        format =
            (enum ek_events_format)(c->data.format - EK_TRAIN_S3REC + EK_EVENTS_S3REC);
    *out = (struct ek_events_options){
        .format = format,
        .user = c->data.user,
        .item = c->data.item,
        .time = c->data.time[0] ? c->data.time : NULL,
        .unit = (enum ek_events_unit)c->data.unit,
        .numeric = list_of(&c->data.numeric),
        .category = list_of(&c->data.category),
        .user_numeric = list_of(&c->data.user_numeric),
        .user_category = list_of(&c->data.user_category),
        .skip = list_of(&c->data.skip),
        .says_keys = true,
    };
}
