/* trained.c - the parts of a checkpoint, in the order in which they need each other. */
#include "train/trained.h"

#include "base/mem.h"
#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES (1 << 20)
#define NEAREST_MAX 64 /* bytes of names that are compared for likeness */
#define SHOWN_NAME  100

/* --- names ------------------------------------------------------------------------ */

int64_t ek_names_find(const struct ek_names *names, const char *s, size_t n)
{
    for (int64_t i = 0; i < names->n; i++) {
        size_t len;
        const char *name = ek_names_get(names, i, &len);
        if (len == n && !memcmp(name, s, n))
            return i;
    }
    return -1;
}

/* Changes, additions and omissions between two names of at most NEAREST_MAX bytes. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t row[NEAREST_MAX + 1];
    for (size_t k = 0; k <= m; k++)
        row[k] = k;
    for (size_t i = 1; i <= n; i++) {
        size_t before = row[0]; /* of the row above, one to the left */
        row[0] = i;
        for (size_t k = 1; k <= m; k++) {
            size_t best = before + (a[i - 1] != b[k - 1]);
            before = row[k];
            best = row[k] + 1 < best ? row[k] + 1 : best;
            row[k] = row[k - 1] + 1 < best ? row[k - 1] + 1 : best;
        }
    }
    return row[m];
}

int64_t ek_names_nearest(const struct ek_names *names, const char *s, size_t n)
{
    int64_t best = -1;
    size_t least = n / 2 + 1;
    for (int64_t i = 0; i < names->n && n <= NEAREST_MAX; i++) {
        size_t len;
        const char *name = ek_names_get(names, i, &len);
        const size_t gap = len > n ? len - n : n - len;
        if (len > NEAREST_MAX || gap >= least)
            continue;
        const size_t d = distance(s, n, name, len);
        if (d < least) {
            least = d;
            best = i;
        }
    }
    return best;
}

/* --- parts ------------------------------------------------------------------------ */

static int read_config(struct ek_trained *t, const char *folder, struct ek_err *err)
{
    char *text = NULL, name[4200];
    struct ek_train_progress progress;
    int rc = ek_checkpoint_find(t->folder, folder, err);
    if (!rc)
        rc = ek_checkpoint_peek(t->folder, &text, &t->trained_on, &progress, err);
    if (rc)
        return rc;
    snprintf(name, sizeof name, "%s/config.json", t->folder);
    t->steps = progress.steps;
    const size_t n = strlen(text);
    rc = ek_train_config_read(&t->config, name, text, n, &t->arena, err);
    ek_free(text);
    if (!rc)
        ek_train_rec_config(&t->rec, &t->config);
    return rc;
}

/* In the checkpoint's folder, or RUN of RUN/checkpoints/best. None is no error. */
static int find_vocab(struct ek_trained *t, struct ek_err *err)
{
    char path[4200];
    int rc = EK_ENOENT;
    for (int i = 0; i < 2 && rc == EK_ENOENT; i++) {
        struct ek_err why = EK_ERR_INIT;
        snprintf(path, sizeof path, "%s/%s" EK_VOCAB_FILE, t->folder,
                 i ? "../../" : "");
        rc = ek_vocab_read(&t->vocab, path, &why);
        if (rc && rc != EK_ENOENT)
            ek_err_set(err, rc, "%s", why.text);
    }
    return rc == EK_ENOENT ? 0 : rc;
}

/* A name for a sentence. */
static const char *shown(char out[SHOWN_NAME + 1], const struct ek_names *names,
                         int64_t i)
{
    size_t n;
    const char *s = ek_names_get(names, i, &n);
    n = n < SHOWN_NAME ? n : SHOWN_NAME;
    memcpy(out, s, n);
    out[n] = 0;
    return out;
}

static int compare_items(const struct ek_trained *t, struct ek_err *err)
{
    const struct ek_names *a = &t->vocab.items, *b = &t->data.events.item_names;
    char x[SHOWN_NAME + 1], y[SHOWN_NAME + 1];
    if (a->n != b->n)
        return ek_err_set(err, EK_EINVAL,
                          "%s: %" PRId64 " items, expected the %" PRId64
                          " that the model was trained on",
                          t->data.events.source, b->n, a->n);
    for (int64_t i = 0; i < a->n; i++) {
        size_t n, m;
        const char *s = ek_names_get(a, i, &n), *r = ek_names_get(b, i, &m);
        if (n != m || memcmp(s, r, n) != 0)
            return ek_err_set(err, EK_EINVAL,
                              "%s: item %" PRId64
                              " is '%s', expected '%s' as in training",
                              t->data.events.source, i, shown(y, b, i), shown(x, a, i));
    }
    return 0;
}

