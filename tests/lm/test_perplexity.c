/* test_perplexity.c - scores against their definitions, written out. */
#include "lm/kit.h"
#include "lm/perplexity.h"

#include <math.h>

#define CTX   24
#define N_IDS 60

static void a_row_is_scored_by_the_definition(void **state)
{
    (void)state;
    static const float x[] = {1.0f, -2.0f, 0.5f}, ref[] = {0.25f, 0.75f, -1.0f};
    double zx = exp(1.0) + exp(-2.0) + exp(0.5);
    double zr = exp(0.25) + exp(0.75) + exp(-1.0);
    double kl = 0;
    struct ek_score s = {0};
    for (int v = 0; v < 3; v++) {
        double p = exp((double)ref[v]) / zr, q = exp((double)x[v]) / zx;
        kl += p * log(p / q);
    }
    ek_score_add(&s, x, ref, 3, 1);
    ek_score_add(&s, x, x, 3, 2);
    double a = -log(exp(-2.0) / zx), b = -log(exp(0.5) / zx);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.n_agree, 1);
    assert_true(fabs(s.kl - kl) < 1e-9 && fabs(s.kl_max - kl) < 1e-9);
    assert_true(fabs(s.nll - (a + b)) < 1e-9);
    assert_true(fabs(ek_score_perplexity(&s) - exp((a + b) / 2)) < 1e-9);
    /* Two values: the deviation of their mean is half their distance. */
    assert_true(fabs(ek_score_error(&s) - exp((a + b) / 2) * fabs(a - b) / 2) < 1e-9);
}

static void huge_logits_do_not_overflow(void **state)
{
    (void)state;
    static const float x[] = {3e38f, 1e38f, -3e38f};
    struct ek_score s = {0};
    ek_score_add(&s, x, NULL, 3, 0);
    assert_true(s.nll == 0);
    assert_true(isnan(ek_score_perplexity(&(struct ek_score){0})));
    assert_true(ek_score_error(&s) == 0);
}

static void fill(int32_t ids[N_IDS], int32_t V)
{
    for (int32_t i = 0; i < N_IDS; i++)
        ids[i] = (i * i * 7 + i) % V;
}

/* The same by the plainest way: each prediction from its own prompt. */
static double naive_nll(struct kit *k, const int32_t *ids, int32_t bos)
{
    static const int32_t pages[] = {20, 21};
    float *row = calloc((size_t)k->V, sizeof *row);
    int32_t chunk[CTX];
    double sum = 0;
    for (int c = 0; c < N_IDS / CTX; c++) {
        memcpy(chunk, ids + c * CTX, sizeof chunk);
        if (bos >= 0)
            chunk[0] = bos;
        for (int32_t t = CTX / 2; t < CTX - 1; t++) {
            double z = 0;
            kit_run(k, row, chunk, t + 1, 0, pages);
            for (int32_t v = 0; v < k->V; v++)
                z += exp((double)row[v]);
            sum += log(z) - (double)row[chunk[t + 1]];
        }
    }
    free(row);
    return sum;
}

static void chunks_are_scored_as_the_header_says(void **state)
{
    (void)state;
    struct kit k;
    struct kit_options o = {
        .file = "llama.gguf", .isa = ek_isa_best(), .weights = EK_LM_WEIGHTS_F32};
    int32_t ids[N_IDS];
    kit_open(&k, &o);
    fill(ids, k.V);
    for (int32_t bos = -1; bos < 300; bos += 6 * 47) {
        struct ek_score s;
        struct ek_err err = EK_ERR_INIT;
        struct ek_perplexity job = {.model = {k.lm, &k.kv},
                                    .team = k.team,
                                    .max_batch_tokens = KIT_BATCH,
                                    .ctx = CTX,
                                    .bos = bos,
                                    .ids = ids,
                                    .n_ids = N_IDS};
        assert_int_equal(ek_perplexity_run(&s, &job, &err), 0);
        assert_int_equal(s.n, 2 * (CTX / 2 - 1));
        assert_true(fabs(s.nll - naive_nll(&k, ids, bos)) < 1e-5);
    }
    kit_close(&k);
}

/* Against itself a model has no divergence; against a coarser copy it has some. */
static void divergence_is_from_the_reference(void **state)
{
    (void)state;
    struct kit k, q;
    struct kit_options o = {
        .file = "qwen3", .isa = ek_isa_best(), .weights = EK_LM_WEIGHTS_F32};
    struct kit_options coarse = o;
    struct ek_score s, same, few;
    struct ek_err err = EK_ERR_INIT;
    int32_t ids[N_IDS];
    coarse.weights = EK_LM_WEIGHTS_INT4;
    kit_open(&k, &o);
    kit_open(&q, &coarse);
    fill(ids, k.V);
    struct ek_perplexity job = {.model = {q.lm, &q.kv},
                                .ref = {k.lm, &k.kv},
                                .team = k.team,
                                .max_batch_tokens = KIT_BATCH,
                                .ctx = CTX,
                                .bos = -1,
                                .ids = ids,
                                .n_ids = N_IDS};
    assert_int_equal(ek_perplexity_run(&s, &job, &err), 0);
    assert_true(s.kl > 0 && s.kl_max <= s.kl && s.n_agree < s.n);
    job.max_batch_tokens = 5; /* other pieces, the same bits */
    assert_int_equal(ek_perplexity_run(&few, &job, &err), 0);
    assert_memory_equal(&few, &s, sizeof s);
    job.model = job.ref;
    assert_int_equal(ek_perplexity_run(&same, &job, &err), 0);
    assert_true(same.kl == 0 && same.n_agree == same.n);
    kit_close(&q);
    kit_close(&k);
}

static bool stop_after_one(void *arg, int64_t done, int64_t total,
                           const struct ek_score *s)
{
    int *calls = arg;
    assert_int_equal(total, N_IDS / CTX);
    assert_int_equal(s->n, done * (CTX / 2 - 1));
    ++*calls;
    return false;
}

static void sizes_are_checked_and_a_run_can_be_stopped(void **state)
{
    (void)state;
    struct kit k;
    struct kit_options o = {.file = "llama3.gguf", .isa = ek_isa_best()};
    struct ek_score s;
    struct ek_err err = EK_ERR_INIT;
    int32_t ids[N_IDS];
    int calls = 0;
    kit_open(&k, &o);
    fill(ids, k.V);
    struct ek_perplexity job = {.model = {k.lm, &k.kv},
                                .team = k.team,
                                .max_batch_tokens = KIT_BATCH,
                                .ctx = CTX,
                                .bos = -1,
                                .ids = ids,
                                .n_ids = N_IDS,
                                .on_chunk = stop_after_one,
                                .arg = &calls};
    assert_int_equal(ek_perplexity_run(&s, &job, &err), EK_ECANCELED);
    assert_int_equal(calls, 1);
    job.n_ids = CTX - 1;
    assert_int_equal(ek_perplexity_run(&s, &job, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, "23 tokens"));
    job.ctx = 129; /* the model was made for 128 */
    assert_int_equal(ek_perplexity_run(&s, &job, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, "128"));
    job.ctx = CTX;
    job.n_ids = N_IDS;
    job.on_chunk = NULL;
    EK_EACH_FAILURE (n) {
        ek_assert_rc(ek_perplexity_run(&s, &job, &err));
    }
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_scored_by_the_definition),
        cmocka_unit_test(huge_logits_do_not_overflow),
        cmocka_unit_test(chunks_are_scored_as_the_header_says),
        cmocka_unit_test(divergence_is_from_the_reference),
        cmocka_unit_test(sizes_are_checked_and_a_run_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
