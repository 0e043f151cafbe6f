/* The engine over a model of a few lines (enginekit.h): what requests are promised. */
#include "serve/engine_int.h"
#include "serve/enginekit.h"

static void setup(struct kit *k, const char *script, int32_t script_at)
{
    struct ek_engine_options o;
    kit_default(&o);
    kit_open(k, &o);
    k->script = script;
    k->script_at = script_at;
}

static void an_answer_ends_with_the_end_token(void **state)
{
    (void)state;
    struct kit k;
    setup(&k, "hello world", 2);
    struct ek_request *r = kit_request("hi", 100, 1);
    kit_submit(&k, r);
    kit_run(&k);
    struct kit_answer *a = kit_answer(r, 0);
    assert_string_equal(a->text.data, "hello world");
    assert_int_equal(a->finish, EK_FINISH_STOP);
    assert_int_equal(a->n_generated, 12); /* the end token was computed too */
    assert_int_equal(a->n_ids, 11);       /* and is not listed */
    assert_true(a->is_last);
    kit_free(r);
    kit_close(&k);
}

static void values_the_kv_format_cut_are_reported(void **state)
{
    (void)state;
    struct kit k;
    setup(&k, "hello", 2);
    struct ek_request *r = kit_request("hi", 4, 1);
    k.kv_saturated = 7;
    kit_submit(&k, r);
    kit_run(&k);
    assert_int_equal(ek_engine_get_stats(k.engine)->kv_saturated, 7);
    kit_free(r);
    kit_close(&k);
}

static void max_tokens_ends_with_length(void **state)
{
    (void)state;
    struct kit k;
    setup(&k, "hello world", 2);
    struct ek_request *r = kit_request("hi", 4, 1);
    kit_submit(&k, r);
    kit_run(&k);
    assert_string_equal(kit_answer(r, 0)->text.data, "hell");
    assert_int_equal(kit_answer(r, 0)->finish, EK_FINISH_LENGTH);
    kit_free(r);
    kit_close(&k);
}

static void a_stop_string_across_tokens_is_cut_and_its_tokens_too(void **state)
{
    (void)state;
    struct kit k;
    setup(&k, "one two STOP three", 2);
    struct ek_request *r = kit_request("hi", 100, 1);
    kit_stop(r, "zzz");
    kit_stop(r, " STOP");
    r->wants_logprobs = true;
    kit_submit(&k, r);
    kit_run(&k);
    struct kit_answer *a = kit_answer(r, 0);
    assert_string_equal(a->text.data, "one two");
    assert_int_equal(a->finish, EK_FINISH_STOP);
    assert_int_equal(a->stop_string, 1);
    assert_int_equal(a->n_ids, 7);
    assert_int_equal(a->n_generated, 12);
    kit_free(r);
    kit_close(&k);
}

static void a_kept_stop_string_stays_in_the_text(void **state)
{
    (void)state;
    struct kit k;
    setup(&k, "one STOP three", 2);
    struct ek_request *r = kit_request("hi", 100, 1);
    kit_stop(r, "STOP");
    r->keeps_stop = true;
    kit_submit(&k, r);
    kit_run(&k);
    assert_string_equal(kit_answer(r, 0)->text.data, "one STOP");
    assert_int_equal(kit_answer(r, 0)->n_ids, 8);
    kit_free(r);
    kit_close(&k);
}

static void half_a_stop_string_comes_out_when_the_answer_ends(void **state)
{
    (void)state;
    struct kit k;
    setup(&k, "one STO", 2);
    struct ek_request *r = kit_request("hi", 100, 1);
    kit_stop(r, "STOP");
    kit_submit(&k, r);
    kit_run(&k);
    assert_string_equal(kit_answer(r, 0)->text.data, "one STO");
    assert_int_equal(kit_answer(r, 0)->stop_string, -1);
    kit_free(r);
    kit_close(&k);
}

