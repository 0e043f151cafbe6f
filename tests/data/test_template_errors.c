/* Errors name line and construct; limits hold; a failed allocation ends the rendering and
 * nothing else. */
#include "base/mem.h"
#include "data/template_util.h"

#include <stdio.h>
#include <stdlib.h>

static void parse_errors_name_line_and_construct(void **state)
{
    (void)state;
    static const struct {
        const char *source, *sentence;
        int status;
    } all[] = {
        {"a\n{{ 1 + }}", "line 2: unexpected '}}', expected a value", EK_EFORMAT},
        {"\n\n{% nope %}", "line 3: unknown tag 'nope'", EK_EFORMAT},
        {"{% include 'x' %}", "line 1: tag 'include' is not interpreted", EK_EUNSUP},
        {"{% if x %}\n",
         "line 1: the block that begins here has no end (expected: elif "
         "else endif)",
         EK_EFORMAT},
        {"{{ x|nope }}", "line 1: no filter is named 'nope'", EK_EFORMAT},
        {"{{ x is nope }}", "line 1: no test is named 'nope'", EK_EFORMAT},
        {"{{ x|groupby('y') }}", "line 1: filter 'groupby' is not interpreted",
         EK_EUNSUP},
        {"{% for x in y recursive %}{% endfor %}",
         "line 1: a recursive for loop is not interpreted", EK_EUNSUP},
        {"{% break %}", "line 1: 'break' outside a for loop", EK_EFORMAT},
        {"{{ 'x", "line 1: the string that begins here has no closing quote",
         EK_EFORMAT},
        {"{{ x", "line 1: the tag that begins here has no end ('}}')", EK_EFORMAT},
        {"{# x", "line 1: the comment that begins here has no end ('#}')", EK_EFORMAT},
        {"{% raw %}x", "line 1: the raw block that begins here has no {% endraw %}",
         EK_EFORMAT},
        {"{{ (1] }}", "line 1: unexpected ']', expected ')'", EK_EFORMAT},
        {"{{ a ? b }}", "line 1: unexpected character '? b ' in a tag", EK_EFORMAT},
        {"{{ 9223372036854775808 }}",
         "line 1: the number 9223372036854775808 does not fit 64 bits", EK_ELIMIT},
        {"{{ '\\N{DASH}' }}", "line 1: escape '\\N' in a string is not interpreted",
         EK_EUNSUP},
        {"{{ '\\ud800' }}", "line 1: escape '\\ud800' in a string is malformed",
         EK_EFORMAT},
        {"{% set 1 = 2 %}", "line 1: cannot assign to this", EK_EFORMAT},
        {"{{ f(a=1, 2) }}",
         "line 1: arguments in a wrong order: first values, then name=value",
         EK_EFORMAT},
        {"{% macro m(a=1, b) %}{% endmacro %}",
         "line 1: a parameter without default follows one with", EK_EFORMAT},
        {"\xff", "the template is not UTF-8", EK_EFORMAT},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect_error(all[i].source, "{}", all[i].status, all[i].sentence);
}

static void rendering_errors_name_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *source, *sentence;
        int status;
    } all[] = {
        {"{{ raise_exception('Roles must alternate') }}", "Roles must alternate",
         EK_EINVAL},
        {"{{ raise_exception('') }}", "line 1: raise_exception() without a text",
         EK_EINVAL},
        {"\n{{ x.y }}", "line 2: 'x' is undefined", EK_EFORMAT},
        {"{{ d.a.b }}", "line 1: 'dict object' has no attribute 'a'", EK_EFORMAT},
        {"{{ 'a' + 1 }}",
         "line 1: operator '+' does not take values of type 'str' and 'int'",
         EK_EFORMAT},
        {"{{ 1 // 0 }}", "line 1: division by zero", EK_EFORMAT},
        {"{{ 2 ** 63 }}", "line 1: an integer does not fit 64 bits", EK_ELIMIT},
        {"{{ 'a' < 1 }}", "line 1: values of type 'str' and 'int' have no order",
         EK_EFORMAT},
        {"{{ 1() }}", "line 1: a value of type 'int' cannot be called", EK_EFORMAT},
        {"{{ d.pop('x') }}", "line 1: a method that changes its object is not allowed",
         EK_EFORMAT},
        {"{{ d.items }}",
         "line 1: a value of type 'function' as text is not interpreted", EK_EUNSUP},
        {"{{ 'a'.encode() }}", "line 1: method encode() of 'str' is not interpreted",
         EK_EUNSUP},
        {"{% for x in 5 %}{% endfor %}",
         "line 1: a value of type 'int' is not iterable", EK_EFORMAT},
        {"{% for a, b in [[1]] %}{% endfor %}",
         "line 1: cannot unpack 1 values into 2 names", EK_EFORMAT},
        {"{{ range(100001) }}", "line 1: range() is longer than 100000", EK_ELIMIT},
        {"{{ u|tojson }}",
         "line 1: a value of type 'Undefined' cannot be written as JSON", EK_EFORMAT},
        {"{% if true %}{{ 1|nope }}{% endif %}", "line 1: filter 'nope' is not known",
         EK_EUNSUP},
        {"{{ 'a'|replace('b') }}", "line 1: filter 'replace' needs parameter 'new'",
         EK_EFORMAT},
        {"{{ joiner() }}", "line 1: the function 'joiner' is not interpreted",
         EK_EUNSUP},
        {"{% set d.x = 1 %}",
         "line 1: cannot assign attribute 'x' of a value of type 'dict'", EK_EFORMAT},
        {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
         "line 1: macro 'm' takes at most 1 parameters, not 2", EK_EFORMAT},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect_error(all[i].source, "{\"d\":{\"x\":1}}", all[i].status,
                     all[i].sentence);
}

