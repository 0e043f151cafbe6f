/* test_forward.c - a sequence's result is the same bits whatever else is in the batch,
 * however it is cut, wherever its pages lie, and however many threads compute it; in
 * every weight format and KV dtype, on every ISA this CPU has. */
#include "lm/kit.h"

#include <math.h>

#define N_SEQS 4

static const char *const files[] = {"llama3.gguf", "mistral.gguf", "qwen2",
                                    "qwen3.gguf", "gemma3"};
#define N_FILES (sizeof files / sizeof files[0])

/* Lengths that are no multiple of anything; pages spread over the storage. */
static const int32_t lengths[N_SEQS] = {1, 23, 16, 5};
static const int32_t page_lists[N_SEQS][4] = {
    {9, 11, 40, 41}, {0, 63, 7, 30}, {2, 1, 5, 6}, {33, 31, 29, 27}};

struct reference {
    int32_t tokens[N_SEQS][KIT_BATCH];
    float *prompt[N_SEQS]; /* last logits of the prompt alone */
    float *next[N_SEQS];   /* and of one more token */
};

static void fill_tokens(struct reference *r, int32_t V)
{
    for (int32_t i = 0; i < N_SEQS; i++) {
        for (int32_t t = 0; t < KIT_BATCH; t++)
            r->tokens[i][t] = (t * 37 + i * 101 + t * t) % V;
    }
}

/* Each sequence alone: its prompt whole, then one token. */
static void run_alone(struct kit *k, struct reference *r)
{
    fill_tokens(r, k->V);
    for (int32_t i = 0; i < N_SEQS; i++) {
        r->prompt[i] = calloc((size_t)k->V, sizeof(float));
        r->next[i] = calloc((size_t)k->V, sizeof(float));
        kit_run(k, r->prompt[i], r->tokens[i], lengths[i], 0, page_lists[i]);
        kit_run(k, r->next[i], r->tokens[i], lengths[i] + 1, lengths[i], page_lists[i]);
    }
}

static void free_reference(struct reference *r)
{
    for (int32_t i = 0; i < N_SEQS; i++) {
        free(r->prompt[i]);
        free(r->next[i]);
    }
}

/* Two steps over all sequences: in the first all but the last sequence prefill, in the
 * second those decode while the last prefills. */
static void run_together(struct kit *k, const struct reference *r,
                         const int32_t lists[N_SEQS][4])
{
    size_t V = (size_t)k->V, row = V * sizeof(float);
    float *out = calloc(V * N_SEQS, sizeof *out);
    struct ek_lm_seq s[N_SEQS];
    for (int32_t i = 0; i < N_SEQS; i++)
        s[i] = (struct ek_lm_seq){.tokens = r->tokens[i],
                                  .n_tokens = lengths[i],
                                  .pages = lists[i],
                                  .want = EK_LM_WANT_LAST};
    assert_int_equal(ek_lm_forward(k->lm, &k->kv, s, N_SEQS - 1, out), N_SEQS - 1);
    for (int32_t i = 0; i < N_SEQS - 1; i++) {
        assert_memory_equal(out + (size_t)i * V, r->prompt[i], row);
        s[i].pos0 = lengths[i];
        s[i].tokens += lengths[i];
        s[i].n_tokens = 1;
    }
    assert_int_equal(ek_lm_forward(k->lm, &k->kv, s, N_SEQS, out), N_SEQS);
    for (int32_t i = 0; i < N_SEQS - 1; i++)
        assert_memory_equal(out + (size_t)i * V, r->next[i], row);
    assert_memory_equal(out + (size_t)(N_SEQS - 1) * V, r->prompt[N_SEQS - 1], row);
    free(out);
}

static void check_batch(const struct kit_options *o)
{
    static const int32_t other_lists[N_SEQS][4] = {
        {1, 2, 3, 4}, {62, 50, 51, 8}, {14, 13, 12, 10}, {20, 21, 22, 23}};
    struct kit alone, together;
    struct reference r;
    struct kit_options three = *o;
    three.n_threads = 3;
    kit_open(&alone, o);
    run_alone(&alone, &r);
    kit_open(&together, &three);
    run_together(&together, &r, page_lists);
    run_together(&together, &r, other_lists);
    free_reference(&r);
    kit_close(&together);
    kit_close(&alone);
}

