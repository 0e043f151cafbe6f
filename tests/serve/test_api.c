/* JSON bodies into parameters: what is taken, what is refused and by which name. */
#include "serve/api.h"
#include "testkit.h"

struct parsed {
    struct ek_arena arena;
    struct ek_api_params p;
    struct ek_api_error e;
    int rc;
};

static void parse(struct parsed *r, enum ek_api_kind kind, const char *body, size_t n)
{
    memset(r, 0, sizeof *r);
    ek_arena_init(&r->arena, 1 << 20);
    r->rc = ek_api_parse(&r->p, kind, body, n, &r->arena, &r->e);
}

static void done(struct parsed *r)
{
    if (r->rc == 0)
        ek_api_params_release(&r->p);
    ek_arena_release(&r->arena);
}

#define MSG "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void every_field_arrives(void **state)
{
    (void)state;
    static const char body[] =
        "{" MSG ",\"model\":\"m\",\"n\":2,\"max_tokens\":10,"
        "\"max_completion_tokens\":20,\"min_tokens\":3,\"seed\":-5,\"temperature\":0.5,"
        "\"top_p\":0.9,\"top_k\":40,\"min_p\":0.05,\"frequency_penalty\":-1.5,"
        "\"presence_penalty\":1.5,\"repetition_penalty\":1.1,\"logprobs\":true,"
        "\"top_logprobs\":5,\"stop\":[\"a\",\"bc\"],\"stop_token_ids\":[7,8],"
        "\"logit_bias\":{\"5\":-100,\"6\":2.5},\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true},"
        "\"include_stop_str_in_output\":true,\"ignore_eos\":true,"
        "\"skip_special_tokens\":false,\"return_token_ids\":true,"
        "\"request_id\":\"r1\",\"user\":\"u\",\"cache_salt\":\"s\",\"priority\":-7,"
        "\"timeout\":1.5,"
        "\"response_format\":{\"type\":\"text\"},\"tool_choice\":\"none\",\"tools\":[],"
        "\"parallel_tool_calls\":true,\"chat_template_kwargs\":{\"x\":1},"
        "\"something_new\":{\"a\":[1]}}";
    struct parsed r;
    parse(&r, EK_API_CHAT, body, sizeof body - 1);
    assert_string_equal(r.e.err.text, "");
    assert_int_equal(r.rc, 0);
    const struct ek_api_params *p = &r.p;
    assert_string_equal(p->model, "m");
    assert_int_equal(p->n, 2);
    assert_int_equal(p->max_tokens, 20); /* max_completion_tokens wins */
    assert_int_equal(p->min_tokens, 3);
    assert_true(p->has_seed && p->seed == -5);
    assert_true(p->temperature == 0.5 && p->top_p == 0.9 && p->min_p == 0.05);
    assert_true(p->frequency_penalty == -1.5 && p->presence_penalty == 1.5);
    assert_true(p->repetition_penalty == 1.1);
    assert_int_equal(p->top_k, 40);
    assert_true(p->logprobs && p->n_top == 5);
    assert_int_equal(p->n_stops, 2);
    assert_memory_equal(p->stops[1].p, "bc", 2);
    assert_int_equal(p->n_stop_ids, 2);
    assert_int_equal(p->stop_ids[1], 8);
    assert_int_equal(p->n_bias, 2);
    assert_true(p->stream && p->include_usage && p->continuous_usage);
    assert_true(p->include_stop && p->ignore_eos && p->return_token_ids);
    assert_false(p->skip_special_tokens);
    assert_string_equal(p->request_id, "r1");
    assert_string_equal(p->cache_salt, "s");
    assert_int_equal(p->priority, -7);
    assert_true(p->timeout == 1.5);
    assert_non_null(p->kwargs);
    done(&r);
}

static void null_counts_as_absent(void **state)
{
    (void)state;
    static const char *const names[] = {
        "model",       "n",           "max_tokens",      "max_completion_tokens",
        "seed",        "temperature", "top_p",           "top_k",
        "stop",        "logit_bias",  "logprobs",        "top_logprobs",
        "stream",      "tools",       "response_format", "stream_options",
        "tool_choice", "user",        "presence_penalty"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char body[200];
        struct parsed r;
        int n = snprintf(body, sizeof body, "{" MSG ",\"%s\":null}", names[i]);
        parse(&r, EK_API_CHAT, body, (size_t)n);
        assert_int_equal(r.rc, 0);
        assert_true(r.p.temperature == 1 && r.p.n == 1 && !r.p.has_seed);
        done(&r);
    }
}