static void expect_limit(const char *source, const struct ek_template_limits *limits,
                         const char *sentence)
{
    struct rendered r;
    render_with(&r, source, strlen(source), "{}", limits);
    if (!strstr(r.err.text, sentence))
        print_error("%s: %s\n", source, r.err.text);
    assert_int_equal(r.rc, EK_ELIMIT);
    assert_non_null(strstr(r.err.text, sentence));
    assert_int_equal(r.text.len, 0);
    rendered_release(&r);
}

static void every_limit_ends_the_rendering(void **state)
{
    (void)state;
    struct ek_template_limits l = {.max_steps = 1000};
    expect_limit("{% for x in range(99999) %}{% endfor %}", &l, "max_steps (1000)");
    expect_limit(
        "{% for x in range(99) %}{% for y in range(99) %}{% endfor %}{% endfor %}", &l,
        "max_steps (1000)");
    l = (struct ek_template_limits){.max_output_bytes = 100};
    expect_limit("{{ 'x' * 101 }}", &l, "max_output_bytes (100)");
    expect_limit("{% set y %}{{ 'x' * 101 }}{% endset %}", &l,
                 "max_output_bytes (100)");
    l = (struct ek_template_limits){.max_memory_bytes = 1u << 20};
    expect_limit("{% set n = namespace(s='x') %}{% for i in range(99) %}"
                 "{% set n.s = n.s + n.s %}{% endfor %}",
                 &l, "max_memory_bytes (1048576)");
    expect_limit("{% set n = namespace(s=[1]) %}{% for i in range(99) %}"
                 "{% set n.s = n.s + n.s %}{% endfor %}",
                 &l, "max_memory_bytes (1048576)");
    expect_limit("{{ 'x' * 9223372036854775807 }}", &l, "max_");
    expect_limit("{{ [0] * 9223372036854775807 }}", &l, "max_memory_bytes");
    expect_limit("{{ '%999999d%999999d' % (1, 1) }}", &l, "max_memory_bytes");
    expect_limit("{{ 'x'.zfill(9223372036854775807) }}", &l, "max_");
    expect_limit("{{ [1]|tojson(indent=9223372036854775807) }}", &l, "max_");
}

static void depth_is_bounded_everywhere(void **state)
{
    (void)state;
    expect_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL,
                 "max_depth (200)");
    const char *nest = "{% set n = namespace(v=[]) %}{% for i in range(300) %}"
                       "{% set n.v = [n.v] %}{% endfor %}";
    static const char *const uses[] = {"{{ n.v }}", "{{ n.v|tojson }}",
                                       "{{ n.v == [n.v][0] + [] }}",
                                       "{{ n.v < [n.v][0] }}"};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        char source[300];
        snprintf(source, sizeof source, "%s%s", nest, uses[i]);
        struct rendered r;
        render_with(&r, source, strlen(source), "{}", NULL);
        assert_true(r.rc == EK_ELIMIT || i >= 2);
        rendered_release(&r);
    }
}

/* n times `part`, between what opens and what closes. */
static void expect_nested(const char *open, const char *part, const char *close,
                          size_t n)
{
    size_t len = strlen(part), at = strlen(open);
    size_t n_close = strlen(close), size = at + n * len + n_close;
    char *source = malloc(size);
    assert_non_null(source);
    memcpy(source, open, at);
    for (size_t i = 0; i < n; i++, at += len)
        memcpy(source + at, part, len);
    memcpy(source + at, close, n_close);
    struct rendered r;
    render_with(&r, source, size, "{}", NULL);
    assert_int_not_equal(r.rc, 0);
    rendered_release(&r);
    free(source);
}

