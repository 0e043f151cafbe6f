/* Nothing of one session ever reaches another. Each session has its own secret in its
 * prompt, and the model's answers depend on every token that a sequence reads
 * (enginekit.h): one wrong page anywhere, and an answer is not that of the solo run. */
#include "serve/enginekit.h"

#define SESSIONS 48

struct world {
    int32_t n_pages, max_seqs, reserve;
    enum ek_page_check check;
    bool caches_prefixes, has_own_decode;
    bool has_slow_readers;
    bool is_greedy;
};

/* A prompt with one of three system texts or none, a secret, and more; some share even
 * that with the session before them. */
static struct ek_request *session(const struct kit *k, int i, const struct world *w)
{
    static const char *const systems[] = {
        "", "You are the keeper of a lighthouse on a rock in the sea. ",
        "You are the keeper of a lighthouse on a rock in the storm; be brief. ",
        "Answer. "};
    char prompt[KIT_CTX];
    struct ek_rng rng;
    ek_rng_init(&rng, (uint64_t)(i % 7 ? i : i / 7));
    int n = snprintf(prompt, sizeof prompt, "%ssecret %llu:", systems[i % 4],
                     (unsigned long long)ek_rng_below(&rng, 1000000));
    uint64_t more = ek_rng_below(&rng, 60);
    for (uint64_t j = 0; j < more; j++)
        prompt[n++] = (char)('a' + ek_rng_below(&rng, 26));
    prompt[n] = 0;
    int32_t max_tokens = 1 + (int32_t)ek_rng_below(&rng, 60);
    struct ek_request *r = kit_request(prompt, max_tokens, i % 5 == 4 ? 3 : 1);
    r->priority = (int32_t)ek_rng_below(&rng, 3);
    r->salt = (struct ek_salt){ek_rng_below(&rng, 3), 0};
    r->wants_logprobs = true;
    r->wants_prompt_logprobs = i % 11 == 3;
    r->sampling.temperature = w->is_greedy ? 0.0f : 1.0f;
    r->sampling.top_p = i % 3 ? 1.0f : 0.9f;
    r->sampling.seed = (uint64_t)i;
    r->sampling.presence_penalty = i % 4 == 1 ? 0.5f : 0.0f;
    r->sampling.repetition_penalty = i % 6 == 1 ? 1.2f : 1.0f;
    r->min_tokens = i % 8 == 5 ? max_tokens / 2 : 0;
    if (i % 9 == 2)
        kit_stop(r, "q");
    if (w->has_slow_readers && i % 2)
        kit_widen(k, r, 9);
    return r;
}

static void open_world(struct kit *k, const struct world *w)
{
    struct ek_engine_options o;
    kit_default(&o);
    o.n_pages = w->n_pages;
    o.max_seqs = w->max_seqs;
    o.max_batch_tokens = 8 + 2 * w->max_seqs;
    o.reserve_tokens = w->reserve;
    o.page_check = w->check;
    o.caches_prefixes = w->caches_prefixes;
    kit_open_as(k, &o, w->has_own_decode);
}

/* n_stalled: how often an answer was found waiting for its reader. */
static void run_together(struct kit *k, struct ek_request **r, const struct world *w,
                         int *n_stalled)
{
    *n_stalled = 0;
    struct ek_rng rng;
    ek_rng_init(&rng, 99);
    k->holds_deltas = w->has_slow_readers;
    for (int i = 0; i < SESSIONS; i++) {
        kit_submit(k, r[i]);
        for (uint64_t n = ek_rng_below(&rng, 4); n > 0; n--) {
            ek_engine_step(k->engine);
            assert_true(ek_pages_is_sane(ek_engine_get_pages(k->engine)));
        }
    }
    do {
        kit_run(k);
        for (int i = 0; i < SESSIONS; i++) {
            for (int32_t c = 0; c < r[i]->n; c++)
                *n_stalled += !ek_choice_has_room(&r[i]->choices[c]);
        }
        /* The readers of a few wake up. */
        for (uint64_t n = 1 + ek_rng_below(&rng, 4); n > 0 && k->n_held > 0; n--)
            ek_engine_give_back(k->engine, k->held[--k->n_held]);
    } while (k->n_held > 0);
    kit_run(k);
}

static void compare(struct kit *solo, struct ek_request *r, int i,
                    const struct world *w)
{
    struct ek_request *alone = session(solo, i, w);
    kit_submit(solo, alone);
    kit_run(solo);
    for (int32_t c = 0; c < r->n; c++)
        kit_assert_same(kit_answer(r, c), kit_answer(alone, c));
    if (r->wants_prompt_logprobs) {
        assert_int_equal(r->n_prompt_done, r->n_prompt);
        for (int32_t t = 1; t < r->n_prompt; t++)
            assert_memory_equal(&r->prompt_tokens[t].logprob,
                                &alone->prompt_tokens[t].logprob, sizeof(float));
    }
    kit_free(alone);
}

