/* test_answer.c - streams of events: which moment counts, whatever the packets. */
#include "load/answer.h"
#include "testkit.h"

static const char chat[] =
    ": hello\n\n"
    "data: "
    "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
    "\"finish_reason\":null}],\"usage\":null}\r\n\r\n"
    "event: x\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n"
    "data:{\"choices\":[{\"delta\":{\"content\":\" you\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":31,\"completion_tokens\":2,"
    "\"prompt_tokens_details\":{\"cached_tokens\":16}}}\n\n"
    "data: [DONE]\n\n"
    "data: no JSON, but behind the end\n\n";

struct gaps {
    int64_t us[8];
    size_t n;
};

static void on_gap(void *arg, int64_t us)
{
    struct gaps *g = arg;
    assert_true(g->n < 8);
    g->us[g->n++] = us;
}

/* Feeds line by line; line i arrives at 100 (i + 1). */
static int feed_lines(struct ek_answer *a, const char *text, struct ek_err *err)
{
    int64_t now = 0;
    int rc = 0;
    while (*text && !rc) {
        size_t n = strcspn(text, "\n");
        n += text[n] == '\n';
        char *copy = ek_exact_copy(text, n);
        rc = ek_answer_feed(a, copy, n, now += 100, err);
        free(copy);
        text += n;
    }
    return rc;
}

static void the_first_token_is_the_first_text_and_not_the_role(void **state)
{
    (void)state;
    struct ek_answer a;
    struct gaps g = {0};
    ek_answer_init(&a);
    a.on_gap = on_gap;
    a.arg = &g;
    assert_int_equal(feed_lines(&a, chat, NULL), 0);
    assert_int_equal(a.first_event_us, 300);
    assert_int_equal(a.first_text_us, 600);
    assert_int_equal(a.last_text_us, 800);
    assert_int_equal(a.done_us, 1400);
    assert_int_equal(a.n_texts, 2);
    assert_int_equal(g.n, 1);
    assert_int_equal(g.us[0], 200);
    assert_int_equal(a.n_prompt, 31);
    assert_int_equal(a.n_output, 2);
    assert_int_equal(a.n_cached, 16);
    assert_int_equal(ek_answer_end(&a, NULL), 0);
    ek_answer_release(&a);
}

static void any_cut_of_the_bytes_gives_the_same_answer(void **state)
{
    (void)state;
    for (size_t cut = 0; cut <= strlen(chat); cut++) {
        struct ek_answer a;
        char *head = ek_exact_copy(chat, cut);
        char *tail = ek_exact_copy(chat + cut, strlen(chat) - cut);
        ek_answer_init(&a);
        assert_int_equal(ek_answer_feed(&a, head, cut, 1, NULL), 0);
        assert_int_equal(ek_answer_feed(&a, tail, strlen(chat) - cut, 2, NULL), 0);
        assert_int_equal(a.n_texts, 2);
        assert_int_equal(a.n_output, 2);
        assert_true(a.done_us && a.has_finish);
        assert_int_equal(ek_answer_end(&a, NULL), 0);
        ek_answer_release(&a);
        free(head);
        free(tail);
    }
}

static void completions_and_reasoning_are_text_too(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "data: {\"choices\":[{\"text\":\"a\"}]}\n",
        "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}\n",
        "data: {\"choices\":[{\"delta\":{\"content\":null,\"reasoning\":\"a\"}}]}\n"};
    for (size_t i = 0; i < 3; i++) {
        struct ek_answer a;
        ek_answer_init(&a);
        assert_int_equal(feed_lines(&a, texts[i], NULL), 0);
        assert_int_equal(a.n_texts, 1);
        ek_answer_release(&a);
    }
}

