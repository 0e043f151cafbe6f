/* The engine over a model of a few lines (enginekit.h): what requests are promised. */
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

/* The script's answer with the stop string, to a reader that is there or comes late. */
static struct ek_request *stopped(struct kit *k, const char *stop, bool is_late)
{
    struct ek_request *r = kit_request("hi", 100, 1);
    kit_stop(r, stop);
    r->wants_logprobs = true;
    kit_submit(k, r);
    k->holds_deltas = is_late;
    kit_run(k);
    kit_release_deltas(k);
    kit_run(k);
    return r;
}

static void which_tokens_are_listed_does_not_hang_on_the_reader(void **state)
{
    (void)state;
    /* The stop string is a character of two tokens, one of three of which the answer
     * has another at first, and what bytes that are none become. */
    static const char *const cases[][3] = {
        {"ab\xc3\xa9z", "\xc3\xa9", "ab"},
        {"a\xe2\x82\xac\xe2\x82\xadz", "\xe2\x82\xad", "a\xe2\x82\xac"},
        {"ab\xccz", "\xef\xbf\xbd", "ab"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kit k;
        setup(&k, cases[i][0], 2);
        struct ek_request *quick = stopped(&k, cases[i][1], false);
        struct ek_request *late = stopped(&k, cases[i][1], true);
        const char *text = cases[i][2];
        assert_string_equal(kit_answer(quick, 0)->text.data, text);
        assert_int_equal(kit_answer(quick, 0)->stop_string, 0);
        assert_int_equal(kit_answer(quick, 0)->n_ids, strlen(text));
        assert_true(kit_answer(late, 0)->n_deltas < kit_answer(quick, 0)->n_deltas);
        kit_assert_same(kit_answer(late, 0), kit_answer(quick, 0));
        kit_free(quick);
        kit_free(late);
        kit_close(&k);
    }
}

static void stop_ids_and_min_tokens_and_answers_without_end(void **state)
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
    r->has_no_end = true;
    kit_submit(&k, r);
    kit_run(&k);
    assert_memory_equal(kit_answer(r, 0)->text.data, "hello world", 11);
    assert_true(kit_answer(r, 0)->text.len > 11); /* text and no end stands behind */
    assert_int_equal(kit_answer(r, 0)->n_generated, 15);
    assert_int_equal(kit_answer(r, 0)->finish, EK_FINISH_LENGTH);
    kit_free(r);
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

/* Seeds, penalties and all: a token is its sequence's own matter. */
static void tokens_drawn_by_the_team_are_those_drawn_alone(void **state)
{
    (void)state;
    struct kit k;
    struct ek_request *all[4], *one[4];
    setup(&k, NULL, 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 4; i++) {
            struct ek_request *r = kit_request("tell me", 30, 1);
            r->sampling.seed = (uint64_t)i;
            r->sampling.top_p = i == 1 ? 0.9f : 1.0f;
            r->sampling.frequency_penalty = i == 2 ? 0.5f : 0.0f;
            r->sampling.temperature = i == 3 ? 0.0f : 1.0f;
            *(round == 0 ? &all[i] : &one[i]) = r;
            kit_submit(&k, r);
            if (round == 1)
                kit_run(&k);
        }
        if (round == 0)
            kit_run(&k);
        assert_true(k.n_together > 20); /* the first round's */
    }
    assert_true(k.n_together < 40);
    for (int i = 0; i < 4; i++) {
        kit_assert_same(kit_answer(all[i], 0), kit_answer(one[i], 0));
        kit_free(all[i]);
        kit_free(one[i]);
    }
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
    assert_int_equal(ek_engine_get_stats(k.engine)->n_corrupted, 1);
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

/* A reader has one delta of a choice at a time. What came meanwhile leaves when that one
 * is back, with no step between. */
static void what_came_while_the_reader_had_a_delta_leaves_when_it_is_back(void **state)
{
    (void)state;
    struct ek_engine_options o;
    struct kit k;
    kit_default(&o);
    kit_open(&k, &o);
    struct ek_request *r = kit_request("prompt", 4, 1);
    kit_submit(&k, r);
    k.holds_deltas = true;
    kit_step_until(&k, r, 1);
    assert_int_equal(k.n_held, 1);
    ek_engine_step(k.engine);
    ek_engine_flush(k.engine);
    assert_int_equal(k.n_held, 1);
    int n_forwards = k.n_forwards;
    ek_engine_give_back(k.engine, k.held[--k.n_held]);
    ek_engine_flush(k.engine);
    assert_int_equal(k.n_held, 1);
    assert_int_equal(kit_answer(r, 0)->n_ids, 2);
    assert_int_equal(k.n_forwards, n_forwards);
    /* The last one too, whose choice has ended. */
    kit_step_until(&k, r, 4);
    n_forwards = k.n_forwards;
    assert_int_equal(kit_answer(r, 0)->finish, EK_FINISH_NONE);
    ek_engine_give_back(k.engine, k.held[--k.n_held]);
    ek_engine_flush(k.engine);
    assert_int_equal(kit_answer(r, 0)->finish, EK_FINISH_LENGTH);
    assert_int_equal(kit_answer(r, 0)->n_ids, 4);
    assert_int_equal(k.n_forwards, n_forwards);
    kit_free(r);
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
        cmocka_unit_test(which_tokens_are_listed_does_not_hang_on_the_reader),
        cmocka_unit_test(stop_ids_and_min_tokens_and_answers_without_end),
        cmocka_unit_test(choices_of_one_request_differ_and_repeat),
        cmocka_unit_test(tokens_drawn_by_the_team_are_those_drawn_alone),
        cmocka_unit_test(prompt_logprobs_are_those_of_each_position),
        cmocka_unit_test(no_choice_speaks_before_the_prompt_is_scored),
        cmocka_unit_test(a_row_that_is_not_finite_is_an_error_and_no_token),
        cmocka_unit_test(a_prompt_id_the_model_has_not_is_refused),
        cmocka_unit_test(prepare_survives_any_failed_allocation),
        cmocka_unit_test(what_came_while_the_reader_had_a_delta_leaves_when_it_is_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
