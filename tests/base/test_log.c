#include "base/json.h"
#include "base/log.h"
#include "base/utf8.h"
#include "testkit.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int saved_fd, pipe_fd;

/* Standard error goes into a pipe until got() returns what came out. */
static void catch_stderr(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    saved_fd = dup(2);
    dup2(ends[1], 2);
    close(ends[1]);
    pipe_fd = ends[0];
}

static const char *got(void)
{
    static char text[65536];
    dup2(saved_fd, 2);
    close(saved_fd);
    ssize_t n = 0, at = 0;
    while ((n = read(pipe_fd, text + at, sizeof text - 1 - (size_t)at)) > 0)
        at += n;
    close(pipe_fd);
    text[at] = 0;
    return text;
}

/* The one line as an object; the caller's to decref. */
static json_t *got_json(void)
{
    const char *line = got();
    size_t n = strlen(line);
    struct ek_err err = EK_ERR_INIT;
    json_t *root = NULL;
    assert_true(n > 0 && line[n - 1] == '\n');
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
    if (ek_json_parse(&root, line, n, NULL, &err))
        fail_msg("%s in %s", err.text, line);
    return root;
}

static const char *text_of(const json_t *root, const char *key)
{
    const char *s = json_string_value(json_object_get(root, key));
    return s ? s : "(absent)";
}

static json_int_t int_of(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void text_form_is_time_level_event_fields(void **state)
{
    (void)state;
    ek_log_setup(EK_LOG_INFO, EK_LOG_TEXT);
    catch_stderr();
    ek_log(EK_LOG_WARN, "page_failed", "page=%d owner=\"a b\"", 7);
    const char *line = got();
    int h, m, s, ms, at = 0;
    assert_int_equal(sscanf(line, "%2d:%2d:%2d.%3d%n", &h, &m, &s, &ms, &at), 4);
    assert_string_equal(line + at, " warn page_failed page=7 owner=\"a b\"\n");
}

static void json_form_says_the_same(void **state)
{
    (void)state;
    ek_log_setup(EK_LOG_INFO, EK_LOG_JSON);
    catch_stderr();
    ek_log(EK_LOG_INFO, "server_started",
           "listen=%s threads=%d note=\"%s\" last=", "127.0.0.1:8080", 2,
           "a \\\"b\\\" \\\\ c=d");
    json_t *root = got_json();
    assert_int_equal(json_object_size(root), 7);
    assert_string_equal(text_of(root, "level"), "info");
    assert_string_equal(text_of(root, "event"), "server_started");
    assert_string_equal(text_of(root, "listen"), "127.0.0.1:8080");
    assert_int_equal(int_of(root, "threads"), 2);
    assert_string_equal(text_of(root, "note"), "a \"b\" \\ c=d");
    assert_string_equal(text_of(root, "last"), "");
    const char *ts = text_of(root, "ts");
    assert_int_equal(strlen(ts), strlen("2026-01-02T12:00:03.120Z"));
    assert_true(ts[10] == 'T' && ts[23] == 'Z');
    json_decref(root);
}

static void bare_numbers_are_json_numbers_and_nothing_else_is(void **state)
{
    (void)state;
    static const char *const numbers[] = {
        "0", "-0", "7", "-12", "999999999999999999", "0.25", "-1.5", "10.00", "1.0"};
    static const char *const texts[] = {
        "",    "-",   "+1",     "01",  "-01",   "1.",   ".5",
        "1e5", "0x1", "1a",     "1-2", "1.2.3", "-nan", "nan",
        "inf", "1,2", "\"12\"", "1:2", "true",  "null", "1234567890123456789"};
    ek_log_setup(EK_LOG_INFO, EK_LOG_JSON);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        catch_stderr();
        ek_log(EK_LOG_INFO, "x", "a=%s b=%s", numbers[i], numbers[i]);
        json_t *root = got_json();
        assert_true(json_is_number(json_object_get(root, "a")));
        double diff =
            json_number_value(json_object_get(root, "b")) - strtod(numbers[i], NULL);
        assert_true(diff == 0.0);
        json_decref(root);
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        catch_stderr();
        ek_log(EK_LOG_INFO, "x", "a=%s b=%s", texts[i], texts[i]);
        json_t *root = got_json();
        assert_true(json_is_string(json_object_get(root, "a")));
        assert_true(json_is_string(json_object_get(root, "b")));
        json_decref(root);
    }
}

