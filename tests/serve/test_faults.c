/* Forged page tables and books under a running engine: the check finds each before the
 * read, that request ends without another token, and every other one says what it would
 * have said alone. */
#include "serve/enginekit.h"

#define N 4

/* What a fault can be made of. */
struct scene {
    struct ek_pages *pages;
    struct ek_page_table *t;     /* the victim's */
    struct ek_page_table *other; /* of a live request of the same tenant */
    struct ek_page_table *alien; /* of a live request of another tenant */
    struct ek_choice *choice;    /* the victim */
    int32_t lost;                /* page that the forgery leaves without owner; -1 */
};

static struct ek_page *book(const struct scene *s, int32_t i)
{
    return &s->pages->pages[s->t->refs[i].page];
}

static int32_t last(const struct scene *s)
{
    return s->t->n_pages - 1;
}

static void another_live_requests_page(struct scene *s)
{
    s->t->refs[last(s)] = s->other->refs[s->other->n_pages - 1];
}

static void another_live_requests_first_page(struct scene *s)
{
    s->t->refs[0] = s->other->refs[0];
}

static void another_tenants_page(struct scene *s)
{
    s->t->refs[0] = s->alien->refs[0];
}

static void a_stale_generation(struct scene *s)
{
    s->t->refs[last(s)].generation--;
}

static void a_stale_generation_of_a_full_page(struct scene *s)
{
    s->t->refs[0].generation--;
}

static void page_minus_one(struct scene *s)
{
    s->t->refs[0].page = -1;
}

static void page_n_pages(struct scene *s)
{
    s->t->refs[last(s)].page = s->pages->n_pages;
}

static void a_page_twice(struct scene *s)
{
    s->t->refs[1] = s->t->refs[0];
}

static void two_pages_swapped(struct scene *s)
{
    struct ek_page_ref ref = s->t->refs[0];
    s->t->refs[0] = s->t->refs[1];
    s->t->refs[1] = ref;
}

static void too_few_pages(struct scene *s)
{
    s->t->n_pages = 1;
}

static void a_short_fill(struct scene *s)
{
    book(s, last(s))->fill--;
}

static void a_short_fill_of_a_full_page(struct scene *s)
{
    book(s, 0)->fill--;
}

/* The book says that a page is somebody else's who does not live. Nobody would free it,
 * so the test keeps it for later. */
static void a_foreign_owner(struct scene *s)
{
    s->lost = s->t->refs[last(s)].page;
    book(s, last(s))->owner = 1;
}

static void a_wrong_salt_in_the_book(struct scene *s)
{
    book(s, 0)->salt.hi++;
}

static void a_wrong_salt_in_the_table(struct scene *s)
{
    s->t->salt.lo++;
}

static void a_page_freed_while_in_use(struct scene *s)
{
    struct ek_page_table copy = *s->t;
    ek_pages_free(s->pages, &copy);
}

static void a_page_freed_and_given_to_another(struct scene *s)
{
    struct ek_page_table copy = *s->t;
    ek_pages_free(s->pages, &copy);
    /* The next one takes the pages that were freed last. */
    ek_pages_drop_cache(s->pages);
}

static void a_quarantined_page(struct scene *s)
{
    book(s, last(s))->state = EK_PAGE_QUARANTINE;
    s->pages->n_quarantined++;
}

static void tokens_that_are_not_the_ones_written(struct scene *s)
{
    s->choice->tokens[3] ^= 1;
}

/* ---- the runs ---- */

/* Three of one tenant and one of another; prompts of 40 tokens. */
static struct ek_request *make(int i)
{
    char prompt[64];
    snprintf(prompt, sizeof prompt, "%d: the secret of this session is %06d", i,
             123457 * (i + 1));
    struct ek_request *r = kit_request(prompt, 60, 1);
    r->sampling.seed = (uint64_t)i;
    r->wants_logprobs = true;
    r->salt = (struct ek_salt){i == N - 1 ? 5 : 1, 2};
    return r;
}

static void open_checked(struct kit *k, enum ek_page_check check, bool caches_prefixes)
{
    struct ek_engine_options o;
    kit_default(&o);
    o.page_check = check;
    o.caches_prefixes = caches_prefixes;
    kit_open(k, &o);
}

/* What each says alone; kept for all runs. */
static struct ek_request *solo_runs[N];

