/* test_weights.c - tensors that are missing, misshapen, out of place or not finite are
 * named before or while packing; nothing leaks when memory runs out. */
#include "lm/kit.h"
#include "lm/model_int.h"
#include "num/quant.h"

#include <math.h>

#define MAX_TENSORS 96

/* A golden model whose list of tensors a test may change before loading. */
struct doctored {
    struct ek_modelfile m;
    struct ek_tensor items[MAX_TENSORS];
    struct ek_tensors tensors;
    struct ek_team *team;
};

static void open_doctored(struct doctored *d, const char *file)
{
    struct ek_err err = EK_ERR_INIT;
    char path[512];
    memset(d, 0, sizeof *d);
    if (ek_modelfile_open(&d->m, kit_path(path, file), &err) ||
        ek_team_new(&d->team, 2, false, &err))
        fail_msg("%s", err.text);
    assert_in_range(d->m.tensors->n, 1, MAX_TENSORS - 1);
    memcpy(d->items, d->m.tensors->items, d->m.tensors->n * sizeof d->items[0]);
    d->tensors = (struct ek_tensors){.items = d->items, .n = d->m.tensors->n};
    d->m.tensors = &d->tensors; /* not indexed: finding is linear */
}

static void close_doctored(struct doctored *d)
{
    ek_team_free(d->team);
    ek_modelfile_close(&d->m);
}

static struct ek_tensor *tensor(struct doctored *d, const char *name)
{
    for (size_t i = 0; i < d->tensors.n; i++) {
        if (!strcmp(d->items[i].name, name))
            return &d->items[i];
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

static int load(struct doctored *d, enum ek_lm_weights w, int32_t max_batch,
                struct ek_err *err)
{
    struct ek_lm *lm = NULL;
    struct ek_lm_options o = {.weights = w, .max_batch_tokens = max_batch};
    int rc = ek_lm_load(&lm, &d->m, &o, ek_ops_get(ek_isa_best()), d->team, err);
    assert_true((rc == 0) == (lm != NULL));
    ek_lm_free(lm);
    return rc;
}

static void expect(struct doctored *d, int status, const char *a, const char *b)
{
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(load(d, EK_LM_WEIGHTS_KEEP, 8, &err), status);
    if (!strstr(err.text, a) || !strstr(err.text, b) || !strstr(err.text, "golden/"))
        fail_msg("'%s' does not name '%s' and '%s'", err.text, a, b);
}

static void a_missing_tensor_is_named_with_its_shape(void **state)
{
    (void)state;
    struct doctored d;
    open_doctored(&d, "llama.gguf");
    tensor(&d, "blk.1.ffn_up.weight")->name = "blk.1.ffn_op.weight";
    expect(&d, EK_EFORMAT, "'blk.1.ffn_up.weight' is missing", "(88, 48)");
    close_doctored(&d);
    open_doctored(&d, "qwen2");
    tensor(&d, "model.layers.0.self_attn.k_proj.bias")->name = "x";
    expect(&d, EK_EFORMAT, "'model.layers.0.self_attn.k_proj.bias'", "(56)");
    close_doctored(&d);
}

static void a_wrong_shape_is_named_with_the_right_one(void **state)
{
    (void)state;
    struct doctored d;
    open_doctored(&d, "gemma3.gguf");
    tensor(&d, "blk.2.attn_output.weight")->shape[1] = 63;
    expect(&d, EK_EFORMAT, "(36, 63)", "expected (36, 64)");
    close_doctored(&d);
    open_doctored(&d, "gemma3-nested");
    tensor(&d, "language_model.model.layers.1.self_attn.q_norm.weight")->n_dims = 2;
    expect(&d, EK_EFORMAT, "q_norm.weight", "expected (12)");
    close_doctored(&d);
}

static void a_tensor_without_a_place_is_refused(void **state)
{
    (void)state;
    static const char *const extra[] = {"blk.2.attn_q.weight", "blk.0.attn_q.bias",
                                        "blk.0.ffn_gate_inp.weight",
                                        "blk.0.attn_output.bias"};
    for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++) {
        struct doctored d;
        open_doctored(&d, "llama.gguf");
        d.items[d.tensors.n] = d.items[0];
        d.items[d.tensors.n++].name = extra[i];
        expect(&d, EK_EUNSUP, extra[i], "'llama'");
        close_doctored(&d);
    }
}

static void what_changes_nothing_may_be_there(void **state)
{
    (void)state;
    static const char *const extra[] = {"model.layers.0.self_attn.rotary_emb.inv_freq",
                                        "vision_tower.x", "lm_head.weight"};
    struct doctored d;
    struct ek_err err = EK_ERR_INIT;
    open_doctored(&d, "qwen2"); /* tied */
    for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++) {
        d.items[d.tensors.n] = d.items[0];
        d.items[d.tensors.n++].name = extra[i];
    }
    assert_int_equal(load(&d, EK_LM_WEIGHTS_KEEP, 8, &err), 0);
    close_doctored(&d);
}