static void deep_sources_are_refused_without_deep_stacks(void **state)
{
    (void)state;
    static const char *const parts[] = {"(",    "[",     "{1:",          "-",
                                        "not ", "a.",    "f(",           "a[",
                                        "a|f(", "a if ", "a if a else ", "1 is eq ("};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        expect_nested("{{ ", parts[i], " }}", 50000);
    expect_nested("{{ a", ".b", " }}", 50000);
    expect_nested("{{ a", "|upper", " }}", 50000);
    expect_nested("{{ a", " is odd", " }}", 50000);
    expect_nested("{{ a", "()", " }}", 50000);
    expect_nested("{{ a", "[0]", " }}", 50000);
    expect_nested("{{ (", "(a|list)|list|list,", "0", 20000);
    expect_nested("", "{% if a %}", "", 50000);
    expect_nested("", "{% for a in a %}", "", 50000);
    expect_nested("", "{% macro a() %}", "", 50000);
    expect_nested("", "{% filter upper %}", "", 50000);
    expect_nested("", "{% set a %}", "", 50000);
}

static void long_chains_are_no_deep_trees(void **state)
{
    (void)state;
    struct rendered r;
    char source[8192] = "{{ 0";
    size_t at = strlen(source);
    for (size_t n = 0; n < 1000; n++, at += 4)
        memcpy(source + at, " + 1", 4);
    memcpy(source + at, " }}", 3);
    render_with(&r, source, at + 3, "{}", NULL);
    assert_int_equal(r.rc, 0);
    assert_string_equal(r.text.data, "1000");
    rendered_release(&r);
}

static const char everything[] =
    "{%- macro m(a, b=1) -%}{{ a ~ b }}{{ caller() if caller else '' }}{%- endmacro "
    "-%}\n"
    "{% set ns = namespace(x=[]) %}{% for k, v in d|dictsort if k != 'z' %}"
    "{{ loop.index }}{{ k }}={{ v|tojson(indent=1) }}{{ loop.nextitem }}"
    "{% set ns.x = ns.x + [k] %}{% else %}-{% endfor %}{{ ns.x|join(', ')|upper }}"
    "{% set t %}{% filter replace('a', 'b') %}aa{{ m(1) }}{% endfilter %}{% endset %}"
    "{{ t[::-1] }}{{ '{:>5}'.format(t) }}{{ '%s' % t }}{{ t.split('b')|list }}"
    "{% call m(2) %}c{% endcall %}{{ d.items()|list }}{{ d|map('upper')|list }}"
    "{% with q = [3, 1]|sort %}{{ q }}{% endwith %}{{ range(3)|sum }}{{ 'x'|safe + '<' "
    "}}"
    "{% if d is mapping and 'a' in d %}{{ {'k': (1, 2.5)} }}{% elif x %}{% endif %}";

static void every_failing_allocation_ends_cleanly(void **state)
{
    (void)state;
    const char *vars = "{\"d\":{\"a\":[1,\"x\"],\"b\":{\"c\":null},\"z\":true}}";
    struct rendered r;
    render_with(&r, everything, strlen(everything), vars, NULL);
    if (r.rc)
        print_error("%s\n", r.err.text);
    assert_int_equal(r.rc, 0);
    rendered_release(&r);
    uint64_t k = 1;
    for (;; k++) {
        ek_mem_fail_at(k);
        render_with(&r, everything, strlen(everything), vars, NULL);
        bool has_failed = ek_mem_failed();
        ek_mem_fail_at(0);
        assert_int_equal(r.rc, has_failed ? EK_ENOMEM : 0);
        if (has_failed) {
            assert_int_equal(r.err.status, EK_ENOMEM);
            assert_int_equal(r.text.len, 0);
        }
        rendered_release(&r);
        if (!has_failed)
            break;
    }
    assert_true(k > 20);
}

static void every_truncation_is_an_error_or_a_template(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof everything; n++) {
        struct rendered r;
        render_with(&r, everything, n, "{\"d\":{\"a\":1}}", NULL);
        assert_true(r.rc == 0 || r.err.text[0] != 0);
        rendered_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_errors_name_line_and_construct),
        cmocka_unit_test(rendering_errors_name_the_line),
        cmocka_unit_test(every_limit_ends_the_rendering),
        cmocka_unit_test(depth_is_bounded_everywhere),
        cmocka_unit_test(deep_sources_are_refused_without_deep_stacks),
        cmocka_unit_test(long_chains_are_no_deep_trees),
        cmocka_unit_test(every_failing_allocation_ends_cleanly),
        cmocka_unit_test(every_truncation_is_an_error_or_a_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