static void characters_of_many_tokens_are_never_split(void **state)
{
    (void)state;
    struct kit k;
    /* kit_on_delta asserts that each delta ends at a whole character. */
    setup(&k, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z", 2);
    struct ek_request *r = kit_request("hi", 100, 1);
    kit_submit(&k, r);
    kit_run(&k);
    assert_string_equal(kit_answer(r, 0)->text.data,
                        "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z");
    kit_free(r);
    r = kit_request("hi", 7, 1); /* ends inside the emoji */
    kit_submit(&k, r);
    kit_run(&k);
    assert_string_equal(kit_answer(r, 0)->text.data,
                        "a\xc3\xa9\xe2\x82\xac\xef\xbf\xbd");
    kit_free(r);
    kit_close(&k);
}

static void stop_ids_and_min_tokens_and_ignored_ends(void **state)
{
    (void)state;
    static const int32_t w[] = {'w'};
    struct kit k;
    setup(&k, "hello world", 2);
    struct ek_request *r = kit_request("hi", 100, 1);
    r->stop_ids = w;
    r->n_stop_ids = 1;
    kit_submit(&k, r);
    kit_run(&k);
    assert_string_equal(kit_answer(r, 0)->text.data, "hello ");
    assert_int_equal(kit_answer(r, 0)->stop_id, 'w');
    kit_free(r);
    /* No end before 20 tokens: something else must come in its place. */
    r = kit_request("hi", 20, 1);
    r->min_tokens = 20;
    kit_submit(&k, r);
    kit_run(&k);
    assert_int_equal(kit_answer(r, 0)->n_generated, 20);
    assert_int_equal(kit_answer(r, 0)->finish, EK_FINISH_LENGTH);
    kit_free(r);
    r = kit_request("hi", 15, 1);
    r->ignores_end = true;
    kit_submit(&k, r);
    kit_run(&k);
    assert_string_equal(kit_answer(r, 0)->text.data, "hello world");
    assert_int_equal(kit_answer(r, 0)->n_generated, 15);
    kit_free(r);
    kit_close(&k);
}

/* Prompts of many lengths, each with a secret; the answers of the model depend on every
 * token before. */
static struct ek_request *secret_request(uint64_t i, uint64_t seed)
{
    char prompt[128];
    struct ek_rng rng;
    ek_rng_init(&rng, seed * 1000 + i);
    int n = snprintf(prompt, sizeof prompt,
                     "secret %llu:", (unsigned long long)ek_rng_below(&rng, 1000000));
    uint64_t more = ek_rng_below(&rng, 60);
    for (uint64_t j = 0; j < more; j++)
        prompt[n++] = (char)('a' + ek_rng_below(&rng, 26));
    prompt[n] = 0;
    struct ek_request *r = kit_request(prompt, 1 + (int32_t)ek_rng_below(&rng, 40), 1);
    r->sampling.temperature = ek_rng_below(&rng, 2) ? 1.0f : 0.0f;
    r->sampling.seed = i;
    r->sampling.presence_penalty = ek_rng_below(&rng, 3) ? 0.0f : 0.5f;
    return r;
}

static void answers_in_a_full_batch_are_those_of_a_solo_run(void **state)
{
    (void)state;
    enum { N = 60 };
    struct ek_request *batch[N];
    struct kit k;
    setup(&k, NULL, 0);
    for (int i = 0; i < N; i++)
        batch[i] = secret_request((uint64_t)i, 1);
    for (int i = 0; i < N; i++) {
        kit_submit(&k, batch[i]);
        if (i % 5 == 0)
            ek_engine_step(k.engine);
    }
    kit_run(&k);
    assert_in_range(k.max_tokens, 9, 32);
    for (int i = 0; i < N; i++) {
        struct ek_request *solo = secret_request((uint64_t)i, 1);
        kit_submit(&k, solo);
        kit_run(&k);
        struct kit_answer *a = kit_answer(batch[i], 0), *b = kit_answer(solo, 0);
        assert_int_equal(a->n_ids, b->n_ids);
        assert_memory_equal(a->ids, b->ids, (size_t)a->n_ids * sizeof a->ids[0]);
        kit_free(solo);
        kit_free(batch[i]);
    }
    kit_close(&k);
}

static void a_failed_page_check_ends_that_request_and_no_other(void **state)
{
    (void)state;
    enum { N = 4 };
    for (int32_t victim = 0; victim < N; victim++) {
        struct ek_request *r[N];
        struct kit k;
        setup(&k, NULL, 0);
        for (int i = 0; i < N; i++) {
            r[i] = secret_request((uint64_t)i, 2);
            r[i]->max_tokens = 40;
            kit_submit(&k, r[i]);
        }
        while (kit_answer(r[N - 1], 0)->n_deltas < 3)
            ek_engine_step(k.engine);
        struct kit_answer *a = kit_answer(r[victim], 0);
        int32_t n_before = a->n_ids;
        struct ek_page_table *other = &r[(victim + 1) % N]->choices[0].table;
        r[victim]->choices[0].table.refs[0] = other->refs[0];
        kit_run(&k);
        assert_int_equal(a->finish, EK_FINISH_ERROR);
        assert_int_equal(a->n_ids, n_before);
        assert_int_equal(ek_engine_get_stats(k.engine)->faults[EK_PAGE_FAULT_OWNER], 1);
        assert_int_equal(ek_engine_get_pages(k.engine)->n_free, KIT_PAGES);
        for (int i = 0; i < N; i++) {
            if (i != victim)
                assert_int_equal(kit_answer(r[i], 0)->finish, EK_FINISH_LENGTH);
        }
        for (int i = 0; i < N; i++)
            kit_free(r[i]);
        kit_close(&k);
    }
}

static void cancel_frees_within_a_step(void **state)
{
    (void)state;
    struct kit k;
    setup(&k, NULL, 0);
    struct ek_request *r[6];
    for (int i = 0; i < 6; i++) {
        r[i] = kit_request("some prompt that is long enough", 60, 1);
        kit_submit(&k, r[i]);
    }
    for (int i = 0; i < 20; i++)
        ek_engine_step(k.engine);
    assert_int_equal(ek_engine_get_stats(k.engine)->n_running, 4);
    assert_int_equal(ek_engine_get_stats(k.engine)->n_waiting, 2);
    ek_engine_cancel(k.engine, r[5]); /* one that waits: the running ones go on */
    assert_int_equal(kit_answer(r[5], 0)->finish, EK_FINISH_ABORT);
    assert_int_equal(ek_engine_get_stats(k.engine)->n_waiting, 1);
    ek_engine_cancel(k.engine, r[1]); /* one that runs */
    assert_int_equal(kit_answer(r[1], 0)->finish, EK_FINISH_ABORT);
    assert_int_equal(ek_engine_get_stats(k.engine)->n_running, 3);
    ek_engine_cancel(k.engine, r[1]); /* gone already */
    kit_free(r[1]);
    kit_run(&k);
    for (int i = 0; i < 5; i++) {
        if (i != 1)
            assert_int_equal(kit_answer(r[i], 0)->finish, EK_FINISH_LENGTH);
    }
    for (int i = 0; i < 6; i++) {
        if (i != 1)
            kit_free(r[i]);
    }
    kit_close(&k);
}

static void a_slow_reader_holds_up_nobody_else(void **state)
{
    (void)state;
    struct kit k;
    setup(&k, NULL, 0);
    struct ek_request *slow = kit_request("slow", 200, 1);
    struct ek_request *quick = kit_request("quick", 200, 1);
    kit_submit(&k, slow);
    k.holds_deltas = true;
    while (k.n_held == 0)
        ek_engine_step(k.engine);
    struct ek_delta *held = k.held[0];
    k.holds_deltas = false;
    kit_submit(&k, quick);
    kit_run(&k);
    assert_int_equal(kit_answer(quick, 0)->finish, EK_FINISH_LENGTH);
    assert_int_equal(kit_answer(slow, 0)->n_deltas, 1);
    k.n_held = 0;
    ek_engine_give_back(k.engine, held);
    kit_run(&k);
    assert_int_equal(kit_answer(slow, 0)->finish, EK_FINISH_LENGTH);
    assert_int_equal(kit_answer(slow, 0)->n_ids, 200);
    assert_true(kit_answer(slow, 0)->n_deltas < 5);
    kit_free(slow);
    kit_free(quick);
    kit_close(&k);
}

static void choices_of_one_request_differ_and_repeat(void **state)
{
    (void)state;
    struct kit k;
    int32_t first[3][30];
    setup(&k, NULL, 0);
    for (int round = 0; round < 2; round++) {
        struct ek_request *r = kit_request("tell me", 30, 3);
        r->sampling.seed = 7;
        kit_submit(&k, r);
        kit_run(&k);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(kit_answer(r, i)->n_ids, 30);
            if (round == 0)
                memcpy(first[i], kit_answer(r, i)->ids, sizeof first[i]);
            else
                assert_memory_equal(first[i], kit_answer(r, i)->ids, sizeof first[i]);
        }
        kit_free(r);
    }
    assert_memory_not_equal(first[0], first[1], sizeof first[0]);
    assert_memory_not_equal(first[1], first[2], sizeof first[0]);
    kit_close(&k);
}

