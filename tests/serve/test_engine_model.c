/* The crowd of test_secret.c on models that compute: prompts with secrets, few pages,
 * preemption, shared prefixes, forks, and every row of logits is, bit for bit, one of a
 * solo run without a prefix cache. */
#include "base/map.h"
#include "base/rng.h"
#include "serve/runtime.h"
#include "testkit.h"

#include <stdlib.h>
#include <string.h>

#define MOST 16

struct crowd {
    const char *path;
    enum ek_dtype kv_dtype;
    bool has_prefill_weights;
    int32_t n, n_pages, max_seqs, max_tokens;
};

/* One engine over the runtime's model; its forward is watched. */
struct stage {
    struct ek_runtime *rt;
    struct ek_engine *engine;
    uint64_t *rows; /* hash of each row that a token was drawn from, in any order */
    int32_t n_rows, cap_rows;
};

struct told {
    int32_t ids[256];
    float logprobs[256];
    int32_t n;
    enum ek_finish finish;
};

static int32_t watched_forward(void *arg, const struct ek_lm_seq *seqs, int32_t n_seqs,
                               float *logits)
{
    struct stage *s = arg;
    int32_t n = ek_lm_forward(s->rt->lm, &s->rt->kv, seqs, n_seqs, logits);
    size_t V = (size_t)s->rt->engine_model.V;
    for (int32_t i = 0; i < n; i++) {
        assert_in_range(s->n_rows, 0, s->cap_rows - 1);
        s->rows[s->n_rows++] = ek_hash(logits + (size_t)i * V, V * sizeof *logits, 0);
    }
    return n;
}

static void copy_page(void *arg, int32_t to, int32_t from)
{
    struct stage *s = arg;
    ek_kv_copy_page(&s->rt->kv, to, from);
}

/* NaN in any format: what is read after it was freed ends in an error. */
static void poison(void *arg, int32_t page)
{
    struct stage *s = arg;
    ek_kv_poison(&s->rt->kv, page);
}

static void together(void *arg, void (*fn)(void *work, int member, int n_members),
                     void *work)
{
    struct stage *s = arg;
    ek_team_run(s->rt->team, fn, work);
}

static void on_delta(void *arg, struct ek_delta *d)
{
    struct stage *s = arg;
    struct told *t = (struct told *)d->request->user + d->choice;
    for (int32_t i = 0; i < d->n_tokens; i++) {
        t->ids[t->n] = d->tokens[i].id;
        t->logprobs[t->n++] = d->tokens[i].logprob;
    }
    t->finish = d->finish;
    if (d->finish == EK_FINISH_NONE)
        ek_engine_give_back(s->engine, d);
}

static void open_stage(struct stage *s, struct ek_runtime *rt,
                       const struct ek_engine_options *o)
{
    *s = (struct stage){.rt = rt, .cap_rows = 4096};
    s->rows = calloc((size_t)s->cap_rows, sizeof *s->rows);
    assert_non_null(s->rows);
    struct ek_engine_model model = rt->engine_model;
    model.forward = watched_forward;
    model.copy_page = copy_page;
    model.poison = poison;
    model.together = together;
    model.arg = s;
    assert_int_equal(
        ek_engine_new(&s->engine, &model, rt->tokenizer, o, rt->ops, on_delta, s, NULL),
        0);
}

static void close_stage(struct stage *s)
{
    struct ek_pages *p = ek_engine_get_pages(s->engine);
    assert_true(ek_pages_is_sane(p));
    ek_pages_drop_cache(p);
    assert_int_equal(p->n_free, p->n_pages);
    ek_engine_free(s->engine);
    free(s->rows);
}

static struct ek_request *session(const struct crowd *w, const struct stage *s, int i)
{
    char text[256];
    struct ek_rng rng;
    ek_rng_init(&rng, (uint64_t)i);
    snprintf(text, sizeof text, "%s the secret number is %llu %s",
             i % 4 ? "The captain tells everyone on the ship that" : "Remember that",
             (unsigned long long)ek_rng_below(&rng, 1000000),
             i % 3 ? "and nobody else knows it." : ".");
    struct ek_request *r = calloc(1, sizeof *r);
    assert_non_null(r);
    ek_request_init(r, 64 << 20);
    struct ek_ids ids;
    ek_ids_init(&ids, 4096);
    assert_int_equal(ek_tokenizer_encode(s->rt->tokenizer, &ids, text, strlen(text),
                                         NULL, EK_SPECIALS_PARSE, true),
                     0);
    int32_t *prompt = ek_arena_alloc(&r->arena, ids.n * sizeof *prompt);
    assert_non_null(prompt);
    memcpy(prompt, ids.ids, ids.n * sizeof *prompt);
    r->prompt = prompt;
    r->n_prompt = (int32_t)ids.n;
    ek_ids_release(&ids);
    r->n = i % 5 == 2 ? 2 : 1;
    r->max_tokens =
        w->max_tokens / 2 + (int32_t)ek_rng_below(&rng, 1 + w->max_tokens / 2);
    r->has_no_end = true;
    r->wants_logprobs = true;
    r->sampling.temperature = i % 2 ? 0.0f : 1.0f;
    r->sampling.seed = (uint64_t)i;
    r->sampling.frequency_penalty = i % 3 == 1 ? 0.5f : 0.0f;
    r->salt = (struct ek_salt){i % 7 == 6, 0};
    r->user = calloc((size_t)r->n, sizeof(struct told));
    assert_non_null(r->user);
    assert_int_equal(ek_request_prepare(r, s->engine, NULL), 0);
    return r;
}

