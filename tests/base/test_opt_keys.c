/* Nested keys: sections in YAML, dots in --set, JSON and back. */
#include "base/opt.h"
#include "testkit.h"

#include <stdio.h>
#include <unistd.h>

struct settings {
    int64_t dim;
    double lr;
    bool filter;
    int kind;
    const char *path;
    struct ek_opt_list skip;
    int64_t timeout, memory;
    bool check; /* of the verb, not a key */
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt keys[] = {
    {.name = "model.dim",
     .type = EK_OPT_INT,
     .offset = AT(dim),
     .fallback = "64",
     .min = 1,
     .max = 4096,
     .help = "columns"},
    {.name = "model.kind",
     .type = EK_OPT_CHOICE,
     .offset = AT(kind),
     .fallback = "sasrec",
     .choices = "sasrec|hstu|gem"},
    {.name = "train.lr", .type = EK_OPT_REAL, .offset = AT(lr), .fallback = "0.001"},
    {.name = "train.timeout", .type = EK_OPT_MS, .offset = AT(timeout)},
    {.name = "train.memory",
     .type = EK_OPT_BYTES,
     .offset = AT(memory),
     .fallback = "1MiB"},
    {.name = "data.path", .type = EK_OPT_STR, .offset = AT(path), .fallback = ""},
    {.name = "data.skip", .type = EK_OPT_LIST, .offset = AT(skip)},
    {.name = "data.filter",
     .type = EK_OPT_FLAG,
     .offset = AT(filter),
     .fallback = "true"},
    {0},
};

static const struct ek_opt opts[] = {
    {.name = "check", .type = EK_OPT_FLAG, .offset = AT(check), .help = "only check"},
    {0},
};

static const struct ek_opt_verb verb = {.name = "train",
                                        .summary = "trains",
                                        .arguments = "CONFIG.yaml",
                                        .opts = opts,
                                        .keys = keys,
                                        .is_config_first = true,
                                        .min_args = 1,
                                        .max_args = 1};

static char path[64];

struct parsed {
    struct settings s;
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_err err;
    int rc;
};

static void parse(struct parsed *p, const char *text, int n, const char *const *more)
{
    static char words[8][64];
    char *argv[9] = {path};
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    for (int i = 0; i < n; i++) {
        snprintf(words[i], sizeof words[i], "%s", more[i]);
        argv[i + 1] = words[i];
    }
    memset(p, 0, sizeof *p);
    ek_arena_init(&p->arena, 1 << 20);
    p->rc = ek_opt_parse(&verb, &p->s, &p->args, n + 1, argv, &p->arena, &p->err);
}

static void parse_good(struct parsed *p, const char *text, int n,
                       const char *const *more)
{
    parse(p, text, n, more);
    if (p->rc)
        fail_msg("%s", p->err.text);
}

static void release(struct parsed *p)
{
    ek_arena_release(&p->arena);
}

static void sections_nest_and_dots_are_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "model:\n  dim: 32\n  kind: gem\ndata: {path: a, skip: [x, y]}\n",
        "model.dim: 32\nmodel.kind: gem\ndata.path: a\ndata.skip: [x, y]\n",
        "model: {dim: 32}\ndata:\n  path: a\n  skip:\n  - x\n  - y\nmodel.kind: gem\n",
        ("{\"model\": {\"dim\": 32, \"kind\": \"gem\"}, \"data.path\": \"a\", "
         "\"data\": {\"skip\": [\"x\", \"y\"]}}"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct parsed p;
        parse_good(&p, texts[i], 0, NULL);
        assert_int_equal(p.s.dim, 32);
        assert_int_equal(p.s.kind, 2);
        assert_string_equal(p.s.path, "a");
        assert_int_equal(p.s.skip.n, 2);
        assert_string_equal(p.s.skip.items[1], "y");
        assert_true(p.s.filter);
        release(&p);
    }
}

static void set_beats_the_file_and_places_are_kept(void **state)
{
    (void)state;
    struct parsed p;
    char out[512], want[512];
    const char *more[] = {"--set", "model.dim=16", "--check", "--set", "data.skip=z"};
    parse_good(&p, "model:\n  dim: 32\n  kind: hstu\ndata.skip: [x, y]\n", 5, more);
    assert_int_equal(p.s.dim, 16);
    assert_int_equal(p.s.skip.n, 1);
    assert_true(p.s.check);
    assert_string_equal(ek_opt_place(out, &verb, &p.args, "model.dim"), "--set: ");
    snprintf(want, sizeof want, "%s:3:9: ", path);
    assert_string_equal(ek_opt_place(out, &verb, &p.args, "model.kind"), want);
    assert_string_equal(ek_opt_place(out, &verb, &p.args, "train.lr"), "");
    release(&p);
}