static void a_sequence_gives_the_same_bits_alone_and_in_a_batch(void **state)
{
    (void)state;
    for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
        for (size_t i = 0; i < N_FILES; i++) {
            struct kit_options o = {.file = files[i],
                                    .isa = (enum ek_isa)isa,
                                    .weights = EK_LM_WEIGHTS_F32};
            check_batch(&o);
        }
    }
}

static void every_weight_format_and_kv_dtype_keeps_the_bits(void **state)
{
    (void)state;
    static const enum ek_dtype dtypes[] = {EK_DTYPE_F32, EK_DTYPE_BF16, EK_DTYPE_E4M3};
    for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
        for (int w = EK_LM_WEIGHTS_KEEP; w <= EK_LM_WEIGHTS_INT4; w++) {
            struct kit_options o = {.file = "llama-yarn.gguf",
                                    .isa = (enum ek_isa)isa,
                                    .weights = (enum ek_lm_weights)w,
                                    .kv_dtype = dtypes[w % 3]};
            check_batch(&o);
        }
    }
}

/* A prompt whole, then again in chunks of 3 and of 1: steps that members share by rows
 * and steps in which each prepares all rows for itself. */
static void run_on_team(const char *file, enum ek_lm_weights weights,
                        enum ek_dtype kv_dtype, int n_threads, float *rows[3],
                        int32_t *V)
{
    static const int32_t chunks[3] = {0, 3, 1};
    struct kit k;
    struct reference r;
    struct kit_options o = {.file = file,
                            .isa = ek_isa_best(),
                            .n_threads = n_threads,
                            .weights = weights,
                            .kv_dtype = kv_dtype};
    kit_open(&k, &o);
    fill_tokens(&r, k.V);
    *V = k.V;
    for (int i = 0; i < 3; i++) {
        rows[i] = calloc((size_t)k.V, sizeof(float));
        kit_run(&k, rows[i], r.tokens[1], 18, chunks[i], page_lists[i]);
    }
    kit_close(&k);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const int teams[] = {1, 2, 3, 8, 17};
    /* FP8: its blocks of 128 rows are packed whole, however panels are dealt out. */
    static const enum ek_lm_weights weights[] = {EK_LM_WEIGHTS_FP8, EK_LM_WEIGHTS_INT8,
                                                 EK_LM_WEIGHTS_INT4};
    static const enum ek_dtype dtypes[] = {EK_DTYPE_E4M3, EK_DTYPE_BF16, EK_DTYPE_E4M3};
    for (size_t f = 0; f < N_FILES; f += 2) {
        float *want[3], *got[3];
        int32_t V = 0;
        run_on_team(files[f], weights[f / 2], dtypes[f / 2], 1, want, &V);
        for (size_t n = 0; n < sizeof teams / sizeof teams[0]; n++) {
            run_on_team(files[f], weights[f / 2], dtypes[f / 2], teams[n], got, &V);
            for (int i = 0; i < 3; i++) {
                assert_memory_equal(got[i], want[0], (size_t)V * sizeof(float));
                free(got[i]);
            }
        }
        for (int i = 0; i < 3; i++)
            free(want[i]);
    }
}

static void chunks_give_the_same_bits_in_every_format(void **state)
{
    (void)state;
    for (int w = EK_LM_WEIGHTS_KEEP; w <= EK_LM_WEIGHTS_INT4; w++) {
        struct kit k;
        struct reference r;
        struct kit_options o = {.file = "mistral",
                                .isa = ek_isa_best(),
                                .n_threads = 2,
                                .weights = (enum ek_lm_weights)w,
                                .kv_dtype = EK_DTYPE_BF16};
        kit_open(&k, &o);
        fill_tokens(&r, k.V);
        float *whole = calloc((size_t)k.V, sizeof *whole);
        float *cut = calloc((size_t)k.V, sizeof *cut);
        kit_run(&k, whole, r.tokens[0], 47, 0, page_lists[0]);
        for (int32_t chunk = 1; chunk < 47; chunk += 9) {
            kit_run(&k, cut, r.tokens[0], 47, chunk, page_lists[0]);
            assert_memory_equal(whole, cut, (size_t)k.V * sizeof *whole);
        }
        free(whole);
        free(cut);
        kit_close(&k);
    }
}

