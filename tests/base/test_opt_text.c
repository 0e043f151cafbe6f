#include "base/opt.h"
#include "base/roff.h"
#include "testkit.h"

#include <stdio.h>

struct settings {
    bool json;
    int64_t threads;
    int kv_dtype;
    const char *listen;
    struct ek_opt_list stop;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt options[] = {
    {.name = "json", .type = EK_OPT_FLAG, .offset = AT(json), .help = "print JSON"},
    {.name = "threads",
     .letter = 't',
     .type = EK_OPT_INT,
     .offset = AT(threads),
     .fallback = "2",
     .min = 1,
     .max = 256,
     .help = "threads of the engine; a sentence so long that it needs a second line"},
    {.name = "kv_dtype",
     .type = EK_OPT_CHOICE,
     .offset = AT(kv_dtype),
     .choices = "fp8|bf16|f32",
     .fallback = "bf16",
     .help = "format of the cache"},
    {.name = "listen",
     .type = EK_OPT_STR,
     .offset = AT(listen),
     .value = "HOST:PORT",
     .fallback = "127.0.0.1:8080",
     .help = "where to listen"},
    {.name = "stop",
     .letter = 's',
     .type = EK_OPT_LIST,
     .offset = AT(stop),
     .help = "ends"},
    {0},
};

static const struct ek_opt_verb verb = {
    .name = "serve",
    .summary = "answer requests",
    .arguments = "MODEL",
    .details = "A first paragraph\nof two lines.\n\n  kept   as is\n  .too\n\n"
               ".dot 'quoted' \\ back.",
    .examples = "keel serve a.gguf\nkeel serve -t 4 a.gguf",
    .opts = options,
};

static const char wanted_help[] =
    "usage: keel serve [options] MODEL\n"
    "\n"
    "answer requests\n"
    "\n"
    "options:\n"
    "      --json                print JSON\n"
    "  -t, --threads N           threads of the engine; a sentence so long that it\n"
    "                            needs a second line (1 to 256; default: 2)\n"
    "      --kv-dtype fp8|bf16|f32\n"
    "                            format of the cache (default: bf16)\n"
    "      --listen HOST:PORT    where to listen (default: 127.0.0.1:8080)\n"
    "  -s, --stop TEXT           ends (may be repeated)\n"
    "      --config FILE         read options from a YAML file: the keys are the long\n"
    "                            flags with _ for -\n"
    "      --set KEY=VALUE       set an option by its key; overrides the file, a flag\n"
    "                            overrides it (may be repeated)\n"
    "  -h, --help                show this text\n"
    "\n"
    "A first paragraph of two lines.\n"
    "\n"
    "  kept   as is\n"
    "  .too\n"
    "\n"
    ".dot 'quoted' \\ back.\n"
    "\n"
    "examples:\n"
    "  keel serve a.gguf\n"
    "  keel serve -t 4 a.gguf\n";

static void help_shows_the_whole_table_in_80_columns(void **state)
{
    (void)state;
    struct ek_buf b;
    ek_buf_init(&b, 1 << 16);
    assert_int_equal(ek_opt_help(&b, &verb), 0);
    assert_string_equal(b.data, wanted_help);
    ek_buf_release(&b);
}

static void man_page_has_each_section_and_flag(void **state)
{
    (void)state;
    static const char *const parts[] = {
        ".TH \"KEEL\\-SERVE\" \"1\"",
        ".SH NAME\nkeel\\-serve \\- answer requests\n",
        ".SH SYNOPSIS\n.B keel serve\n[\\fIoptions\\fR]\nMODEL\n",
        ".SH DESCRIPTION\n.PP\nA first paragraph\nof two lines.\n",
        ".EX\n  kept   as is\n  .too\n.EE\n",
        ".PP\n\\&.dot \\(aqquoted\\(aq \\e back.\n",
        ".TP\n\\fB\\-t\\fR, \\fB\\-\\-threads\\fR \\fIN\\fR\nthreads of",
        "\\fB\\-\\-kv\\-dtype\\fR \\fIfp8|bf16|f32\\fR\n",
        ".SH CONFIGURATION FILE\n",
        ".SH EXIT STATUS\n",
        ".SH EXAMPLES\n.EX\nkeel serve a.gguf\nkeel serve \\-t 4 a.gguf\n.EE\n",
    };
    struct ek_buf b;
    ek_buf_init(&b, 1 << 16);
    assert_int_equal(ek_opt_man(&b, &verb), 0);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!strstr(b.data, parts[i]))
            fail_msg("no '%s' in:\n%s", parts[i], b.data);
    }
    ek_buf_release(&b);
}

static void words_are_a_flag_a_line_with_its_value(void **state)
{
    (void)state;
    struct ek_buf b;
    ek_buf_init(&b, 1 << 16);
    assert_int_equal(ek_opt_words(&b, &verb), 0);
    assert_string_equal(b.data,
                        "--json\n--no-json\n--threads N\n"
                        "--kv-dtype fp8|bf16|f32\n--listen HOST:PORT\n"
                        "--stop TEXT\n--config FILE\n--set KEY=VALUE\n--help\n");
    ek_buf_release(&b);
}

static void check_roff(const char *s, size_t n, const char *want)
{
    struct ek_buf b;
    ek_buf_init(&b, 1000);
    assert_int_equal(ek_roff_add(&b, s, n), 0);
    assert_string_equal(b.data ? b.data : "", want);
    ek_buf_release(&b);
}

static void roff_takes_no_text_for_a_request(void **state)
{
    (void)state;
    check_roff("", 0, "");
    check_roff("a.b\n.c\n'd", 9, "a.b\n\\&.c\n\\&\\(aqd");
    check_roff(".TH", 3, "\\&.TH");
    check_roff("\\fB-x`^~", 8, "\\efB\\-x\\(ga\\(ha\\(ti");
    check_roff("\xc3\xa9\xff\xf0\x9f\x98\x80", 7, "\\[u00E9]\\[uFFFD]\\[u1F600]");
}

static int write_all(struct ek_buf *b)
{
    int rc = ek_opt_help(b, &verb);
    if (!rc)
        rc = ek_opt_man(b, &verb);
    return rc ? rc : ek_opt_words(b, &verb);
}

static void no_memory_and_a_low_ceiling_are_errors(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_buf b;
        ek_buf_init(&b, 1 << 16);
        ek_assert_rc(write_all(&b));
        ek_buf_release(&b);
    }
    for (size_t max = 0; max < 1500; max += 7) {
        struct ek_buf b;
        ek_buf_init(&b, max);
        assert_int_equal(write_all(&b), EK_ELIMIT);
        ek_buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_shows_the_whole_table_in_80_columns),
        cmocka_unit_test(man_page_has_each_section_and_flag),
        cmocka_unit_test(words_are_a_flag_a_line_with_its_value),
        cmocka_unit_test(roff_takes_no_text_for_a_request),
        cmocka_unit_test(no_memory_and_a_low_ceiling_are_errors),
    };
    return cmocka_run_group_tests_name("opt_text", tests, NULL, NULL);
}