/* Alone: pages for all, one at a time, no cache. */
static const struct world quiet = {.n_pages = KIT_PAGES, .max_seqs = 3, .reserve = 32};

static void check_world(const struct world *w)
{
    static struct kit k, solo;
    struct ek_request *r[SESSIONS];
    struct world alone = quiet;
    alone.is_greedy = w->is_greedy;
    alone.has_own_decode = w->has_own_decode;
    open_world(&k, w);
    open_world(&solo, &alone);
    for (int i = 0; i < SESSIONS; i++)
        r[i] = session(&k, i, w);
    int n_stalled;
    run_together(&k, r, w, &n_stalled);
    for (int i = 0; i < SESSIONS; i++) {
        compare(&solo, r[i], i, w);
        kit_free(r[i]);
    }
    const struct ek_engine_stats *s = ek_engine_get_stats(k.engine);
    for (int f = 0; f < EK_PAGE_FAULT_COUNT_OF; f++)
        assert_int_equal(s->faults[f], 0);
    /* The world was as crowded as it was meant to be. */
    assert_true(w->n_pages == KIT_PAGES || s->n_preempted > SESSIONS / 4);
    assert_true(!w->has_slow_readers || n_stalled > SESSIONS / 2);
    assert_true(!w->caches_prefixes || s->prefix_hit_tokens > 10 * EK_PAGE_TOKENS);
    assert_int_equal(ek_engine_get_stats(solo.engine)->n_preempted, 0);
    kit_close(&k);
    kit_close(&solo);
}

static void greedy_answers_of_a_crowd_are_those_of_solo_runs(void **state)
{
    (void)state;
    static const struct world w = {
        .n_pages = 12,
        .max_seqs = 8,
        .caches_prefixes = true,
        .check = EK_PAGE_CHECK_FULL,
        .is_greedy = true,
    };
    check_world(&w);
}

static void sampled_answers_of_a_crowd_are_those_of_solo_runs(void **state)
{
    (void)state;
    static const struct world w = {
        .n_pages = 12,
        .max_seqs = 8,
        .caches_prefixes = true,
        .check = EK_PAGE_CHECK_PAGES,
    };
    check_world(&w);
}

static void answers_without_a_prefix_cache_are_those_of_solo_runs(void **state)
{
    (void)state;
    static const struct world w = {
        .n_pages = 12,
        .max_seqs = 8,
        .check = EK_PAGE_CHECK_PAGES,
    };
    check_world(&w);
}

static void answers_with_pages_for_one_are_those_of_solo_runs(void **state)
{
    (void)state;
    static const struct world w = {
        .n_pages = 11,
        .max_seqs = 8,
        .caches_prefixes = true,
        .check = EK_PAGE_CHECK_FULL,
    };
    check_world(&w);
}

static void answers_with_pages_for_all_are_those_of_solo_runs(void **state)
{
    (void)state;
    static const struct world w = {
        .n_pages = KIT_PAGES,
        .max_seqs = 4,
        .reserve = 32,
        .caches_prefixes = true,
        .check = EK_PAGE_CHECK_FULL,
    };
    check_world(&w);
}

static void answers_to_slow_readers_are_those_of_solo_runs(void **state)
{
    (void)state;
    static const struct world w = {
        .n_pages = 14,
        .max_seqs = 6,
        .caches_prefixes = true,
        .check = EK_PAGE_CHECK_FULL,
        .has_slow_readers = true,
    };
    check_world(&w);
}

static void answers_with_weights_of_two_formats_are_those_of_solo_runs(void **state)
{
    (void)state;
    static const struct world w = {
        .n_pages = 12,
        .max_seqs = 8,
        .caches_prefixes = true,
        .has_own_decode = true,
        .check = EK_PAGE_CHECK_FULL,
    };
    check_world(&w);
}

static void answers_without_the_page_check_are_those_of_solo_runs(void **state)
{
    (void)state;
    static const struct world w = {
        .n_pages = 12,
        .max_seqs = 8,
        .caches_prefixes = true,
        .check = EK_PAGE_CHECK_OFF,
    };
    check_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_answers_of_a_crowd_are_those_of_solo_runs),
        cmocka_unit_test(sampled_answers_of_a_crowd_are_those_of_solo_runs),
        cmocka_unit_test(answers_without_a_prefix_cache_are_those_of_solo_runs),
        cmocka_unit_test(answers_with_pages_for_one_are_those_of_solo_runs),
        cmocka_unit_test(answers_with_pages_for_all_are_those_of_solo_runs),
        cmocka_unit_test(answers_to_slow_readers_are_those_of_solo_runs),
        cmocka_unit_test(answers_with_weights_of_two_formats_are_those_of_solo_runs),
        cmocka_unit_test(answers_without_the_page_check_are_those_of_solo_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