/* Rows come in the order of sequences and positions, and wanting more rows changes no
 * bit of any. */
static void wanted_rows_come_in_order(void **state)
{
    (void)state;
    struct kit k;
    struct reference r;
    struct kit_options o = {.file = "llama.gguf",
                            .isa = ek_isa_best(),
                            .n_threads = 2,
                            .weights = EK_LM_WEIGHTS_F32};
    kit_open(&k, &o);
    fill_tokens(&r, k.V);
    size_t V = (size_t)k.V;
    float *out = calloc(V * 24, sizeof *out), *one = calloc(V, sizeof *one);
    struct ek_lm_seq s[] = {
        {r.tokens[0], 7, 0, page_lists[0], EK_LM_WANT_NONE, 0},
        {r.tokens[1], 23, 0, page_lists[1], EK_LM_WANT_ALL, 0},
        {r.tokens[2], 5, 0, page_lists[2], EK_LM_WANT_LAST, 0},
    };
    assert_int_equal(ek_lm_forward(k.lm, &k.kv, s, 3, out), 24);
    for (int32_t t = 0; t < 23; t++) {
        kit_run(&k, one, r.tokens[1], t + 1, 0, page_lists[3]);
        assert_memory_equal(one, out + (size_t)t * V, V * sizeof *one);
    }
    kit_run(&k, one, r.tokens[2], 5, 0, page_lists[3]);
    assert_memory_equal(one, out + 23 * V, V * sizeof *one);
    assert_int_equal(ek_lm_forward(k.lm, &k.kv, s, 1, NULL), 0);
    assert_int_equal(ek_lm_forward(k.lm, &k.kv, s, 0, NULL), 0);
    free(out);
    free(one);
    kit_close(&k);
}

/* A shared page is read by two sequences in one step: the same prefix, computed once. */
static void sequences_may_read_the_same_pages(void **state)
{
    (void)state;
    struct kit k;
    struct reference r;
    struct kit_options o = {.file = "qwen3",
                            .isa = ek_isa_best(),
                            .n_threads = 2,
                            .weights = EK_LM_WEIGHTS_F32};
    kit_open(&k, &o);
    fill_tokens(&r, k.V);
    size_t V = (size_t)k.V;
    float *out = calloc(V * 2, sizeof *out), *want = calloc(V * 2, sizeof *want);
    int32_t a[] = {4, 8}, b[] = {4, 15};
    int32_t fork[KIT_BATCH];
    memcpy(fork, r.tokens[0], sizeof fork);
    fork[17] = (fork[17] + 1) % k.V;
    kit_run(&k, want, r.tokens[0], 18, 0, page_lists[1]);
    kit_run(&k, want + V, fork, 18, 0, page_lists[2]);
    kit_run(&k, out, r.tokens[0], 16, 0, a);
    struct ek_lm_seq s[] = {{r.tokens[0] + 16, 2, 16, a, EK_LM_WANT_LAST, 0},
                            {fork + 16, 2, 16, b, EK_LM_WANT_LAST, 0}};
    assert_int_equal(ek_lm_forward(k.lm, &k.kv, s, 2, out), 2);
    assert_memory_equal(out, want, 2 * V * sizeof *out);
    assert_memory_not_equal(out, out + V, V * sizeof *out);
    free(out);
    free(want);
    kit_close(&k);
}

#define DEPTH 600

/* A sequence of DEPTH tokens in pages 0.. of the storage, then its next token beside a
 * prompt that wants nothing: attention in parts, and few rows behind the last layer. */