/* Wherever the ceiling of the fields falls, a number that is there is the whole one. */
static void a_number_that_was_cut_is_no_number(void **state)
{
    (void)state;
    static char pad[2048];
    ek_log_setup(EK_LOG_INFO, EK_LOG_JSON);
    for (size_t n = 2020; n < 2047; n++) {
        memset(pad, 'x', n);
        pad[n] = 0;
        catch_stderr();
        ek_log(EK_LOG_INFO, "x", "p=%s n=123456", pad);
        json_t *root = got_json();
        const json_t *value = json_object_get(root, "n");
        if (json_is_number(value))
            assert_int_equal(json_integer_value(value), 123456);
        bool is_cut = json_object_get(root, "cut") != NULL;
        assert_int_equal(json_is_number(value), !is_cut);
        json_decref(root);
    }
}

static void a_quoted_text_can_forge_no_field(void **state)
{
    (void)state;
    char out[16];
    assert_string_equal(ek_log_quote(out, sizeof out, "a\" b=\\c"), "a\\\" b=\\\\c");
    assert_string_equal(ek_log_quote(out, 4, "abcdef"), "ab");
    assert_string_equal(ek_log_quote(out, 4, "a\"b"), "a\\\"");
    assert_string_equal(ek_log_quote(out, sizeof out, ""), "");
}

static void a_quote_nobody_escaped_stays_in_its_value(void **state)
{
    (void)state;
    ek_log_setup(EK_LOG_INFO, EK_LOG_JSON);
    catch_stderr();
    ek_log(EK_LOG_INFO, "x", "why=\"key \"a\"=1 is odd\" n=2");
    json_t *root = got_json();
    assert_string_equal(text_of(root, "why"), "key \"a\"=1 is odd");
    assert_int_equal(int_of(root, "n"), 2);
    json_decref(root);
}

static void a_pipe_gets_json_by_itself_and_no_fields_are_fine(void **state)
{
    (void)state;
    ek_log_setup(EK_LOG_INFO, EK_LOG_AUTO);
    catch_stderr();
    ek_log(EK_LOG_ERROR, "bare", NULL);
    json_t *root = got_json();
    assert_int_equal(json_object_size(root), 3);
    json_decref(root);
}

static void lower_levels_are_silent(void **state)
{
    (void)state;
    for (int max = EK_LOG_ERROR; max <= EK_LOG_DEBUG; max++) {
        ek_log_setup((enum ek_log_level)max, EK_LOG_TEXT);
        catch_stderr();
        for (int level = EK_LOG_ERROR; level <= EK_LOG_DEBUG; level++)
            ek_log((enum ek_log_level)level, "x", NULL);
        const char *text = got();
        int n = 0;
        for (; (text = strchr(text, '\n')); text++)
            n++;
        assert_int_equal(n, max + 1);
    }
}

static void control_characters_and_bad_bytes_are_harmless(void **state)
{
    (void)state;
    static const char *const evil = "a\nfake=1\x1b[2J\xff\xc2\x9b\xe2\x82";
    ek_log_setup(EK_LOG_INFO, EK_LOG_TEXT);
    catch_stderr();
    ek_log(EK_LOG_INFO, "x", "path=\"%s\"", evil);
    const char *line = got();
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    assert_null(strchr(line, '\x1b'));
    assert_non_null(strstr(line, "a\\u000afake=1\\u001b[2J\xef\xbf\xbd\\u009b"));
    assert_true(ek_utf8_is_valid(line, strlen(line)));

    ek_log_setup(EK_LOG_INFO, EK_LOG_JSON);
    catch_stderr();
    ek_log(EK_LOG_INFO, "x", "path=\"%s\"", evil);
    json_t *root = got_json();
    assert_string_equal(text_of(root, "path"),
                        "a\nfake=1\x1b[2J\xef\xbf\xbd\xc2\x9b\xef\xbf\xbd");
    assert_string_equal(text_of(root, "fake"), "(absent)");
    json_decref(root);
}

/* Every length and every kind of character around the limits: the line stays one
 * object, and says when something is missing. */
