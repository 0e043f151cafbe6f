/* Provenance: which bytes of the output came from a variable. Below, upper case is what
 * the template says and lower case what a variable says; the mark must agree. */
#include "data/template_util.h"

static const char vars[] = "{\"s\":\"abcabc\",\"sp\":\"  pad "
                           "\",\"xs\":[\"p\",\"q\"],\"d\":{\"k\":\"v\"},\"n\":12,"
                           "\"bos_token\":\"BOS\",\"f\":0.5,\"u\":\"\xc3\xa9z\"}";

/* mask: '1' for each byte that came from a variable. */
static void expect_mask(const char *source, const char *text, const char *mask)
{
    struct rendered r;
    render_with(&r, source, strlen(source), vars, NULL);
    if (r.rc)
        print_error("%s: %s\n", source, r.err.text);
    assert_int_equal(r.rc, 0);
    assert_string_equal(r.text.data, text);
    assert_int_equal(r.plain.len, strlen(mask));
    for (size_t i = 0; i < r.plain.len; i++) {
        if (r.plain.data[i] != mask[i] - '0')
            print_error("%s: byte %zu\n", source, i);
        assert_int_equal(r.plain.data[i], mask[i] - '0');
    }
    rendered_release(&r);
}

static void text_of_the_template_is_not_plain_and_a_variable_is(void **state)
{
    (void)state;
    expect_mask("X{{ s }}Y{{ 'Z' }}", "XabcabcYZ", "011111100");
    expect_mask("{{ bos_token }}{{ s[0] }}", "BOSa", "0001");
}

static void joining_keeps_the_mark_of_each_byte(void **state)
{
    (void)state;
    expect_mask("{{ 'X' + s[:1] + 'Y' }}", "XaY", "010");
    expect_mask("{{ 'X' ~ s[:2] ~ 'Y' }}", "XabY", "0110");
    expect_mask("{{ xs|join('-') }}", "p-q", "101");
    expect_mask("{{ '-'.join(xs) }}", "p-q", "101");
    expect_mask("{{ ('X' ~ xs[0]) * 2 }}", "XpXp", "0101");
}

static void cutting_keeps_it(void **state)
{
    (void)state;
    expect_mask("{{ ('X' ~ s)[0:2] }}", "Xa", "01");
    expect_mask("{{ ('XY' ~ xs[0])[::-1] }}", "pYX", "100");
    expect_mask("{{ ('X ' ~ sp)|trim }}", "X   pad", "0011111");
    expect_mask("{{ ('X,' ~ s).split(',')[1] }}", "abcabc", "111111");
    expect_mask("{{ ('X,' ~ s).split(',')[0] }}", "X", "0");
    expect_mask("{{ ('X=' ~ s).partition('=')[2] }}", "abcabc", "111111");
}

static void changing_letters_keeps_it(void **state)
{
    (void)state;
    expect_mask("{{ ('x' ~ xs[0])|upper }}", "XP", "01");
    expect_mask("{{ ('X' ~ u).title() }}", "X\xc3\xa9z", "0111");
    expect_mask("{{ s|replace('b', 'X') }}", "aXcaXc", "101101");
    expect_mask("{{ 'A-B'|replace('-', xs[0]) }}", "ApB", "010");
    expect_mask("{{ (s ~ '\nY')|indent(1) }}", "abcabc\n Y", "111111000");
    expect_mask("{{ '{}X'.format(xs[0]) }}", "pX", "10");
    expect_mask("{{ '%sX' % xs[0] }}", "pX", "10");
    expect_mask("{{ '{:>3}'.format(xs[0]) }}", "  p", "001");
    expect_mask("{{ ('<' ~ xs[0])|escape }}", "&lt;p", "00001");
}

static void json_of_a_variable_is_plain_and_of_a_literal_is_not(void **state)
{
    (void)state;
    expect_mask("{{ d|tojson }}", "{\"k\": \"v\"}", "1111111111");
    expect_mask("{{ {'K': 1}|tojson }}", "{\"K\": 1}", "00000000");
    expect_mask("{{ {'K': xs[0]}|tojson }}", "{\"K\": \"p\"}", "0000001110");
    expect_mask("{{ d }}", "{'k': 'v'}", "1111111111");
}

static void numbers_of_a_variable_are_plain_and_counted_ones_are_not(void **state)
{
    (void)state;
    expect_mask("{{ n }}{{ 12 }}", "1212", "1100");
    expect_mask("{{ n + 1 }}", "13", "11");
    expect_mask("{{ f }}", "0.5", "111");
    expect_mask("{{ n|string }}", "12", "11");
    expect_mask("{% for x in xs %}{{ loop.index }}{% endfor %}", "12", "00");
    expect_mask("{{ xs|length }}", "2", "0");
}

static void captured_text_keeps_it(void **state)
{
    (void)state;
    expect_mask("{% set t %}X{{ xs[0] }}{% endset %}{{ t }}{{ t }}", "XpXp", "0101");
    expect_mask("{% macro m(a) %}X{{ a }}{% endmacro %}{{ m(xs[0]) ~ 'Y' }}", "XpY",
                "010");
    expect_mask("{% filter upper %}x{{ xs[0] }}{% endfilter %}", "XP", "01");
    expect_mask("{% set n = namespace(t='X') %}{% set n.t = n.t ~ xs[0] %}{{ n.t }}",
                "Xp", "01");
}

static void dict_keys_keep_it(void **state)
{
    (void)state;
    expect_mask("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "k=v", "101");
    expect_mask("{% for c in 'X' ~ xs[0] %}{{ c }}{% endfor %}", "Xp", "01");
    expect_mask("{{ {'K': 1}|first }}{{ d|list|first }}", "Kk", "01");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_of_the_template_is_not_plain_and_a_variable_is),
        cmocka_unit_test(joining_keeps_the_mark_of_each_byte),
        cmocka_unit_test(cutting_keeps_it),
        cmocka_unit_test(changing_letters_keeps_it),
        cmocka_unit_test(json_of_a_variable_is_plain_and_of_a_literal_is_not),
        cmocka_unit_test(numbers_of_a_variable_are_plain_and_counted_ones_are_not),
        cmocka_unit_test(captured_text_keeps_it),
        cmocka_unit_test(dict_keys_keep_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