struct refusal {
    const char *fields; /* beside the messages or prompt */
    const char *param;
};

static void refuse_each(enum ek_api_kind kind, const char *base,
                        const struct refusal *cases, size_t n_cases)
{
    for (size_t i = 0; i < n_cases; i++) {
        char body[1024];
        struct parsed r;
        const char *comma = *base && *cases[i].fields ? "," : "";
        int n = snprintf(body, sizeof body, "{%s%s%s}", base, comma, cases[i].fields);
        parse(&r, kind, body, (size_t)n);
        if (r.rc == 0)
            fail_msg("accepted: %s", body);
        assert_int_equal(r.e.http, 400);
        if (strcmp(r.e.param, cases[i].param) != 0)
            fail_msg("%s: named %s, not %s", body, r.e.param, cases[i].param);
        assert_true(strstr(r.e.err.text, cases[i].param) || !*cases[i].param);
        done(&r);
    }
}
#define REFUSE(kind, base, cases)                                                      \
    refuse_each(kind, base, cases, sizeof cases / sizeof cases[0])

static void numbers_out_of_range_and_wrong_types_are_named(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        {"\"n\":0", "n"},
        {"\"n\":-1", "n"},
        {"\"n\":17", "n"},
        {"\"n\":1.5", "n"},
        {"\"n\":\"1\"", "n"},
        {"\"n\":true", "n"},
        {"\"max_tokens\":0", "max_tokens"},
        {"\"max_tokens\":-1", "max_tokens"},
        {"\"max_tokens\":2147483648", "max_tokens"},
        {"\"max_tokens\":9223372036854775807", "max_tokens"},
        {"\"max_tokens\":1e30", "max_tokens"},
        {"\"max_tokens\":[1]", "max_tokens"},
        {"\"max_completion_tokens\":0", "max_completion_tokens"},
        {"\"min_tokens\":-1", "min_tokens"},
        {"\"min_tokens\":5,\"max_tokens\":4", "min_tokens"},
        {"\"temperature\":-0.1", "temperature"},
        {"\"temperature\":2.1", "temperature"},
        {"\"temperature\":\"hot\"", "temperature"},
        {"\"top_p\":1.01", "top_p"},
        {"\"top_p\":-1", "top_p"},
        {"\"min_p\":2", "min_p"},
        {"\"top_k\":-2", "top_k"},
        {"\"top_k\":0.5", "top_k"},
        {"\"frequency_penalty\":2.5", "frequency_penalty"},
        {"\"presence_penalty\":-3", "presence_penalty"},
        {"\"repetition_penalty\":0", "repetition_penalty"},
        {"\"seed\":\"x\"", "seed"},
        {"\"seed\":0.5", "seed"},
        {"\"top_logprobs\":21,\"logprobs\":true", "top_logprobs"},
        {"\"top_logprobs\":3", "top_logprobs"},
        {"\"logprobs\":5", "logprobs"},
        {"\"stream\":\"yes\"", "stream"},
        {"\"stream\":1", "stream"},
        {"\"stream_options\":{}", "stream_options"},
        {"\"stream\":true,\"stream_options\":3", "stream_options"},
        {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", "include_usage"},
        {"\"stop\":\"\"", "stop"},
        {"\"stop\":[\"\"]", "stop"},
        {"\"stop\":[1]", "stop"},
        {"\"stop\":{}", "stop"},
        {"\"stop\":5", "stop"},
        {"\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\","
         "\"11\","
         "\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]",
         "stop"},
        {"\"stop_token_ids\":[-1]", "stop_token_ids"},
        {"\"stop_token_ids\":[\"a\"]", "stop_token_ids"},
        {"\"stop_token_ids\":4", "stop_token_ids"},
        {"\"logit_bias\":{\"a\":1}", "logit_bias"},
        {"\"logit_bias\":{\"-1\":1}", "logit_bias"},
        {"\"logit_bias\":{\"1\":101}", "logit_bias"},
        {"\"logit_bias\":{\"1\":\"x\"}", "logit_bias"},
        {"\"logit_bias\":{\"99999999999\":1}", "logit_bias"},
        {"\"logit_bias\":[1]", "logit_bias"},
        {"\"model\":5", "model"},
        {"\"cache_salt\":\"\"", "cache_salt"},
        {"\"cache_salt\":5", "cache_salt"},
        {"\"cache_salt\":\"a\\u0000b\"", "cache_salt"},
        {"\"priority\":2147483648", "priority"},
        {"\"priority\":-2147483649", "priority"},
        {"\"priority\":0.5", "priority"},
        {"\"priority\":\"high\"", "priority"},
        {"\"priority\":true", "priority"},
        {"\"timeout\":0", "timeout"},
        {"\"timeout\":-1", "timeout"},
        {"\"timeout\":86401", "timeout"},
        {"\"timeout\":1e308", "timeout"},
        {"\"timeout\":\"1s\"", "timeout"},
        {"\"timeout\":{\"call_timeout\":1}", "timeout"},
        {"\"request_id\":\"a\\r\\nX: 1\"", "request_id"},
        {"\"request_id\":\"\\u007f\"", "request_id"},
        {"\"chat_template_kwargs\":[]", "chat_template_kwargs"},
        {"\"echo\":true", "echo"},
    };
    REFUSE(EK_API_CHAT, MSG, cases);
}

