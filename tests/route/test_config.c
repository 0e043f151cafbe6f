#include "route/config.h"
#include "testkit.h"

#include <stdio.h>

struct kit {
    struct ek_arena arena;
    struct ek_route_lists lists;
    struct ek_route_config c;
    struct ek_err err;
};

static int kit_read(struct kit *k, const char *text)
{
    static const struct ek_route_backend common = {
        .spec = {.max_sessions = 7}, .report_path = "/load", .has_tls = true};
    *k = (struct kit){.err = EK_ERR_INIT};
    ek_arena_init(&k->arena, 1 << 22);
    int rc = ek_opt_keys_read(ek_route_list_keys, &k->lists, "c.yaml", text,
                              strlen(text), &k->arena, &k->err);
    return rc ? rc : ek_route_config_add(&k->c, &k->lists, &common, &k->arena, &k->err);
}

static void lists_of_a_file_become_backends_and_listeners(void **state)
{
    (void)state;
    struct kit k;
    assert_int_equal(kit_read(&k, "# two of each\n"
                                  "listeners:\n"
                                  "  - listen: 0.0.0.0:443\n"
                                  "    tls_cert: a.pem\n"
                                  "    tls_key: a.key\n"
                                  "  - {listen: 'unix:/run/x'}\n"
                                  "  - listen: x:1\n"
                                  "    tls_cert: [a.pem, b.pem]\n"
                                  "    tls_key: [a.key, b.key]\n"
                                  "backends:\n"
                                  "- {name: a, address: 'h:1', weight: 2.5, cores: 4}\n"
                                  "- address: h:2\n"
                                  "  agent: h:3\n"
                                  "  max_sessions: 0\n"
                                  "  tls: off\n"
                                  "  protocol: http2\n"
                                  "  reports: orca\n"),
                     0);
    assert_int_equal(k.c.n_listeners, 3);
    assert_string_equal(k.c.listeners[0].tls_keys[0], "a.key");
    assert_int_equal(k.c.listeners[0].n_tls, 1);
    assert_int_equal(k.c.listeners[1].n_tls, 0);
    assert_int_equal(k.c.listeners[2].n_tls, 2);
    assert_string_equal(k.c.listeners[2].tls_certs[1], "b.pem");
    assert_int_equal(k.c.n_backends, 2);
    const struct ek_route_backend *b = k.c.backends;
    assert_string_equal(b[0].spec.name, "a");
    assert_true(b[0].spec.weight == 2.5 && b[0].spec.cores == 4);
    assert_int_equal(b[0].spec.max_sessions, 7);
    assert_string_equal(b[0].report_path, "/load");
    assert_true(b[0].has_tls);
    assert_string_equal(b[1].spec.name, "h:2");
    assert_int_equal(b[1].spec.max_sessions, 0);
    assert_string_equal(b[1].agent, "h:3");
    assert_null(b[1].report_path);
    assert_int_equal(b[1].protocol, EK_ROUTE_HTTP2);
    assert_false(b[1].has_tls);
    assert_true(b[1].reports_orca && !b[0].reports_orca);
    ek_arena_release(&k.arena);
}

static void errors_name_place_key_value_and_what_would_be_right(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } files[] = {
        {"backends:\n  - {name: a}\n",
         "c.yaml:2:5: address: is missing, expected HOST:PORT or unix:PATH"},
        {"backends:\n  - {address: 'x'}\n",
         "c.yaml:2:5: address: 'x' is no address, expected HOST:PORT or unix:PATH"},
        {"backends:\n  - {address: 'x:70000'}\n", "'x:70000' is no address"},
        {"backends:\n  - {address: 'x:1', wieght: 2}\n",
         "c.yaml:2:22: unknown key 'wieght', did you mean 'weight'?"},
        {"backends:\n  - {address: 'x:1', weight: heavy}\n",
         "c.yaml:2:30: weight: 'heavy' is not understood, expected a number, 0.001 to "
         "1e+06"},
        {"backends:\n  - {name: a, address: 'x:1'}\n  - {name: a, address: 'x:2'}\n",
         "c.yaml:3:5: name: 'a' is there twice, first at c.yaml:2:5"},
        {"backends: x:1\n", "c.yaml:1:11: backends: expected a list (- key: value)"},
        {"backends:\n  - x:1\n", "c.yaml:2:5: backends: expected `key: value` lines"},
        {"backends:\n  - {address: 'x:1', report_path: load}\n",
         "report_path: 'load' is no path, expected one from / on"},
        {"backends:\n  - {address: 'x:1', address: 'x:2'}\n", "is there twice"},
        {"listeners:\n  - {listen: 'x:1', tls_cert: a}\n",
         "c.yaml:2:5: tls_key: is missing, tls_cert and tls_key belong together"},
        {"listeners:\n  - {listen: 'x:1', tls_cert: [a, b], tls_key: a}\n",
         "c.yaml:2:5: tls_key: 1 of them, expected 2: one for each tls_cert"},
        {"listeners:\n  - {listen: [1]}\n", "found a list, expected one value"},
        {"backend:\n  - {address: 'x:1'}\n",
         "c.yaml:1:1: unknown key 'backend', did you mean 'backends'?"},
        {"backends:\n  - {address: 'x:1'", "c.yaml:3:1: "},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct kit k;
        if (kit_read(&k, files[i].text) != EK_EINVAL ||
            !strstr(k.err.text, files[i].want))
            fail_msg("%s\ngave: %s\nwant: %s", files[i].text, k.err.text,
                     files[i].want);
        ek_arena_release(&k.arena);
    }
}

static void many_backends_and_lists_that_are_empty(void **state)
{
    (void)state;
    static char text[64 * 1100];
    size_t n = (size_t)snprintf(text, sizeof text, "listeners: []\nbackends:\n");
    for (int i = 0; i < 1000; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "  - address: h:%d\n", i + 1);
    struct kit k;
    assert_int_equal(kit_read(&k, text), 0);
    assert_int_equal(k.c.n_backends, 1000);
    assert_string_equal(k.c.backends[999].spec.name, "h:1000");
    assert_int_equal(k.c.n_listeners, 0);
    ek_arena_release(&k.arena);
}

static void read_prefix(void *arg, const char *text, size_t n)
{
    struct kit k = {.err = EK_ERR_INIT};
    (void)arg;
    ek_arena_init(&k.arena, 1 << 20);
    int rc = ek_opt_keys_read(ek_route_list_keys, &k.lists, "c.yaml", text, n, &k.arena,
                              &k.err);
    assert_true(rc == 0 || rc == EK_EINVAL);
    ek_arena_release(&k.arena);
}

static const char small[] = "backends:\n"
                            "  - {name: a, address: 'h:1'}\n"
                            "  - {name: b, address: 'h:2'}\n"
                            "  - {name: c, address: 'h:3'}\n";

static void truncations_are_refused_or_shorter(void **state)
{
    (void)state;
    ek_each_prefix(small, sizeof small - 1, read_prefix, NULL);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    EK_EACH_FAILURE (n) {
        struct kit k;
        ek_assert_rc(kit_read(&k, small));
        ek_arena_release(&k.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_a_file_become_backends_and_listeners),
        cmocka_unit_test(errors_name_place_key_value_and_what_would_be_right),
        cmocka_unit_test(many_backends_and_lists_that_are_empty),
        cmocka_unit_test(truncations_are_refused_or_shorter),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