static const struct {
    const char *text, *set, *want; /* want begins behind the path where text is */
} refusals[] = {
    {"model:\n  dims: 3", NULL,
     ":2:3: unknown key 'model.dims', did you mean 'model.dim'?"},
    {"model:\n  lr: 3", NULL, ":2:3: unknown key 'model.lr', did you mean 'train.lr'?"},
    {"lr: 3", NULL, ":1:1: unknown key 'lr', did you mean 'train.lr'?"},
    {"modle:\n  dim: 3", NULL, ":1:1: unknown key 'modle', did you mean 'model'?"},
    {"model: 3", NULL,
     ":1:8: model is a section, expected `key: value` lines below it"},
    {"model:\n  dim: {a: 1}", NULL,
     ":2:8: model.dim: found a mapping, expected one value"},
    {"model:\n  dim: 0", NULL,
     ":2:8: model.dim: '0' is out of range, expected a whole number, 1 to 4096"},
    {"model:\n  dim: 1\nmodel.dim: 2", NULL, ":3:1: key 'model.dim' is there twice"},
    {"model:\n  model:\n    dim: 1", NULL,
     ":2:3: unknown key 'model.model', `keel train --help` lists them"},
    {"check: true", NULL, NULL},
    {"", "model=3", "--set: 'model' is a section, expected model.KEY"},
    {"", "model.dmi=3", "--set: unknown key 'model.dmi', did you mean 'model.dim'?"},
    {"", "model.dim=x",
     "--set model.dim: 'x' is not understood, expected a whole number, 1 to 4096"},
};

static void each_mistake_is_told_with_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct parsed p;
        char want[400], set[64];
        const char *more[] = {"--set", set};
        snprintf(set, sizeof set, "%s", refusals[i].set ? refusals[i].set : "");
        parse(&p, refusals[i].text, refusals[i].set ? 2 : 0, more);
        if (!refusals[i].want) { /* options may stand in the file, too */
            assert_int_equal(p.rc, 0);
            release(&p);
            continue;
        }
        assert_int_equal(p.rc, EK_EINVAL);
        snprintf(want, sizeof want, "%s%s", refusals[i].set ? "" : path,
                 refusals[i].want);
        assert_string_equal(p.err.text, want);
        release(&p);
    }
}

static void keys_are_no_flags(void **state)
{
    (void)state;
    struct parsed p;
    const char *more[] = {"--model.dim", "3"};
    parse(&p, "", 2, more);
    assert_int_equal(p.rc, EK_EINVAL);
    release(&p);
}

static void an_absent_first_file_is_named(void **state)
{
    (void)state;
    struct parsed p = {.rc = 0};
    char absent[] = "/absent/c.yaml";
    char *argv[] = {absent};
    ek_arena_init(&p.arena, 1 << 20);
    p.rc = ek_opt_parse(&verb, &p.s, &p.args, 1, argv, &p.arena, &p.err);
    assert_int_equal(p.rc, EK_ENOENT);
    assert_string_equal(p.err.text, "/absent/c.yaml: No such file or directory");
    p.rc = ek_opt_parse(&verb, &p.s, &p.args, 0, argv, &p.arena, &p.err);
    assert_int_equal(p.rc, EK_EINVAL);
    release(&p);
}

static void json_reads_back_to_the_same_settings(void **state)
{
    (void)state;
    struct parsed p;
    struct settings back = {.dim = 0};
    struct ek_arena arena;
    struct ek_buf json;
    const char *more[] = {"--set", "data.path=a \"b\"\\c: {d}\xc3\xa9", "--set",
                          "train.timeout=3s"};
    parse_good(&p,
               "model: {dim: 7, kind: gem}\ntrain: {lr: 3.3e-5, memory: 3}\n"
               "data: {skip: ['a, b', \"\"], filter: no}\n",
               4, more);
    ek_buf_init(&json, 4096);
    ek_arena_init(&arena, 1 << 20);
    assert_int_equal(ek_opt_keys_json(&json, keys, &p.s), 0);
    assert_int_equal(
        ek_opt_keys_read(keys, &back, "m", json.data, json.len, &arena, &p.err), 0);
    assert_null(ek_opt_keys_differ(keys, &p.s, &back, NULL, 0));
    assert_true(back.lr == 3.3e-5);
    assert_int_equal(back.timeout, 3000);
    assert_string_equal(back.path, "a \"b\"\\c: {d}\xc3\xa9");
    back.dim++;
    assert_string_equal(ek_opt_keys_differ(keys, &p.s, &back, NULL, 0)->name,
                        "model.dim");
    static const char *const but[] = {"model.dim"};
    assert_null(ek_opt_keys_differ(keys, &p.s, &back, but, 1));
    back.skip.n--;
    assert_string_equal(ek_opt_keys_differ(keys, &p.s, &back, but, 1)->name,
                        "data.skip");
    ek_buf_release(&json);
    ek_arena_release(&arena);
    release(&p);
}

