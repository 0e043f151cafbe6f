/* What a step will take, and how prompts are cut to it: on a clock that steps move by what
 * they cost, so nothing here depends on this machine. */
#include "serve/enginekit.h"

/* ---- what is foretold ---- */

static struct ek_pace_work work(int32_t n_prompt, int32_t pos0, int n_answers,
                                int32_t pos)
{
    struct ek_pace_work w = {{1}};
    if (n_prompt > 0)
        ek_pace_add_prompt(&w, pos0, n_prompt);
    for (int i = 0; i < n_answers; i++)
        ek_pace_add_answer(&w, pos);
    return w;
}

static void the_first_step_sets_the_scale(void **state)
{
    (void)state;
    struct ek_pace p;
    struct ek_pace_work w = work(120, 0, 0, 0);
    ek_pace_init(&p);
    ek_pace_learn(&p, &w, 1e6);
    assert_true(fabs(ek_pace_us(&p, &w) - 1e6) < 1);
}

static void a_first_step_from_cold_memory_is_forgotten_at_once(void **state)
{
    (void)state;
    struct ek_pace p;
    struct ek_pace_work w = work(32, 0, 4, 100);
    ek_pace_init(&p);
    ek_pace_learn(&p, &w, 49 * 20000);
    ek_pace_learn(&p, &w, 20000);
    assert_true(fabs(ek_pace_us(&p, &w) - 20000) < 1);
}

/* Of a machine nothing like the one the first factors are from. */
static double truth(const struct ek_pace_work *w)
{
    static const double us[EK_PACE_COUNT_OF] = {9000, 700, 3000, 0.9, 0.4};
    double sum = 0;
    for (int i = 0; i < EK_PACE_COUNT_OF; i++)
        sum += us[i] * w->n[i];
    return sum;
}

static void steps_of_any_make_are_foretold_after_some_hundred(void **state)
{
    (void)state;
    struct ek_pace p;
    uint64_t seed = 7;
    double worst = 0;
    ek_pace_init(&p);
    for (int i = 0; i < 1500; i++) {
        seed = ek_hash(&i, sizeof i, seed);
        struct ek_pace_work w =
            work((int32_t)(seed % 3 == 0 ? 0 : seed / 8 % 128),
                 (int32_t)(seed / 1024 % 2000), (int)(seed / (1 << 21) % 17),
                 (int32_t)(seed / (1 << 26) % 2000));
        double error = fabs(ek_pace_us(&p, &w) / truth(&w) - 1);
        worst = i >= 1200 && error > worst ? error : worst;
        ek_pace_learn(&p, &w, truth(&w));
    }
    assert_true(worst < 0.25);
}

static void one_step_gone_wrong_moves_little(void **state)
{
    (void)state;
    struct ek_pace p;
    struct ek_pace_work w = work(32, 0, 8, 500);
    ek_pace_init(&p);
    for (int i = 0; i < 50; i++)
        ek_pace_learn(&p, &w, 20000);
    ek_pace_learn(&p, &w, 5e6);
    assert_true(ek_pace_us(&p, &w) < 20000 * 1.101);
    for (int i = 0; i < 50; i++)
        ek_pace_learn(&p, &w, 20000);
    ek_pace_learn(&p, &w, 1);
    assert_true(ek_pace_us(&p, &w) > 20000 * 0.949);
}

static void no_time_and_no_work_teach_nothing(void **state)
{
    (void)state;
    struct ek_pace p, before;
    struct ek_pace_work w = work(32, 0, 8, 500), none = {{0}};
    ek_pace_init(&p);
    ek_pace_learn(&p, &w, 20000);
    before = p;
    ek_pace_learn(&p, &w, 0);
    ek_pace_learn(&p, &w, -5);
    ek_pace_learn(&p, &none, 5);
    assert_memory_equal(&p, &before, sizeof p);
}

