/* The language of chat templates: what renders to what. The broad comparison with jinja2
 * is check_template_jinja.py; here stand the promises that need no Python. */
#include "data/template_util.h"

static void chatml_renders_turns_and_the_prompt(void **state)
{
    (void)state;
    const char *source =
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
        "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    expect_text(source,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                "\"add_generation_prompt\":true}",
                "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    expect_text(source, "{\"messages\":[],\"add_generation_prompt\":false}", "");
}

static void white_space_is_trimmed_as_transformers_does(void **state)
{
    (void)state;
    expect_text("a\n  {% if true %}\n  b\n  {% endif %}\n  c", "{}", "a\n  b\n  c");
    expect_text("a\n  {%- if true -%}\n  b\n  {%- endif -%}\n  c", "{}", "abc");
    expect_text("a\n  {%+ if true +%}\n  b{% endif %}", "{}", "a\n  \n  b");
    expect_text("x {# c #}\ny\n", "{}", "x y");
    expect_text("a\r\nb\rc\r\n\r\n", "{}", "a\nb\nc\n");
    expect_text("{% raw %} {{ x }} {% endraw %}", "{}", " {{ x }} ");
}

static void loops_know_their_place(void **state)
{
    (void)state;
    const char *vars = "{\"xs\":[3,1,2]}";
    expect_text("{% for x in xs %}{{ loop.index }}{{ loop.last }};{% endfor %}", vars,
                "1False;2False;3True;");
    expect_text("{% for x in xs if x > 1 %}{{ x }}/{{ loop.length }} {% endfor %}",
                vars, "3/2 2/2 ");
    expect_text("{% for x in xs %}{{ loop.previtem }}<{{ loop.nextitem }};{% endfor %}",
                vars, "<1;3<2;1<;");
    expect_text("{% for x in xs %}{% if loop.index == 2 %}{% break %}{% endif %}{{ x }}"
                "{% endfor %}",
                vars, "3");
    expect_text("{% for x in [] %}{% else %}none{% endfor %}", vars, "none");
    expect_text("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k ~ v }} {% endfor %}",
                vars, "a1 b2 ");
}

static void a_loop_keeps_its_names_and_a_namespace_does_not(void **state)
{
    (void)state;
    const char *vars = "{\"xs\":[1,2],\"s\":\"given\"}";
    expect_text(
        "{% set n = 0 %}{% for x in xs %}{% set n = n + x %}{% endfor %}{{ n }}", vars,
        "0");
    expect_text(
        "{% set ns = namespace(n=0) %}{% for x in xs %}{% set ns.n = ns.n + x %}"
        "{% endfor %}{{ ns.n }}",
        vars, "3");
    /* jinja2's own rule: a name the template sets later is unassigned in the loop. */
    expect_text("{% for x in xs %}{{ s }}{% endfor %}{% set s = 'set' %}{{ s }}", vars,
                "set");
    expect_text("{% for x in xs %}{{ s }}{% endfor %}{% if false %}{% set s = 1 %}"
                "{% endif %}{{ s }}",
                vars, "givengivengiven");
}

static void macros_take_values_names_and_callers(void **state)
{
    (void)state;
    expect_text("{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}"
                "{{ m(1) }} {{ m(1, 2) }} {{ m(b=3, a=4) }}",
                "{}", "11 12 43");
    expect_text("{% macro m() %}[{{ caller(7) }}]{% endmacro %}"
                "{% call(x) m() %}{{ x }}{% endcall %}",
                "{}", "[7]");
    expect_text("{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, x=2) }}",
                "{}", "(1,){'x': 2}");
}

static void values_print_as_python_prints_them(void **state)
{
    (void)state;
    expect_text("{{ true }} {{ none }} {{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }}",
                "{}", "True None 1.0 1e+16 1e-05 0.30000000000000004");
    expect_text("{{ [1, 'a', (2,), {'k': none}] }}", "{}",
                "[1, 'a', (2,), {'k': None}]");
    expect_text("{{ [\"it's\", 'q\"', '\\n\\u200b'] }}", "{}",
                "[\"it's\", 'q\"', '\\n\\u200b']");
    expect_text("{{ 7 // -2 }} {{ 7 % -2 }} {{ 7 / 2 }} {{ 2 ** 10 }}", "{}",
                "-4 -1 3.5 1024");
}

static void strings_are_counted_and_cut_by_character(void **state)
{
    (void)state;
    const char *vars = "{\"s\":\"\xc3\xa4\xf0\x9f\x98\x80z\"}";
    expect_text("{{ s|length }}{{ s[1:2] }}{{ s[::-1] }}{{ s[-1] }}", vars,
                "3\xf0\x9f\x98\x80z\xf0\x9f\x98\x80\xc3\xa4z");
    expect_text("{{ s.upper() }}{{ s.find('z') }}", vars, "\xc3\x84\xf0\x9f\x98\x80Z2");
}

static void tojson_writes_what_json_dumps_writes(void **state)
{
    (void)state;
    const char *vars = "{\"d\":{\"b\":[1,2.0,null,true],\"a\":\"\xc3\xa4\\\"<\"}}";
    expect_text("{{ d|tojson }}", vars,
                "{\"b\": [1, 2.0, null, true], \"a\": \"\xc3\xa4\\\"<\"}");
    expect_text("{{ d|tojson(indent=1, sort_keys=true, ensure_ascii=true) }}", vars,
                "{\n \"a\": \"\\u00e4\\\"<\",\n \"b\": [\n  1,\n  2.0,\n  null,\n  "
                "true\n ]\n}");
}

static void the_clock_is_the_callers(void **state)
{
    (void)state;
    expect_text("{{ strftime_now('%Y') }}", "{}", "2025");
}

static void output_is_appended(void **state)
{
    (void)state;
    struct ek_template *t;
    struct ek_buf text, plain;
    json_t *vars = json_object();
    ek_buf_init(&text, 100);
    ek_buf_init(&plain, 100);
    assert_int_equal(ek_buf_add_str(&text, "before "), 0);
    assert_int_equal(ek_template_parse(&t, "now", 3, NULL), 0);
    assert_int_equal(ek_template_render(t, &text, &plain, vars, NULL, 0, NULL, NULL),
                     0);
    assert_string_equal(text.data, "before now");
    assert_int_equal(plain.len, 3);
    ek_template_free(t);
    json_decref(vars);
    ek_buf_release(&text);
    ek_buf_release(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chatml_renders_turns_and_the_prompt),
        cmocka_unit_test(white_space_is_trimmed_as_transformers_does),
        cmocka_unit_test(loops_know_their_place),
        cmocka_unit_test(a_loop_keeps_its_names_and_a_namespace_does_not),
        cmocka_unit_test(macros_take_values_names_and_callers),
        cmocka_unit_test(values_print_as_python_prints_them),
        cmocka_unit_test(strings_are_counted_and_cut_by_character),
        cmocka_unit_test(tojson_writes_what_json_dumps_writes),
        cmocka_unit_test(the_clock_is_the_callers),
        cmocka_unit_test(output_is_appended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
