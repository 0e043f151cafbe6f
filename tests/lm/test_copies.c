/* test_copies.c - two formats of the weights in memory: which rows take which, that a
 * sequence's bits do not depend on it, and where the measured crossover lies. */
#include "lm/crossover.h"
#include "lm/kit.h"

#define N_SEQS   3
#define N_ANSWER 6 /* tokens after the prompt */

/* Prompts of 1, 20 and 33 tokens: across pages and no multiple of anything. */
static const int32_t prompts[N_SEQS] = {1, 20, 33};
static const int32_t page_lists[N_SEQS][3] = {{9, 11, 40}, {0, 63, 7}, {2, 1, 5}};

static const struct kit_options two = {.file = "qwen3.gguf",
                                       .weights = EK_LM_WEIGHTS_INT4,
                                       .has_prefill_weights = true,
                                       .prefill_weights = EK_LM_WEIGHTS_BF16,
                                       .kv_dtype = EK_DTYPE_BF16};

static void open_on(struct kit *k, const struct kit_options *o, int n_threads)
{
    struct kit_options copy = *o;
    copy.isa = ek_isa_best();
    copy.n_threads = n_threads;
    kit_open(k, &copy);
}

static void fill(int32_t tokens[KIT_BATCH], int32_t i, int32_t V)
{
    for (int32_t t = 0; t < KIT_BATCH; t++)
        tokens[t] = (t * 37 + i * 101 + t * t) % V;
}

/* Tokens [pos0, pos0+n) of sequence i, whose prompt ends at `decode_from`; the last
 * row's logits. */
static void run(struct kit *k, float *out, int32_t i, int32_t pos0, int32_t n,
                int32_t decode_from)
{
    int32_t tokens[KIT_BATCH];
    fill(tokens, i, k->V);
    struct ek_lm_seq s = {.tokens = tokens + pos0,
                          .n_tokens = n,
                          .pos0 = pos0,
                          .pages = page_lists[i],
                          .want = EK_LM_WANT_LAST,
                          .decode_from = decode_from};
    assert_int_equal(ek_lm_forward(k->lm, &k->kv, &s, 1, out), 1);
}

/* Prompt whole, then one token after the other. */
static void run_alone(struct kit *k, float *out, int32_t i)
{
    run(k, out, i, 0, prompts[i], prompts[i]);
    for (int32_t t = 0; t < N_ANSWER; t++)
        run(k, out, i, prompts[i] + t, 1, prompts[i]);
}

static void prompts_take_the_prefill_copy_and_answers_the_decode_copy(void **state)
{
    (void)state;
    struct kit both, only;
    open_on(&both, &two, 2);
    size_t row = (size_t)both.V * sizeof(float);
    float *a = malloc(row), *b = malloc(row);
    assert_true(ek_lm_prefill_bytes(both.lm) > 0);
    /* The head is the decode copy's, so a whole model of the prefill format would
     * differ; one whose decode copy is never used does not. */
    run(&both, a, 2, 0, 33, 33);
    run(&both, b, 2, 0, 33, 0);
    assert_memory_not_equal(a, b, row);
    struct kit_options int4 = two;
    int4.has_prefill_weights = false;
    open_on(&only, &int4, 1);
    assert_int_equal(ek_lm_prefill_bytes(only.lm), 0);
    assert_true(ek_lm_weight_bytes(only.lm) + ek_lm_prefill_bytes(both.lm) ==
                ek_lm_weight_bytes(both.lm));
    run(&only, a, 2, 0, 33, 33);
    assert_memory_equal(a, b, row);
    kit_close(&only);
    kit_close(&both);
    free(a);
    free(b);
}

/* One step: every sequence at another point of its life, prompts and answers mixed. */
static void run_mixed(struct kit *k, const float *const want[N_SEQS])
{
    size_t V = (size_t)k->V;
    int32_t tokens[N_SEQS][KIT_BATCH];
    float *out = malloc(N_SEQS * V * sizeof *out);
    struct ek_lm_seq s[N_SEQS];
    for (int32_t i = 0; i < N_SEQS; i++) {
        int32_t n = prompts[i] + N_ANSWER;
        /* the last token alone; from inside the prompt; everything again */
        int32_t pos0 = i == 0 ? n - 1 : i == 1 ? 13 : 0;
        fill(tokens[i], i, k->V);
        s[i] = (struct ek_lm_seq){.tokens = tokens[i] + pos0,
                                  .n_tokens = n - pos0,
                                  .pos0 = pos0,
                                  .pages = page_lists[i],
                                  .want = EK_LM_WANT_LAST,
                                  .decode_from = prompts[i]};
    }
    assert_int_equal(ek_lm_forward(k->lm, &k->kv, s, N_SEQS, out), N_SEQS);
    for (int32_t i = 0; i < N_SEQS; i++)
        assert_memory_equal(out + (size_t)i * V, want[i], V * sizeof *out);
    free(out);
}

static void check_mixed(const struct kit_options *o, int n_threads)
{
    struct kit alone, mixed;
    float *want[N_SEQS];
    open_on(&alone, o, 1);
    open_on(&mixed, o, n_threads);
    for (int32_t i = 0; i < N_SEQS; i++) {
        want[i] = malloc((size_t)alone.V * sizeof **want);
        run_alone(&alone, want[i], i);
        /* What the mixed step finds in its pages was written by other steps. */
        if (i < 2)
            run(&mixed, want[i], i, 0, i == 0 ? prompts[0] + N_ANSWER - 1 : 13,
                prompts[i]);
    }
    run_alone(&alone, want[0], 0);
    run_alone(&alone, want[1], 1);
    run_mixed(&mixed, (const float *const *)want);
    for (int32_t i = 0; i < N_SEQS; i++)
        free(want[i]);
    kit_close(&mixed);
    kit_close(&alone);
}