static void what_is_not_supported_is_refused_by_name(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        {"\"tools\":[{\"type\":\"function\"}]", "tools"},
        {"\"tool_choice\":\"required\"", "tool_choice"},
        {"\"tool_choice\":{\"type\":\"function\"}", "tool_choice"},
        {"\"functions\":[{}]", "functions"},
        {"\"response_format\":{\"type\":\"json_object\"}", "response_format"},
        {"\"response_format\":{\"type\":\"json_schema\"}", "response_format"},
        {"\"response_format\":\"text\"", "response_format"},
        {"\"modalities\":[\"text\",\"audio\"]", "modalities"},
        {"\"guided_json\":{\"a\":1}", "guided_json"},
        {"\"prompt_logprobs\":1", "prompt_logprobs"},
    };
    REFUSE(EK_API_CHAT, MSG, cases);
    static const struct refusal others[] = {
        {"\"suffix\":\"x\"", "suffix"},
        {"\"n\":2,\"best_of\":3", "best_of"},
        {"\"logprobs\":true", "logprobs"},
        {"\"logprobs\":21", "logprobs"},
    };
    REFUSE(EK_API_COMPLETION, "\"prompt\":\"x\"", others);
}

static void messages_are_checked_one_by_one(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        {"", "messages"},
        {"\"messages\":[]", "messages"},
        {"\"messages\":\"hi\"", "messages"},
        {"\"messages\":{}", "messages"},
        {"\"messages\":[1]", "messages[0]"},
        {"\"messages\":[{}]", "messages[0]"},
        {"\"messages\":[{\"role\":\"user\"}]", "messages[0]"},
        {"\"messages\":[{\"role\":\"user\",\"content\":null}]", "messages[0]"},
        {"\"messages\":[{\"role\":\"user\",\"content\":5}]", "messages[0]"},
        {"\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]", "messages[0]"},
        {"\"messages\":[{\"role\":7,\"content\":\"x\"}]", "messages[0]"},
        {"\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\"}"
         "]",
         "messages[1]"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]",
         "messages[0]"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]",
         "messages[0]"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[3]}]", "messages[0]"},
    };
    REFUSE(EK_API_CHAT, "", cases);
}

static void content_parts_are_joined(void **state)
{
    (void)state;
    static const char body[] =
        "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\","
        "\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\\u0000c\"}]},{\"role\":"
        "\"assistant\",\"content\":null,\"tool_calls\":[{}]}]}";
    struct parsed r;
    parse(&r, EK_API_CHAT, body, sizeof body - 1);
    assert_int_equal(r.rc, 0);
    const json_t *m = json_array_get(r.p.messages, 0);
    const json_t *content = json_object_get(m, "content");
    assert_int_equal(json_string_length(content), 5);
    assert_memory_equal(json_string_value(content), "a\nb\0c", 5);
    assert_string_equal(json_string_value(json_object_get(m, "role")), "system");
    done(&r);
}