static void run(struct stage *s)
{
    int n = 0;
    while (ek_engine_step(s->engine))
        assert_true(n++ < 10000);
}

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void free_request(struct ek_request *r)
{
    free(r->user);
    ek_request_release(r);
    free(r);
}

static void compare(struct stage *solo, const struct crowd *w,
                    struct ek_request *const *r)
{
    for (int i = 0; i < w->n; i++) {
        struct ek_request *alone = session(w, solo, i);
        ek_engine_submit(solo->engine, alone);
        run(solo);
        for (int32_t c = 0; c < r[i]->n; c++) {
            const struct told *a = (const struct told *)r[i]->user + c;
            const struct told *b = (const struct told *)alone->user + c;
            assert_int_equal(a->finish, EK_FINISH_LENGTH);
            assert_int_equal(a->n, b->n);
            assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof a->ids[0]);
            assert_memory_equal(a->logprobs, b->logprobs,
                                (size_t)a->n * sizeof a->logprobs[0]);
        }
        free_request(alone);
    }
}

static void check_crowd(const struct crowd *w)
{
    struct ek_runtime rt;
    struct stage crowd, solo;
    struct ek_request *r[MOST];
    const struct ek_runtime_options ro = {
        .path = w->path,
        .n_threads = 2,
        .ctx = 128,
        .kv_dtype = w->kv_dtype,
        .weights = w->has_prefill_weights ? EK_LM_WEIGHTS_INT8 : EK_LM_WEIGHTS_KEEP,
        .has_prefill_weights = w->has_prefill_weights,
        .prefill_weights = EK_LM_WEIGHTS_F32,
        .max_seqs = w->max_seqs,
        .max_batch_tokens = 64,
        .prefill_chunk = 24,
        .page_check = EK_PAGE_CHECK_FULL,
        .caches_prefixes = true,
    };
    assert_int_equal(ek_runtime_open(&rt, &ro, NULL), 0);
    struct ek_engine_options o = rt.engine_options;
    o.n_pages = w->n_pages;
    o.reserve_tokens = 0;
    open_stage(&crowd, &rt, &o);
    for (int i = 0; i < w->n; i++) {
        r[i] = session(w, &crowd, i);
        ek_engine_submit(crowd.engine, r[i]);
        if (i % 3 == 0)
            ek_engine_step(crowd.engine);
    }
    run(&crowd);
    const struct ek_engine_stats *stats = ek_engine_get_stats(crowd.engine);
    assert_true(stats->n_preempted > 0);
    assert_true(stats->prefix_hit_tokens > 0);
    o = rt.engine_options;
    o.caches_prefixes = false;
    open_stage(&solo, &rt, &o);
    compare(&solo, w, r);
    /* Not the tokens alone: each was drawn from the very same logits. */
    qsort(crowd.rows, (size_t)crowd.n_rows, sizeof *crowd.rows, compare_hashes);
    qsort(solo.rows, (size_t)solo.n_rows, sizeof *solo.rows, compare_hashes);
    int32_t k = 0;
    for (int32_t i = 0; i < crowd.n_rows; i++) {
        while (k < solo.n_rows && solo.rows[k] < crowd.rows[i])
            k++;
        assert_true(k < solo.n_rows && solo.rows[k] == crowd.rows[i]);
    }
    for (int i = 0; i < w->n; i++)
        free_request(r[i]);
    close_stage(&crowd);
    close_stage(&solo);
    ek_runtime_close(&rt);
}

#define TINY EK_TESTS_DIR "/lm/golden/llama.gguf"

static void a_crowd_with_f32_keys_and_values_has_the_rows_of_solo_runs(void **state)
{
    (void)state;
    check_crowd(&(struct crowd){.path = TINY,
                                .kv_dtype = EK_DTYPE_F32,
                                .n = MOST,
                                .n_pages = 14,
                                .max_seqs = 6,
                                .max_tokens = 40});
}

static void a_crowd_with_fp8_keys_and_values_has_the_rows_of_solo_runs(void **state)
{
    (void)state;
    check_crowd(&(struct crowd){.path = TINY,
                                .kv_dtype = EK_DTYPE_E4M3,
                                .n = MOST,
                                .n_pages = 14,
                                .max_seqs = 6,
                                .max_tokens = 40});
}

static void a_crowd_with_weights_of_two_formats_has_the_rows_of_solo_runs(void **state)
{
    (void)state;
    check_crowd(&(struct crowd){.path = TINY,
                                .kv_dtype = EK_DTYPE_BF16,
                                .has_prefill_weights = true,
                                .n = MOST,
                                .n_pages = 14,
                                .max_seqs = 6,
                                .max_tokens = 40});
}

static void a_crowd_on_the_default_model_has_the_rows_of_solo_runs(void **state)
{
    (void)state;
    const char *path = getenv("EK_MODEL");
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (!f)
        skip();
    fclose(f);
    check_crowd(&(struct crowd){.path = path,
                                .kv_dtype = EK_DTYPE_E4M3,
                                .n = 8,
                                .n_pages = 7,
                                .max_seqs = 4,
                                .max_tokens = 28});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_with_f32_keys_and_values_has_the_rows_of_solo_runs),
        cmocka_unit_test(a_crowd_with_fp8_keys_and_values_has_the_rows_of_solo_runs),
        cmocka_unit_test(a_crowd_with_weights_of_two_formats_has_the_rows_of_solo_runs),
        cmocka_unit_test(a_crowd_on_the_default_model_has_the_rows_of_solo_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
