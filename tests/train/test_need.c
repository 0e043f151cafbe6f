/* What a run will hold: summed before it is taken, and refused where it is not there. */
#include "train/need.h"
#include "trainkit.h"

static const char small[] = "data.path: x\nmodel: {ffn: 512, blocks: 3}\n"
                            "train: {micro_batches: 4}\n";

static void config(struct ek_train_config *c, struct ek_arena *arena, const char *text)
{
    struct ek_err err = EK_ERR_INIT;
    ek_arena_init(arena, 1 << 20);
    if (ek_train_config_read(c, "c.yaml", text, strlen(text), arena, &err))
        fail_msg("%s", err.text);
}

static void a_run_that_fits_to_the_byte_is_let_in(void **state)
{
    (void)state;
    struct ek_train_config c;
    struct ek_arena arena;
    struct ek_need n = {.bytes = {[EK_NEED_ITEMS] = 600, [EK_NEED_STEP] = 400}};
    config(&c, &arena, small);
    assert_int_equal(ek_need_check(&n, 1000, &c, NULL), 0);
    assert_int_equal(ek_need_check(&n, INT64_MAX, &c, NULL), 0);
    assert_int_equal(ek_need_check(&n, 999, &c, NULL), EK_ELIMIT);
    assert_int_equal(ek_need_check(&n, 0, &c, NULL), EK_ELIMIT);
    assert_int_equal(ek_need_check(&n, -1, &c, NULL), EK_ELIMIT);
    ek_arena_release(&arena);
}

static void check(const char *text, const struct ek_need *n, const char *want)
{
    struct ek_train_config c;
    struct ek_arena arena;
    struct ek_err err = EK_ERR_INIT;
    config(&c, &arena, text);
    assert_int_equal(ek_need_check(n, 5 << 20, &c, &err), EK_ELIMIT);
    assert_string_equal(err.text, want);
    ek_arena_release(&arena);
}

static void a_refusal_names_the_largest_parts_and_what_to_lower(void **state)
{
    (void)state;
    struct ek_need n = {.bytes = {[EK_NEED_LAYERS] = 9 << 20,
                                  [EK_NEED_RANKING] = 3 << 20,
                                  [EK_NEED_POSITIONS] = 1 << 20,
                                  [EK_NEED_ROWS] = 4 << 20}};
    check(
        small, &n,
        "memory: the run would hold 17.0 MiB, 5.0 MiB is there for it: layers 9.0 MiB "
        "(model.ffn 512, model.blocks 3, model.dim 64), gradient rows 4.0 MiB "
        "(train.micro_batches 4, train.batch 128, model.negatives 256, model.dim 64), "
        "ranking 3.0 MiB (eval.batch 512); "
        "expected a lower model.ffn, model.blocks or model.dim");
    check(
        "data.path: x\n", &n, /* ffn follows dim */
        "memory: the run would hold 17.0 MiB, 5.0 MiB is there for it: layers 9.0 MiB "
        "(model.blocks 1, model.dim 64), gradient rows 4.0 MiB "
        "(train.micro_batches 1, train.batch 128, model.negatives 256, model.dim 64), "
        "ranking 3.0 MiB (eval.batch 512); "
        "expected a lower model.dim"); /* of one block there is none less */
    check(
        "data.path: x\nmodel: {kind: hstu, ffn: 512, dim_v: 256, dim_qk: 256}\n", &n,
        "memory: the run would hold 17.0 MiB, 5.0 MiB is there for it: layers 9.0 MiB "
        "(model.dim_qk 256, model.dim_v 256, model.blocks 1, model.dim 64), gradient "
        "rows 4.0 MiB (train.micro_batches 1, train.batch 128, model.negatives 256, "
        "model.dim 64), ranking 3.0 MiB (eval.batch 512); expected a lower "
        "model.dim_qk, model.dim_v or model.dim");
}

