#include "route/report.h"
#include "session/sessionkit.h"

/* A server of 4 cores, 10 sessions, 2 cores: capacity 14, 4 of them left. */
static struct ek_tracker *loaded(struct kit_time *k)
{
    *k = (struct kit_time){0};
    struct ek_tracker_options o = kit_options(k);
    o.smoothing = EK_TRACKER_MEAN;
    struct ek_tracker *t = kit_new(&o);
    struct ek_session s[10];
    kit_begin(t, s, 10);
    assert_int_equal(ek_tracker_sample(t), 0);
    for (int i = 0; i < 60; i++)
        kit_run(t, k, 10, 2);
    return t;
}

static int decode(struct ek_load_report *r, enum ek_tracker_encoding e, const char *p,
                  size_t n)
{
    switch (e) {
    case EK_TRACKER_ORCA_TEXT:
    case EK_TRACKER_ORCA_JSON:
    case EK_TRACKER_ORCA_BIN:
        return ek_report_header(r, p, n, NULL);
    case EK_TRACKER_ORCA_TRAILER:
        return ek_report_trailer(r, p, n, NULL);
    case EK_TRACKER_ORCA_PROTO:
        return ek_report_proto(r, p, n, NULL);
    case EK_TRACKER_JSON:
        return ek_report_json(r, p, n);
    default:
        return ek_report_agent(r, p, n);
    }
}

static const enum ek_tracker_encoding figures_in[] = {
    EK_TRACKER_ORCA_TEXT,    EK_TRACKER_ORCA_JSON,  EK_TRACKER_ORCA_BIN,
    EK_TRACKER_ORCA_TRAILER, EK_TRACKER_ORCA_PROTO, EK_TRACKER_JSON};
#define N_FIGURES_IN (sizeof figures_in / sizeof figures_in[0])

static void what_the_tracker_says_is_understood(void **state)
{
    (void)state;
    struct kit_time k;
    struct ek_tracker *t = loaded(&k);
    for (size_t i = 0; i < N_FIGURES_IN; i++) {
        char text[EK_TRACKER_ENCODED_MAX];
        size_t n;
        struct ek_load_report r;
        assert_int_equal(ek_tracker_encode(t, figures_in[i], text, sizeof text, &n), 0);
        char *copy = ek_exact_copy(text, n);
        assert_int_equal(decode(&r, figures_in[i], copy, n), 0);
        free(copy);
        uint32_t must = EK_LOAD_ACTIVE | EK_LOAD_CAPACITY | EK_LOAD_REMAINING |
                        EK_LOAD_COST | EK_LOAD_YOUNG | EK_LOAD_YOUNG_WEIGHT |
                        EK_LOAD_FACTOR | EK_LOAD_CPU | EK_LOAD_APPLICATION;
        assert_int_equal(r.has & must, must);
        assert_near(r.active_sessions, 10);
        assert_near(r.effective_capacity, 14);
        assert_near(r.remaining_sessions, 4);
        assert_near(r.session_cost, 0.15);
        assert_near(r.young_sessions, 0);
        assert_near(r.young_weight, 0.5);
        if (figures_in[i] == EK_TRACKER_JSON)
            assert_near(r.window_s, 10);
        assert_near(r.safety_factor, 2);
        assert_near(r.cpu_utilization, 0.5);
        assert_near(r.application_utilization, 10.0 / 14);
        assert_false(r.binds_elsewhere);
    }
    ek_tracker_free(t);
}

static void an_agents_line_is_understood(void **state)
{
    (void)state;
    struct ek_load_report r;
    static const char line[] = "ready up 28% maxconn:7\r\nrest";
    assert_int_equal(ek_report_agent(&r, line, sizeof line - 1), 0);
    assert_int_equal(r.state, EK_LOAD_SAYS_READY);
    assert_int_equal(r.health, EK_LOAD_IS_UP);
    assert_int_equal(r.has, EK_LOAD_WEIGHT | EK_LOAD_LIMIT);
    assert_near(r.weight, 0.28);
    assert_near(r.limit, 7);
    static const struct {
        const char *line;
        enum ek_load_state state;
        enum ek_load_health health;
        double weight;
        bool is_whole;
    } lines[] = {
        {"drain\n", EK_LOAD_SAYS_DRAIN, EK_LOAD_HEALTH_UNSAID, 0, false},
        {"MAINT", EK_LOAD_SAYS_MAINT, EK_LOAD_HEALTH_UNSAID, 0, false},
        {"down # disk % full", EK_LOAD_SAYS_NOTHING, EK_LOAD_IS_DOWN, 0, false},
        {"stopped,weight:12", EK_LOAD_SAYS_NOTHING, EK_LOAD_IS_DOWN, 12, true},
        {"\tup ,, weight:150%", EK_LOAD_SAYS_NOTHING, EK_LOAD_IS_UP, 1.5, false},
        {"0%", EK_LOAD_SAYS_NOTHING, EK_LOAD_HEALTH_UNSAID, 0, false},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        size_t n = strlen(lines[i].line);
        char *copy = ek_exact_copy(lines[i].line, n);
        assert_int_equal(ek_report_agent(&r, copy, n), 0);
        assert_int_equal(r.state, lines[i].state);
        assert_int_equal(r.health, lines[i].health);
        assert_near(r.weight, lines[i].weight);
        assert_true(r.is_whole_weight == lines[i].is_whole);
        free(copy);
    }
}

