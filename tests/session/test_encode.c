#include "session/out.h"
#include "sessionkit.h"

static void make(struct kit_time *k, struct ek_tracker_options *o)
{
    *k = (struct kit_time){0};
    *o = kit_options(k);
}

/* A server of 4 cores: 10 sessions, 2 cores: cost 0.15, capacity 10 + 1.2 / 0.3 = 14. */
static struct ek_tracker *load(struct kit_time *k, const struct ek_tracker_options *o)
{
    struct ek_tracker *t = kit_new(o);
    struct ek_session s[10];
    kit_begin(t, s, 10);
    assert_int_equal(ek_tracker_sample(t), 0);
    k->now = 0;
    for (int i = 0; i < 60; i++) /* long enough for n10 to be 10 */
        kit_run(t, k, 10, 2);
    return t;
}

static void expect(struct ek_tracker *t, enum ek_tracker_encoding e, const char *want)
{
    char text[EK_TRACKER_ENCODED_MAX];
    size_t len;
    assert_int_equal(ek_tracker_encode(t, e, text, sizeof text, &len), 0);
    assert_int_equal(len, strlen(text));
    assert_string_equal(text, want);
}

static void contains(struct ek_tracker *t, enum ek_tracker_encoding e, const char *want)
{
    char text[EK_TRACKER_ENCODED_MAX];
    size_t len;
    assert_int_equal(ek_tracker_encode(t, e, text, sizeof text, &len), 0);
    if (!strstr(text, want))
        fail_msg("no '%s' in:\n%s", want, text);
}

static void add(struct ek_tracker *t, const char *name, double used, double total)
{
    struct ek_resource_options o;
    ek_tracker_resource_init(&o, sizeof o);
    o.name = name;
    o.total = total;
    int id;
    assert_int_equal(ek_tracker_add_resource(t, &o, &id), 0);
    assert_int_equal(ek_tracker_set_resource(t, id, used, total), 0);
}

static const char text_want[] =
    "TEXT cpu_utilization=0.5, mem_utilization=0.1, rps_fractional=10, "
    "application_utilization=0.7142857143, utilization.kv_pages=0.2, "
    "named_metrics.active_sessions=10, named_metrics.session_cost=0.15, "
    "named_metrics.effective_capacity=14, named_metrics.remaining_sessions=4, "
    "named_metrics.young_sessions=0, named_metrics.young_weight=0.5, "
    "named_metrics.safety_factor=2";

static const char json_want[] =
    "JSON {\"cpu_utilization\":0.5,\"mem_utilization\":0.1,\"rps_fractional\":10,"
    "\"application_utilization\":0.7142857143,\"utilization\":{\"kv_pages\":0.2},"
    "\"named_metrics\":{\"active_sessions\":10,\"session_cost\":0.15,"
    "\"effective_capacity\":14,\"remaining_sessions\":4,\"young_sessions\":0,"
    "\"young_weight\":0.5,\"safety_factor\":2}}";

static struct ek_tracker *loaded(struct kit_time *k)
{
    struct ek_tracker_options o;
    make(k, &o);
    o.smoothing = EK_TRACKER_MEAN;
    o.agent_proxies = 2;
    struct ek_tracker *t = load(k, &o);
    add(t, "memory", 10, 100);
    add(t, "kv_pages", 200, 1000);
    return t;
}

static void orca_headers_hold_every_figure(void **state)
{
    (void)state;
    struct kit_time k;
    struct ek_tracker *t = loaded(&k);
    expect(t, EK_TRACKER_ORCA_TEXT, text_want);
    expect(t, EK_TRACKER_ORCA_JSON, json_want);
    ek_tracker_free(t);
}

/* The application's locale: a comma would be a separator. */
static void numbers_have_a_dot_in_any_locale(void **state)
{
    (void)state;
    struct ek_session_out o;
    char text[64];
    static const struct {
        double v;
        const char *want;
    } numbers[] = {{0, "0"},
                   {-0.0, "0"},
                   {1.5, "1.5"},
                   {-4, "-4"},
                   {1e-7, "1e-07"},
                   {(double)NAN, "0"},
                   {(double)INFINITY, "1.797693135e+308"},
                   {1.0 / 3, "0.3333333333"},
                   {65536, "65536"}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        o = (struct ek_session_out){text, sizeof text, 0};
        ek_put_number(&o, numbers[i].v);
        text[o.len] = 0;
        assert_string_equal(text, numbers[i].want);
    }
    static const char *const points[] = {"1,5e-07", "1.5e-07", "1\331\2535e-07"};
    for (int i = 0; i < 3; i++) {
        o = (struct ek_session_out){text, sizeof text, 0};
        ek_put_with_dot(&o, points[i]);
        text[o.len] = 0;
        assert_string_equal(text, "1.5e-07");
    }
}