static void prompt_logprobs_are_those_of_each_position(void **state)
{
    (void)state;
    enum { N = 70 };
    char prompt[N + 1];
    struct kit k;
    setup(&k, NULL, 0);
    for (int i = 0; i < N; i++)
        prompt[i] = (char)('a' + i % 26);
    prompt[N] = 0;
    struct ek_request *r = kit_request(prompt, 5, 1);
    r->wants_logprobs = r->wants_prompt_logprobs = true;
    r->n_top = 3;
    kit_submit(&k, r);
    kit_run(&k);
    assert_int_equal(r->n_prompt_done, N);
    for (int i = 1; i < N; i++) {
        float row[512], p[512];
        int32_t pages[N];
        for (int j = 0; j < i; j++)
            k.slots[j] = prompt[j];
        for (int j = 0; j < N / EK_PAGE_TOKENS + 1; j++)
            pages[j] = j;
        kit_row(&k, row, pages, i - 1);
        double lse = kit_softmax(p, row, k.V, 1.0f);
        assert_float_equal(r->prompt_tokens[i].logprob,
                           (float)((double)row[(int)prompt[i]] - lse), 1e-5f);
        assert_int_equal(r->prompt_top[i * 3].id, kit_argmax(row, k.V));
    }
    kit_free(r);
    kit_close(&k);
}