static void help_and_man_page_list_the_keys(void **state)
{
    (void)state;
    struct ek_buf out;
    ek_buf_init(&out, 1 << 16);
    assert_int_equal(ek_opt_help(&out, &verb), 0);
    assert_non_null(strstr(out.data, "  model.dim N           "));
    assert_non_null(strstr(out.data, "columns (1 to 4096; default: 64)"));
    assert_null(strstr(out.data, "--model.dim"));
    ek_buf_reset(&out);
    assert_int_equal(ek_opt_man(&out, &verb), 0);
    assert_non_null(strstr(out.data, "model.dim"));
    ek_buf_release(&out);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    struct parsed p;
    parse_good(&p, "model: {dim: 7}\ndata: {skip: [a, b], path: x}\n", 0, NULL);
    release(&p);
    EK_EACH_FAILURE (k) {
        struct settings s = {.dim = 0};
        struct ek_opt_args args;
        struct ek_arena arena;
        char *argv[] = {path};
        ek_arena_init(&arena, 1 << 20);
        ek_assert_rc(ek_opt_parse(&verb, &s, &args, 1, argv, &arena, NULL));
        ek_arena_release(&arena);
    }
}

/* Lists of mappings: each a struct of its own, with defaults and a place. */

struct thing {
    const char *name;
    int64_t size;
};
struct box {
    struct ek_opt_items things;
    int64_t n;
};

static const struct ek_opt thing_keys[] = {
    {.name = "name", .type = EK_OPT_STR, .offset = offsetof(struct thing, name)},
    {.name = "size",
     .type = EK_OPT_INT,
     .offset = offsetof(struct thing, size),
     .fallback = "3",
     .min = 1,
     .max = 9},
    {0},
};
static const struct ek_opt box_keys[] = {
    {.name = "things",
     .type = EK_OPT_ITEMS,
     .offset = offsetof(struct box, things),
     .item_keys = thing_keys,
     .item_size = sizeof(struct thing)},
    {.name = "n", .type = EK_OPT_INT, .offset = offsetof(struct box, n)},
    {0},
};

static int read_box(struct box *b, const char *text, struct ek_arena *arena,
                    struct ek_err *err)
{
    *b = (struct box){.n = 0};
    return ek_opt_keys_read(box_keys, b, "f", text, strlen(text), arena, err);
}

static void items_are_structs_with_defaults_and_places(void **state)
{
    (void)state;
    struct box b, other;
    struct ek_err err = EK_ERR_INIT;
    struct ek_arena arena;
    ek_arena_init(&arena, 1 << 20);
    assert_int_equal(read_box(&b,
                              "things:\n- name: a\n- {name: b, size: 5}\n- {}\nn: 7\n",
                              &arena, &err),
                     0);
    const struct thing *t = b.things.items;
    assert_int_equal(b.things.n, 3);
    assert_string_equal(t[0].name, "a");
    assert_int_equal(t[0].size, 3);
    assert_int_equal(t[1].size, 5);
    assert_null(t[2].name);
    assert_string_equal(b.things.places[1], "f:3:3");
    assert_int_equal(b.n, 7);
    assert_int_equal(read_box(&other,
                              "things: [{name: a}, {name: b, size: 5}, {}]\nn: 7",
                              &arena, &err),
                     0);
    assert_null(ek_opt_keys_differ(box_keys, &b, &other, NULL, 0));
    ((struct thing *)other.things.items)[2].size = 4;
    assert_ptr_equal(ek_opt_keys_differ(box_keys, &b, &other, NULL, 0), box_keys);
    struct ek_buf json;
    ek_buf_init(&json, 1 << 12);
    assert_int_equal(ek_opt_value_json(&json, box_keys, &b), 0);
    assert_string_equal(json.data, "[{\"name\": \"a\", \"size\": 3}, {\"name\": "
                                   "\"b\", \"size\": 5}, {\"name\": \"\", "
                                   "\"size\": 3}]");
    ek_buf_release(&json);
    ek_arena_release(&arena);
}

static void a_mistake_in_an_item_is_told_with_its_place(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"things: [{size: 10}]", "f:1:17: size: '10' "},
        {"things: [{nam: a}]", "f:1:11: unknown key 'nam', did you mean 'name'?"},
        {"things: [a]", "f:1:10: things: expected `key: value` lines"},
        {"things: {name: a}", "f:1:9: things: expected a list (- key: value)"},
        {"things: [{name: a, name: b}]", "f:1:20: key 'name' is there twice"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct box b;
        struct ek_err err = EK_ERR_INIT;
        struct ek_arena arena;
        ek_arena_init(&arena, 1 << 20);
        assert_int_equal(read_box(&b, bad[i][0], &arena, &err), EK_EINVAL);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("%s gave %s", bad[i][0], err.text);
        ek_arena_release(&arena);
    }
}

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/ek-opt-keys-%ld.yaml", (long)getpid());
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_nest_and_dots_are_the_same),
        cmocka_unit_test(set_beats_the_file_and_places_are_kept),
        cmocka_unit_test(each_mistake_is_told_with_its_place),
        cmocka_unit_test(keys_are_no_flags),
        cmocka_unit_test(an_absent_first_file_is_named),
        cmocka_unit_test(json_reads_back_to_the_same_settings),
        cmocka_unit_test(help_and_man_page_list_the_keys),
        cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(items_are_structs_with_defaults_and_places),
        cmocka_unit_test(a_mistake_in_an_item_is_told_with_its_place),
    };
    return cmocka_run_group_tests_name("opt_keys", tests, make_path, remove_path);
}