static void a_ceiling_that_is_not_set_is_what_would_be_right(void **state)
{
    (void)state;
    struct ek_need step = {.bytes = {[EK_NEED_STEP] = 6 << 20}};
    struct ek_need ranking = {.bytes = {[EK_NEED_RANKING] = 6 << 20}};
    struct ek_need columns = {.bytes = {[EK_NEED_COLUMNS] = 6 << 20}};
    check(
        "data.path: x\n", &step,
        "memory: the run would hold 6.0 MiB, 5.0 MiB is there for it: a step 6.0 MiB "
        "(train.batch 128, model.max_length 50, model.negatives 256, model.dim 64); "
        "expected a lower train.batch, model.max_length, model.negatives or model.dim, "
        "or train.max_tokens above 0");
    check("data.path: x\nmodel.loss: full\n", &step, /* which draws no negatives */
          "memory: the run would hold 6.0 MiB, 5.0 MiB is there for it: a step 6.0 MiB "
          "(train.batch 128, model.max_length 50, model.dim 64); expected a lower "
          "train.batch, model.max_length or model.dim, or train.max_tokens above 0 or "
          "model.loss sampled");
    check("data.path: x\ntrain: {batch: 1, max_tokens: 1}\n" /* all that can be less */
          "model: {max_length: 1, negatives: 1, dim: 1}\n",
          &step,
          "memory: the run would hold 6.0 MiB, 5.0 MiB is there for it: a step 6.0 MiB "
          "(train.batch 1, train.max_tokens 1, model.max_length 1, model.negatives 1, "
          "model.dim 1); expected more memory than that");
    check(
        "data.path: x\neval.batch: 1\n", &ranking,
        "memory: the run would hold 6.0 MiB, 5.0 MiB is there for it: ranking 6.0 MiB "
        "(eval.batch 1); expected run.threads 1");
    check("data.path: x\ntrain.max_tokens: 900\n", &step,
          "memory: the run would hold 6.0 MiB, 5.0 MiB is there for it: a step 6.0 MiB "
          "(train.batch 128, train.max_tokens 900, model.max_length 50, "
          "model.negatives 256, model.dim 64); expected a lower train.batch, "
          "train.max_tokens, model.max_length, model.negatives or model.dim");
    check("data.path: x\n", &columns,
          "memory: the run would hold 6.0 MiB, 5.0 MiB is there for it: categories 6.0 "
          "MiB (model.dim 64); expected a lower model.dim, or model.column_rows above "
          "0");
}

static void a_sum_that_overflows_is_refused_and_does_not_wrap(void **state)
{
    (void)state;
    struct ek_train_config c;
    struct ek_arena arena;
    struct ek_err err = EK_ERR_INIT;
    struct ek_buf out;
    struct ek_need n = {
        .bytes = {[EK_NEED_ITEMS] = SIZE_MAX, [EK_NEED_BATCHES] = 2}}; /* wraps to 1 */
    config(&c, &arena, small);
    assert_int_equal(ek_need_check(&n, INT64_MAX, &c, &err), EK_ELIMIT);
    assert_string_equal(err.text,
                        "memory: items (model.dim 64) would take more bytes than a "
                        "number can tell; expected a lower model.dim");
    n.bytes[EK_NEED_BATCHES] = 0; /* a number, and more than any machine has */
    assert_int_equal(ek_need_check(&n, INT64_MAX, &c, &err), EK_ELIMIT);
    n.bytes[EK_NEED_BATCHES] = 2;
    ek_buf_init(&out, 1 << 12);
    assert_int_equal(ek_need_text(&out, &n), EK_ELIMIT);
    ek_buf_release(&out);
    ek_arena_release(&arena);
}

static void without_memory_a_refusal_is_its_status(void **state)
{
    (void)state;
    struct ek_train_config c;
    struct ek_arena arena;
    const struct ek_need n = {.bytes = {[EK_NEED_STEP] = 9}};
    config(&c, &arena, small);
    EK_EACH_FAILURE (k) {
        struct ek_err err = EK_ERR_INIT;
        int rc = ek_need_check(&n, 8, &c, &err);
        assert_true(rc == EK_ENOMEM || rc == EK_ELIMIT);
        assert_int_equal(err.status, rc);
        assert_true(err.text[0]);
    }
    ek_arena_release(&arena);
}

static void every_parameter_has_its_part(void **state)
{
    (void)state;
    assert_int_equal(ek_need_of_param("items"), EK_NEED_ITEMS);
    assert_int_equal(ek_need_of_param("positions"), EK_NEED_POSITIONS);
    assert_int_equal(ek_need_of_param("event.column.shop"), EK_NEED_COLUMNS);
    assert_int_equal(ek_need_of_param("user.column.land"), EK_NEED_COLUMNS);
    assert_int_equal(ek_need_of_param("block0.ffn.up"), EK_NEED_LAYERS);
}

/* --- a run ------------------------------------------------------------------------ */

static size_t sum_of(const struct ek_need *n)
{
    size_t sum = 0;
    for (int i = 0; i < EK_NEED_PARTS; i++)
        sum += n->bytes[i];
    return sum;
}

/* What the kit's run is made with, `available` bytes being there. */
static int make_run(struct kit *k, size_t available, struct ek_err *err)
{
    const struct ek_train_hooks hooks = {.available_bytes = (int64_t)available};
    struct ek_train *t = NULL;
    int rc = ek_train_new(&t, &k->c, &k->data, &hooks, err);
    ek_train_free(t);
    return rc;
}