static void what_is_no_stream_of_events_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int feed, end;
        const char *says;
    } bad[] = {
        {"", 0, EK_EFORMAT, "no stream"},
        {"{\"choices\":[{\"text\":\"a\"}]}\n", 0, EK_EFORMAT, "no stream"},
        {"data: {\"choices\":[{\"text\":\"a\"}]}\n", 0, EK_EIO, "ended early"},
        {"data: {\"choices\n", EK_EFORMAT, 0, "event of"},
        {"data: garbage\n", EK_EFORMAT, 0, "event of"},
        {"data: [1]\n", EK_EFORMAT, 0, "no JSON object"},
        {"data: \"x\"\n", EK_EFORMAT, 0, "no JSON object"},
        {"data: {\"error\":{\"message\":\"out of pages\"}}\n", EK_EIO, 0,
         "out of pages"},
        {"data: {\"error\":\"odd\"}\n", EK_EIO, 0, "without a message"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ek_answer a;
        struct ek_err err = EK_ERR_INIT;
        ek_answer_init(&a);
        int rc = feed_lines(&a, bad[i].text, &err);
        assert_int_equal(rc, bad[i].feed);
        if (!rc)
            assert_int_equal(ek_answer_end(&a, &err), bad[i].end);
        if (!strstr(err.text, bad[i].says))
            fail_msg("'%s' says '%s'", bad[i].text, err.text);
        ek_answer_release(&a);
    }
}

static void odd_usage_is_taken_for_none(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "data: {\"choices\":[],\"usage\":{\"completion_tokens\":-1}}\n",
        "data: {\"choices\":[],\"usage\":{\"completion_tokens\":1e9}}\n",
        "data: {\"choices\":[],\"usage\":{\"completion_tokens\":9999999999}}\n",
        "data: {\"choices\":[],\"usage\":[]}\n",
        "data: {\"choices\":{}}\n",
        "data: {\"usage\":{\"prompt_tokens_details\":7}}\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct ek_answer a;
        ek_answer_init(&a);
        assert_int_equal(feed_lines(&a, texts[i], NULL), 0);
        assert_int_equal(a.n_output, -1);
        assert_int_equal(a.first_event_us, 0);
        ek_answer_release(&a);
    }
}

static void a_line_without_end_stops_at_its_limit(void **state)
{
    (void)state;
    struct ek_answer a;
    struct ek_err err = EK_ERR_INIT;
    size_t n = 1 << 20;
    char *block = malloc(n);
    assert_non_null(block);
    memset(block, 'x', n);
    ek_answer_init(&a);
    int rc = 0;
    for (int i = 0; i < 8 && !rc; i++)
        rc = ek_answer_feed(&a, block, n, 1, &err);
    assert_int_equal(rc, EK_ELIMIT);
    assert_true(a.line.len <= EK_ANSWER_LINE_MAX);
    ek_answer_release(&a);
    free(block);
}

static void a_reset_answer_is_as_new(void **state)
{
    (void)state;
    struct ek_answer a;
    ek_answer_init(&a);
    assert_int_equal(ek_answer_feed(&a, chat, strlen(chat) - 30, 5, NULL), 0);
    ek_answer_reset(&a);
    assert_int_equal(a.n_texts + (uint64_t)a.done_us + (uint64_t)a.first_event_us, 0);
    assert_int_equal(a.n_prompt, -1);
    assert_int_equal(ek_answer_end(&a, NULL), EK_EFORMAT);
    assert_int_equal(feed_lines(&a, chat, NULL), 0);
    assert_int_equal(a.n_texts, 2);
    ek_answer_release(&a);
}

static void feeding_survives_any_failed_allocation(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_answer a;
        ek_answer_init(&a);
        int rc = ek_answer_feed(&a, chat, 40, 1, NULL);
        if (!rc)
            rc = ek_answer_feed(&a, chat + 40, strlen(chat) - 40, 2, NULL);
        ek_assert_rc(rc);
        ek_answer_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_token_is_the_first_text_and_not_the_role),
        cmocka_unit_test(any_cut_of_the_bytes_gives_the_same_answer),
        cmocka_unit_test(completions_and_reasoning_are_text_too),
        cmocka_unit_test(what_is_no_stream_of_events_is_told),
        cmocka_unit_test(odd_usage_is_taken_for_none),
        cmocka_unit_test(a_line_without_end_stops_at_its_limit),
        cmocka_unit_test(a_reset_answer_is_as_new),
        cmocka_unit_test(feeding_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
