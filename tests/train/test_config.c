/* The keys of a training configuration: what is refused, what follows from what, and
 * that a manifest's copy gives the same run. */
#include "base/file.h"
#include "testkit.h"
#include "train/config.h"

#include <glob.h>
#include <stdio.h>

struct read {
    struct ek_train_config c;
    struct ek_arena arena;
    struct ek_err err;
    int rc;
};

static void read_text(struct read *r, const char *text)
{
    memset(r, 0, sizeof *r);
    ek_arena_init(&r->arena, 1 << 20);
    r->rc =
        ek_train_config_read(&r->c, "c.yaml", text, strlen(text), &r->arena, &r->err);
}

static void release(struct read *r)
{
    ek_arena_release(&r->arena);
}

static void every_key_but_the_log_has_a_default(void **state)
{
    (void)state;
    struct read r;
    read_text(&r, "data: {path: a.txt}");
    assert_int_equal(r.rc, 0);
    assert_string_equal(r.c.run.dir, "runs/run");
    assert_int_equal(r.c.model.dim, 64);
    assert_true(r.c.train.beta2 == 0.98);
    assert_true(r.c.eval.filter);
    release(&r);
    read_text(&r, "");
    assert_int_equal(r.rc, EK_EINVAL);
    assert_string_equal(r.err.text,
                        "c.yaml: data.path: is missing, expected the log of events");
    release(&r);
}

static const struct {
    const char *text, *want;
} refusals[] = {
    {"data: {path: a}\nmodel: {heads: 3}", "model.heads: 3 does not divide"},
    {"data: {path: a}\nmodel: {times: true}", "model.times: true is of hstu"},
    {"data: {path: a}\nmodel: {dim_qk: 8}", "model.dim_qk: and model.dim_v are of"},
    {"data: {path: a}\nmodel: {click_weight: 1}", "needs data.click"},
    {"data: {path: a}\nmodel: {similarity: cosine, temperature: 2}",
     "model.temperature: 2 leaves"},
    {"data: {path: a, split: by_time, valid: .5, test: .5}",
     "data.test: 0.5 and data.valid 0.5"},
    {"data: {path: a, split: by_time, valid: 0}", "data.valid: 0 leaves nothing"},
    {"data: {path: a}\ntrain: {sub_batch: 3}", "train.sub_batch: 3 does not divide"},
    {"data: {path: a}\ntrain: {max_tokens: 3}", "train.max_tokens: 3 is below"},
    {"data: {path: a}\ntrain: {max_steps: 3, warmup_steps: 4}",
     "train.warmup_steps: 4 is over"},
    {"data: {path: a}\ntrain: {lr_end: .1}", "train.lr_end: 0.1 is of"},
    {"data: {path: a}\neval: {every: 0, patience: 2}", "eval.patience: 2 needs"},
    {"data: {path: a}\nrun: {name: ''}", "run.name: is empty"},
    {"data: {path: a}\nmodel: {dropout: 1}", "c.yaml:2:18: model.dropout: '1' is out"},
    {"data: {path: a}\nmodel: {kind: bert}", "c.yaml:2:15: model.kind: 'bert' is not"},
    {"data: {path: a}\neval: {metric: ndcg@11}", "eval.metric: 'ndcg@11' is not known"},
    {"data: {path: a}\neval: {metric: entropy}",
     "c.yaml:2:16: eval.metric: 'entropy' is not known, expected ndcg@5, ndcg@10, "
     "ndcg@20, ndcg@50, ndcg@200, recall@5, recall@10, recall@20, recall@50, "
     "recall@200, mrr@5, mrr@10, mrr@20, mrr@50, mrr@200, normalised_entropy or auc"},
    {"data: {path: a}\neval: {metric: auc}",
     "eval.metric: auc is of a click head and model.click_weight is 0, expected "
     "ndcg@K"},
    {"data: {path: a}\ntrian: {lr: 1}", "c.yaml:2:1: unknown key 'trian'"},
    {"data: {path: a}\ntrain: {lr: nan}", "train.lr: 'nan' is not understood"},
    {"data: {path: a}\ntrain: {learning_rate: 1}", "unknown key 'train.learning_rate'"},
};

static void each_contradiction_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct read r;
        read_text(&r, refusals[i].text);
        assert_int_equal(r.rc, EK_EINVAL);
        if (!strstr(r.err.text, refusals[i].want))
            fail_msg("%s\nwanted: %s", r.err.text, refusals[i].want);
        release(&r);
    }
}

