/* test_report.c - reports of results that were made up, hostile texts among them. */
#include "base/json.h"
#include "base/utf8.h"
#include "load/report.h"
#include "testkit.h"

struct fixture {
    struct ek_load_options o;
    struct ek_load_result *r;
    struct ek_load_facts f;
    struct ek_buf out;
};

static void make(struct fixture *x, bool is_open)
{
    *x = (struct fixture){.o = {.is_open = is_open,
                                .concurrency = 4,
                                .scale = {1.0, 0.0},
                                .slo = {.ttft_ms = 5.0},
                                .workload = {.length_scale = 1.0, .time_scale = 1.0}}};
    x->r = ek_calloc(1, sizeof *x->r);
    assert_non_null(x->r);
    x->f = (struct ek_load_facts){.url = "http://x\"<&>'\x01\xff",
                                  .model = "</text><script>&\"\xe6\x97\xa5",
                                  .endpoint = "chat",
                                  .trace = "a\\b\n.jsonl",
                                  .o = &x->o,
                                  .r = x->r};
    ek_buf_init(&x->out, 1 << 20);
}

static void fill(struct fixture *x)
{
    struct ek_load_result *r = x->r;
    r->n_sent = r->n_ok = 10;
    r->n_failed = r->n_errors = 1;
    r->errors[0].n = 1;
    memcpy(r->errors[0].text, "bad \"words\" \x1b[31m", 17);
    r->span_us = 2000000;
    r->n_output = 100;
    for (int64_t i = 1; i <= 10; i++) {
        ek_hist_add(&r->ttft, i * 1000000);
        ek_hist_add(&r->e2e, i * 100000000);
        ek_hist_add(&r->itl, i == 1 ? 0 : i * 1000);
    }
}

static void drop(struct fixture *x)
{
    ek_buf_release(&x->out);
    ek_free(x->r);
}

static double number_at(const json_t *o, const char *a, const char *b)
{
    const json_t *v = json_object_get(json_object_get(o, a), b);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static void json_is_one_line_and_says_what_was_recorded(void **state)
{
    (void)state;
    struct fixture x;
    json_t *o = NULL;
    make(&x, true);
    fill(&x);
    assert_int_equal(ek_load_report_json(&x.out, &x.f), 0);
    assert_ptr_equal(strchr(x.out.data, '\n'), x.out.data + x.out.len - 1);
    assert_int_equal(ek_json_parse(&o, x.out.data, x.out.len, NULL, NULL), 0);
    assert_string_equal(json_string_value(json_object_get(o, "model")), x.f.model);
    assert_true(number_at(o, "requests", "ok") == 10.0);
    assert_true(number_at(o, "ttft_ms", "max") == 10.0);
    assert_true(number_at(o, "ttft_ms", "min") == 1.0);
    assert_true(number_at(o, "ttft_ms", "mean") == 5.5);
    assert_true(number_at(o, "itl_ms", "count") == 10.0);
    assert_true(number_at(o, "lateness_ms", "count") == 0.0);
    assert_true(json_number_value(json_object_get(o, "output_tokens_per_second")) ==
                50.0);
    json_decref(o);
    drop(&x);
}

static void svg_holds_no_markup_of_others(void **state)
{
    (void)state;
    struct fixture x;
    make(&x, false);
    fill(&x);
    assert_int_equal(ek_load_report_svg(&x.out, &x.f), 0);
    assert_null(strstr(x.out.data, "<script"));
    assert_non_null(strstr(x.out.data, "&#60;script&#62;"));
    assert_non_null(strstr(x.out.data, "prefers-color-scheme:dark"));
    assert_true(ek_utf8_is_valid(x.out.data, x.out.len));
    for (size_t i = 0; i < x.out.len; i++)
        assert_true((unsigned char)x.out.data[i] >= 0x20 || x.out.data[i] == '\n');
    drop(&x);
}

static void nothing_measured_is_reported_too(void **state)
{
    (void)state;
    for (int is_open = 0; is_open < 2; is_open++) {
        struct fixture x;
        json_t *o = NULL;
        make(&x, is_open);
        x.f.trace = NULL;
        assert_int_equal(ek_load_report_svg(&x.out, &x.f), 0);
        assert_non_null(strstr(x.out.data, "nothing was measured"));
        ek_buf_reset(&x.out);
        assert_int_equal(ek_load_report_table(&x.out, &x.f), 0);
        assert_non_null(strstr(x.out.data, "0 ok"));
        ek_buf_reset(&x.out);
        assert_int_equal(ek_load_report_json(&x.out, &x.f), 0);
        assert_int_equal(ek_json_parse(&o, x.out.data, x.out.len, NULL, NULL), 0);
        json_decref(o);
        drop(&x);
    }
}

static void reports_survive_any_failed_allocation(void **state)
{
    (void)state;
    struct fixture x;
    make(&x, true);
    fill(&x);
    EK_EACH_FAILURE (k) {
        int rc = ek_load_report_table(&x.out, &x.f);
        if (!rc)
            rc = ek_load_report_json(&x.out, &x.f);
        if (!rc)
            rc = ek_load_report_svg(&x.out, &x.f);
        ek_assert_rc(rc);
        ek_buf_release(&x.out);
        ek_buf_init(&x.out, 1 << 20);
    }
    drop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_one_line_and_says_what_was_recorded),
        cmocka_unit_test(svg_holds_no_markup_of_others),
        cmocka_unit_test(nothing_measured_is_reported_too),
        cmocka_unit_test(reports_survive_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
