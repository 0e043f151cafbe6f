/* template_util.h - what the tests of the template interpreter share: rendering with
 * variables given as JSON text. */
#ifndef EVENKEEL_TESTS_DATA_TEMPLATE_UTIL_H
#define EVENKEEL_TESTS_DATA_TEMPLATE_UTIL_H

#include "base/err.h"
#include "data/template.h"
#include "testkit.h"

#include <stdbool.h>
#include <string.h>

#define TEST_NOW_US 1750000000000000

struct rendered {
    int rc;
    bool is_parsed;
    struct ek_err err;
    struct ek_buf text, plain;
};

static inline void rendered_release(struct rendered *r)
{
    ek_buf_release(&r->text);
    ek_buf_release(&r->plain);
}

/* Parses and renders; vars is JSON text, limits may be NULL. */
static inline void render_with(struct rendered *r, const char *source, size_t n,
                               const char *vars,
                               const struct ek_template_limits *limits)
{
    static const char *const trusted[] = {"bos_token", "eos_token", NULL};
    struct ek_template *t = NULL;
    json_t *json = json_loads(vars, 0, NULL);
    assert_non_null(json);
    *r = (struct rendered){.err = EK_ERR_INIT};
    ek_buf_init(&r->text, 1u << 24);
    ek_buf_init(&r->plain, 1u << 24);
    r->rc = ek_template_parse(&t, source, n, &r->err);
    r->is_parsed = r->rc == 0;
    if (!r->rc)
        r->rc = ek_template_render(t, &r->text, &r->plain, json, trusted, TEST_NOW_US,
                                   limits, &r->err);
    ek_template_free(t);
    json_decref(json);
}

static inline void expect_text(const char *source, const char *vars, const char *text)
{
    struct rendered r;
    render_with(&r, source, strlen(source), vars, NULL);
    if (r.rc)
        print_error("%s: %s\n", source, r.err.text);
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.text.len, r.plain.len);
    assert_string_equal(r.text.len ? r.text.data : "", text);
    rendered_release(&r);
}

static inline void expect_error(const char *source, const char *vars, int status,
                                const char *sentence)
{
    struct rendered r;
    render_with(&r, source, strlen(source), vars, NULL);
    if (r.rc != status || strcmp(r.err.text, sentence) != 0)
        print_error("%s: %s\n", source, r.err.text);
    assert_int_equal(r.rc, status);
    assert_string_equal(r.err.text, sentence);
    assert_int_equal(r.err.status, status);
    assert_int_equal(r.text.len, 0);
    assert_int_equal(r.plain.len, 0);
    rendered_release(&r);
}

#endif