static void names_can_be_changed_and_left_out(void **state)
{
    (void)state;
    struct kit_time k;
    struct ek_tracker_options o;
    make(&k, &o);
    for (int i = 0; i < EK_ORCA_N_NAMES; i++)
        o.orca_names[i] = "";
    o.orca_names[EK_ORCA_REMAINING_SESSIONS] = "voice.room";
    struct ek_tracker *t = kit_new(&o);
    expect(t, EK_TRACKER_ORCA_JSON,
           "JSON {\"cpu_utilization\":0,\"rps_fractional\":0,"
           "\"application_utilization\":0,\"named_metrics\":{\"voice.room\":16}}");
    ek_tracker_free(t);
    o.orca_names[EK_ORCA_REMAINING_SESSIONS] = "";
    t = kit_new(&o);
    expect(t, EK_TRACKER_ORCA_JSON,
           "JSON {\"cpu_utilization\":0,\"rps_fractional\":0,"
           "\"application_utilization\":0}");
    ek_tracker_free(t);
}

static void the_agent_line_tells_weight_and_drain(void **state)
{
    (void)state;
    struct kit_time k;
    struct ek_tracker *t = loaded(&k);
    expect(t, EK_TRACKER_AGENT, "up 28% maxconn:7\n"); /* 4 of 14; two proxies */
    ek_tracker_drain(t, true);
    expect(t, EK_TRACKER_AGENT, "drain\n");
    ek_tracker_drain(t, false);
    expect(t, EK_TRACKER_AGENT, "ready up 28% maxconn:7\n");
    assert_int_equal(ek_tracker_set_limit(t, 10), 0);
    expect(t, EK_TRACKER_AGENT, "ready up 0% maxconn:5\n");
    ek_tracker_free(t);
    struct ek_tracker_options o;
    make(&k, &o);
    t = kit_new(&o);
    expect(t, EK_TRACKER_AGENT, "up 100%\n");
    ek_tracker_free(t);
}

static void the_poll_and_the_scrape_hold_the_same_figures(void **state)
{
    (void)state;
    struct kit_time k;
    struct ek_tracker *t = loaded(&k);
    contains(t, EK_TRACKER_JSON, "{\"active_sessions\":10,");
    contains(t, EK_TRACKER_JSON, "\"effective_capacity\":14,\"remaining_sessions\":4,");
    contains(t, EK_TRACKER_JSON,
             "\"smoothing\":\"mean\",\"binding\":\"cpu\","
             "\"draining\":false,\"resources\":{\"memory\":{");
    contains(t, EK_TRACKER_JSON,
             "\"kv_pages\":{\"used\":200,\"total\":1000,"
             "\"session_cost\":20,\"capacity\":30}}}\n");
    contains(t, EK_TRACKER_JSON, "\"window_seconds\":10,");
    contains(t, EK_TRACKER_PROMETHEUS,
             "# TYPE evenkeel_effective_capacity gauge\n"
             "evenkeel_effective_capacity 14\n");
    contains(t, EK_TRACKER_PROMETHEUS, "\nevenkeel_sessions_begun_total 10\n");
    contains(t, EK_TRACKER_PROMETHEUS, "\nevenkeel_binding{resource=\"cpu\"} 1\n");
    contains(t, EK_TRACKER_PROMETHEUS,
             "\nevenkeel_resource_capacity{resource=\"kv_pages\"} 30\n");
    ek_tracker_free(t);
}

