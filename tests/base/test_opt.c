#include "base/opt.h"
#include "testkit.h"

#include <stdio.h>
#include <unistd.h>

struct settings {
    bool json;
    bool pin;
    int64_t threads;
    int64_t seed;
    double temperature;
    const char *listen;
    int64_t kv_memory;
    int64_t idle_timeout;
    int kv_dtype;
    struct ek_opt_list stop;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt options[] = {
    {.name = "json", .type = EK_OPT_FLAG, .offset = AT(json), .is_flag_only = true},
    {.name = "pin",
     .letter = 'p',
     .type = EK_OPT_FLAG,
     .offset = AT(pin),
     .fallback = "true"},
    {.name = "threads",
     .letter = 't',
     .type = EK_OPT_INT,
     .offset = AT(threads),
     .fallback = "2",
     .min = 0,
     .max = 256},
    {.name = "seed", .type = EK_OPT_INT, .offset = AT(seed)},
    {.name = "temperature",
     .type = EK_OPT_REAL,
     .offset = AT(temperature),
     .fallback = "0.8",
     .min = 0.0,
     .max = 1e300},
    {.name = "listen", .type = EK_OPT_STR, .offset = AT(listen), .value = "HOST:PORT"},
    {.name = "kv_memory",
     .type = EK_OPT_BYTES,
     .offset = AT(kv_memory),
     .fallback = "512MiB",
     .min = 1024,
     .max = 0x1p40},
    {.name = "idle_timeout",
     .type = EK_OPT_MS,
     .offset = AT(idle_timeout),
     .fallback = "30s",
     .min = 10,
     .max = 3600000},
    {.name = "kv_dtype",
     .type = EK_OPT_CHOICE,
     .offset = AT(kv_dtype),
     .choices = "fp8|bf16|f32",
     .fallback = "bf16"},
    {.name = "stop", .letter = 's', .type = EK_OPT_LIST, .offset = AT(stop)},
    {0},
};

static const struct ek_opt_verb verb = {.name = "serve",
                                        .summary = "s",
                                        .arguments = "MODEL",
                                        .opts = options,
                                        .max_args = 2};

#define MAX_WORDS 16

struct parsed {
    struct settings s;
    struct ek_opt_args args;
    struct ek_err err;
    struct ek_arena arena;
    char line[512];
    char *argv[MAX_WORDS];
    int argc;
    int rc;
};

/* Splits at spaces and parses; release() frees. */
static void parse_verb(struct parsed *p, const struct ek_opt_verb *v, const char *line)
{
    *p = (struct parsed){.argc = 0};
    snprintf(p->line, sizeof p->line, "%s", line);
    char *save = NULL;
    for (char *w = strtok_r(p->line, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        assert_true(p->argc < MAX_WORDS);
        p->argv[p->argc++] = w;
    }
    ek_arena_init(&p->arena, 1 << 20);
    p->rc = ek_opt_parse(v, &p->s, &p->args, p->argc, p->argv, &p->arena, &p->err);
}

static void parse(struct parsed *p, const char *line)
{
    parse_verb(p, &verb, line);
}

static void parse_good(struct parsed *p, const char *line)
{
    parse(p, line);
    if (p->rc)
        fail_msg("%s: %s", line, p->err.text);
}

static void release(struct parsed *p)
{
    ek_arena_release(&p->arena);
}

static void defaults_come_from_the_table(void **state)
{
    (void)state;
    struct parsed p;
    parse_good(&p, "");
    assert_int_equal(p.s.threads, 2);
    assert_true(p.s.pin && !p.s.json);
    assert_true(p.s.temperature == 0.8);
    assert_null(p.s.listen);
    assert_int_equal(p.s.kv_memory, 512 << 20);
    assert_int_equal(p.s.idle_timeout, 30000);
    assert_int_equal(p.s.kv_dtype, 1);
    assert_int_equal(p.s.stop.n, 0);
    assert_int_equal(p.args.n_args, 0);
    release(&p);
}

static void flags_are_read_in_every_spelling(void **state)
{
    (void)state;
    static const char *const same[] = {"--threads 7",  "--threads=7",  "-t 7",
                                       "-t7",          "-pt7",         "-pt 7",
                                       "--threads +7", "-t1 -t 3 -t7", "--threads 007"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        struct parsed p;
        parse_good(&p, same[i]);
        assert_int_equal(p.s.threads, 7);
        release(&p);
    }
    struct parsed p;
    parse_good(&p, "--json --no-pin");
    assert_true(p.s.json && !p.s.pin);
    release(&p);
    parse_good(&p, "--no-pin --pin --json=off --pin=yes");
    assert_true(!p.s.json && p.s.pin);
    release(&p);
    parse_good(&p, "--listen= --stop= -s =x");
    assert_string_equal(p.s.listen, "");
    assert_string_equal(p.s.stop.items[0], "");
    assert_string_equal(p.s.stop.items[1], "=x");
    release(&p);
}

static void negative_numbers_are_values_and_arguments(void **state)
{
    (void)state;
    struct parsed p;
    parse_good(&p, "--seed -5 -12 -.5");
    assert_int_equal(p.s.seed, -5);
    assert_int_equal(p.args.n_args, 2);
    assert_string_equal(p.args.args[0], "-12");
    assert_string_equal(p.args.args[1], "-.5");
    release(&p);
    parse_good(&p, "--seed=-9223372036854775808");
    assert_true(p.s.seed == INT64_MIN);
    release(&p);
}

static void two_dashes_end_the_flags(void **state)
{
    (void)state;
    struct parsed p;
    parse_good(&p, "-- --threads --help");
    assert_int_equal(p.args.n_args, 2);
    assert_string_equal(p.args.args[0], "--threads");
    assert_false(p.args.wants_help);
    release(&p);
    parse_good(&p, "a -t 3 -");
    assert_string_equal(p.args.args[0], "a");
    assert_string_equal(p.args.args[1], "-"); /* standard input */
    assert_int_equal(p.s.threads, 3);
    release(&p);
    parse_good(&p, "--listen --x --stop -- -"); /* -- is a value where one is due */
    assert_string_equal(p.s.listen, "--x");
    assert_string_equal(p.s.stop.items[0], "--");
    release(&p);
}

static void help_wins_over_everything_else_on_the_line(void **state)
{
    (void)state;
    static const char *const lines[] = {"--help",
                                        "-h",
                                        "--bogus -h x y z",
                                        "--threads many --help",
                                        "--config /absent --help",
                                        "-ph"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct parsed p;
        parse_good(&p, lines[i]);
        assert_true(p.args.wants_help);
        release(&p);
    }
    struct parsed p;
    parse_good(&p, "--listen -h"); /* here it is the value */
    assert_false(p.args.wants_help);
    assert_string_equal(p.s.listen, "-h");
    release(&p);
}

struct quantity {
    const char *text;
    int64_t value; /* -1: refused */
};

static void sizes_know_their_units(void **state)
{
    (void)state;
    static const struct quantity q[] = {
        {"2048", 2048},
        {"2048B", 2048},
        {"1KiB", 1024},
        {"512MiB", 512 << 20},
        {"4GiB", INT64_C(4) << 30},
        {"1TiB", INT64_C(1) << 40},
        {"1.5GiB", 1610612736},
        {"2kB", 2000},
        {"3MB", 3000000},
        {"1gib", 1 << 30},
        {"4G", -1},
        {"4g", -1},
        {"1.5", -1},
        {"MiB", -1},
        {"-1MiB", -1},
        {"1e6", -1},
        {"0x400", -1},
        {"1MiBs", -1},
        {"1..5MiB", -1},
        {"", -1},
        {"99999999999TiB", -1},
        {"9223372036854775808", -1},
        {"99999999.0TiB", -1},
        {"1023", -1},
        {"2TiB", -1},
        {"0", -1},
    };
    for (size_t i = 0; i < sizeof q / sizeof q[0]; i++) {
        char line[80];
        struct parsed p;
        snprintf(line, sizeof line, "--kv-memory=%s", q[i].text);
        parse(&p, line);
        if (q[i].value == -1 ? p.rc != EK_EINVAL : p.rc || p.s.kv_memory != q[i].value)
            fail_msg("%s: %d, %lld", q[i].text, p.rc, (long long)p.s.kv_memory);
        release(&p);
    }
}

static void durations_need_a_unit(void **state)
{
    (void)state;
    static const struct quantity q[] = {
        {"250ms", 250}, {"30s", 30000},    {"5min", 300000}, {"1h", 3600000},
        {"1.5s", 1500}, {"0.5min", 30000}, {"30", -1},       {"5m", -1},
        {"1d", -1},     {"9ms", -1},       {"s", -1},        {"-1s", -1},
    };
    for (size_t i = 0; i < sizeof q / sizeof q[0]; i++) {
        char line[80];
        struct parsed p;
        snprintf(line, sizeof line, "--idle-timeout=%s", q[i].text);
        parse(&p, line);
        if (q[i].value == -1 ? p.rc != EK_EINVAL
                             : p.rc || p.s.idle_timeout != q[i].value)
            fail_msg("%s: %d, %lld", q[i].text, p.rc, (long long)p.s.idle_timeout);
        release(&p);
    }
}

static void lists_keep_all_items_in_order(void **state)
{
    (void)state;
    struct parsed p;
    parse_good(&p, "-s a --stop b --stop=c -sd --stop e");
    assert_int_equal(p.s.stop.n, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(p.s.stop.items[i], ((char[2]){(char)('a' + i), 0}));
    release(&p);
}

struct refusal {
    const char *line;
    const char *text; /* the whole sentence */
};

static const struct refusal refusals[] = {
    {"--thread 4", "--thread: unknown flag, did you mean --threads?"},
    {"--thraeds 4", "--thraeds: unknown flag, did you mean --threads?"},
    {"--kv_dtype fp8", "--kv_dtype: unknown flag, did you mean --kv-dtype?"},
    {"--no-jsn", "--no-jsn: unknown flag, did you mean --no-json?"},
    {"--no-threads", "--no-threads: unknown flag, did you mean --threads?"},
    {"--confg x", "--confg: unknown flag, did you mean --config?"},
    {"--zzzzzz", "--zzzzzz: unknown flag, `keel serve --help` lists them"},
    {"--=x", "--: unknown flag, `keel serve --help` lists them"},
    {"-x", "-x: unknown flag, `keel serve --help` lists them"},
    {"-px", "-x: unknown flag, `keel serve --help` lists them"},
    {"--threads", "--threads needs a value: a whole number, 0 to 256"},
    {"-t", "-t needs a value: a whole number, 0 to 256"},
    {"--listen", "--listen needs a value: HOST:PORT"},
    {"--stop", "--stop needs a value: text"},
    {"--config", "--config needs a value: FILE"},
    {"--set", "--set needs a value: KEY=VALUE"},
    {"--listen --json", "--listen needs a value before --json (write --listen=--json "
                        "if that is the value)"},
    {"--threads 257",
     "--threads: '257' is out of range, expected a whole number, 0 to 256"},
    {"-t -1", "-t: '-1' is out of range, expected a whole number, 0 to 256"},
    {"--threads 1.5",
     "--threads: '1.5' is not understood, expected a whole number, 0 to 256"},
    {"--threads=",
     "--threads: '' is not understood, expected a whole number, 0 to 256"},
    {"--threads 4x",
     "--threads: '4x' is not understood, expected a whole number, 0 to 256"},
    {"--seed 9223372036854775808",
     "--seed: '9223372036854775808' is not understood, expected a whole number"},
    {"--temperature -0.1",
     "--temperature: '-0.1' is out of range, expected a number, at least 0"},
    {"--temperature nan",
     "--temperature: 'nan' is not understood, expected a number, at least 0"},
    {"--temperature 0x1p3",
     "--temperature: '0x1p3' is not understood, expected a number, at least 0"},
    {"--temperature 1e999",
     "--temperature: '1e999' is not understood, expected a number, at least 0"},
    {"--temperature 1,5",
     "--temperature: '1,5' is not understood, expected a number, at least 0"},
    {"--kv-memory 4G", "--kv-memory: '4G' is not understood, expected a size such as "
                       "512MiB, 4GiB or 1000000, 1.0 KiB to 1.0 TiB"},
    {"--idle-timeout 30", "--idle-timeout: '30' is not understood, expected a duration "
                          "such as 250ms, 30s or 5min, 10ms to 1h"},
    {"--kv-dtype fp9", "--kv-dtype: 'fp9' is not known, expected fp8, bf16 or f32"},
    {"--kv-dtype fp", "--kv-dtype: 'fp' is not known, expected fp8, bf16 or f32"},
    {"--kv-dtype fp8|bf16",
     "--kv-dtype: 'fp8|bf16' is not known, expected fp8, bf16 or f32"},
    {"--kv-dtype=", "--kv-dtype: '' is not known, expected fp8, bf16 or f32"},
    {"--json=maybe", "--json: 'maybe' is not understood, expected true or false"},
    {"--no-pin=true", "--no-pin takes no value"},
    {"--set threads", "--set: 'threads' is not understood, expected KEY=VALUE"},
    {"--set =3", "--set: '=3' is not understood, expected KEY=VALUE"},
    {"--set treads=3", "--set: unknown key 'treads', did you mean 'threads'?"},
    {"--set kv-dtype=fp8", "--set: unknown key 'kv-dtype', did you mean 'kv_dtype'?"},
    {"--set a.b=c",
     "--set: unknown key 'a.b', `keel serve --help` lists the flags that "
     "keys are named after"},
    {"--set json=true", "--set: 'json' can only be a flag: --json"},
    {"--set config=x", "--set: 'config' can only be a flag: --config"},
    {"--set threads=many", "--set threads: 'many' is not understood, expected a whole "
                           "number, 0 to 256"},
    {"a b c", "unexpected argument 'c', usage: keel serve [options] MODEL"},
};

static void each_mistake_is_told_with_what_would_be_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct parsed p;
        parse(&p, refusals[i].line);
        assert_int_equal(p.rc, EK_EINVAL);
        assert_string_equal(p.err.text, refusals[i].text);
        release(&p);
    }
}

static void too_few_arguments_show_the_usage(void **state)
{
    (void)state;
    struct ek_opt_verb needs = verb;
    needs.min_args = 1;
    struct parsed p;
    parse_verb(&p, &needs, "-t 3");
    assert_int_equal(p.rc, EK_EINVAL);
    assert_string_equal(p.err.text,
                        "an argument is missing, usage: keel serve [options] MODEL");
    release(&p);
}

static char config_path[64];

/* Not ek_file_write, which waits for the disk. */
static void write_bytes(const char *text, size_t n)
{
    FILE *f = fopen(config_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_config(const char *text)
{
    write_bytes(text, strlen(text));
}

static void a_flag_beats_set_beats_file_beats_default(void **state)
{
    (void)state;
    struct parsed p;
    char line[300];
    write_config("threads: 3\nseed: 3\nkv_dtype: f32\nstop: [x, y]\npin: no\n");
    snprintf(
        line, sizeof line,
        "--seed 5 --set threads=4 --set seed=4 --config %s --set stop=a --set stop=b",
        config_path);
    parse_good(&p, line);
    assert_int_equal(p.s.seed, 5);
    assert_int_equal(p.s.threads, 4);
    assert_int_equal(p.s.kv_dtype, 2);
    assert_int_equal(p.s.idle_timeout, 30000);
    assert_false(p.s.pin);
    assert_int_equal(p.s.stop.n, 2); /* a later layer replaces the list, not adds */
    assert_string_equal(p.s.stop.items[1], "b");
    release(&p);
    snprintf(line, sizeof line, "--config %s --stop z", config_path);
    parse_good(&p, line);
    assert_int_equal(p.s.stop.n, 1);
    assert_string_equal(p.s.stop.items[0], "z");
    release(&p);
}

static void the_file_speaks_yaml(void **state)
{
    (void)state;
    struct parsed p;
    char line[100];
    write_config("---\n# note\nlisten: \"[::1]:80 \\u00e9\"\nidle_timeout: 5 min\n"
                 "stop:\n  - 'a: b'\n  - |\n    two\n    lines\n  - \"\"\n"
                 "kv_memory: 1.5 GiB # tail\nseed: -7\n...\n");
    snprintf(line, sizeof line, "--config %s", config_path);
    parse_good(&p, line);
    assert_string_equal(p.s.listen, "[::1]:80 \xc3\xa9");
    assert_int_equal(p.s.idle_timeout, 300000);
    assert_int_equal(p.s.kv_memory, 1610612736);
    assert_int_equal(p.s.seed, -7);
    assert_int_equal(p.s.stop.n, 3);
    assert_string_equal(p.s.stop.items[0], "a: b");
    assert_string_equal(p.s.stop.items[1], "two\nlines\n");
    assert_string_equal(p.s.stop.items[2], "");
    release(&p);
    static const char *const empty[] = {"", "# only a note\n", "---\n", "{}\n",
                                        "stop: []"};
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        write_config(empty[i]);
        parse_good(&p, line);
        assert_int_equal(p.s.threads, 2);
        release(&p);
    }
    write_config("stop: single\n"); /* one item needs no brackets */
    parse_good(&p, line);
    assert_string_equal(p.s.stop.items[0], "single");
    release(&p);
}

static const struct refusal file_refusals[] = {
    {"treads: 3", ":1:1: unknown key 'treads', did you mean 'threads'?"},
    {"# x\n\nthreads: 900\n",
     ":3:10: threads: '900' is out of range, expected a whole number, 0 to 256"},
    {"kv_dtype: fp9", ":1:11: kv_dtype: 'fp9' is not known, expected fp8, bf16 or f32"},
    {"kv-dtype: fp8", ":1:1: unknown key 'kv-dtype', did you mean 'kv_dtype'?"},
    {"json: true", ":1:1: 'json' can only be a flag: --json"},
    {"threads:\n", ":1:9: threads: has no value (write \"\" for empty text)"},
    {"listen: ~", ":1:9: listen: has no value (write \"\" for empty text)"},
    {"listen: null", ":1:9: listen: has no value (write \"\" for empty text)"},
    {"threads: [1, 2]", ":1:10: threads: found a list, expected one value"},
    {"threads: {a: 1}", ":1:10: threads: found a mapping, expected one value"},
    {"stop: [a, [b]]", ":1:11: stop: found a list, expected one value"},
    {"[a]: 1", ":1:1: found a list, expected one value"},
    {"threads: 1\nseed: 2\nthreads: 3", ":3:1: key 'threads' is there twice"},
    {"- threads", ":1:1: expected `key: value` lines"},
    {"threads", ":1:1: expected `key: value` lines"},
    {"threads: 1\n---\nthreads: 2", ":2:1: a second document, expected one"},
    {"listen: \"a\\0b\"", ":1:9: listen: holds a NUL character"},
    {"seed: &x 1\nthreads: *x",
     ":2:10: aliases (*name) are not supported, write the value out"},
    {"threads: \"1", ":1:12: found unexpected end of stream while scanning a quoted "
                     "scalar"},
    {"a: b: c\n",
     ":1:1: unknown key 'a', `keel serve --help` lists the flags that keys are "
     "named after"},
    {"seed: 1: 2\n", ":1:8: mapping values are not allowed in this context"},
    {"threads: \xff\n", ": byte 9: invalid leading UTF-8 octet"},
    {"threads: \x01\n", ": byte 9: control characters are not allowed"},
};

static void each_mistake_in_a_file_is_told_with_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof file_refusals / sizeof file_refusals[0]; i++) {
        struct parsed p;
        char line[100], want[300];
        write_config(file_refusals[i].line);
        snprintf(line, sizeof line, "--config %s", config_path);
        snprintf(want, sizeof want, "%s%s", config_path, file_refusals[i].text);
        parse(&p, line);
        if (p.rc != EK_EINVAL)
            fail_msg("%s: status %d", file_refusals[i].line, p.rc);
        assert_string_equal(p.err.text, want);
        release(&p);
    }
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, "--config /absent/c.yaml");
    assert_int_equal(p.rc, EK_ENOENT);
    assert_string_equal(p.err.text,
                        "--config: /absent/c.yaml: No such file or directory");
    release(&p);
}