static void types_that_hold_no_weights_are_refused(void **state)
{
    (void)state;
    struct doctored d;
    open_doctored(&d, "llama.gguf");
    tensor(&d, "output.weight")->dtype = EK_DTYPE_I32;
    expect(&d, EK_EUNSUP, "'output.weight'", "i32");
    tensor(&d, "output.weight")->dtype = EK_DTYPE_Q4_0;
    expect(&d, EK_EFORMAT, "rows of 48", "32");
    close_doctored(&d);
}

/* The n elements of t with element `at` replaced; the copy is the caller's. */
static float *spoil(struct ek_tensor *t, size_t at, float with)
{
    float *copy = malloc(t->bytes);
    assert_non_null(copy);
    memcpy(copy, t->data, t->bytes);
    copy[at] = with;
    t->data = copy;
    return copy;
}

static void numbers_that_are_not_finite_are_named(void **state)
{
    (void)state;
    struct doctored d;
    open_doctored(&d, "llama.gguf"); /* f32 */
    float *a = spoil(tensor(&d, "output.weight"), 287 * 48 + 5, NAN);
    expect(&d, EK_EFORMAT, "'output.weight'", "13781");
    float *b = spoil(tensor(&d, "output.weight"), 31 * 48, INFINITY);
    expect(&d, EK_EFORMAT, "'output.weight'", "1488"); /* the first one */
    close_doctored(&d);
    open_doctored(&d, "llama.gguf");
    float *c = spoil(tensor(&d, "blk.1.ffn_norm.weight"), 47, -INFINITY);
    expect(&d, EK_EFORMAT, "'blk.1.ffn_norm.weight'", "47");
    close_doctored(&d);
    free(a);
    free(b);
    free(c);
}

/* Replaces t's values by the same in dtype `to`; the copy is the caller's. */
static void *convert(struct ek_tensor *t, enum ek_dtype to)
{
    size_t n = (size_t)ek_tensor_elems(t), bytes = 0;
    assert_int_equal(ek_dtype_bytes(&bytes, to, n), 0);
    float *values = malloc(n * sizeof *values);
    void *copy = malloc(bytes);
    assert_non_null(values);
    assert_non_null(copy);
    ek_quant_to_f32(values, t->dtype, t->data, n);
    ek_quant_from_f32(copy, to, values, n);
    free(values);
    t->dtype = to;
    t->data = copy;
    t->bytes = bytes;
    return copy;
}

/* Last logits of eight tokens. */
static void run_eight(struct doctored *d, enum ek_lm_weights w, float *out)
{
    static const int32_t tokens[8] = {3, 1, 4, 1, 5, 9, 2, 6}, pages[1] = {0};
    struct ek_err err = EK_ERR_INIT;
    struct ek_lm *lm = NULL;
    struct ek_kv kv;
    struct ek_lm_options o = {.weights = w, .max_batch_tokens = 8};
    struct ek_lm_seq s = {
        .tokens = tokens, .n_tokens = 8, .pages = pages, .want = EK_LM_WANT_LAST};
    if (ek_lm_load(&lm, &d->m, &o, ek_ops_get(ek_isa_best()), d->team, &err) ||
        ek_kv_init(&kv, ek_lm_get_params(lm), EK_DTYPE_F32, 1, &err))
        fail_msg("%s", err.text);
    assert_int_equal(ek_lm_forward(lm, &kv, &s, 1, out), 1);
    ek_kv_release(&kv);
    ek_lm_free(lm);
}