static void prompts_have_four_shapes(void **state)
{
    (void)state;
    static const char *const good[] = {"\"a\"", "[\"a\",\"b\"]", "[1,2]",
                                       "[[1],[2,3]]"};
    for (size_t i = 0; i < 4; i++) {
        char body[64];
        struct parsed r;
        int n = snprintf(body, sizeof body, "{\"prompt\":%s}", good[i]);
        parse(&r, EK_API_COMPLETION, body, (size_t)n);
        assert_int_equal(r.rc, 0);
        assert_int_equal(r.p.max_tokens, 16);
        done(&r);
    }
    static const struct refusal cases[] = {
        {"", "prompt"},
        {"\"prompt\":null", "prompt"},
        {"\"prompt\":\"\"", "prompt"},
        {"\"prompt\":[]", "prompt"},
        {"\"prompt\":[[]]", "prompt"},
        {"\"prompt\":[\"a\",\"\"]", "prompt"},
        {"\"prompt\":[\"a\",1]", "prompt"},
        {"\"prompt\":[1,\"a\"]", "prompt"},
        {"\"prompt\":[-1]", "prompt"},
        {"\"prompt\":[2147483648]", "prompt"},
        {"\"prompt\":[[1],\"a\"]", "prompt"},
        {"\"prompt\":[[1.5]]", "prompt"},
        {"\"prompt\":5", "prompt"},
        {"\"prompt\":{}", "prompt"},
        {"\"prompt\":[null]", "prompt"},
        {"\"n\":16,\"prompt\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]",
         "prompt"},
    };
    REFUSE(EK_API_COMPLETION, "", cases);
}

static void bodies_that_are_no_object_are_refused(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "{",
        "nonsense",
        "[]",
        "null",
        "3",
        "\"x\"",
        "{" MSG "} trailing",
        "{" MSG ",\"n\":1,\"n\":2}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud83d\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
        "{" MSG ",\"temperature\":1e400}",
        "{" MSG ",\"seed\":99999999999999999999}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct parsed r;
        parse(&r, EK_API_CHAT, bodies[i], strlen(bodies[i]));
        assert_int_not_equal(r.rc, 0);
        assert_int_equal(r.e.http, 400);
        done(&r);
    }
}

static void deep_nesting_is_refused_before_it_is_parsed(void **state)
{
    (void)state;
    char body[70000];
    size_t n = (size_t)snprintf(body, sizeof body, "{" MSG ",\"x\":");
    memset(body + n, '[', 60000);
    struct parsed r;
    parse(&r, EK_API_CHAT, body, n + 60000);
    assert_int_equal(r.e.http, 400);
    assert_non_null(strstr(r.e.err.text, "64"));
    done(&r);
}

static void a_body_cut_anywhere_is_refused(void **state)
{
    (void)state;
    static const char body[] = "{" MSG ",\"stop\":[\"a\"],\"logit_bias\":{\"1\":2}}";
    for (size_t n = 0; n + 1 < sizeof body; n++) {
        char *copy = ek_exact_copy(body, n);
        struct parsed r;
        parse(&r, EK_API_CHAT, copy, n);
        assert_int_not_equal(r.rc, 0);
        done(&r);
        free(copy);
    }
}

static void any_failed_allocation_is_an_error_500(void **state)
{
    (void)state;
    /* Tokens of at most 15 bytes: where jansson 2.14's token buffer must grow and
     * cannot, it writes past the end by itself. */
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"a\"}]}],\"stop\":[\"a\"],\"logit_bias\":{\"1\":2}}";
    EK_EACH_FAILURE (k) {
        struct parsed r;
        parse(&r, EK_API_CHAT, body, sizeof body - 1);
        assert_true((r.rc != 0) == ek_mem_failed());
        if (r.rc)
            assert_int_equal(r.e.http, 500);
        done(&r);
    }
}

static void errors_have_openais_shape(void **state)
{
    (void)state;
    struct ek_buf out;
    ek_buf_init(&out, 1000);
    assert_int_equal(ek_api_write_error(&out, 404, "model", "no \"x\""), 0);
    assert_string_equal(out.data,
                        "{\"error\":{\"message\":\"no \\\"x\\\"\",\"type\":"
                        "\"NotFoundError\",\"param\":\"model\",\"code\":404}}");
    ek_buf_reset(&out);
    assert_int_equal(ek_api_write_error(&out, 500, "", "x"), 0);
    assert_string_equal(out.data,
                        "{\"error\":{\"message\":\"x\",\"type\":"
                        "\"InternalServerError\",\"param\":null,\"code\":500}}");
    ek_buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_arrives),
        cmocka_unit_test(null_counts_as_absent),
        cmocka_unit_test(numbers_out_of_range_and_wrong_types_are_named),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(messages_are_checked_one_by_one),
        cmocka_unit_test(content_parts_are_joined),
        cmocka_unit_test(prompts_have_four_shapes),
        cmocka_unit_test(bodies_that_are_no_object_are_refused),
        cmocka_unit_test(deep_nesting_is_refused_before_it_is_parsed),
        cmocka_unit_test(a_body_cut_anywhere_is_refused),
        cmocka_unit_test(any_failed_allocation_is_an_error_500),
        cmocka_unit_test(errors_have_openais_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