static int compare_columns(const struct ek_trained *t, struct ek_err *err)
{
    const struct ek_vocab *v = &t->vocab;
    bool is_same = v->n_columns == t->data.n_columns;
    for (int i = 0; is_same && i < v->n_columns; i++) {
        const struct ek_rec_column *a = &v->columns[i], *b = &t->data.columns[i];
        is_same = !strcmp(a->name, b->name) && a->is_user == b->is_user &&
                  a->levels == b->levels;
        if (!is_same)
            return ek_err_set(err, EK_EINVAL,
                              "%s: column '%.100s' of %d levels, expected '%.100s' of "
                              "%d as in training",
                              t->data.events.source, b->name, b->levels, a->name,
                              a->levels);
    }
    return is_same ? 0
                   : ek_err_set(err, EK_EINVAL,
                                "%s: %d columns, expected %d as in training",
                                t->data.events.source, t->data.n_columns, v->n_columns);
}

static int open_data(struct ek_trained *t, const struct ek_trained_options *o,
                     struct ek_err *err)
{
    if (o->data_path) {
        t->config.data.path = o->data_path;
        t->config.data.format = EK_TRAIN_AUTO;
    }
    int rc =
        ek_train_data_open(&t->data, &t->config, o->on_progress, o->arg, NULL, err);
    if (rc)
        return rc;
    t->items = t->data.events.item_names;
    if (t->vocab.items.n == 0)
        return 0;
    rc = compare_items(t, err);
    return rc ? rc : compare_columns(t, err);
}

/* Room of the model's batches. */
static int ceiling(struct ek_rec_shape *shape, const struct ek_trained *t,
                   const struct ek_trained_options *o, struct ek_err *err)
{
    const struct ek_loader_options l = {.part = o->part,
                                        .max_length = t->rec.max_length,
                                        .batch = t->config.eval.batch};
    struct ek_loader *loader = NULL;
    shape->max_sequences = 1;
    shape->max_rows = t->rec.max_length;
    if (o->part == EK_PART_TRAIN)
        return 0;
    int rc = ek_loader_new(&loader, &t->data.events, &t->data.split, &l, err);
    if (rc)
        return rc;
    ek_loader_ceiling(loader, &shape->max_sequences, &shape->max_rows);
    ek_loader_free(loader);
    return 0;
}

static int build_model(struct ek_trained *t, const struct ek_trained_options *o,
                       struct ek_err *err)
{
    const struct ek_graph_options g = {
        .team = t->team, .isa = t->isa, .is_bf16 = t->config.train.dtype == 1};
    struct ek_rec_shape shape = {
        .n_items = t->items.n,
        .n_columns = o->has_data ? t->data.n_columns : t->vocab.n_columns,
        .columns = o->has_data ? t->data.columns : t->vocab.columns,
        .lacks_times = o->has_data && !t->data.events.times};
    struct ek_checkpoint c = {0};
    int rc = ceiling(&shape, t, o, err);
    if (!rc)
        rc = ek_params_new(&t->params, (uint64_t)t->config.run.seed, err);
    if (!rc)
        rc = ek_rec_new(&t->model, t->params, &t->rec, &shape, &g, err);
    c.params = t->params;
    return rc ? rc : ek_checkpoint_load(t->folder, &c, err);
}

static int open_folder(struct ek_trained *t, const char *folder,
                       const struct ek_trained_options *o, struct ek_err *err)
{
    int rc = read_config(t, folder, err);
    if (!rc)
        rc = find_vocab(t, err);
    if (!rc && o->has_data)
        rc = open_data(t, o, err);
    if (rc)
        return rc;
    if (!o->has_data && t->vocab.items.n == 0)
        return ek_err_set(err, EK_ENOENT,
                          "%s: no " EK_VOCAB_FILE
                          " there or in its run's folder: expected it, or the log by "
                          "--data",
                          t->folder);
    if (!o->has_data)
        t->items = t->vocab.items;
    rc = ek_isa_choose(&t->isa, err);
    if (!rc)
        rc = ek_team_new(&t->team, (int)o->threads, true, err);
    return rc ? rc : build_model(t, o, err);
}

int ek_trained_open(struct ek_trained *t, const char *folder,
                    const struct ek_trained_options *o, struct ek_err *err)
{
    *t = (struct ek_trained){.data.click = -1};
    ek_arena_init(&t->arena, ARENA_BYTES);
    int rc = open_folder(t, folder, o, err);
    if (rc) {
        ek_trained_release(t);
        return rc;
    }
    t->evaluate = (struct ek_evaluate){.model = t->model,
                                       .config = &t->rec,
                                       .params = t->params,
                                       .data = o->has_data ? &t->data : NULL,
                                       .part = o->part,
                                       .batch = t->config.eval.batch,
                                       .team = t->team,
                                       .isa = t->isa};
    return 0;
}

void ek_trained_release(struct ek_trained *t)
{
    ek_rec_free(t->model);
    ek_params_free(t->params);
    ek_team_free(t->team);
    ek_train_data_release(&t->data);
    ek_vocab_release(&t->vocab);
    ek_free(t->trained_on);
    ek_arena_release(&t->arena);
    *t = (struct ek_trained){0};
}