static void json_gives_the_same_run(void **state)
{
    (void)state;
    struct read a, b;
    struct ek_buf json;
    ek_buf_init(&json, 1 << 16);
    read_text(&a, "data: {path: \"odd: #name\", skip: [u, v], split: by_time}\n"
                  "model: {kind: hstu, times: true, dropout: 0.35, norm: length}\n"
                  "train: {lr: 3e-4, dtype: bf16, items: rowwise_adagrad}\n"
                  "eval: {metric: mrr@200, filter: false}\n");
    assert_int_equal(a.rc, 0);
    assert_int_equal(ek_train_config_json(&json, &a.c), 0);
    read_text(&b, json.data);
    assert_int_equal(b.rc, 0);
    assert_null(ek_opt_keys_differ(ek_train_keys, &a.c, &b.c, NULL, 0));
    assert_string_equal(b.c.data.path, "odd: #name");
    assert_int_equal(b.c.eval.metric, 14);
    release(&a);
    release(&b);
    ek_buf_release(&json);
}

static void a_resume_may_change_lengths_and_places_alone(void **state)
{
    (void)state;
    static const struct {
        const char *text, *key; /* key NULL: may differ */
    } cases[] = {
        {"data: {path: b}", NULL},
        {"data: {path: a}\nrun: {threads: 3, dir: x}", NULL},
        {"data: {path: a}\ntrain: {epochs: 3}", NULL},
        {"data: {path: a}\nmodel: {dim: 32}", "model.dim"},
        {"data: {path: a}\nrun: {seed: 2}", "run.seed"},
        {"data: {path: a}\ntrain: {schedule: cosine}", "train.schedule"},
    };
    struct read a, b;
    read_text(&a, "data: {path: a}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_text(&b, cases[i].text);
        assert_int_equal(b.rc, 0);
        const struct ek_opt *key = ek_train_config_differ(&a.c, &b.c);
        if (cases[i].key)
            assert_string_equal(key->name, cases[i].key);
        else
            assert_null(key);
        release(&b);
    }
    release(&a);
    read_text(&a, "data: {path: a}\ntrain: {schedule: cosine, epochs: 5}");
    read_text(&b, "data: {path: a}\ntrain: {schedule: cosine, epochs: 6}");
    assert_string_equal(ek_train_config_differ(&a.c, &b.c)->name, "train.epochs");
    release(&a);
    release(&b);
}

static void parts_are_given_what_the_keys_say(void **state)
{
    (void)state;
    struct read r;
    struct ek_rec_config rec;
    struct ek_loader_options loader;
    struct ek_events_options events;
    read_text(&r, "data: {path: a, format: tsv, user: u, unit: ms, numeric: [p]}\n"
                  "model: {kind: gem, dim: 48, heads: 4, loss: full, similarity: "
                  "cosine, temperature: .05, experts: 3, column_dim: 8, column_rows: "
                  "90}\n"
                  "train: {batch: 32, micro_batches: 4, items: rowwise_adagrad}\n"
                  "run: {seed: 9}");
    assert_int_equal(r.rc, 0);
    ek_train_rec_config(&rec, &r.c);
    ek_train_loader_options(&loader, &r.c);
    ek_train_events_options(&events, &r.c);
    assert_int_equal(rec.kind, EK_REC_GEM);
    assert_int_equal(rec.dim, 48);
    assert_int_equal(rec.loss, EK_REC_FULL);
    assert_true(rec.is_cosine && rec.has_row_optimizer);
    assert_int_equal(rec.experts, 3);
    assert_int_equal(rec.column_dim, 8);
    assert_int_equal(rec.column_rows, 90);
    assert_int_equal(loader.n_micro, 4);
    assert_int_equal(loader.seed, 9);
    assert_int_equal(events.format, EK_EVENTS_TSV);
    assert_string_equal(events.user, "u");
    assert_null(events.time);
    assert_int_equal(events.unit, EK_EVENTS_MS);
    assert_int_equal(events.numeric.n, 1);
    release(&r);
}

static void every_file_in_configs_is_good(void **state)
{
    (void)state;
    glob_t files;
    assert_int_equal(glob(EK_TESTS_DIR "/../configs/*.yaml", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct read r;
        struct ek_buf text;
        ek_buf_init(&text, 1 << 16);
        assert_int_equal(ek_file_read(&text, files.gl_pathv[i], NULL), 0);
        read_text(&r, text.data);
        if (r.rc)
            fail_msg("%s: %s", files.gl_pathv[i], r.err.text);
        /* what is published is told apart by name */
        const char *name = strrchr(files.gl_pathv[i], '/') + 1;
        assert_int_equal(strncmp(name, r.c.run.name, strlen(name) - 5), 0);
        release(&r);
        ek_buf_release(&text);
    }
    globfree(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_but_the_log_has_a_default),
        cmocka_unit_test(each_contradiction_is_named),
        cmocka_unit_test(json_gives_the_same_run),
        cmocka_unit_test(a_resume_may_change_lengths_and_places_alone),
        cmocka_unit_test(parts_are_given_what_the_keys_say),
        cmocka_unit_test(every_file_in_configs_is_good),
    };
    return cmocka_run_group_tests_name("train_config", tests, NULL, NULL);
}
