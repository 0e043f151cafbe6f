/* Who works in a step: seats, pages, reservations, preemption, priority, deadlines. */
#include "base/clock.h"
#include "serve/enginekit.h"

static struct ek_request *letters(int32_t n_prompt, int32_t max_tokens, int32_t n)
{
    char prompt[KIT_CTX];
    memset(prompt, 'a', (size_t)n_prompt);
    prompt[n_prompt] = 0;
    struct ek_request *r = kit_request(prompt, max_tokens, n);
    r->sampling.temperature = 0;
    return r;
}

/* As letters, but like nobody else's. */
static struct ek_request *own(int32_t i, int32_t n_prompt, int32_t max_tokens)
{
    struct ek_request *r = letters(n_prompt, max_tokens, 1);
    r->salt = (struct ek_salt){(uint64_t)i + 1, 0};
    return r;
}

static void open_with(struct kit *k, int32_t n_pages, int32_t reserve)
{
    struct ek_engine_options o;
    kit_default(&o);
    o.n_pages = n_pages;
    o.reserve_tokens = reserve;
    kit_open(k, &o);
}

static const struct ek_engine_stats *stats(const struct kit *k)
{
    return ek_engine_get_stats(k->engine);
}

static bool is_over(const struct ek_request *r)
{
    return kit_answer(r, 0)->finish != EK_FINISH_NONE;
}

static void free_all(struct kit *k, struct ek_request **r, int n)
{
    for (int i = 0; i < n; i++)
        kit_free(r[i]);
    kit_close(k);
}

/* ---- steps ---- */

static void a_step_takes_every_answer_and_one_chunk_of_prompts(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, KIT_PAGES, 0);
    struct ek_request *r[4] = {own(0, 5, 100), own(1, 5, 100), own(2, 100, 5),
                               own(3, 100, 5)};
    kit_submit(&k, r[0]);
    kit_submit(&k, r[1]);
    kit_step_until(&k, r[1], 2);
    kit_submit(&k, r[2]);
    kit_submit(&k, r[3]);
    for (int i = 0; i < 12; i++) {
        int64_t before = stats(&k)->generated_tokens;
        ek_engine_step(k.engine);
        /* Two tokens of answers, then 8 of prompts: prefill_chunk, though there are two
         * and max_batch_tokens is 32. */
        assert_int_equal(stats(&k)->generated_tokens - before, 2);
        assert_int_equal(stats(&k)->n_step_tokens, 2 + 8);
    }
    kit_run(&k);
    free_all(&k, r, 4);
}

static void prompts_fill_a_step_that_no_answer_waits_for(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, KIT_PAGES, 0);
    struct ek_request *r[4];
    for (int i = 0; i < 4; i++) {
        r[i] = own(i, 50, 5);
        kit_submit(&k, r[i]);
    }
    for (int i = 0; i < 6; i++) {
        k.max_chunk = 0;
        ek_engine_step(k.engine);
        assert_int_equal(stats(&k)->n_step_tokens, 4 * 8);
        assert_int_equal(k.max_chunk, 8);
    }
    kit_run(&k);
    free_all(&k, r, 4);
}

static void a_long_prompt_stalls_no_answer_under_way(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, KIT_PAGES, 32);
    struct ek_request *r[2] = {own(0, 2, 100), own(1, 200, 5)};
    kit_submit(&k, r[0]);
    kit_step_until(&k, r[0], 1);
    kit_submit(&k, r[1]);
    int n_steps = 0;
    for (; r[1]->choices[0].n_generated == 0; n_steps++) {
        int64_t before = stats(&k)->generated_tokens;
        ek_engine_step(k.engine);
        assert_true(stats(&k)->generated_tokens > before);
        assert_in_range(stats(&k)->n_step_tokens, 2, 1 + 8);
    }
    assert_int_equal(n_steps, 200 / 8);
    kit_run(&k);
    free_all(&k, r, 2);
}

static void a_step_never_passes_max_batch_tokens(void **state)
{
    (void)state;
    enum { N = 12 };
    struct ek_request *r[N];
    struct kit k;
    open_with(&k, KIT_PAGES, 0);
    for (int i = 0; i < N; i++) {
        r[i] = own(i, 60 + i, 20);
        kit_submit(&k, r[i]);
    }
    kit_run(&k);
    assert_in_range(k.max_tokens, 9, 32);
    free_all(&k, r, N);
}

/* ---- admission ---- */