#define BY_ROWS                                                                        \
    "model.similarity: cosine\n"                                                       \
    "train: {items: rowwise_adagrad, micro_batches: 3, clip_norm: 1}\n"

static const char *const runs[] = {
    "",
    "model.kind: hstu\nmodel.times: true\n",
    "model.kind: gem\nmodel.loss: full\n",
    BY_ROWS,
    "model.kind: gem\ntrain: {items: rowwise_adagrad, max_tokens: 100, ahead: 0}\n",
};

static void a_run_is_let_in_by_its_own_sum(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct kit k;
        kit_open(&k, "need", runs[i]);
        size_t sum = sum_of(&k.t->need);
        assert_int_equal(make_run(&k, sum, &k.err), 0);
        assert_int_equal(make_run(&k, sum - 1, &k.err), EK_ELIMIT);
        assert_non_null(strstr(k.err.text, "memory: the run would hold "));
        kit_close(&k);
    }
}

/* The kit's log has some hundred samples: thousands of copies are never made. */
static void micro_batches_that_cannot_come_are_not_counted(void **state)
{
    (void)state;
    static const char *const counts[] = {"2", "2048", "4096"};
    size_t rows[3], batches[3];
    for (int i = 0; i < 3; i++) {
        char text[128];
        struct kit k;
        snprintf(text, sizeof text,
                 "train: {items: rowwise_adagrad, batch: 8, micro_batches: %s}\n",
                 counts[i]);
        kit_open(&k, "need", text);
        rows[i] = k.t->need.bytes[EK_NEED_ROWS];
        batches[i] = k.t->need.bytes[EK_NEED_BATCHES];
        kit_steps(&k, 3);
        kit_close(&k);
    }
    assert_true(rows[0] < rows[1] && batches[0] < batches[1]);
    assert_int_equal(rows[1], rows[2]);
    assert_int_equal(batches[1], batches[2]);
}

/* Parameters as they lie there: values and gradient, two moments or a sum a row. */
static void the_sum_holds_what_was_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct kit k;
        kit_open(&k, "need", runs[i]);
        const size_t *of = k.t->need.bytes;
        size_t least = 0;
        for (int p = 0; p < ek_params_count(k.t->params); p++) {
            const struct ek_param *x = ek_params_get(k.t->params, p);
            size_t row = (size_t)x->cols * sizeof(float);
            least += (size_t)x->rows * (x->is_table ? row + sizeof(float) : 4 * row);
        }
        size_t params = of[EK_NEED_ITEMS] + of[EK_NEED_POSITIONS] +
                        of[EK_NEED_COLUMNS] + of[EK_NEED_LAYERS];
        assert_true(params >= least && params < least + least / 8);
        assert_true(of[EK_NEED_STEP] > ek_graph_arena_bytes(ek_rec_graph(k.t->model)));
        assert_true(of[EK_NEED_RANKING] >
                    ek_graph_arena_bytes(ek_rec_graph(k.t->forward)));
        assert_true(of[EK_NEED_BATCHES] >= (size_t)k.t->max_rows * 16);
        assert_int_equal(of[EK_NEED_ROWS] > 0, k.t->adagrad != NULL);
        kit_steps(&k, 5); /* and all of it is there */
        kit_close(&k);
    }
}

/* Hundreds of GiB, which no test could have touched. */
static void nothing_of_a_run_that_is_refused_is_taken(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, "need", "");
    k.c.model.dim = 4096;
    k.c.model.heads = 16;
    k.c.model.ffn = 65536;
    k.c.model.blocks = 64;
    assert_int_equal(make_run(&k, (size_t)1 << 30, &k.err), EK_ELIMIT);
    assert_non_null(strstr(k.err.text, ", 1.0 GiB is there for it: layers 5"));
    assert_non_null(
        strstr(k.err.text, "; expected a lower model.ffn, model.blocks or model.dim"));
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_fits_to_the_byte_is_let_in),
        cmocka_unit_test(a_refusal_names_the_largest_parts_and_what_to_lower),
        cmocka_unit_test(a_ceiling_that_is_not_set_is_what_would_be_right),
        cmocka_unit_test(a_sum_that_overflows_is_refused_and_does_not_wrap),
        cmocka_unit_test(without_memory_a_refusal_is_its_status),
        cmocka_unit_test(every_parameter_has_its_part),
        cmocka_unit_test(a_run_is_let_in_by_its_own_sum),
        cmocka_unit_test(micro_batches_that_cannot_come_are_not_counted),
        cmocka_unit_test(the_sum_holds_what_was_taken),
        cmocka_unit_test(nothing_of_a_run_that_is_refused_is_taken),
    };
    return cmocka_run_group_tests_name("need", tests, kit_make, kit_remove);
}