/* Scored chunks are short, the others' are not: they would overtake. */
static void no_choice_speaks_before_the_prompt_is_scored(void **state)
{
    (void)state;
    enum { N = 150 };
    char prompt[N + 1];
    struct ek_engine_options o;
    struct kit k;
    kit_default(&o);
    o.prefill_chunk = 128;
    o.max_batch_tokens = 256;
    kit_open(&k, &o);
    memset(prompt, 'a', N);
    prompt[N] = 0;
    struct ek_request *r = kit_request(prompt, 5, 3);
    r->wants_prompt_logprobs = true;
    kit_submit(&k, r);
    while (kit_answer(r, 0)->n_deltas + kit_answer(r, 1)->n_deltas +
               kit_answer(r, 2)->n_deltas ==
           0)
        ek_engine_step(k.engine);
    assert_int_equal(r->n_prompt_done, N);
    kit_run(&k);
    for (int i = 0; i < 3; i++)
        assert_int_equal(kit_answer(r, i)->finish, EK_FINISH_LENGTH);
    kit_free(r);
    kit_close(&k);
}

static void a_long_prompt_stalls_no_answer_under_way(void **state)
{
    (void)state;
    enum { N = 200 };
    char prompt[N + 1];
    struct kit k;
    setup(&k, NULL, 0);
    memset(prompt, 'a', N);
    prompt[N] = 0;
    struct ek_request *early = kit_request("hi", 100, 1);
    struct ek_request *late = kit_request(prompt, 5, 1);
    kit_submit(&k, early);
    while (kit_answer(early, 0)->n_generated == 0)
        ek_engine_step(k.engine);
    kit_submit(&k, late);
    int n_steps = 0;
    for (; kit_answer(late, 0)->n_generated == 0; n_steps++) {
        int64_t before = ek_engine_get_stats(k.engine)->generated_tokens;
        ek_engine_step(k.engine);
        /* A token for the one under way in every step, whatever the prompt takes. */
        assert_true(ek_engine_get_stats(k.engine)->generated_tokens > before);
    }
    assert_in_range(n_steps, 5, N);
    kit_run(&k);
    kit_free(early);
    kit_free(late);
    kit_close(&k);
}