static void what_can_never_fit_is_refused_with_its_numbers(void **state)
{
    (void)state;
    struct kit k;
    struct ek_err err = EK_ERR_INIT;
    open_with(&k, 8, 0);
    struct ek_request *r = kit_request("hi", 127, 1);
    assert_int_equal(ek_request_prepare(r, k.engine, &err), EK_ELIMIT);
    assert_non_null(strstr(err.text, "9 KV pages"));
    kit_free(r);
    r = kit_request("hi", KIT_CTX - 1, 1);
    assert_int_equal(ek_request_prepare(r, k.engine, &err), EK_ELIMIT);
    assert_non_null(strstr(err.text, "256"));
    kit_free(r);
    kit_close(&k);
}

/* 8 pages, prompts of 16 tokens, answers of 112 (eight pages in all), a reservation of
 * 32: each running one wants its prompt and two pages more, and as they grow the
 * reservation moves along. */
static void admission_leaves_every_running_one_its_reservation(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, 8, 32);
    struct ek_request *r[3];
    for (int i = 0; i < 3; i++) {
        r[i] = own(i, 16, 112);
        kit_submit(&k, r[i]);
    }
    ek_engine_step(k.engine);
    ek_engine_step(k.engine);
    ek_engine_step(k.engine);
    assert_int_equal(stats(&k)->n_running, 2); /* 3 + 3 of 8: no room for 3 more */
    assert_int_equal(stats(&k)->n_waiting, 1);
    /* Nobody is preempted before both have what was reserved for them. */
    while (stats(&k)->n_preempted == 0)
        ek_engine_step(k.engine);
    assert_true(r[0]->choices[0].n_generated >= 32);
    kit_run(&k);
    for (int i = 0; i < 3; i++)
        assert_int_equal(kit_answer(r[i], 0)->finish, EK_FINISH_LENGTH);
    free_all(&k, r, 3);
}

static void a_short_answer_reserves_no_more_than_it_may_have(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, 8, 1000);
    struct ek_request *r[4];
    for (int i = 0; i < 4; i++) {
        r[i] = own(i, 16, 16); /* two pages each */
        kit_submit(&k, r[i]);
    }
    ek_engine_step(k.engine);
    ek_engine_step(k.engine);
    assert_int_equal(stats(&k)->n_running, 4);
    kit_run(&k);
    assert_int_equal(stats(&k)->n_preempted, 0);
    free_all(&k, r, 4);
}

static void one_alone_needs_no_reservation(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, 2, 1000);
    struct ek_request *r[1] = {own(0, 16, 16)};
    kit_submit(&k, r[0]);
    kit_run(&k);
    assert_int_equal(kit_answer(r[0], 0)->n_ids, 16);
    free_all(&k, r, 1);
}

static void nobody_overtakes_the_first_who_waits(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, 8, 0);
    struct ek_request *r[3] = {own(0, 80, 20), own(1, 80, 20), own(2, 5, 5)};
    for (int i = 0; i < 3; i++)
        kit_submit(&k, r[i]);
    kit_step_until(&k, r[0], 3);
    assert_int_equal(r[1]->choices[0].state, EK_CHOICE_WAITING); /* five pages */
    assert_int_equal(r[2]->choices[0].state, EK_CHOICE_WAITING); /* one, but later */
    kit_run(&k);
    assert_true(r[1]->choices[0].admit_us <= r[2]->choices[0].admit_us);
    free_all(&k, r, 3);
}

static void lower_priority_values_come_first_and_equal_ones_by_arrival(void **state)
{
    (void)state;
    enum { N = 6 };
    static const int32_t priority[N] = {0, 5, -3, 0, INT32_MIN, INT32_MAX};
    static const int expected[N] = {4, 2, 0, 3, 1, 5};
    struct ek_engine_options o;
    struct ek_request *r[N];
    struct kit k;
    kit_default(&o);
    o.max_seqs = 1;
    kit_open(&k, &o);
    for (int i = 0; i < N; i++) {
        r[i] = own(i, 3, 4);
        r[i]->priority = priority[i];
        kit_submit(&k, r[i]);
    }
    for (int i = 0; i < N; i++) {
        while (!is_over(r[expected[i]]))
            assert_true(ek_engine_step(k.engine));
        for (int later = i + 1; later < N; later++)
            assert_int_equal(r[expected[later]]->choices[0].n_generated, 0);
    }
    free_all(&k, r, N);
}

/* ---- preemption ---- */

