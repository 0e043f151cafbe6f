/* The engine on its own thread: everything that goes in comes out once, whoever is
 * faster, and a cancel may meet its request's end half-way. Run under TSan by CI. */
#include "base/clock.h"
#include "serve/enginekit.h"
#include "serve/worker.h"

#include <time.h>

#define N 40

struct fixture {
    struct kit kit; /* its engine belongs to the worker */
    struct ek_worker *worker;
    struct ek_request *requests[N];
    int n_done;
};

static void on_news(void *arg)
{
    (void)arg; /* the test polls */
}

static void open_worker(struct fixture *f, int32_t max_choices)
{
    struct ek_engine_options o;
    memset(f, 0, sizeof *f);
    kit_default(&o);
    kit_open(&f->kit, &o);
    ek_engine_free(f->kit.engine); /* this one reports to the kit, not to a worker */
    struct ek_engine_model model = kit_model(&f->kit);
    assert_int_equal(ek_worker_new(&f->worker, max_choices, on_news, NULL, NULL), 0);
    assert_int_equal(ek_engine_new(&f->kit.engine, &model, f->kit.tokenizer, &o,
                                   ek_ops_get(EK_ISA_REF), ek_worker_on_delta,
                                   f->worker, NULL),
                     0);
    assert_int_equal(ek_worker_start(f->worker, f->kit.engine, NULL), 0);
}

static void close_worker(struct fixture *f)
{
    ek_worker_free(f->worker);
    ek_tokenizer_free(f->kit.tokenizer);
}

static struct ek_request *make(struct fixture *f, int i)
{
    char prompt[32];
    snprintf(prompt, sizeof prompt, "prompt %d", i);
    struct ek_request *r = kit_request(prompt, 1 + i % 30, 1 + i % 3);
    r->sampling.seed = (uint64_t)i;
    assert_int_equal(ek_request_prepare(r, f->kit.engine, NULL), 0);
    return r;
}

static void take_news(struct fixture *f)
{
    for (struct ek_delta *d; (d = ek_worker_next(f->worker));) {
        struct kit_answer *a = kit_answer(d->request, d->choice);
        assert_int_equal(a->finish, EK_FINISH_NONE);
        assert_int_equal(ek_buf_add(&a->text, d->text.data, d->text.len), 0);
        a->n_generated = d->n_generated;
        a->finish = d->finish;
        f->n_done += d->is_last;
        if (d->finish == EK_FINISH_NONE)
            ek_worker_give_back(f->worker, d);
    }
}

static void wait_for(struct fixture *f, int n_done)
{
    static const struct timespec pause = {0, 100000};
    while (f->n_done < n_done) {
        take_news(f);
        nanosleep(&pause, NULL);
    }
}

static void every_request_comes_back_once(void **state)
{
    (void)state;
    struct fixture f;
    open_worker(&f, 1000);
    for (int i = 0; i < N; i++) {
        f.requests[i] = make(&f, i);
        assert_int_equal(ek_worker_submit(f.worker, f.requests[i]), 0);
        take_news(&f);
    }
    wait_for(&f, N);
    assert_int_equal(ek_worker_choices(f.worker), 0);
    assert_null(ek_worker_next(f.worker));
    assert_int_equal(ek_worker_stats(f.worker)->n_running, 0);
    for (int i = 0; i < N; i++) {
        for (int32_t c = 0; c < f.requests[i]->n; c++) {
            assert_int_equal(kit_answer(f.requests[i], c)->finish, EK_FINISH_LENGTH);
            assert_int_equal(kit_answer(f.requests[i], c)->n_generated, 1 + i % 30);
        }
        kit_free(f.requests[i]);
    }
    close_worker(&f);
}