static void run_deep(const struct kit_options *o, float **row, size_t *bytes,
                     bool has_company)
{
    struct kit k;
    static int32_t tokens[DEPTH + 1];
    int32_t pages[DEPTH / EK_PAGE_TOKENS + 1], others[] = {60, 61};
    kit_open(&k, o);
    for (int32_t i = 0; i <= DEPTH; i++)
        tokens[i] = (i * 37 + i * i) % k.V;
    for (int32_t i = 0; i <= DEPTH / EK_PAGE_TOKENS; i++)
        pages[i] = i;
    *bytes = (size_t)k.V * sizeof **row;
    *row = calloc(1, *bytes);
    for (int32_t at = 0; at < DEPTH; at += KIT_BATCH / 2) {
        int32_t n = DEPTH - at < KIT_BATCH / 2 ? DEPTH - at : KIT_BATCH / 2;
        struct ek_lm_seq s = {
            .tokens = tokens + at, .n_tokens = n, .pos0 = at, .pages = pages};
        ek_lm_forward(k.lm, &k.kv, &s, 1, NULL);
    }
    struct ek_lm_seq s[] = {
        {tokens, 20, 0, others, EK_LM_WANT_NONE, 0},
        {tokens + DEPTH, 1, DEPTH, pages, EK_LM_WANT_LAST, 0},
    };
    assert_int_equal(
        ek_lm_forward(k.lm, &k.kv, has_company ? s : s + 1, has_company ? 2 : 1, *row),
        1);
    kit_close(&k);
}

static void a_deep_answer_beside_a_prompt_keeps_its_bits(void **state)
{
    (void)state;
    static const int teams[] = {1, 2, 3, 17};
    for (size_t f = 0; f < N_FILES; f += 4) {
        struct kit_options o = {.file = files[f],
                                .isa = ek_isa_best(),
                                .n_threads = 1,
                                .weights = EK_LM_WEIGHTS_INT8,
                                .kv_dtype = EK_DTYPE_E4M3};
        float *want, *got;
        size_t bytes;
        run_deep(&o, &want, &bytes, false);
        for (size_t n = 0; n < sizeof teams / sizeof teams[0]; n++) {
            o.n_threads = teams[n];
            run_deep(&o, &got, &bytes, true);
            assert_memory_equal(got, want, bytes);
            free(got);
        }
        free(want);
    }
}

/* Root mean square of the difference of logits with e4m3 and with f32 keys and values,
 * over that of the latter about their mean: a prompt of 23, whole or a token a step. */
static double cost_of_e4m3(const char *file, enum ek_isa isa, int n_threads,
                           int32_t chunk)
{
    static const enum ek_dtype dtypes[] = {EK_DTYPE_F32, EK_DTYPE_E4M3};
    float *rows[2];
    int32_t V = 0;
    for (int i = 0; i < 2; i++) {
        struct kit_options o = {.file = file,
                                .isa = isa,
                                .n_threads = n_threads,
                                .weights = EK_LM_WEIGHTS_F32,
                                .kv_dtype = dtypes[i]};
        struct kit k;
        struct reference r;
        kit_open(&k, &o);
        fill_tokens(&r, V = k.V);
        rows[i] = calloc((size_t)V, sizeof(float));
        kit_run(&k, rows[i], r.tokens[1], 23, chunk, page_lists[1]);
        kit_close(&k);
    }
    double mean = 0, error = 0, signal = 0;
    for (int32_t v = 0; v < V; v++)
        mean += (double)rows[0][v] / V;
    for (int32_t v = 0; v < V; v++) {
        double x = (double)rows[0][v], e = (double)rows[1][v] - x;
        error += e * e;
        signal += (x - mean) * (x - mean);
    }
    free(rows[0]);
    free(rows[1]);
    return sqrt(error / signal);
}

static void e4m3_keys_and_values_give_nearly_the_logits_of_f32(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FILES; f++) {
        for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
            /* qwen2 takes 0.29, the others below
             * 0.08; without the way back from a rotation it is 0.9 and more. */
            assert_true(cost_of_e4m3(files[f], (enum ek_isa)isa, 1, 0) < 0.4);
            assert_true(cost_of_e4m3(files[f], (enum ek_isa)isa, 2, 1) < 0.4);
            assert_true(cost_of_e4m3(files[f], (enum ek_isa)isa, 3, 0) < 0.4);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_gives_the_same_bits_alone_and_in_a_batch),
        cmocka_unit_test(every_weight_format_and_kv_dtype_keeps_the_bits),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(chunks_give_the_same_bits_in_every_format),
        cmocka_unit_test(wanted_rows_come_in_order),
        cmocka_unit_test(sequences_may_read_the_same_pages),
        cmocka_unit_test(a_deep_answer_beside_a_prompt_keeps_its_bits),
        cmocka_unit_test(e4m3_keys_and_values_give_nearly_the_logits_of_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