/* Six sequences of up to 7 pages in 12: they cannot all run to their ends at once. */
static void the_youngest_gives_way_and_the_oldest_never_does(void **state)
{
    (void)state;
    enum { N = 4 };
    struct ek_request *r[N];
    struct kit k;
    open_with(&k, 12, 0);
    for (int i = 0; i < N; i++) {
        r[i] = own(i, 30, 80);
        kit_submit(&k, r[i]);
    }
    /* The order of arrival is the order of the ends. */
    for (int i = 0; i < N; i++) {
        int64_t before = stats(&k)->n_preempted;
        while (!is_over(r[i])) {
            int32_t n = r[i]->choices[0].n_generated;
            ek_engine_step(k.engine);
            assert_true(i > 0 || n < 1 || is_over(r[i]) ||
                        r[i]->choices[0].n_generated == n + 1);
        }
        assert_true(i > 0 || stats(&k)->n_preempted > before);
        for (int later = i + 1; later < N; later++)
            assert_false(is_over(r[later]));
    }
    assert_true(stats(&k)->recomputed_tokens > 0);
    assert_int_equal(stats(&k)->prompt_tokens, N * 30);
    free_all(&k, r, N);
}

static void the_least_urgent_gives_way_first(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, 8, 0);
    struct ek_request *r[2] = {own(0, 30, 90), own(1, 30, 90)};
    r[0]->priority = 1; /* older, but less urgent */
    kit_submit(&k, r[0]);
    kit_step_until(&k, r[0], 2);
    kit_submit(&k, r[1]);
    while (stats(&k)->n_preempted == 0)
        assert_true(ek_engine_step(k.engine));
    assert_int_equal(r[0]->choices[0].state, EK_CHOICE_WAITING);
    assert_int_equal(r[1]->choices[0].state, EK_CHOICE_RUNNING);
    kit_run(&k);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kit_answer(r[i], 0)->n_ids, 90);
    free_all(&k, r, 2);
}

static void one_alone_that_cannot_grow_ends_with_an_error(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, 4, 0);
    struct ek_request *r[2] = {own(0, 16, 40), own(1, 60, 4)};
    kit_submit(&k, r[0]);
    kit_step_until(&k, r[0], 1);
    /* As if other sequences' faults had eaten two pages. */
    struct ek_pages *p = ek_engine_get_pages(k.engine);
    for (int i = 0; i < 2; i++) {
        struct ek_page_ref ref[1];
        struct ek_page_table t;
        ek_page_table_init(&t, 1000 + (uint64_t)i, (struct ek_salt){0}, ref, 1);
        assert_int_equal(ek_pages_reserve(p, &t, 1), 0);
        ek_pages_fault(p, &t, 0);
    }
    kit_submit(&k, r[1]);
    kit_run(&k);
    assert_int_equal(kit_answer(r[0], 0)->finish, EK_FINISH_ERROR);
    assert_int_equal(kit_answer(r[0], 0)->n_ids, 17); /* positions 0..31 */
    assert_int_equal(kit_answer(r[1], 0)->finish, EK_FINISH_ERROR);
    assert_int_equal(kit_answer(r[1], 0)->n_ids, 0);
    free_all(&k, r, 2);
}

/* ---- readers ---- */

static void a_slow_reader_holds_up_nobody_else(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, KIT_PAGES, 32);
    struct ek_request *r[2] = {own(0, 4, 200), own(1, 4, 200)};
    kit_widen(&k, r[0], 100);
    kit_submit(&k, r[0]);
    k.holds_deltas = true;
    while (k.n_held == 0)
        ek_engine_step(k.engine);
    struct ek_delta *held = k.held[0];
    k.holds_deltas = false;
    kit_submit(&k, r[1]);
    kit_run(&k);
    assert_int_equal(kit_answer(r[1], 0)->finish, EK_FINISH_LENGTH);
    assert_int_equal(kit_answer(r[0], 0)->n_deltas, 1);
    k.n_held = 0;
    ek_engine_give_back(k.engine, held);
    kit_run(&k);
    assert_int_equal(kit_answer(r[0], 0)->finish, EK_FINISH_LENGTH);
    assert_int_equal(kit_answer(r[0], 0)->n_ids, 200);
    free_all(&k, r, 2);
}

/* Every seat's and every page's holder waits for its reader, forever: whoever comes
 * then gets them. */