static void factors_stay_positive_whatever_is_told(void **state)
{
    (void)state;
    struct ek_pace p;
    struct ek_pace_work w = work(32, 100, 8, 500);
    ek_pace_init(&p);
    ek_pace_learn(&p, &w, 1);
    for (int i = 0; i < 10000; i++)
        ek_pace_learn(&p, &w, i % 7 ? 1e-9 : 1e12);
    for (int i = 0; i < EK_PACE_COUNT_OF; i++)
        assert_true(p.us[i] > 0 && p.us[i] < HUGE_VAL);
}

static void prompt_tokens_are_the_most_that_fit(void **state)
{
    (void)state;
    struct ek_pace p;
    struct ek_pace_work w = work(120, 0, 0, 0);
    ek_pace_init(&p);
    ek_pace_learn(&p, &w, 60000);
    for (int32_t pos0 = 0; pos0 < 5000; pos0 += 613) {
        for (double us = 100; us < 1e6; us *= 1.7) {
            int32_t n = ek_pace_prompt_tokens(&p, pos0, us, 1000);
            assert_true(ek_pace_prompt_us(&p, pos0, n) <= us * 1.000001);
            assert_true(n == 1000 || ek_pace_prompt_us(&p, pos0, n + 1) > us);
        }
    }
    assert_int_equal(ek_pace_prompt_tokens(&p, 0, 0, 1000), 0);
    assert_int_equal(ek_pace_prompt_tokens(&p, 0, -1e9, 1000), 0);
    assert_int_equal(ek_pace_prompt_tokens(&p, 0, HUGE_VAL, 1000), 1000);
}

/* ---- how steps are cut to it ---- */

#define TARGET_US 20000

static struct ek_request *own(int32_t i, int32_t n_prompt, int32_t max_tokens)
{
    char prompt[KIT_CTX];
    memset(prompt, 'a', (size_t)n_prompt);
    prompt[n_prompt] = 0;
    struct ek_request *r = kit_request(prompt, max_tokens, 1);
    r->sampling.temperature = 0;
    r->salt = (struct ek_salt){(uint64_t)i + 1, 0};
    return r;
}

/* Seats for 8, chunks of 64, and costs that were learned from a few requests. */
static void open_with(struct kit *k, int64_t step_us, int64_t prompt_us,
                      int64_t answer_us)
{
    struct ek_engine_options o;
    struct ek_request *r[6];
    kit_default(&o);
    o.max_seqs = 8;
    o.max_batch_tokens = 128;
    o.prefill_chunk = 64;
    o.reserve_tokens = 0;
    o.itl_target_us = TARGET_US;
    o.caches_prefixes = false;
    kit_open(k, &o);
    k->step_us = step_us;
    k->prompt_us = prompt_us;
    k->answer_us = answer_us;
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 6; i++) {
            r[i] = own(100 + i, 40 + 10 * i, 20 + 5 * i);
            kit_submit(k, r[i]);
            kit_step_until(k, r[i], 5);
        }
        kit_run(k);
        for (int i = 0; i < 6; i++)
            kit_free(r[i]);
    }
}

static int32_t step_tokens(const struct kit *k)
{
    return ek_engine_get_stats(k->engine)->n_step_tokens;
}

/* n answers under way, and then `late` requests with prompts of n_prompt tokens. */
static void begin(struct kit *k, struct ek_request **r, int n, int n_late,
                  int32_t n_prompt)
{
    for (int i = 0; i < n + n_late; i++)
        r[i] = i < n ? own(i, 4, 60) : own(i, n_prompt, 5);
    for (int i = 0; i < n; i++)
        kit_submit(k, r[i]);
    kit_step_until(k, r[n - 1], 2);
    for (int i = n; i < n + n_late; i++)
        kit_submit(k, r[i]);
}

static void finish(struct kit *k, struct ek_request **r, int n)
{
    kit_run(k);
    for (int i = 0; i < n; i++) {
        assert_int_equal(kit_answer(r[i], 0)->finish, EK_FINISH_LENGTH);
        kit_free(r[i]);
    }
    kit_close(k);
}