/* Every figure at its longest, with eight resources of the longest names. */
static void no_encoding_is_longer_than_the_header_says(void **state)
{
    (void)state;
    struct kit_time k;
    struct ek_tracker_options o;
    make(&k, &o);
    char names[EK_ORCA_N_NAMES][65];
    for (int i = 0; i < EK_ORCA_N_NAMES; i++) {
        memset(names[i], 'a' + i, 64);
        names[i][64] = 0;
        o.orca_names[i] = names[i];
    }
    o.smoothing = EK_TRACKER_MEAN;
    o.cores = 3.333333333e-6;
    o.prior_cost = 1.111111111e5;
    struct ek_tracker *t = kit_new(&o);
    struct ek_session s[7];
    kit_begin(t, s, 7);
    kit_run(t, &k, 1.0 / 3, 1.7e-5);
    char name[EK_RESOURCE_NAME_MAX + 1] = "r123456789012345678901234567890123456789";
    for (int i = 0; i < EK_RESOURCE_MAX; i++, name[0]++)
        add(t, name, 1.234567891e-100, 3.333333333e-100);
    for (int e = 0; e <= EK_TRACKER_PROMETHEUS; e++) {
        char text[EK_TRACKER_ENCODED_MAX];
        size_t len;
        assert_int_equal(
            ek_tracker_encode(t, (enum ek_tracker_encoding)e, text, sizeof text, &len),
            0);
        assert_true(len < EK_TRACKER_ENCODED_MAX);
    }
    ek_tracker_free(t);
}

static void a_buffer_too_small_is_said_and_not_overrun(void **state)
{
    (void)state;
    struct kit_time k;
    struct ek_tracker *t = loaded(&k);
    for (int e = 0; e <= EK_TRACKER_PROMETHEUS; e++) {
        char whole[EK_TRACKER_ENCODED_MAX];
        size_t len, n;
        assert_int_equal(ek_tracker_encode(t, (enum ek_tracker_encoding)e, whole,
                                           sizeof whole, &len),
                         0);
        for (size_t size = 0; size <= len + 1; size++) {
            char *p = malloc(size ? size : 1); /* ends where it ends */
            assert_non_null(p);
            int rc = ek_tracker_encode(t, (enum ek_tracker_encoding)e, p, size, &n);
            assert_int_equal(rc, size > len ? 0 : EK_SESSION_ESPACE);
            assert_int_equal(n, len);
            if (size > len)
                assert_memory_equal(p, whole, len + 1);
            else if (size > 0)
                assert_int_equal(p[0], 0);
            free(p);
        }
    }
    size_t n;
    assert_int_equal(ek_tracker_encode(t, (enum ek_tracker_encoding)9, NULL, 0, &n),
                     EK_SESSION_EINVAL);
    assert_int_equal(ek_tracker_encode(t, (enum ek_tracker_encoding) - 1, NULL, 0, &n),
                     EK_SESSION_EINVAL);
    ek_tracker_free(t);
}

static void headers_and_bodies_are_named(void **state)
{
    (void)state;
    for (int e = 0; e <= EK_TRACKER_PROMETHEUS; e++) {
        enum ek_tracker_encoding x = (enum ek_tracker_encoding)e;
        bool is_header = ek_tracker_encoding_header(x) != NULL;
        assert_true(is_header == (ek_tracker_encoding_type(x) == NULL));
    }
    assert_string_equal(ek_tracker_encoding_header(EK_TRACKER_ORCA_TRAILER),
                        "endpoint-load-metrics-bin");
}

static void base64_is_padded(void **state)
{
    (void)state;
    static const char *const want[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="};
    for (size_t n = 0; n < 5; n++) {
        char text[16];
        struct ek_session_out o = {text, sizeof text, 0};
        ek_put_base64(&o, "foob", n);
        text[o.len] = 0;
        assert_string_equal(text, want[n]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orca_headers_hold_every_figure),
        cmocka_unit_test(numbers_have_a_dot_in_any_locale),
        cmocka_unit_test(names_can_be_changed_and_left_out),
        cmocka_unit_test(the_agent_line_tells_weight_and_drain),
        cmocka_unit_test(the_poll_and_the_scrape_hold_the_same_figures),
        cmocka_unit_test(no_encoding_is_longer_than_the_header_says),
        cmocka_unit_test(a_buffer_too_small_is_said_and_not_overrun),
        cmocka_unit_test(headers_and_bodies_are_named),
        cmocka_unit_test(base64_is_padded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