static void
two_copies_give_the_same_bits_in_any_batch_and_when_computed_again(void **state)
{
    (void)state;
    static const char *const files[] = {"llama3.gguf", "qwen2", "gemma3"};
    static const enum ek_lm_weights formats[][2] = {
        {EK_LM_WEIGHTS_INT4, EK_LM_WEIGHTS_BF16},
        {EK_LM_WEIGHTS_INT8, EK_LM_WEIGHTS_FP8},
        {EK_LM_WEIGHTS_INT4, EK_LM_WEIGHTS_INT8}, /* one form of activations */
        {EK_LM_WEIGHTS_BF16, EK_LM_WEIGHTS_F32},
    };
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        for (size_t w = 0; w < sizeof formats / sizeof formats[0]; w++) {
            struct kit_options o = two;
            o.file = files[f];
            o.weights = formats[w][0];
            o.prefill_weights = formats[w][1];
            check_mixed(&o, 1 + (int)w);
        }
    }
}

static void equal_formats_are_kept_once(void **state)
{
    (void)state;
    struct kit one, same;
    struct kit_options o = two;
    o.prefill_weights = EK_LM_WEIGHTS_INT4;
    open_on(&same, &o, 1);
    o.has_prefill_weights = false;
    open_on(&one, &o, 1);
    assert_int_equal(ek_lm_prefill_bytes(same.lm), 0);
    assert_true(ek_lm_weight_bytes(same.lm) == ek_lm_weight_bytes(one.lm));
    assert_int_equal(ek_lm_n_params(same.lm), ek_lm_n_params(one.lm));
    kit_close(&one);
    kit_close(&same);
}

static void by_tokens_a_large_step_takes_the_prefill_copy_whole(void **state)
{
    (void)state;
    struct kit k;
    open_on(&k, &two, 2);
    size_t row = (size_t)k.V * sizeof(float);
    float *prefill = malloc(row), *decode = malloc(row), *out = malloc(row);
    run(&k, prefill, 1, 0, 20, 20);
    run(&k, decode, 1, 0, 20, 0);
    ek_lm_choose_by_tokens(k.lm, 20);
    run(&k, out, 1, 0, 20, 0); /* whatever the phase */
    assert_memory_equal(out, prefill, row);
    ek_lm_choose_by_tokens(k.lm, 21);
    run(&k, out, 1, 0, 20, 20);
    assert_memory_equal(out, decode, row);
    free(prefill);
    free(decode);
    free(out);
    kit_close(&k);
}

static void the_crossover_is_where_the_prefill_copy_stays_ahead(void **state)
{
    (void)state;
    struct ek_lm_crossover x = {
        .n = 4, .at = {{1, 10, 30}, {2, 12, 11}, {4, 14, 16}, {8, 30, 20}}};
    assert_int_equal(ek_lm_crossover_of(&x), 8);
    x.at[2].prefill_us = 14; /* a draw is the prefill copy's */
    assert_int_equal(ek_lm_crossover_of(&x), 2);
    x.at[0].prefill_us = 9;
    assert_int_equal(ek_lm_crossover_of(&x), 1);
    x.at[3].prefill_us = 31;
    assert_int_equal(ek_lm_crossover_of(&x), EK_LM_CROSSOVER_NEVER);
    x.n = 0;
    assert_int_equal(ek_lm_crossover_of(&x), EK_LM_CROSSOVER_NEVER);
}

static void finding_the_crossover_times_both_copies_and_chooses(void **state)
{
    (void)state;
    struct kit k;
    struct ek_lm_crossover x;
    struct ek_err err = EK_ERR_INIT;
    open_on(&k, &two, 2);
    size_t row = (size_t)k.V * sizeof(float);
    float *by_phase = malloc(row), *out = malloc(row);
    run(&k, by_phase, 1, 0, 20, 10);
    EK_EACH_FAILURE (f) {
        ek_assert_rc(ek_lm_find_crossover(&x, k.lm, &err));
    }
    run(&k, out, 1, 0, 20, 10);
    bool is_one_copy = memcmp(out, by_phase, row) != 0;
    assert_true(is_one_copy); /* the rule is by tokens now */
    assert_true(x.n >= 1 && x.n <= EK_LM_CROSSOVER_ROWS);
    for (int32_t i = 0; i < x.n; i++)
        assert_true(x.at[i].tokens == 1 << i && x.at[i].tokens <= KIT_BATCH);
    assert_int_equal(x.tokens, ek_lm_crossover_of(&x));
    free(by_phase);
    free(out);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_take_the_prefill_copy_and_answers_the_decode_copy),
        cmocka_unit_test(
            two_copies_give_the_same_bits_in_any_batch_and_when_computed_again),
        cmocka_unit_test(equal_formats_are_kept_once),
        cmocka_unit_test(by_tokens_a_large_step_takes_the_prefill_copy_whole),
        cmocka_unit_test(the_crossover_is_where_the_prefill_copy_stays_ahead),
        cmocka_unit_test(finding_the_crossover_times_both_copies_and_chooses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