static void prompts_fill_what_answers_leave_of_the_target(void **state)
{
    (void)state;
    struct kit k;
    struct ek_request *r[3];
    open_with(&k, 1000, 500, 800);
    begin(&k, r, 2, 1, 200);
    int n = 0;
    /* 20 ms less 1 and 2 times 0.8 hold 34 tokens of half a ms each. */
    for (; ek_choice_table(&r[2]->choices[0])->n_tokens < 160; n++) {
        int64_t before = k.now_us;
        ek_engine_step(k.engine);
        assert_in_range(k.now_us - before, TARGET_US * 3 / 4, TARGET_US * 5 / 4);
    }
    assert_in_range(n, 4, 6);
    finish(&k, r, 3);
}

static void however_dear_a_prompt_is_it_gets_eight_tokens(void **state)
{
    (void)state;
    struct kit k;
    struct ek_request *r[3];
    open_with(&k, 1000, 2500, 2500);
    begin(&k, r, 2, 1, 128);
    for (int i = 0; i < 128 / 8; i++) {
        assert_int_equal(r[2]->choices[0].n_generated, 0);
        ek_engine_step(k.engine);
        assert_int_equal(step_tokens(&k), 2 + 8);
    }
    assert_int_equal(r[2]->choices[0].n_generated, 1);
    finish(&k, r, 3);
}

static void answers_over_the_target_leave_prompts_a_quarter(void **state)
{
    (void)state;
    struct kit k;
    struct ek_request *r[7];
    open_with(&k, 1000, 400, 10000);
    begin(&k, r, 6, 1, 200);
    for (int i = 0; i < 3; i++) {
        ek_engine_step(k.engine);
        /* A third of 61 ms is 50 tokens; the factors come near that. */
        assert_in_range(step_tokens(&k) - 6, 25, 60);
    }
    finish(&k, r, 7);
}

static void a_chunk_is_the_most_whatever_time_is_left(void **state)
{
    (void)state;
    struct kit k;
    struct ek_request *r[4];
    open_with(&k, 10, 1, 10);
    begin(&k, r, 1, 3, 200);
    for (int i = 0; i < 6; i++) {
        int64_t before = ek_engine_get_stats(k.engine)->generated_tokens;
        ek_engine_step(k.engine);
        int64_t n = ek_engine_get_stats(k.engine)->generated_tokens - before;
        assert_in_range(step_tokens(&k) - n, 63, 64); /* one of n may be a prompt's */
    }
    finish(&k, r, 4);
}

static void nobody_waits_for_a_step_without_answers(void **state)
{
    (void)state;
    struct kit k;
    struct ek_request *r[4];
    open_with(&k, 1000, 2500, 2500);
    for (int i = 0; i < 4; i++) {
        r[i] = own(i, 100, 5);
        kit_submit(&k, r[i]);
    }
    ek_engine_step(k.engine);
    assert_int_equal(step_tokens(&k), 128);
    finish(&k, r, 4);
}

/* Seven prompts of 80 tokens of 4 ms are 2.2 s of work: steps may take that much longer,
 * until less than a second of it is left. */
static void a_backlog_of_prompts_stretches_steps_until_it_is_gone(void **state)
{
    (void)state;
    struct kit k;
    struct ek_request *r[8];
    open_with(&k, 100, 800, 100);
    k.prompt_us = 4000; /* as foretold, below */
    begin(&k, r, 1, 0, 0);
    k.engine->pace.us[EK_PACE_PROMPT] = 4000;
    for (int i = 1; i < 8; i++) {
        r[i] = own(i, 80, 2);
        kit_submit(&k, r[i]);
    }
    k.engine->o.itl_target_us = 100000;
    ek_engine_step(k.engine);
    int32_t first = step_tokens(&k) - 1;
    assert_in_range(first, 45, 64); /* 25 times 2.2 */
    int32_t least = first;
    while (ek_choice_table(&r[7]->choices[0])->n_tokens < 40) {
        ek_engine_step(k.engine);
        int32_t n = step_tokens(&k) - 1;
        least = n < least ? n : least;
    }
    assert_in_range(least, 20, 30);
    finish(&k, r, 8);
}