static void other_servers_forms_are_understood(void **state)
{
    (void)state;
    struct ek_load_report r;
    static const char text[] = "TEXT  cpu_utilization=0.3,mem_utilization = 8e-1 , "
                               "rps_fractional=10.0, eps=1, new_field=3, "
                               "named_metrics.custom=0.4,utilization.gpu=1";
    assert_int_equal(ek_report_header(&r, text, sizeof text - 1, NULL), 0);
    assert_int_equal(r.has, EK_LOAD_CPU | EK_LOAD_MEMORY | EK_LOAD_RPS | EK_LOAD_EPS);
    assert_near(r.cpu_utilization, 0.3);
    assert_near(r.mem_utilization, 0.8);
    static const char colons[] = "TEXT cpu_utilization:0.3";
    assert_int_equal(ek_report_header(&r, colons, sizeof colons - 1, NULL), 0);
    static const char json[] = "JSON {\"cpuUtilization\": 0.25, \"namedMetrics\": "
                               "{\"room\": 3}, \"utilization\":{}}";
    struct ek_report_names names = {.at = {[EK_REPORT_REMAINING] = "room"}};
    assert_int_equal(ek_report_header(&r, json, sizeof json - 1, &names), 0);
    assert_int_equal(r.has, EK_LOAD_CPU | EK_LOAD_REMAINING);
    assert_near(r.remaining_sessions, 3);
    /* The sample of spec: cpu 0.1, rps_fractional 2, then metrics of unknown names, and
     * fields of the future: a varint, four bytes. */
    static const unsigned char proto[] =
        "\x09\x9a\x99\x99\x99\x99\x99\xb9\x3f\x31\0\0\0\0\0\0\0\x40"
        "\x42\x0e\x0a\x03"
        "foo\x11\x9a\x99\x99\x99\x99\x99\xb9\x3f"
        "\x18\x07\x78\x01\x7d\1\2\3\4";
    assert_int_equal(ek_report_proto(&r, proto, sizeof proto - 1, NULL), 0);
    assert_near(r.cpu_utilization, 0.1);
    assert_near(r.rps, 2);
}

static void bad_forms_are_refused_whole(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "",
        "TEXT",
        "TEXT ",
        "text cpu_utilization=1",
        "TEXT cpu_utilization",
        "TEXT cpu_utilization=",
        "TEXT cpu_utilization=nan",
        "TEXT cpu_utilization=inf",
        "TEXT cpu_utilization=1e999",
        "TEXT cpu_utilization=0x1",
        "TEXT cpu_utilization=1,",
        "TEXT cpu_utilization=1,,eps=1",
        "TEXT cpu_utilization=1,cpu_utilization=1",
        "TEXT =1",
        "TEXT named_metrics.=1",
        "TEXT a=1 b=2",
        "JSON",
        "JSON []",
        "JSON {\"cpu_utilization\":\"1\"}",
        "JSON {\"cpu_utilization\":1,\"cpu_utilization\":1}",
        "JSON {\"named_metrics\":{\"a\":[]}}",
        "JSON {\"named_metrics\":{\"\":1}}",
        "JSON {\"eps\":NaN}",
        "BIN !",
        "BIN A",
        "BIN CQ==",
        "BIN CR==",
        "BIN Cw==",
        "CSV 1",
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        struct ek_load_report r = {.has = 77};
        char *copy = ek_exact_copy(headers[i], strlen(headers[i]));
        int rc = ek_report_header(&r, copy, strlen(headers[i]), NULL);
        if (rc != EK_EFORMAT)
            fail_msg("'%s' gave %d", headers[i], rc);
        assert_int_equal(r.has, 77);
        free(copy);
    }
    static const char *const agents[] = {
        "",        "\n",         "# up",       "hello",      "101x%",
        "%",       "weight:",    "weight:257", "maxconn:-1", "maxconn:99999999",
        "up;down", "weight:1e2", "-5%"};
    for (size_t i = 0; i < sizeof agents / sizeof agents[0]; i++) {
        struct ek_load_report r;
        if (ek_report_agent(&r, agents[i], strlen(agents[i])) != EK_EFORMAT)
            fail_msg("'%s' passed", agents[i]);
    }
    static const char *const polls[] = {"",
                                        "1",
                                        "{",
                                        "{\"active_sessions\":null}",
                                        "{\"draining\":1}",
                                        "{\"binding\":1}",
                                        "{\"age_seconds\":\"1\"}",
                                        "{\"cpu_cores\":true}"};
    for (size_t i = 0; i < sizeof polls / sizeof polls[0]; i++) {
        struct ek_load_report r;
        if (ek_report_json(&r, polls[i], strlen(polls[i])) != EK_EFORMAT)
            fail_msg("'%s' passed", polls[i]);
    }
}