static void stalled_answers_give_seats_and_pages_to_who_waits(void **state)
{
    (void)state;
    enum { FEW = 4 };
    struct ek_request *r[FEW], *solo = letters(4, 240, 1), *late = own(9, 200, 50);
    struct kit k;
    open_with(&k, KIT_PAGES, 0);
    kit_widen(&k, solo, 100);
    kit_submit(&k, solo);
    kit_run(&k);
    k.holds_deltas = true;
    for (int i = 0; i < FEW; i++) {
        r[i] = own(i, 4, 240);
        kit_widen(&k, r[i], 100);
        kit_submit(&k, r[i]);
    }
    kit_run(&k);
    for (int i = 0; i < FEW; i++)
        assert_false(ek_choice_has_room(&r[i]->choices[0]));
    assert_int_equal(stats(&k)->n_running, FEW); /* every seat */
    assert_int_equal(stats(&k)->n_preempted, 0); /* but nobody wants one */
    k.holds_deltas = false;
    kit_submit(&k, late);
    kit_run(&k);
    assert_int_equal(kit_answer(late, 0)->n_ids, 50);
    assert_in_range(stats(&k)->n_preempted, 1, FEW);
    for (int i = 0; i < FEW; i++)
        assert_int_equal(kit_answer(r[i], 0)->n_deltas, 1);
    kit_release_deltas(&k);
    kit_run(&k);
    for (int i = 0; i < FEW; i++)
        kit_assert_same(kit_answer(r[i], 0), kit_answer(solo, 0));
    kit_free(late);
    kit_free(solo);
    free_all(&k, r, FEW);
}

/* ---- deadlines, cancel, drain ---- */

static void a_deadline_ends_what_waits_and_what_runs(void **state)
{
    (void)state;
    struct ek_engine_options o;
    struct kit k;
    kit_default(&o);
    o.max_seqs = 2;
    kit_open(&k, &o);
    struct ek_request *r[4] = {own(0, 10, 200), own(1, 10, 200), own(2, 10, 5),
                               letters(10, 200, 3)};
    int64_t far = ek_clock_us() + 3600000000;
    r[0]->deadline_us = far;
    r[1]->deadline_us = far + 1;
    r[3]->deadline_us = far + 2;
    for (int i = 0; i < 4; i++)
        kit_submit(&k, r[i]);
    kit_step_until(&k, r[1], 3);
    assert_int_equal(ek_engine_wake_us(k.engine), far);
    /* No clock is moved: the deadlines are. The engine looks when the earliest is due. */
    r[1]->deadline_us = 1;
    r[3]->deadline_us = 1;
    k.engine->wake_us = 1;
    ek_engine_step(k.engine);
    assert_int_equal(kit_answer(r[1], 0)->finish, EK_FINISH_ERROR);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kit_answer(r[3], i)->finish, EK_FINISH_ERROR);
        assert_int_equal(kit_answer(r[3], i)->n_generated, 0);
    }
    assert_int_equal(stats(&k)->n_expired, 4);
    assert_int_equal(ek_engine_wake_us(k.engine), far);
    kit_run(&k);
    assert_int_equal(kit_answer(r[0], 0)->n_ids, 200);
    assert_int_equal(kit_answer(r[2], 0)->n_ids, 5);
    free_all(&k, r, 4);
}

static void a_deadline_that_has_passed_costs_no_step(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, KIT_PAGES, 0);
    struct ek_request *r[1] = {own(0, 10, 10)};
    r[0]->deadline_us = ek_clock_us() - 1;
    kit_submit(&k, r[0]);
    kit_run(&k);
    assert_int_equal(k.n_forwards, 0);
    assert_int_equal(kit_answer(r[0], 0)->finish, EK_FINISH_ERROR);
    assert_int_equal(ek_engine_wake_us(k.engine), INT64_MAX);
    free_all(&k, r, 1);
}

static void cancel_frees_within_a_step(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, KIT_PAGES, 32);
    struct ek_request *r[6];
    for (int i = 0; i < 6; i++) {
        r[i] = own(i, 31, 60);
        kit_submit(&k, r[i]);
    }
    for (int i = 0; i < 20; i++)
        ek_engine_step(k.engine);
    assert_int_equal(stats(&k)->n_running, 4);
    assert_int_equal(stats(&k)->n_waiting, 2);
    ek_engine_cancel(k.engine, r[5]); /* one that waits: the running ones go on */
    assert_int_equal(kit_answer(r[5], 0)->finish, EK_FINISH_ABORT);
    assert_int_equal(stats(&k)->n_waiting, 1);
    ek_engine_cancel(k.engine, r[1]); /* one that runs */
    assert_int_equal(kit_answer(r[1], 0)->finish, EK_FINISH_ABORT);
    assert_int_equal(stats(&k)->n_running, 3);
    ek_engine_cancel(k.engine, r[1]); /* gone already */
    kit_run(&k);
    for (int i = 0; i < 5; i++) {
        if (i != 1)
            assert_int_equal(kit_answer(r[i], 0)->finish, EK_FINISH_LENGTH);
    }
    free_all(&k, r, 6);
}

