/* test_calibrate.c - mean squares of what goes into each matrix: the definition written
 * out where it is known beforehand, the same bits with any team and any batch. */
#include "lm/calibrate.h"
#include "lm/kit.h"
#include "num/quant.h"

#include <math.h>

#define N_IDS 50

static void make_ids(int32_t ids[N_IDS])
{
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 37 + 11) % 280;
}

static void run(struct ek_calibration *c, const char *file, int n_threads,
                int32_t max_batch, int32_t ctx, int32_t bos)
{
    struct ek_err err = EK_ERR_INIT;
    struct kit k;
    struct kit_options o = {.file = file,
                            .isa = ek_isa_best(),
                            .n_threads = n_threads,
                            .weights = EK_LM_WEIGHTS_F32,
                            .max_batch = max_batch};
    int32_t ids[N_IDS];
    make_ids(ids);
    kit_open(&k, &o);
    struct ek_calibrate job = {.lm = k.lm,
                               .kv = &k.kv,
                               .max_batch_tokens = max_batch,
                               .ctx = ctx,
                               .bos = bos,
                               .ids = ids,
                               .n_ids = N_IDS};
    if (ek_calibrate_run(c, &job, &err))
        fail_msg("%s", err.text);
    kit_close(&k);
}

/* The first input of all is RMSNorm of the embeddings. */
static void the_first_input_has_the_mean_squares_of_its_definition(void **state)
{
    (void)state;
    enum { C = 48, CTX = 16 };
    struct ek_err err = EK_ERR_INIT;
    struct ek_modelfile m;
    struct ek_calibration c;
    char path[512];
    int32_t ids[N_IDS], n = 0;
    double want[C] = {0};
    make_ids(ids);
    assert_int_equal(ek_modelfile_open(&m, kit_path(path, "llama"), &err), 0);
    const float *embed = ek_modelfile_tensor(&m, "model.embed_tokens.weight")->data;
    const float *gain =
        ek_modelfile_tensor(&m, "model.layers.0.input_layernorm.weight")->data;
    for (int i = 0; i < N_IDS; i++) {
        const float *x = embed + (ptrdiff_t)ids[i] * C;
        double sum = 0;
        for (int k = 0; k < C; k++)
            sum += (double)x[k] * (double)x[k];
        for (int k = 0; k < C && i % CTX; k++)
            want[k] += pow((double)x[k] * (double)gain[k], 2) / (sum / C + 1e-5);
        n += i % CTX != 0;
    }
    run(&c, "llama", 2, 7, CTX, -1);
    assert_int_equal(c.n_tokens, n);
    const float *got = ek_calibration_get(&c, 0, EK_CALIBRATION_QKV);
    for (int k = 0; k < C; k++)
        assert_true(fabs((double)got[k] - want[k] / n) <= 1e-5 * want[k] / n);
    ek_calibration_release(&c);
    ek_modelfile_close(&m);
}

static void any_team_and_batch_gives_the_same_bits(void **state)
{
    (void)state;
    static const int teams[] = {2, 3, 8, 17};
    struct ek_calibration want, got;
    run(&want, "gemma3.gguf", 1, 64, 20, 285);
    size_t n =
        (size_t)want.n_layers * (size_t)(2 * want.C + want.HD + want.F) * sizeof(float);
    for (size_t i = 0; i < n / sizeof(float); i++)
        assert_true(isfinite(want.means[i]) && want.means[i] > 0);
    for (size_t i = 0; i < sizeof teams / sizeof teams[0]; i++) {
        run(&got, "gemma3.gguf", teams[i], 5 + (int32_t)i, 20, 285);
        assert_memory_equal(got.means, want.means, n);
        ek_calibration_release(&got);
    }
    ek_calibration_release(&want);
}

static void texts_and_contexts_out_of_range_are_refused(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct ek_calibration c;
    struct kit k;
    int32_t ids[N_IDS];
    make_ids(ids);
    kit_open(&k, &(struct kit_options){.file = "llama.gguf", .isa = EK_ISA_REF});
    struct ek_calibrate job = {.lm = k.lm,
                               .kv = &k.kv,
                               .max_batch_tokens = KIT_BATCH,
                               .ctx = 129,
                               .bos = -1,
                               .ids = ids,
                               .n_ids = N_IDS};
    assert_int_equal(ek_calibrate_run(&c, &job, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, "128"));
    job.ctx = 16;
    job.n_ids = 1;
    assert_int_equal(ek_calibrate_run(&c, &job, &err), EK_EINVAL);
    job.n_ids = 20;
    EK_EACH_FAILURE (n) {
        ek_assert_rc(ek_calibrate_run(&c, &job, &err));
        ek_calibration_release(&c);
    }
    kit_close(&k);
}

static bool stop(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    assert_int_equal(total, 5);
    return done < 2;
}

static void stopping_leaves_nothing(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct ek_calibration c;
    struct kit k;
    int32_t ids[N_IDS];
    make_ids(ids);
    kit_open(&k, &(struct kit_options){.file = "llama.gguf", .isa = EK_ISA_REF});
    struct ek_calibrate job = {.lm = k.lm,
                               .kv = &k.kv,
                               .max_batch_tokens = KIT_BATCH,
                               .ctx = 10,
                               .bos = -1,
                               .ids = ids,
                               .n_ids = N_IDS,
                               .on_chunk = stop};
    assert_int_equal(ek_calibrate_run(&c, &job, &err), EK_ECANCELED);
    assert_null(c.means);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_input_has_the_mean_squares_of_its_definition),
        cmocka_unit_test(any_team_and_batch_gives_the_same_bits),
        cmocka_unit_test(texts_and_contexts_out_of_range_are_refused),
        cmocka_unit_test(stopping_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