/* Files mix types: each tensor goes its own way, kept in the format of its own type. */
static void types_may_be_mixed_in_one_model(void **state)
{
    (void)state;
    struct doctored d;
    float kept[288], exact[288];
    open_doctored(&d, "mistral.gguf"); /* V 288, F 64, else bf16 */
    void *copies[] = {
        convert(tensor(&d, "blk.0.ffn_down.weight"), EK_DTYPE_Q8_0),
        convert(tensor(&d, "blk.1.ffn_down.weight"), EK_DTYPE_Q4_1),
        convert(tensor(&d, "blk.0.attn_v.weight"), EK_DTYPE_E4M3),
        convert(tensor(&d, "blk.1.ffn_up.weight"), EK_DTYPE_F16),
        convert(tensor(&d, "output_norm.weight"), EK_DTYPE_BF16),
    };
    run_eight(&d, EK_LM_WEIGHTS_KEEP, kept);
    run_eight(&d, EK_LM_WEIGHTS_F32, exact);
    float worst = 0.0f;
    for (int i = 0; i < 288; i++)
        worst = fmaxf(worst, fabsf(kept[i] - exact[i]));
    /* bf16 activations: 2^-9 of values near 1, over some 50 terms and 2 layers. */
    if (!(worst > 0.0f && worst < 0.1f))
        fail_msg("logits differ by %g", (double)worst);
    close_doctored(&d);
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++)
        free(copies[i]);
}

static void a_q4_0_matrix_stays_symmetric_kept_and_as_int4(void **state)
{
    (void)state;
    static const enum ek_lm_weights ways[] = {EK_LM_WEIGHTS_KEEP, EK_LM_WEIGHTS_INT4};
    struct ek_err err = EK_ERR_INIT;
    struct doctored d;
    open_doctored(&d, "mistral.gguf");
    void *copy = convert(tensor(&d, "blk.0.ffn_down.weight"), EK_DTYPE_Q4_0);
    for (size_t i = 0; i < 2; i++) {
        struct ek_lm *lm = NULL;
        struct ek_lm_options o = {.weights = ways[i], .max_batch_tokens = 8};
        if (ek_lm_load(&lm, &d.m, &o, ek_ops_get(ek_isa_best()), d.team, &err))
            fail_msg("%s", err.text);
        assert_int_equal(lm->layers[0].w[EK_LM_DECODE][EK_LM_DOWN].format,
                         EK_WEIGHT_I4S);
        assert_int_not_equal(lm->layers[1].w[EK_LM_DECODE][EK_LM_DOWN].format,
                             EK_WEIGHT_I4S);
        ek_lm_free(lm);
    }
    close_doctored(&d);
    free(copy);
}

static void rope_factors_are_checked(void **state)
{
    (void)state;
    struct doctored d;
    open_doctored(&d, "llama3.gguf");
    float *a = spoil(tensor(&d, "rope_freqs.weight"), 2, 0.0f);
    expect(&d, EK_EFORMAT, "'rope_freqs.weight'", "element 2 is 0");
    tensor(&d, "rope_freqs.weight")->shape[0] = 3;
    expect(&d, EK_EFORMAT, "'rope_freqs.weight'", "(4)");
    close_doctored(&d);
    free(a);
}

static void step_sizes_out_of_range_are_refused(void **state)
{
    (void)state;
    struct doctored d;
    struct ek_err err = EK_ERR_INIT;
    open_doctored(&d, "llama.gguf");
    assert_int_equal(load(&d, EK_LM_WEIGHTS_KEEP, 0, &err), EK_ELIMIT);
    assert_int_equal(load(&d, EK_LM_WEIGHTS_KEEP, (1 << 16) + 1, &err), EK_ELIMIT);
    assert_non_null(strstr(err.text, "65537"));
    close_doctored(&d);
}

static void loading_survives_any_failed_allocation(void **state)
{
    (void)state;
    struct doctored d;
    struct ek_err err = EK_ERR_INIT;
    open_doctored(&d, "qwen3.gguf");
    EK_EACH_FAILURE (k) {
        ek_assert_rc(load(&d, EK_LM_WEIGHTS_INT4, 8, &err));
    }
    close_doctored(&d);
}

static void count_progress(void *arg, int64_t done, int64_t total)
{
    int64_t *last = arg;
    assert_true(done > last[0] && done <= total);
    last[0] = done;
    last[1] = total;
}