static void a_row_that_is_not_finite_is_an_error_and_no_token(void **state)
{
    (void)state;
    struct kit k;
    setup(&k, NULL, 0);
    struct ek_request *r = kit_request("hi", 10, 1);
    kit_submit(&k, r);
    k.is_broken = true;
    kit_run(&k);
    assert_int_equal(kit_answer(r, 0)->finish, EK_FINISH_ERROR);
    assert_int_equal(kit_answer(r, 0)->n_ids, 0);
    kit_free(r);
    kit_close(&k);
}

static void a_prompt_id_the_model_has_not_is_refused(void **state)
{
    (void)state;
    struct kit k;
    struct ek_err err = EK_ERR_INIT;
    setup(&k, "hello", 2);
    const int32_t prompt[] = {1, k.V}, negative[] = {-1};
    struct ek_request *r = kit_request("hi", 4, 1);
    r->prompt = prompt;
    r->n_prompt = 2;
    assert_int_equal(ek_request_prepare(r, k.engine, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, "token 1 of the prompt"));
    r->prompt = negative;
    r->n_prompt = 1;
    assert_int_equal(ek_request_prepare(r, k.engine, &err), EK_EINVAL);
    kit_free(r);
    kit_close(&k);
}

static void what_cannot_fit_is_refused_and_what_can_waits_for_pages(void **state)
{
    (void)state;
    struct ek_engine_options o;
    struct kit k;
    struct ek_err err = EK_ERR_INIT;
    kit_default(&o);
    o.n_pages = 8;
    kit_open(&k, &o);
    struct ek_request *r = kit_request("hi", 127, 1);
    assert_int_equal(ek_request_prepare(r, k.engine, &err), EK_ELIMIT);
    kit_free(r);
    r = kit_request("hi", KIT_CTX - 1, 1);
    assert_int_equal(ek_request_prepare(r, k.engine, &err), EK_ELIMIT);
    assert_non_null(strstr(err.text, "256"));
    kit_free(r);
    struct ek_request *many[5];
    for (int i = 0; i < 5; i++) {
        many[i] = kit_request("hi", 62, 1); /* four pages each: two run at once */
        kit_submit(&k, many[i]);
    }
    for (int i = 0; i < 10; i++) {
        ek_engine_step(k.engine);
        assert_int_equal(ek_engine_get_stats(k.engine)->n_running, 2);
    }
    kit_run(&k);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kit_answer(many[i], 0)->finish, EK_FINISH_LENGTH);
        kit_free(many[i]);
    }
    kit_close(&k);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    struct kit k;
    setup(&k, NULL, 0);
    struct ek_request *r[6];
    for (int i = 0; i < 6; i++) {
        r[i] = kit_request("prompt", 100, 1);
        r[i]->wants_logprobs = true;
        r[i]->n_top = 5;
        r[i]->sampling.frequency_penalty = 0.5f;
        r[i]->sampling.top_p = 0.9f;
        assert_int_equal(ek_buf_reserve(&kit_answer(r[i], 0)->text, 4096), 0);
        kit_submit(&k, r[i]);
    }
    ek_mem_fail_at(1);
    kit_run(&k);
    assert_false(ek_mem_failed());
    ek_mem_fail_at(0);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(kit_answer(r[i], 0)->n_ids, 100);
        kit_free(r[i]);
    }
    kit_close(&k);
}