static void a_preempted_one_is_cancelled_like_any_other(void **state)
{
    (void)state;
    struct kit k;
    open_with(&k, 8, 0);
    struct ek_request *r[2] = {own(0, 30, 90), own(1, 30, 90)};
    kit_submit(&k, r[0]);
    kit_submit(&k, r[1]);
    while (stats(&k)->n_preempted == 0)
        ek_engine_step(k.engine);
    assert_int_equal(k.engine->n_resting, 1);
    ek_engine_cancel(k.engine, r[1]);
    assert_int_equal(kit_answer(r[1], 0)->finish, EK_FINISH_ABORT);
    assert_int_equal(k.engine->n_resting, 0);
    kit_run(&k);
    free_all(&k, r, 2);
}

/* Nothing new comes: all that is here is answered, what waits and was preempted too. */
static void a_drain_answers_everything_that_is_here(void **state)
{
    (void)state;
    enum { N = 20 };
    struct ek_request *r[N];
    struct kit k;
    open_with(&k, 10, 0);
    for (int i = 0; i < N; i++) {
        r[i] = own(i, 20 + i, 40 + i);
        r[i]->priority = i % 3;
        kit_submit(&k, r[i]);
    }
    kit_run(&k);
    assert_true(stats(&k)->n_preempted > 0);
    assert_int_equal(stats(&k)->n_running + stats(&k)->n_waiting, 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(kit_answer(r[i], 0)->finish, EK_FINISH_LENGTH);
        assert_int_equal(kit_answer(r[i], 0)->n_ids, 40 + i);
    }
    free_all(&k, r, N);
}

static void random_arrivals_and_cancels_leave_nothing_behind(void **state)
{
    (void)state;
    enum { N = 24 };
    struct ek_request *r[N] = {0};
    struct ek_rng rng;
    struct kit k;
    ek_rng_init(&rng, 11);
    open_with(&k, 14, 8);
    for (int step = 0; step < 3000; step++) {
        uint64_t i = ek_rng_below(&rng, N);
        bool is_free = !r[i] || r[i]->n_open == 0;
        if (is_free) {
            if (r[i])
                kit_free(r[i]);
            int32_t n = 1 + (int32_t)ek_rng_below(&rng, 60);
            r[i] = letters(n, 1 + (int32_t)ek_rng_below(&rng, 90),
                           1 + (int32_t)ek_rng_below(&rng, 3));
            r[i]->priority = (int32_t)ek_rng_below(&rng, 3);
            r[i]->salt = (struct ek_salt){ek_rng_below(&rng, 2), 0};
            r[i]->wants_prompt_logprobs = ek_rng_below(&rng, 4) == 0;
            kit_submit(&k, r[i]);
        } else if (ek_rng_below(&rng, 8) == 0) {
            ek_engine_cancel(k.engine, r[i]);
            assert_int_equal(r[i]->n_open, 0);
        }
        ek_engine_step(k.engine);
        assert_true(ek_pages_is_sane(ek_engine_get_pages(k.engine)));
        assert_in_range(k.engine->n_running + k.engine->n_promised, 0, 4);
    }
    kit_run(&k);
    assert_true(stats(&k)->n_preempted > 10);
    assert_int_equal(k.engine->n_promised, 0);
    assert_int_equal(k.engine->n_running, 0);
    for (int i = 0; i < N; i++) {
        if (r[i])
            assert_int_equal(r[i]->n_open, 0);
    }
    for (int i = 0; i < N; i++) {
        if (r[i])
            kit_free(r[i]);
    }
    kit_close(&k);
}

/* ---- prefixes ---- */

/* A conversation's second turn begins with the first one's prompt and answer. Where
 * answers are computed with other weights than prompts, only the prompt's pages are what
 * the second turn would have computed. */