static void prompts_of_one_length_finish_in_their_order(void **state)
{
    (void)state;
    struct kit k;
    struct ek_request *r[5];
    open_with(&k, 1000, 900, 800);
    begin(&k, r, 1, 4, 100);
    for (int i = 1; i < 5; i++) {
        while (r[i]->choices[0].n_generated == 0)
            ek_engine_step(k.engine);
        for (int later = i + 1; later < 5; later++)
            assert_in_range(ek_choice_table(&r[later]->choices[0])->n_tokens, 0, 20);
    }
    finish(&k, r, 5);
}

static void a_short_prompt_does_not_wait_for_all_of_a_long_one(void **state)
{
    (void)state;
    struct kit k;
    struct ek_request *r[3];
    open_with(&k, 1000, 900, 800);
    begin(&k, r, 1, 1, 240);
    ek_engine_step(k.engine);
    r[2] = own(2, 20, 5);
    kit_submit(&k, r[2]);
    for (int i = 0; i < 4; i++)
        ek_engine_step(k.engine);
    assert_true(r[2]->choices[0].n_generated > 0);
    assert_int_equal(r[1]->choices[0].n_generated, 0);
    finish(&k, r, 3);
}

/* Costs that jump from step to step cut prompts in ever other places, among preemptions;
 * what is said is what each says alone. */
static void no_cut_of_prompts_changes_an_answer(void **state)
{
    (void)state;
    enum { N = 12 };
    struct kit k;
    struct ek_request *r[N], *alone;
    struct ek_engine_options o;
    kit_default(&o);
    o.max_batch_tokens = 128;
    o.prefill_chunk = 64;
    o.reserve_tokens = 0;
    o.n_pages = 24;
    o.itl_target_us = TARGET_US;
    kit_open(&k, &o);
    for (int i = 0; i < N; i++) {
        r[i] = own(i, 20 + 13 * i, 30);
        r[i]->wants_logprobs = true;
        kit_submit(&k, r[i]);
    }
    for (uint64_t h = 1; ek_engine_step(k.engine); h = ek_hash(&h, sizeof h, 3)) {
        k.step_us = (int64_t)(h % 5000);
        k.prompt_us = (int64_t)(h / 5000 % 1500);
        k.answer_us = (int64_t)(h / 7500000 % 4000);
    }
    assert_true(ek_engine_get_stats(k.engine)->n_preempted > 0);
    kit_close(&k);
    o.itl_target_us = 0;
    kit_open(&k, &o);
    for (int i = 0; i < N; i++) {
        alone = own(i, 20 + 13 * i, 30);
        alone->wants_logprobs = true;
        kit_submit(&k, alone);
        kit_run(&k);
        kit_assert_same(kit_answer(r[i], 0), kit_answer(alone, 0));
        kit_free(r[i]);
        kit_free(alone);
    }
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_step_sets_the_scale),
        cmocka_unit_test(a_first_step_from_cold_memory_is_forgotten_at_once),
        cmocka_unit_test(steps_of_any_make_are_foretold_after_some_hundred),
        cmocka_unit_test(one_step_gone_wrong_moves_little),
        cmocka_unit_test(no_time_and_no_work_teach_nothing),
        cmocka_unit_test(factors_stay_positive_whatever_is_told),
        cmocka_unit_test(prompt_tokens_are_the_most_that_fit),
        cmocka_unit_test(prompts_fill_what_answers_leave_of_the_target),
        cmocka_unit_test(however_dear_a_prompt_is_it_gets_eight_tokens),
        cmocka_unit_test(answers_over_the_target_leave_prompts_a_quarter),
        cmocka_unit_test(a_chunk_is_the_most_whatever_time_is_left),
        cmocka_unit_test(nobody_waits_for_a_step_without_answers),
        cmocka_unit_test(a_backlog_of_prompts_stretches_steps_until_it_is_gone),
        cmocka_unit_test(prompts_of_one_length_finish_in_their_order),
        cmocka_unit_test(a_short_prompt_does_not_wait_for_all_of_a_long_one),
        cmocka_unit_test(no_cut_of_prompts_changes_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