static int run_solos(void **state)
{
    (void)state;
    static struct kit k;
    open_checked(&k, EK_PAGE_CHECK_OFF, false);
    for (int i = 0; i < N; i++) {
        solo_runs[i] = make(i);
        kit_submit(&k, solo_runs[i]);
        kit_run(&k);
    }
    kit_close(&k);
    return 0;
}

static int free_solos(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++)
        kit_free(solo_runs[i]);
    return 0;
}

/* The victim v is hit when it has n tokens of answer; 0: within its prefill. */
static void run_with(void (*forge)(struct scene *s), enum ek_page_check check,
                     bool caches_prefixes, int v, int32_t n)
{
    struct ek_request *r[N];
    static struct kit k;
    open_checked(&k, check, caches_prefixes);
    for (int i = 0; i < N; i++) {
        r[i] = make(i);
        kit_submit(&k, r[i]);
    }
    if (n > 0)
        kit_step_until(&k, r[v], n);
    while (r[v]->choices[0].n_computed < 33)
        ek_engine_step(k.engine);
    struct ek_choice *c = &r[v]->choices[0];
    struct scene s = {
        .pages = ek_engine_get_pages(k.engine),
        .t = ek_choice_table(c),
        .other = ek_choice_table(&r[(v + 1) % (N - 1)]->choices[0]),
        .alien = ek_choice_table(&r[N - 1]->choices[0]),
        .choice = c,
        .lost = -1,
    };
    int32_t n_before = c->n_generated;
    int32_t n_forwards = k.n_forwards;
    forge(&s);
    ek_engine_step(k.engine);
    assert_int_equal(k.n_forwards, n_forwards + 1); /* the others went on */
    struct kit_answer *a = kit_answer(r[v], 0);
    assert_int_equal(a->finish, EK_FINISH_ERROR);
    assert_int_equal(a->n_generated, n_before);
    kit_run(&k);
    int64_t n_faults = 0;
    for (int f = 1; f < EK_PAGE_FAULT_COUNT_OF; f++)
        n_faults += ek_engine_get_stats(k.engine)->faults[f];
    assert_int_equal(n_faults, 1);
    for (int i = 0; i < N; i++) {
        const struct kit_answer *alone = kit_answer(solo_runs[i], 0);
        if (i != v)
            kit_assert_same(kit_answer(r[i], 0), alone);
        else
            assert_memory_equal(a->ids, alone->ids,
                                (size_t)a->n_ids * sizeof a->ids[0]);
        kit_free(r[i]);
    }
    if (s.lost >= 0) {
        assert_int_equal(s.pages->pages[s.lost].owner, 1);
        struct ek_page_ref ref = {s.lost, s.pages->pages[s.lost].generation};
        struct ek_page_table t = {.owner = 1, .refs = &ref, .cap = 1, .n_pages = 1};
        ek_pages_free(s.pages, &t);
    }
    kit_close(&k);
}

static void run_everywhere(void (*forge)(struct scene *s), enum ek_page_check check)
{
    for (int32_t n = 0; n <= 7; n += 7) {
        run_with(forge, check, false, 0, n);
        run_with(forge, check, true, 1, n);
    }
}

static void a_forged_table_is_found_and_ends_that_request_alone(void **state)
{
    (void)state;
    static void (*const forgeries[])(struct scene * s) = {
        another_live_requests_page,
        another_live_requests_first_page,
        another_tenants_page,
        a_stale_generation,
        a_stale_generation_of_a_full_page,
        page_minus_one,
        page_n_pages,
        a_page_twice,
        two_pages_swapped,
        too_few_pages,
        a_wrong_salt_in_the_table,
    };
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        run_everywhere(forgeries[i], EK_PAGE_CHECK_PAGES);
        run_everywhere(forgeries[i], EK_PAGE_CHECK_FULL);
    }
}

static void a_wrong_book_is_found_and_ends_that_request_alone(void **state)
{
    (void)state;
    static void (*const forgeries[])(struct scene * s) = {
        a_short_fill,
        a_short_fill_of_a_full_page,
        a_foreign_owner,
        a_wrong_salt_in_the_book,
        a_page_freed_while_in_use,
        a_page_freed_and_given_to_another,
        a_quarantined_page,
    };
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++)
        run_everywhere(forgeries[i], EK_PAGE_CHECK_PAGES);
}

static void tokens_other_than_those_written_are_found_by_the_full_check(void **state)
{
    (void)state;
    run_everywhere(tokens_that_are_not_the_ones_written, EK_PAGE_CHECK_FULL);
}

/* ---- shared pages ---- */

