/* What clients get is JSON whatever the tokens are, and of OpenAI's shape. */
#include "serve/answer.h"
#include "serve/enginekit.h"

struct fixture {
    struct kit kit;
    struct ek_buf text;
    struct ek_out out;
    struct ek_answer_head head;
};

static void setup(struct fixture *f, enum ek_api_kind kind)
{
    struct ek_engine_options o;
    kit_default(&o);
    kit_open(&f->kit, &o);
    ek_buf_init(&f->text, 1 << 20);
    f->out = (struct ek_out){&f->text, 0};
    f->head = (struct ek_answer_head){.kind = kind,
                                      .id = "id-1",
                                      .model = "m\"x",
                                      .created_s = 7,
                                      .tokenizer = f->kit.tokenizer,
                                      .has_logprobs = true,
                                      .has_ids = true};
}

static void teardown(struct fixture *f)
{
    ek_buf_release(&f->text);
    kit_close(&f->kit);
}

/* Parses what was written, or the data of one event. */
static json_t *parsed(const struct fixture *f, bool is_event)
{
    struct ek_err err = EK_ERR_INIT;
    const char *p = f->text.data;
    size_t n = f->text.len;
    json_t *root = NULL;
    assert_int_equal(f->out.rc, 0);
    if (is_event) {
        assert_memory_equal(p, "data: ", 6);
        assert_memory_equal(p + n - 2, "\n\n", 2);
        p += 6;
        n -= 8;
        assert_null(memchr(p, '\n', n));
    }
    if (ek_json_parse(&root, p, n, NULL, &err))
        fail_msg("%s: %s", err.text, f->text.data);
    return root;
}

/* Token 0xe2 alone is no character; two candidates have the same text; one logprob is
 * minus infinity. */
static const struct ek_token tokens[] = {{'h', -0.5f, 0}, {0xe2, -INFINITY, 1}};
static const struct ek_logprob top[] = {
    {'h', -0.5f}, {'x', -1.0f}, {0xe2, -0.1f}, {0xe3, -0.2f}};
static const struct ek_answer_usage usage = {3, 2, 1};

static struct ek_answer_piece piece_of_text(void)
{
    return (struct ek_answer_piece){
        .index = 1,
        .text = {"a\n\"\xff", 4},
        .tokens = tokens,
        .top = top,
        .n_tokens = 2,
        .n_top = 2,
        .is_first = true,
        .finish = EK_FINISH_STOP,
        .stop_id = -1,
        .stop = {"S", 1},
    };
}

static void a_chat_has_content_logprobs_and_usage(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, EK_API_CHAT);
    struct ek_answer_piece p = piece_of_text();
    ek_answer_whole(&f.out, &f.head, &p, 1, &usage);
    json_t *root = parsed(&f, false);
    const char *id, *content, *reason, *stop;
    json_t *listed, *first;
    json_int_t total, index, cached;
    assert_int_equal(
        json_unpack(root,
                    "{s:s, s:[{s:I, s:{s:s}, s:{s:o}, s:s, s:s}], s:{s:I, s:{s:I}}}",
                    "id", &id, "choices", "index", &index, "message", "content",
                    &content, "logprobs", "content", &listed, "finish_reason", &reason,
                    "stop_reason", &stop, "usage", "total_tokens", &total,
                    "prompt_tokens_details", "cached_tokens", &cached),
        0);
    assert_string_equal(content, "a\n\"\xef\xbf\xbd");
    assert_string_equal(reason, "stop");
    assert_string_equal(stop, "S");
    assert_int_equal(total, 5);
    assert_int_equal(cached, 1);
    assert_int_equal(json_array_size(listed), 2);
    first = json_array_get(listed, 1);
    assert_true(json_number_value(json_object_get(first, "logprob")) == -9999.0);
    assert_int_equal(
        json_integer_value(json_array_get(json_object_get(first, "bytes"), 0)), 0xe2);
    assert_int_equal(json_array_size(json_object_get(first, "top_logprobs")), 2);
    json_decref(root);
    teardown(&f);
}

static void a_chunk_names_the_role_once_and_no_text_is_an_empty_delta(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, EK_API_CHAT);
    struct ek_answer_piece p = piece_of_text();
    ek_answer_chunk(&f.out, &f.head, &p, NULL);
    json_t *root = parsed(&f, true);
    json_t *delta;
    assert_int_equal(json_unpack(root, "{s:[{s:o}]}", "choices", "delta", &delta), 0);
    assert_string_equal(json_string_value(json_object_get(delta, "role")), "assistant");
    assert_null(json_object_get(root, "usage"));
    json_decref(root);
    ek_buf_reset(&f.text);
    p = (struct ek_answer_piece){.finish = EK_FINISH_LENGTH, .stop_id = 5};
    ek_answer_chunk(&f.out, &f.head, &p, &usage);
    root = parsed(&f, true);
    json_int_t stop;
    assert_int_equal(json_unpack(root, "{s:[{s:o,s:I}]}", "choices", "delta", &delta,
                                 "stop_reason", &stop),
                     0);
    assert_int_equal(json_object_size(delta), 0);
    assert_int_equal(stop, 5);
    assert_non_null(json_object_get(root, "usage"));
    json_decref(root);
    teardown(&f);
}

static void a_completions_lists_have_one_length_and_no_double_keys(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, EK_API_COMPLETION);
    struct ek_answer_piece p = piece_of_text();
    ek_answer_whole(&f.out, &f.head, &p, 1, &usage);
    json_t *root = parsed(&f, false); /* refuses duplicate keys */
    json_t *logprobs;
    assert_int_equal(json_unpack(root, "{s:[{s:o}]}", "choices", "logprobs", &logprobs),
                     0);
    static const char *const lists[] = {"tokens", "token_logprobs", "top_logprobs",
                                        "text_offset"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(json_array_size(json_object_get(logprobs, lists[i])), 2);
    json_decref(root);
    teardown(&f);
}

static void the_usage_chunk_has_no_choices(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, EK_API_CHAT);
    ek_answer_usage_chunk(&f.out, &f.head, &usage);
    json_t *root = parsed(&f, true);
    assert_int_equal(json_array_size(json_object_get(root, "choices")), 0);
    assert_true(json_is_array(json_object_get(root, "choices")));
    json_decref(root);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_has_content_logprobs_and_usage),
        cmocka_unit_test(a_chunk_names_the_role_once_and_no_text_is_an_empty_delta),
        cmocka_unit_test(a_completions_lists_have_one_length_and_no_double_keys),
        cmocka_unit_test(the_usage_chunk_has_no_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
