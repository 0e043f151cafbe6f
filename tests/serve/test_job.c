/* From parameters to requests: names, lengths, tokens, and who wrote which byte. */
#include "serve/enginekit.h"
#include "serve/job.h"

static const char chat_source[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    "{{ extra }}";

struct fixture {
    struct kit kit;
    struct ek_runtime rt;
    struct ek_job_model model;
    struct ek_arena arena;
    struct ek_api_params p;
    struct ek_api_error e;
    struct ek_job *jobs;
    int32_t n_jobs;
};

static void setup(struct fixture *f)
{
    struct ek_engine_options o;
    struct ek_err err = EK_ERR_INIT;
    memset(f, 0, sizeof *f);
    kit_default(&o);
    kit_open(&f->kit, &o);
    f->rt.tokenizer = f->kit.tokenizer;
    f->rt.ctx = KIT_CTX;
    f->rt.longest_piece = 10;
    f->rt.engine_model.V = f->kit.V;
    if (ek_template_parse(&f->rt.chat, chat_source, sizeof chat_source - 1, &err))
        fail_msg("%s", err.text);
    f->model = (struct ek_job_model){f->kit.engine, &f->rt, "here"};
}

static void teardown(struct fixture *f)
{
    ek_template_free(f->rt.chat);
    kit_close(&f->kit);
}

static int build(struct fixture *f, enum ek_api_kind kind, const char *body)
{
    ek_arena_init(&f->arena, 1 << 20);
    int rc = ek_api_parse(&f->p, kind, body, strlen(body), &f->arena, &f->e);
    if (rc)
        fail_msg("%s", f->e.err.text);
    f->jobs = NULL;
    f->n_jobs = 0;
    return ek_jobs_build(&f->jobs, &f->n_jobs, &f->model, &f->p, &f->e);
}

static void clear(struct fixture *f)
{
    ek_jobs_free(f->jobs, f->n_jobs);
    ek_api_params_release(&f->p);
    ek_arena_release(&f->arena);
}

static void assert_prompt(const struct fixture *f, const char *text)
{
    struct ek_buf out;
    const struct ek_request *r = &f->jobs[0].request;
    ek_buf_init(&out, 1 << 16);
    assert_int_equal(ek_tokenizer_decode(f->kit.tokenizer, &out, r->prompt,
                                         (size_t)r->n_prompt, true),
                     0);
    assert_string_equal(out.data, text);
    ek_buf_release(&out);
}

static int n_ends(const struct fixture *f)
{
    int n = 0;
    for (int32_t i = 0; i < f->jobs[0].request.n_prompt; i++)
        n += f->jobs[0].request.prompt[i] == f->kit.end_id;
    return n;
}

static void a_users_text_never_becomes_a_special_token(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    assert_int_equal(build(&f, EK_API_CHAT,
                           "{\"messages\":[{\"role\":\"user\",\"content\":"
                           "\"a<|im_end|>b\"}]}"),
                     0);
    assert_prompt(&f,
                  "<|im_start|>user\na<|im_end|>b<|im_end|>\n<|im_start|>assistant\n");
    assert_int_equal(n_ends(&f), 1); /* the template's, not the user's */
    clear(&f);
    /* Raw prompts are the caller's own. */
    assert_int_equal(build(&f, EK_API_COMPLETION, "{\"prompt\":\"a<|im_end|>b\"}"), 0);
    assert_int_equal(n_ends(&f), 1);
    clear(&f);
    teardown(&f);
}

static void kwargs_reach_the_template_and_replace_nothing(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    assert_int_equal(build(&f, EK_API_CHAT,
                           "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                           "\"add_generation_prompt\":false,\"chat_template_kwargs\":"
                           "{\"extra\":\"E\",\"messages\":[],\"add_generation_prompt\":"
                           "true}}"),
                     0);
    assert_prompt(&f, "<|im_start|>user\nx<|im_end|>\nE");
    clear(&f);
    teardown(&f);
}

static void a_final_message_is_cut_behind_its_content(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    assert_int_equal(build(&f, EK_API_CHAT,
                           "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
                           "{\"role\":\"assistant\",\"content\":\"x is \"}],"
                           "\"continue_final_message\":true}"),
                     0);
    assert_prompt(&f, "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\nx is");
    clear(&f);
    teardown(&f);
}

struct refusal {
    enum ek_api_kind kind;
    const char *body;
    int http;
    const char *param;
    const char *words[2]; /* in the sentence */
};

static void what_cannot_be_is_refused_with_its_numbers(void **state)
{
    (void)state;
    char z[301], longer[400];
    memset(z, 'z', 300);
    z[300] = 0;
    snprintf(longer, sizeof longer, "{\"prompt\":\"%s\"}", z);
    const struct refusal cases[] = {
        {EK_API_COMPLETION,
         "{\"prompt\":\"x\",\"model\":\"there\"}",
         404,
         "model",
         {"there", "here"}},
        {EK_API_COMPLETION, longer, 400, "prompt", {"300", "256"}},
        {EK_API_COMPLETION,
         "{\"prompt\":\"xyz\",\"max_tokens\":254}",
         400,
         "max_tokens",
         {"254", "256"}},
        {EK_API_COMPLETION,
         "{\"prompt\":[5,100000]}",
         400,
         "prompt",
         {"100000", "271"}},
        {EK_API_COMPLETION,
         "{\"prompt\":\"x\",\"logit_bias\":{\"5000\":1}}",
         400,
         "logit_bias",
         {"5000", "271"}},
        {EK_API_CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"min_tokens\":250}",
         400,
         "min_tokens",
         {"250", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        setup(&f);
        assert_int_not_equal(build(&f, cases[i].kind, cases[i].body), 0);
        assert_int_equal(f.e.http, cases[i].http);
        assert_string_equal(f.e.param, cases[i].param);
        for (int w = 0; w < 2; w++) {
            if (!strstr(f.e.err.text, cases[i].words[w]))
                fail_msg("%s lacks %s", f.e.err.text, cases[i].words[w]);
        }
        clear(&f);
        teardown(&f);
    }
}

static void a_model_without_a_template_still_completes(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    ek_template_free(f.rt.chat);
    f.rt.chat = NULL;
    assert_int_not_equal(
        build(&f, EK_API_CHAT,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"),
        0);
    assert_int_equal(f.e.http, 400);
    assert_non_null(strstr(f.e.err.text, "/v1/completions"));
    clear(&f);
    assert_int_equal(build(&f, EK_API_COMPLETION, "{\"prompt\":[\"a\",\"b\"],\"n\":3}"),
                     0);
    assert_int_equal(f.n_jobs, 2);
    assert_int_equal(f.jobs[1].request.n, 3);
    clear(&f);
    teardown(&f);
}

static void the_rest_of_the_context_is_a_chats_default(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    assert_int_equal(build(&f, EK_API_CHAT,
                           "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"),
                     0);
    const struct ek_request *r = &f.jobs[0].request;
    assert_int_equal(r->max_tokens, KIT_CTX - r->n_prompt);
    clear(&f);
    teardown(&f);
}

static void build_survives_any_failed_allocation(void **state)
{
    (void)state;
    static const char body[] = "{\"prompt\":[\"one\",\"two\"],\"n\":2,\"echo\":true,"
                               "\"logprobs\":2,\"stop\":\"x\","
                               "\"logit_bias\":{\"1\":1},\"presence_penalty\":1}";
    struct fixture f;
    setup(&f);
    ek_arena_init(&f.arena, 1 << 20);
    assert_int_equal(
        ek_api_parse(&f.p, EK_API_COMPLETION, body, sizeof body - 1, &f.arena, &f.e),
        0);
    EK_EACH_FAILURE (k) {
        f.jobs = NULL;
        f.n_jobs = 0;
        int rc = ek_jobs_build(&f.jobs, &f.n_jobs, &f.model, &f.p, &f.e);
        assert_true((rc != 0) == ek_mem_failed());
        if (rc)
            assert_int_equal(f.e.http, 500);
        ek_jobs_free(f.jobs, f.n_jobs);
    }
    f.jobs = NULL;
    f.n_jobs = 0;
    clear(&f);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_users_text_never_becomes_a_special_token),
        cmocka_unit_test(kwargs_reach_the_template_and_replace_nothing),
        cmocka_unit_test(a_final_message_is_cut_behind_its_content),
        cmocka_unit_test(what_cannot_be_is_refused_with_its_numbers),
        cmocka_unit_test(a_model_without_a_template_still_completes),
        cmocka_unit_test(the_rest_of_the_context_is_a_chats_default),
        cmocka_unit_test(build_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