static struct ek_request *sharer(int i)
{
    struct ek_request *r =
        kit_request("a long beginning that all of them have in common", 60, 1);
    r->sampling.seed = (uint64_t)i;
    r->wants_logprobs = true;
    return r;
}

static void holders_of_a_page_that_failed_for_one_are_recomputed(void **state)
{
    (void)state;
    static struct kit k, solo;
    struct ek_request *r[N];
    open_checked(&k, EK_PAGE_CHECK_PAGES, true);
    open_checked(&solo, EK_PAGE_CHECK_OFF, false);
    for (int i = 0; i < N; i++) {
        r[i] = sharer(i);
        kit_submit(&k, r[i]);
    }
    kit_step_until(&k, r[N - 1], 5);
    struct ek_page_table *t = ek_choice_table(&r[0]->choices[0]);
    int32_t page = t->refs[1].page;
    struct ek_pages *p = ek_engine_get_pages(k.engine);
    assert_int_equal(p->pages[page].n_refs, N);
    p->pages[page].fill = 7;
    kit_run(&k);
    const struct ek_engine_stats *s = ek_engine_get_stats(k.engine);
    assert_int_equal(p->pages[page].state, EK_PAGE_QUARANTINE);
    assert_int_equal(s->faults[EK_PAGE_FAULT_FILL], 1);
    assert_int_equal(s->faults[EK_PAGE_FAULT_STATE], 0);
    assert_int_equal(s->n_preempted, N - 1);
    int n_failed = 0;
    for (int i = 0; i < N; i++) {
        struct ek_request *alone = sharer(i);
        kit_submit(&solo, alone);
        kit_run(&solo);
        if (kit_answer(r[i], 0)->finish == EK_FINISH_ERROR)
            n_failed++;
        else
            kit_assert_same(kit_answer(r[i], 0), kit_answer(alone, 0));
        kit_free(alone);
        kit_free(r[i]);
    }
    assert_int_equal(n_failed, 1);
    kit_close(&k);
    kit_close(&solo);
}

/* ---- the seam between prefill and decode ---- */

static void a_decode_adopts_a_prefills_pages_under_an_owner_of_its_own(void **state)
{
    (void)state;
    static struct kit k;
    open_checked(&k, EK_PAGE_CHECK_FULL, false);
    struct ek_request *alone = make(0), *r = make(0);
    struct ek_choice *c = &r->choices[0];
    kit_submit(&k, alone);
    kit_run(&k);
    kit_submit(&k, r);
    c = &r->choices[0];
    while (c->prefill.n_tokens < 32)
        ek_engine_step(k.engine);
    struct ek_page_ref refs[4];
    struct ek_page_table before = c->prefill;
    memcpy(refs, before.refs, (size_t)before.n_pages * sizeof refs[0]);
    before.refs = refs;
    kit_step_until(&k, r, 1);
    assert_int_equal(c->prefill.n_pages, 0);
    assert_int_not_equal(c->decode.owner, before.owner);
    assert_int_equal(c->decode.refs[0].page, refs[0].page);
    /* Whoever kept the prefill's table can read nothing with it. */
    int32_t numbers[4];
    assert_int_not_equal(ek_pages_check(ek_engine_get_pages(k.engine), &before,
                                        c->tokens, 0, numbers, NULL),
                         EK_PAGE_FAULT_NONE);
    kit_run(&k);
    kit_assert_same(kit_answer(r, 0), kit_answer(alone, 0));
    kit_free(alone);
    kit_free(r);
    kit_close(&k);
}

/* Another choice's decode takes what this one's prefill ended in: pages, fill, first
 * token, logits, and nothing else. */
static void a_prefilled_sequence_goes_on_elsewhere_with_the_same_tokens(void **state)
{
    (void)state;
    static struct kit k;
    open_checked(&k, EK_PAGE_CHECK_FULL, false);
    struct ek_request *alone = make(0), *from = make(0), *to = make(0);
    kit_submit(&k, alone);
    kit_run(&k);
    kit_submit(&k, from);
    kit_step_until(&k, from, 1);
    struct ek_choice *a = &from->choices[0];
    /* As it was when the prefill ended: the token before the last one was sampled. */
    float row[512];
    int32_t numbers[4];
    assert_int_equal(
        ek_pages_check(&k.engine->pages, &a->decode, a->tokens, 0, numbers, NULL),
        EK_PAGE_FAULT_NONE);
    kit_row(&k, row, numbers, a->decode.n_tokens - 1);
    kit_submit(&k, to);
    struct ek_choice *b = &to->choices[0];
    struct ek_prefilled unit = {.pages = &a->decode, .row = row};
    assert_int_equal(ek_choice_draw(b, &unit.first_id, row, &k.engine->room), 0);
    ek_choice_set_state(k.engine, b, EK_CHOICE_RUNNING);
    ek_decode_adopt(k.engine, b, &unit);
    to->leader = -1;
    ek_engine_cancel(k.engine, from);
    kit_run(&k);
    assert_int_equal(b->n_computed, b->n_tokens - 1);
    kit_assert_same(kit_answer(to, 0), kit_answer(alone, 0));
    kit_free(alone);
    kit_free(from);
    kit_free(to);
    kit_close(&k);
}