/* Every prefix, every single byte replaced: an answer each time, and no harm. */
static void a_broken_file_never_does_harm(void **state)
{
    (void)state;
    static const char good[] = "threads: 3\nstop: [a, 'b', \"c\\n\"]\nlisten: |\n  x\n";
    static const char odd[] = "\0\t\n:[]{}&*!|>'\"%@`#-,\x80\xff";
    char line[100];
    snprintf(line, sizeof line, "--config %s", config_path);
    for (size_t cut = 0; cut < sizeof good; cut++) {
        struct parsed p;
        write_bytes(good, cut);
        parse(&p, line);
        assert_true(p.rc == 0 || (p.rc == EK_EINVAL && p.err.text[0]));
        release(&p);
    }
    for (size_t at = 0; at + 1 < sizeof good; at += 3) {
        for (size_t i = 0; i + 1 < sizeof odd; i++) {
            char text[sizeof good];
            struct parsed p;
            memcpy(text, good, sizeof good);
            text[at] = odd[i];
            write_bytes(text, sizeof good - 1);
            parse(&p, line);
            assert_true(p.rc == 0 || (p.rc == EK_EINVAL && p.err.text[0]));
            release(&p);
        }
    }
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    write_config("stop: [a, b, c]\nlisten: x\n");
    EK_EACH_FAILURE (k) {
        struct settings s = {.json = false};
        struct ek_opt_args args;
        struct ek_arena arena;
        char flag[] = "--config", stop[] = "--stop=x";
        char *argv[] = {flag, config_path, stop, stop, stop};
        ek_arena_init(&arena, 1 << 20);
        ek_assert_rc(ek_opt_parse(&verb, &s, &args, 5, argv, &arena, NULL));
        ek_arena_release(&arena);
    }
    /* The arena's ceiling is the same error. */
    for (size_t max = 0; max < 2000; max += 16) {
        struct settings s = {.json = false};
        struct ek_opt_args args;
        struct ek_arena arena;
        char flag[] = "--config", stop[] = "--stop=x";
        char *argv[] = {flag, config_path, stop, stop, stop};
        ek_arena_init(&arena, max);
        int rc = ek_opt_parse(&verb, &s, &args, 5, argv, &arena, NULL);
        assert_true(rc == EK_ENOMEM || rc == 0);
        ek_arena_release(&arena);
    }
}