static void check_second_turn(bool has_own_decode)
{
    char text[KIT_CTX + 1] = "A conversation that has a prompt of some pages; ";
    size_t n = strlen(text);
    struct ek_engine_options o;
    struct ek_request *second[2];
    kit_default(&o);
    for (int is_cached = 1; is_cached >= 0; is_cached--) {
        struct kit k;
        o.caches_prefixes = is_cached;
        kit_open_as(&k, &o, has_own_decode);
        k.script = "and an answer that has some more pages of tokens.";
        k.script_at = (int32_t)n;
        struct ek_request *first = kit_request(text, 64, 1);
        kit_submit(&k, first);
        kit_run(&k);
        k.script = NULL;
        memcpy(text + n, kit_answer(first, 0)->text.data,
               kit_answer(first, 0)->text.len + 1);
        second[is_cached] = kit_request(text, 40, 1);
        second[is_cached]->wants_logprobs = true;
        kit_submit(&k, second[is_cached]);
        kit_run(&k);
        text[n] = 0;
        assert_int_equal(second[is_cached]->n_cached, !is_cached       ? 0
                                                      : has_own_decode ? 48
                                                                       : 96);
        kit_free(first);
        kit_close(&k);
    }
    kit_assert_same(kit_answer(second[0], 0), kit_answer(second[1], 0));
    kit_free(second[0]);
    kit_free(second[1]);
}

static void a_second_turn_finds_the_first_ones_answer(void **state)
{
    (void)state;
    check_second_turn(false);
}

static void
a_page_of_an_answer_is_no_prompts_page_where_their_weights_differ(void **state)
{
    (void)state;
    check_second_turn(true);
}

/* ---- memory ---- */

static void steps_admissions_forks_and_preemptions_allocate_nothing(void **state)
{
    (void)state;
    enum { N = 8 };
    struct kit k;
    open_with(&k, 16, 0);
    struct ek_request *r[N];
    for (int i = 0; i < N; i++) {
        r[i] = letters(20 + i, 80, 1 + i % 2);
        r[i]->wants_logprobs = true;
        r[i]->n_top = 5;
        r[i]->sampling.temperature = 1;
        r[i]->sampling.frequency_penalty = 0.5f;
        r[i]->sampling.top_p = 0.9f;
        for (int32_t c = 0; c < r[i]->n; c++)
            assert_int_equal(ek_buf_reserve(&kit_answer(r[i], c)->text, 4096), 0);
        kit_submit(&k, r[i]);
    }
    ek_mem_fail_at(1);
    kit_run(&k);
    assert_false(ek_mem_failed());
    ek_mem_fail_at(0);
    assert_true(stats(&k)->n_preempted > 0);
    assert_true(stats(&k)->prefix_hit_tokens > 0);
    for (int i = 0; i < N; i++) {
        for (int32_t c = 0; c < r[i]->n; c++)
            assert_int_equal(kit_answer(r[i], c)->n_ids, 80);
    }
    free_all(&k, r, N);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_takes_every_answer_and_one_chunk_of_prompts),
        cmocka_unit_test(prompts_fill_a_step_that_no_answer_waits_for),
        cmocka_unit_test(a_long_prompt_stalls_no_answer_under_way),
        cmocka_unit_test(a_step_never_passes_max_batch_tokens),
        cmocka_unit_test(what_can_never_fit_is_refused_with_its_numbers),
        cmocka_unit_test(admission_leaves_every_running_one_its_reservation),
        cmocka_unit_test(a_short_answer_reserves_no_more_than_it_may_have),
        cmocka_unit_test(one_alone_needs_no_reservation),
        cmocka_unit_test(nobody_overtakes_the_first_who_waits),
        cmocka_unit_test(lower_priority_values_come_first_and_equal_ones_by_arrival),
        cmocka_unit_test(the_youngest_gives_way_and_the_oldest_never_does),
        cmocka_unit_test(the_least_urgent_gives_way_first),
        cmocka_unit_test(one_alone_that_cannot_grow_ends_with_an_error),
        cmocka_unit_test(a_slow_reader_holds_up_nobody_else),
        cmocka_unit_test(stalled_answers_give_seats_and_pages_to_who_waits),
        cmocka_unit_test(a_deadline_ends_what_waits_and_what_runs),
        cmocka_unit_test(a_deadline_that_has_passed_costs_no_step),
        cmocka_unit_test(cancel_frees_within_a_step),
        cmocka_unit_test(a_preempted_one_is_cancelled_like_any_other),
        cmocka_unit_test(a_drain_answers_everything_that_is_here),
        cmocka_unit_test(random_arrivals_and_cancels_leave_nothing_behind),
        cmocka_unit_test(a_second_turn_finds_the_first_ones_answer),
        cmocka_unit_test(
            a_page_of_an_answer_is_no_prompts_page_where_their_weights_differ),
        cmocka_unit_test(steps_admissions_forks_and_preemptions_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