static void prepare_survives_any_failed_allocation(void **state)
{
    (void)state;
    struct kit k;
    setup(&k, NULL, 0);
    EK_EACH_FAILURE (i) {
        ek_mem_fail_at(0);
        struct ek_request *r = kit_request("prompt", 50, 2);
        r->wants_logprobs = r->wants_prompt_logprobs = true;
        r->n_top = 5;
        r->sampling.frequency_penalty = 0.5f;
        ek_mem_fail_at(i);
        ek_assert_rc(ek_request_prepare(r, k.engine, NULL));
        kit_free(r);
    }
    kit_close(&k);
}

static void random_arrivals_and_cancels_leave_nothing_behind(void **state)
{
    (void)state;
    enum { N = 24 };
    struct ek_request *r[N] = {0};
    struct ek_rng rng;
    struct kit k;
    uint64_t next = 0;
    ek_rng_init(&rng, 11);
    setup(&k, NULL, 0);
    for (int step = 0; step < 3000; step++) {
        uint64_t i = ek_rng_below(&rng, N);
        if (!r[i]) {
            r[i] = secret_request(next++, 3);
            kit_submit(&k, r[i]);
        } else if (kit_answer(r[i], 0)->finish != EK_FINISH_NONE) {
            kit_free(r[i]);
            r[i] = NULL;
        } else if (ek_rng_below(&rng, 8) == 0) {
            ek_engine_cancel(k.engine, r[i]);
            assert_int_equal(kit_answer(r[i], 0)->finish, EK_FINISH_ABORT);
        }
        ek_engine_step(k.engine);
        assert_true(ek_pages_is_sane(ek_engine_get_pages(k.engine)));
    }
    kit_run(&k);
    for (int i = 0; i < N; i++) {
        if (r[i]) {
            assert_int_not_equal(kit_answer(r[i], 0)->finish, EK_FINISH_NONE);
            kit_free(r[i]);
        }
    }
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_ends_with_the_end_token),
        cmocka_unit_test(values_the_kv_format_cut_are_reported),
        cmocka_unit_test(max_tokens_ends_with_length),
        cmocka_unit_test(a_stop_string_across_tokens_is_cut_and_its_tokens_too),
        cmocka_unit_test(a_kept_stop_string_stays_in_the_text),
        cmocka_unit_test(half_a_stop_string_comes_out_when_the_answer_ends),
        cmocka_unit_test(characters_of_many_tokens_are_never_split),
        cmocka_unit_test(stop_ids_and_min_tokens_and_ignored_ends),
        cmocka_unit_test(answers_in_a_full_batch_are_those_of_a_solo_run),
        cmocka_unit_test(a_failed_page_check_ends_that_request_and_no_other),
        cmocka_unit_test(cancel_frees_within_a_step),
        cmocka_unit_test(a_slow_reader_holds_up_nobody_else),
        cmocka_unit_test(choices_of_one_request_differ_and_repeat),
        cmocka_unit_test(prompt_logprobs_are_those_of_each_position),
        cmocka_unit_test(no_choice_speaks_before_the_prompt_is_scored),
        cmocka_unit_test(a_long_prompt_stalls_no_answer_under_way),
        cmocka_unit_test(a_row_that_is_not_finite_is_an_error_and_no_token),
        cmocka_unit_test(a_prompt_id_the_model_has_not_is_refused),
        cmocka_unit_test(what_cannot_fit_is_refused_and_what_can_waits_for_pages),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(prepare_survives_any_failed_allocation),
        cmocka_unit_test(random_arrivals_and_cancels_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