/* ---- n > 1 ---- */

static void choices_share_the_prompt_and_each_says_what_it_would_alone(void **state)
{
    (void)state;
    for (int is_cached = 0; is_cached < 2; is_cached++) {
        static struct kit k;
        open_checked(&k, EK_PAGE_CHECK_FULL, is_cached);
        struct ek_request *r = make(0);
        struct ek_request *four =
            kit_request("forty tokens, and then some of them", 50, 4);
        four->wants_logprobs = true;
        kit_free(r);
        kit_submit(&k, four);
        kit_step_until(&k, four, 1);
        assert_int_equal(ek_engine_get_stats(k.engine)->prompt_tokens, four->n_prompt);
        assert_int_equal(k.n_copies, 3);
        int32_t page = ek_choice_table(&four->choices[0])->refs[1].page;
        assert_int_equal(ek_engine_get_pages(k.engine)->pages[page].n_refs, 4);
        kit_run(&k);
        for (int i = 0; i < 4; i++) {
            struct ek_request *one =
                kit_request("forty tokens, and then some of them", 50, 1);
            one->wants_logprobs = true;
            one->sampling.seed = (uint64_t)i; /* what choice i is given */
            kit_submit(&k, one);
            kit_run(&k);
            kit_assert_same(kit_answer(four, i), kit_answer(one, 0));
            kit_free(one);
        }
        kit_free(four);
        kit_close(&k);
    }
}

static void more_choices_than_seats_take_turns(void **state)
{
    (void)state;
    static struct kit k;
    open_checked(&k, EK_PAGE_CHECK_FULL, true);
    struct ek_request *r = kit_request("some prompt of twenty", 20, 11);
    kit_submit(&k, r);
    kit_run(&k);
    for (int i = 0; i < 11; i++)
        assert_int_equal(kit_answer(r, i)->n_ids, 20);
    /* Four by four; the others compute what is not in whole pages. */
    assert_int_equal(ek_engine_get_stats(k.engine)->prompt_tokens, 21 + 7 * 5);
    kit_free(r);
    kit_close(&k);
}

static void when_the_leader_fails_the_next_choice_computes_the_prompt(void **state)
{
    (void)state;
    static struct kit k;
    open_checked(&k, EK_PAGE_CHECK_FULL, false);
    struct ek_request *r = kit_request("forty tokens, and then some of them", 50, 3);
    r->wants_prompt_logprobs = true;
    kit_submit(&k, r);
    while (r->choices[0].prefill.n_tokens < 16)
        ek_engine_step(k.engine);
    r->choices[0].prefill.refs[0].generation--;
    kit_run(&k);
    assert_int_equal(kit_answer(r, 0)->finish, EK_FINISH_ERROR);
    assert_int_equal(kit_answer(r, 1)->n_ids, 50);
    assert_int_equal(kit_answer(r, 2)->n_ids, 50);
    assert_int_equal(r->n_prompt_done, r->n_prompt);
    kit_free(r);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forged_table_is_found_and_ends_that_request_alone),
        cmocka_unit_test(a_wrong_book_is_found_and_ends_that_request_alone),
        cmocka_unit_test(tokens_other_than_those_written_are_found_by_the_full_check),
        cmocka_unit_test(holders_of_a_page_that_failed_for_one_are_recomputed),
        cmocka_unit_test(a_decode_adopts_a_prefills_pages_under_an_owner_of_its_own),
        cmocka_unit_test(a_prefilled_sequence_goes_on_elsewhere_with_the_same_tokens),
        cmocka_unit_test(choices_share_the_prompt_and_each_says_what_it_would_alone),
        cmocka_unit_test(more_choices_than_seats_take_turns),
        cmocka_unit_test(when_the_leader_fails_the_next_choice_computes_the_prompt),
    };
    return cmocka_run_group_tests(tests, run_solos, free_solos);
}