static void nearest_allows_a_third_of_the_word(void **state)
{
    (void)state;
    static const char *const names[] = {"serve", "inspect", "chat"};
    assert_string_equal(ek_opt_nearest("serv", names, 3), "serve");
    assert_string_equal(ek_opt_nearest("sevre", names, 3), "serve"); /* a swap is one */
    assert_string_equal(ek_opt_nearest("inpsetc", names, 3), "inspect");
    assert_string_equal(ek_opt_nearest("cat", names, 3), "chat");
    assert_null(ek_opt_nearest("ct", names, 3));
    assert_null(ek_opt_nearest("train", names, 3));
    assert_null(ek_opt_nearest("", names, 3));
    assert_null(ek_opt_nearest("serve", names, 0));
    static char huge[1000];
    memset(huge, 'a', sizeof huge - 1);
    assert_null(ek_opt_nearest(huge, names, 3));
}

static int make_path(void **state)
{
    (void)state;
    snprintf(config_path, sizeof config_path, "/tmp/ek-opt-%ld.yaml", (long)getpid());
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(config_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_come_from_the_table),
        cmocka_unit_test(flags_are_read_in_every_spelling),
        cmocka_unit_test(negative_numbers_are_values_and_arguments),
        cmocka_unit_test(two_dashes_end_the_flags),
        cmocka_unit_test(help_wins_over_everything_else_on_the_line),
        cmocka_unit_test(sizes_know_their_units),
        cmocka_unit_test(durations_need_a_unit),
        cmocka_unit_test(lists_keep_all_items_in_order),
        cmocka_unit_test(each_mistake_is_told_with_what_would_be_right),
        cmocka_unit_test(too_few_arguments_show_the_usage),
        cmocka_unit_test(a_flag_beats_set_beats_file_beats_default),
        cmocka_unit_test(the_file_speaks_yaml),
        cmocka_unit_test(each_mistake_in_a_file_is_told_with_its_place),
        cmocka_unit_test(a_file_that_cannot_be_read_is_named),
        cmocka_unit_test(a_broken_file_never_does_harm),
        cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(nearest_allows_a_third_of_the_word),
    };
    return cmocka_run_group_tests_name("opt", tests, make_path, remove_path);
}
