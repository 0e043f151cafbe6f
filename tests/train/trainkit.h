/* trainkit.h - a run on a made log: configuration from YAML, data from a pack, a folder
 * of its own. */
#ifndef EVENKEEL_TESTS_TRAINKIT_H
#define EVENKEEL_TESTS_TRAINKIT_H

#include "base/file.h"
#include "data/events_pack.h"
#include "data/events_synth.h"
#include "testkit.h"
#include "train/run_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char kit_folder[64];

struct kit {
    struct ek_train_config c;
    struct ek_train_data data;
    struct ek_arena arena;
    struct ek_train *t;
    struct ek_err err;
    int64_t stop_at; /* steps; 0: never */
    char lines[1 << 16];
    size_t n_lines; /* bytes */
};

static inline bool kit_should_stop(void *arg)
{
    struct kit *k = arg;
    return k->stop_at && ek_train_steps(k->t) >= k->stop_at;
}

static inline void kit_on_line(void *arg, const char *line, size_t n)
{
    struct kit *k = arg;
    if (k->n_lines + n + 2 > sizeof k->lines)
        return;
    memcpy(k->lines + k->n_lines, line, n);
    k->n_lines += n;
    k->lines[k->n_lines++] = '\n';
    k->lines[k->n_lines] = 0;
}

/* Before all tests: 120 users, 50 items, followed by what they follow. */
static inline int kit_make(void **state)
{
    (void)state;
    struct ek_events e = {.n = 0};
    struct ek_synth_options o = {.n_users = 120,
                                 .n_items = 50,
                                 .median = 7,
                                 .sigma = 0.6,
                                 .min_length = 3,
                                 .max_length = 30,
                                 .zipf = 0.8,
                                 .follow = 0.9,
                                 .seed = 7};
    char path[128];
    snprintf(kit_folder, sizeof kit_folder, "/tmp/ek-train-XXXXXX");
    if (!mkdtemp(kit_folder) || ek_events_synth(&e, &o, NULL))
        return 1;
    snprintf(path, sizeof path, "%s/log.pack", kit_folder);
    int rc = ek_events_pack_write(&e, path, NULL, NULL);
    ek_events_release(&e);
    return rc;
}

static inline int kit_remove(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", kit_folder);
    return system(command); /* NOLINT: our own folder */
}

/* name: of the run, and of its folder; text: more of the configuration. */
static inline void kit_open(struct kit *k, const char *name, const char *text)
{
    static const char base[] =
        "run: {threads: 1, dir: %s/%s, seed: 3}\ndata: {path: %s/log.pack}\n"
        "model.dim: 16\nmodel.heads: 2\nmodel.max_length: 12\nmodel.negatives: 20\n"
        "eval.batch: 32\nlog.every: 5\n%s";
    char config[4096];
    memset(k, 0, sizeof *k);
    ek_arena_init(&k->arena, 1 << 20);
    snprintf(config, sizeof config, base, kit_folder, name, kit_folder, text);
    struct ek_train_hooks hooks = {
        .should_stop = kit_should_stop, .on_line = kit_on_line, .arg = k};
    int rc = ek_train_config_read(&k->c, "c.yaml", config, strlen(config), &k->arena,
                                  &k->err);
    if (!rc)
        rc = ek_train_data_open(&k->data, &k->c, NULL, NULL, NULL, &k->err);
    if (!rc)
        rc = ek_train_new(&k->t, &k->c, &k->data, &hooks, &k->err);
    if (rc)
        fail_msg("%s", k->err.text);
}

static inline void kit_close(struct kit *k)
{
    ek_train_free(k->t);
    ek_train_data_release(&k->data);
    ek_arena_release(&k->arena);
}

/* Steps without the loop around them. */
static inline double kit_steps(struct kit *k, int n)
{
    struct ek_batch b;
    double loss = 0;
    for (int i = 0; i < n; i++) {
        while (!ek_loader_next(k->t->loader, &b))
            continue;
        int rc = ek_train_step(k->t, &b, &loss, &k->err);
        if (rc)
            fail_msg("%s", k->err.text);
    }
    return loss;
}

/* The largest difference of two sets of parameters; 0: the same bits. */
static inline double kit_differ(const struct kit *a, const struct kit *b)
{
    const struct ek_params *p = ek_train_params(a->t), *q = ek_train_params(b->t);
    double most = 0;
    assert_int_equal(ek_params_count(p), ek_params_count(q));
    for (int i = 0; i < ek_params_count(p); i++) {
        const struct ek_param *x = ek_params_get(p, i), *y = ek_params_get(q, i);
        assert_int_equal(x->rows * x->cols, y->rows * y->cols);
        for (int64_t j = 0; j < x->rows * x->cols; j++) {
            double d = (double)x->value[j] - (double)y->value[j];
            most = d > most ? d : -d > most ? -d : most;
        }
    }
    return most;
}

/* --- the loop ------------------------------------------------------------------------ */

static inline void kit_read(struct ek_buf *out, const char *run, const char *name)
{
    char path[256];
    struct ek_err err = EK_ERR_INIT;
    snprintf(path, sizeof path, "%s/%s/%s", kit_folder, run, name);
    ek_buf_init(out, 1 << 24);
    if (ek_file_read(out, path, &err))
        fail_msg("%s", err.text);
}

static inline void kit_same_file(const char *a, const char *b, const char *name)
{
    struct ek_buf x, y;
    kit_read(&x, a, name);
    kit_read(&y, b, name);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.data, y.data, x.len);
    ek_buf_release(&x);
    ek_buf_release(&y);
}

static inline void kit_run(struct kit *k, int status)
{
    int rc = ek_train_run(k->t, &k->err);
    if (rc != status)
        fail_msg("%d: %s", rc, k->err.text);
}

static inline int64_t kit_count(const char *text, const char *word)
{
    int64_t n = 0;
    for (const char *p = strstr(text, word); p; p = strstr(p + 1, word))
        n++;
    return n;
}

#endif