static void sizes_have_ceilings(void **state)
{
    (void)state;
    struct ek_load_report r;
    char *big = calloc(1, EK_REPORT_BYTES_MAX + 1);
    assert_non_null(big);
    assert_int_equal(ek_report_header(&r, big, EK_REPORT_BYTES_MAX + 1, NULL),
                     EK_ELIMIT);
    assert_int_equal(ek_report_trailer(&r, big, EK_REPORT_BYTES_MAX + 1, NULL),
                     EK_ELIMIT);
    assert_int_equal(ek_report_proto(&r, big, EK_REPORT_BYTES_MAX + 1, NULL),
                     EK_ELIMIT);
    assert_int_equal(ek_report_json(&r, big, EK_REPORT_BYTES_MAX + 1), EK_ELIMIT);
    assert_int_equal(ek_report_agent(&r, big, EK_REPORT_BYTES_MAX + 1), EK_ELIMIT);
    size_t n = 5;
    memcpy(big, "TEXT ", 5);
    for (int i = 0; i <= EK_REPORT_KEYS_MAX; i++)
        n += (size_t)snprintf(big + n, 24, "%sk%d=1", i ? "," : "", i);
    assert_int_equal(ek_report_header(&r, big, n, NULL), EK_ELIMIT);
    free(big);
}

static void nan_in_the_binary_form_is_left_to_the_pool(void **state)
{
    (void)state;
    static const unsigned char proto[] = "\x09\0\0\0\0\0\0\xf8\x7f";
    struct ek_load_report r;
    assert_int_equal(ek_report_proto(&r, proto, sizeof proto - 1, NULL), 0);
    assert_true(isnan(r.cpu_utilization));
}

static void decode_prefix(void *arg, const char *p, size_t n)
{
    struct ek_load_report r;
    int rc = decode(&r, *(enum ek_tracker_encoding *)arg, p, n);
    assert_true(rc == 0 || rc == EK_EFORMAT);
}

static void truncations_do_no_harm(void **state)
{
    (void)state;
    struct kit_time k;
    struct ek_tracker *t = loaded(&k);
    for (size_t i = 0; i <= N_FIGURES_IN; i++) {
        char text[EK_TRACKER_ENCODED_MAX];
        size_t n;
        enum ek_tracker_encoding e =
            i < N_FIGURES_IN ? figures_in[i] : EK_TRACKER_AGENT;
        assert_int_equal(ek_tracker_encode(t, e, text, sizeof text, &n), 0);
        ek_each_prefix(text, n, decode_prefix, &e);
    }
    ek_tracker_free(t);
}

static void what_binds_is_heard(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_elsewhere;
    } rows[] = {{"{\"effective_capacity\":4,\"binding\":\"licences\"}", true},
                {"{\"effective_capacity\":4,\"binding\":\"cpu\"}", false},
                {"{\"effective_capacity\":4,\"binding\":\"\"}", false},
                {"{\"effective_capacity\":4}", false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ek_load_report r;
        assert_int_equal(ek_report_json(&r, rows[i].text, strlen(rows[i].text)), 0);
        assert_int_equal(r.binds_elsewhere, rows[i].is_elsewhere);
    }
}

static void memory_may_run_out(void **state)
{
    (void)state;
    static const char json[] = "{\"active_sessions\":1,\"resources\":{\"a\":{}}}";
    EK_EACH_FAILURE (k) {
        struct ek_load_report r;
        ek_assert_rc(ek_report_json(&r, json, sizeof json - 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_tracker_says_is_understood),
        cmocka_unit_test(an_agents_line_is_understood),
        cmocka_unit_test(other_servers_forms_are_understood),
        cmocka_unit_test(bad_forms_are_refused_whole),
        cmocka_unit_test(sizes_have_ceilings),
        cmocka_unit_test(nan_in_the_binary_form_is_left_to_the_pool),
        cmocka_unit_test(truncations_do_no_harm),
        cmocka_unit_test(what_binds_is_heard),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