static void progress_grows_to_the_whole(void **state)
{
    (void)state;
    struct doctored d;
    struct ek_err err = EK_ERR_INIT;
    struct ek_lm *lm = NULL;
    int64_t last[2] = {0};
    open_doctored(&d, "mistral");
    struct ek_lm_options o = {.weights = EK_LM_WEIGHTS_BF16,
                              .max_batch_tokens = 4,
                              .on_progress = count_progress,
                              .progress_arg = last};
    assert_int_equal(ek_lm_load(&lm, &d.m, &o, ek_ops_get(EK_ISA_REF), d.team, &err),
                     0);
    assert_int_equal(last[0], last[1]);
    int64_t n = 0;
    for (size_t i = 0; i < d.tensors.n; i++)
        n += ek_tensor_elems(&d.items[i]);
    assert_int_equal(ek_lm_n_params(lm), n);
    assert_true(ek_lm_weight_bytes(lm) >= (size_t)n * 2);
    ek_lm_free(lm);
    close_doctored(&d);
}

static void kv_pools_lie_apart_and_sizes_are_checked(void **state)
{
    (void)state;
    struct ek_lm_params p = {.n_layers = 3, .K = 2, .D = 8};
    struct ek_kv kv;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_kv_page_bytes(&p, EK_DTYPE_BF16), 3 * 2 * 2 * 8 * 16 * 2);
    assert_int_equal(ek_kv_init(&kv, &p, EK_DTYPE_F32, 5, &err), 0);
    size_t pool = (size_t)5 * 2 * 8 * 16 * 4;
    assert_int_equal(kv.page_bytes * 5, pool);
    for (int32_t l = 0; l < 3; l++) {
        assert_ptr_equal(ek_kv_k(&kv, l), kv.data + (size_t)l * 2 * pool);
        assert_ptr_equal(ek_kv_v(&kv, l), kv.data + ((size_t)l * 2 + 1) * pool);
    }
    memset(kv.data, 1, 6 * pool); /* all of it is ours */
    ek_kv_release(&kv);
    ek_kv_release(&kv);
    assert_int_equal(ek_kv_init(&kv, &p, EK_DTYPE_F32, 0, &err), EK_ELIMIT);
    EK_EACH_FAILURE (k) {
        ek_assert_rc(ek_kv_init(&kv, &p, EK_DTYPE_BF16, 1, &err));
        ek_kv_release(&kv);
    }
}

static void a_page_is_copied_or_poisoned_whole_and_alone(void **state)
{
    (void)state;
    enum { N = 5 };
    struct ek_lm_params p = {.n_layers = 3, .K = 2, .D = 8};
    struct ek_kv kv;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_kv_init(&kv, &p, EK_DTYPE_BF16, N, &err), 0);
    for (size_t i = 0; i < 6 * N; i++)
        memset(kv.data + i * kv.page_bytes, (int)i, kv.page_bytes);
    ek_kv_copy_page(&kv, 1, 3);
    ek_kv_poison(&kv, 4);
    for (size_t i = 0; i < 6 * N * kv.page_bytes; i++) {
        size_t at = i / kv.page_bytes;
        size_t want = at % N == 1 ? at + 2 : at % N == 4 ? 0xff : at;
        assert_int_equal(kv.data[i], want);
    }
    ek_kv_release(&kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_tensor_is_named_with_its_shape),
        cmocka_unit_test(a_wrong_shape_is_named_with_the_right_one),
        cmocka_unit_test(a_tensor_without_a_place_is_refused),
        cmocka_unit_test(what_changes_nothing_may_be_there),
        cmocka_unit_test(types_that_hold_no_weights_are_refused),
        cmocka_unit_test(numbers_that_are_not_finite_are_named),
        cmocka_unit_test(types_may_be_mixed_in_one_model),
        cmocka_unit_test(a_q4_0_matrix_stays_symmetric_kept_and_as_int4),
        cmocka_unit_test(rope_factors_are_checked),
        cmocka_unit_test(step_sizes_out_of_range_are_refused),
        cmocka_unit_test(loading_survives_any_failed_allocation),
        cmocka_unit_test(progress_grows_to_the_whole),
        cmocka_unit_test(kv_pools_lie_apart_and_sizes_are_checked),
        cmocka_unit_test(a_page_is_copied_or_poisoned_whole_and_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