static void a_cancel_may_cross_the_end(void **state)
{
    (void)state;
    struct fixture f;
    struct ek_rng rng;
    ek_rng_init(&rng, 5);
    open_worker(&f, 1000);
    int n_made = 0;
    bool is_cancelled[N] = {false};
    for (int round = 0; round < 400; round++) {
        uint64_t i = ek_rng_below(&rng, N);
        struct ek_request *r = f.requests[i];
        take_news(&f);
        if (!r) {
            f.requests[i] = make(&f, (int)i);
            assert_int_equal(ek_worker_submit(f.worker, f.requests[i]), 0);
            is_cancelled[i] = false;
            n_made++;
            continue;
        }
        bool is_over = true;
        for (int32_t c = 0; c < r->n; c++)
            is_over = is_over && kit_answer(r, c)->finish != EK_FINISH_NONE;
        if (is_over) {
            kit_free(r); /* a cancel may still be on its way: it must not be read */
            f.requests[i] = NULL;
        } else if (!is_cancelled[i]) {
            is_cancelled[i] = true;
            ek_worker_cancel(f.worker, r);
        }
    }
    wait_for(&f, n_made);
    for (int i = 0; i < N; i++) {
        if (f.requests[i])
            kit_free(f.requests[i]);
    }
    close_worker(&f);
}

/* The reader never gives back, so the engine sleeps when the deadline comes. */
static void a_deadline_wakes_a_sleeping_engine(void **state)
{
    (void)state;
    static const struct timespec pause = {0, 100000};
    struct fixture f;
    struct ek_delta *held = NULL;
    open_worker(&f, 10);
    struct ek_request *r = kit_request("prompt", 240, 1);
    kit_widen(&f.kit, r, 100); /* its deltas are full before its answer is over */
    r->deadline_us = ek_clock_us() + 100000;
    assert_int_equal(ek_request_prepare(r, f.kit.engine, NULL), 0);
    assert_int_equal(ek_worker_submit(f.worker, r), 0);
    do {
        struct ek_delta *d = ek_worker_next(f.worker);
        held = d ? d : held;
        nanosleep(&pause, NULL);
    } while (ek_worker_stats(f.worker)->n_expired == 0);
    assert_int_equal(ek_worker_stats(f.worker)->n_running, 0);
    assert_int_equal(ek_worker_stats(f.worker)->n_free_pages, KIT_PAGES);
    if (held && held->finish == EK_FINISH_NONE)
        ek_worker_give_back(f.worker, held);
    while (!held || held->finish == EK_FINISH_NONE) {
        struct ek_delta *d = ek_worker_next(f.worker);
        held = d ? d : held;
        nanosleep(&pause, NULL);
    }
    assert_int_equal(held->finish, EK_FINISH_ERROR);
    assert_non_null(strstr(held->error, "deadline"));
    assert_true(held->is_last);
    kit_free(r);
    close_worker(&f);
}

static void over_the_limit_is_busy_and_the_request_stays_ours(void **state)
{
    (void)state;
    struct fixture f;
    open_worker(&f, 2);
    for (int i = 0; i < 3; i++)
        f.requests[i] = make(&f, 3 * i); /* one choice each */
    assert_int_equal(ek_worker_submit(f.worker, f.requests[0]), 0);
    assert_int_equal(ek_worker_submit(f.worker, f.requests[1]), 0);
    assert_int_equal(ek_worker_submit(f.worker, f.requests[2]), EK_EBUSY);
    wait_for(&f, 2);
    assert_int_equal(ek_worker_submit(f.worker, f.requests[2]), 0);
    wait_for(&f, 3);
    for (int i = 0; i < 3; i++)
        kit_free(f.requests[i]);
    close_worker(&f);
}

static void new_survives_any_failed_allocation(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_worker *w = NULL;
        ek_assert_rc(ek_worker_new(&w, 10, on_news, NULL, NULL));
        ek_worker_free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_comes_back_once),
        cmocka_unit_test(a_cancel_may_cross_the_end),
        cmocka_unit_test(a_deadline_wakes_a_sleeping_engine),
        cmocka_unit_test(over_the_limit_is_busy_and_the_request_stays_ours),
        cmocka_unit_test(new_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