static void long_fields_are_cut_and_the_line_stays_whole(void **state)
{
    (void)state;
    static const char *const kinds[] = {"x",    "\xe2\x82\xac", "\x01",
                                        "\xff", "\\\"",         " "};
    for (size_t kind = 0; kind < 6; kind++) {
        for (size_t n = 1; n<6000; n += n> 300 && n % 97 ? 41 : 7) {
            static char value[20000];
            size_t at = 0;
            for (size_t i = 0; i < n; i++)
                at += (size_t)snprintf(value + at, 8, "%s", kinds[kind]);
            ek_log_setup(EK_LOG_INFO, EK_LOG_JSON);
            catch_stderr();
            ek_log(EK_LOG_INFO, "long", "a=1 v=\"%s\" z=2", value);
            json_t *root = got_json();
            assert_int_equal(int_of(root, "a"), 1);
            bool is_whole = json_object_get(root, "z") != NULL;
            if (is_whole)
                assert_int_equal(int_of(root, "z"), 2);
            assert_int_equal(strcmp(text_of(root, "cut"), "true") == 0, !is_whole);
            if (at < 600)
                assert_true(is_whole);
            json_decref(root);
            ek_log_setup(EK_LOG_INFO, EK_LOG_TEXT);
            catch_stderr();
            ek_log(EK_LOG_INFO, "long", "a=1 v=\"%s\" z=2", value);
            const char *line = got();
            size_t len = strlen(line);
            assert_ptr_equal(strchr(line, '\n'), line + len - 1);
            is_whole = strstr(line, " z=2\n") != NULL;
            assert_int_equal(strstr(line, " cut=true\n") != NULL, !is_whole);
        }
    }
}

static void gathered_lines_come_whole_and_in_order_when_flushed(void **state)
{
    static struct ek_log_lines lines;
    (void)state;
    ek_log_setup(EK_LOG_INFO, EK_LOG_TEXT);
    catch_stderr();
    for (int i = 0; i < 1000; i++) /* more than it holds */
        ek_log_add(&lines, EK_LOG_INFO, "e", "i=%d", i);
    ek_log_add(&lines, EK_LOG_DEBUG, "silent", NULL);
    assert_true(lines.len > 0);
    ek_log_flush(&lines);
    assert_int_equal(lines.len, 0);
    ek_log_flush(&lines);
    const char *at = got();
    for (int i = 0; i < 1000; i++) {
        char want[32];
        snprintf(want, sizeof want, " info e i=%d\n", i);
        assert_true(strlen(at) >= 12 + strlen(want));
        assert_memory_equal(at + 12, want, strlen(want));
        at += 12 + strlen(want);
    }
    assert_string_equal(at, "");
}

static void level_names_are_read_and_others_refused(void **state)
{
    (void)state;
    enum ek_log_level level = EK_LOG_INFO;
    assert_int_equal(ek_log_level_parse(&level, "debug"), 0);
    assert_int_equal(level, EK_LOG_DEBUG);
    assert_int_equal(ek_log_level_parse(&level, "error"), 0);
    assert_int_equal(level, EK_LOG_ERROR);
    assert_int_equal(ek_log_level_parse(&level, "ERROR"), EK_EINVAL);
    assert_int_equal(ek_log_level_parse(&level, ""), EK_EINVAL);
    assert_int_equal(level, EK_LOG_ERROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_form_is_time_level_event_fields),
        cmocka_unit_test(json_form_says_the_same),
        cmocka_unit_test(bare_numbers_are_json_numbers_and_nothing_else_is),
        cmocka_unit_test(a_number_that_was_cut_is_no_number),
        cmocka_unit_test(a_quoted_text_can_forge_no_field),
        cmocka_unit_test(a_quote_nobody_escaped_stays_in_its_value),
        cmocka_unit_test(a_pipe_gets_json_by_itself_and_no_fields_are_fine),
        cmocka_unit_test(lower_levels_are_silent),
        cmocka_unit_test(control_characters_and_bad_bytes_are_harmless),
        cmocka_unit_test(long_fields_are_cut_and_the_line_stays_whole),
        cmocka_unit_test(gathered_lines_come_whole_and_in_order_when_flushed),
        cmocka_unit_test(level_names_are_read_and_others_refused),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
