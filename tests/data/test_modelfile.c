/* The two layouts of a model on disk: which parts are looked for, which may be missing,
 * and what is said when one that may not is. */
#include "data/modelfile.h"
#include "ggufkit.h"

#include <stdio.h>
#include <unistd.h>

static char folder[64];

static const char *const made[] = {"config.json",
                                   "generation_config.json",
                                   "tokenizer_config.json",
                                   "chat_template.jinja",
                                   "model.safetensors",
                                   "model.safetensors.index.json",
                                   "m.gguf",
                                   "tokenizer.json"};
#define N_MADE (sizeof made / sizeof made[0])

static const char *in_folder(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *p, size_t n)
{
    char path[128];
    FILE *f = fopen(in_folder(path, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ek_modelfile_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[128];
    for (size_t i = 0; i < N_MADE; i++)
        unlink(in_folder(path, made[i]));
    return rmdir(folder);
}

/* config.json and one tensor 'a'; the other files are gone. */
static void write_model(void)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    char path[128], file[8 + sizeof header - 1 + 4] = {(char)(sizeof header - 1)};
    for (size_t i = 0; i < N_MADE; i++)
        unlink(in_folder(path, made[i]));
    memcpy(file + 8, header, sizeof header - 1);
    write_file("model.safetensors", file, sizeof file);
    write_text("config.json", "{\"model_type\":\"llama\"}");
}

static void expect_refusal(int status, const char *sentence)
{
    struct ek_modelfile m;
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_modelfile_open(&m, folder, &err);
    assert_int_equal(rc, status);
    assert_non_null(strstr(err.text, sentence));
    assert_null(m.path);
    ek_modelfile_close(&m); /* a zeroed one is fine */
}

static void folder_is_read_with_the_parts_it_has(void **state)
{
    (void)state;
    struct ek_modelfile m;
    write_model();
    assert_int_equal(ek_modelfile_open(&m, folder, NULL), 0);
    assert_non_null(m.config);
    assert_null(m.generation);
    assert_null(m.tokenizer_config);
    assert_null(m.gguf);
    assert_non_null(ek_modelfile_tensor(&m, "a"));
    assert_null(ek_modelfile_tensor(&m, "b"));
    ek_modelfile_close(&m);
    write_text("generation_config.json", "{}");
    write_text("tokenizer_config.json", "{}");
    assert_int_equal(ek_modelfile_open(&m, folder, NULL), 0);
    assert_non_null(m.generation);
    assert_non_null(m.tokenizer_config);
    ek_modelfile_close(&m);
}

static void index_is_preferred_to_a_single_file(void **state)
{
    (void)state;
    struct ek_modelfile m;
    write_model();
    write_text("model.safetensors.index.json",
               "{\"weight_map\":{\"a\":\"model.safetensors\"}}");
    assert_int_equal(ek_modelfile_open(&m, folder, NULL), 0);
    ek_modelfile_close(&m);
    write_text("model.safetensors.index.json", "{\"weight_map\":{\"b\":\"m\"}}");
    expect_refusal(EK_ENOENT, "/m: No such file or directory");
}

static void missing_parts_are_named(void **state)
{
    (void)state;
    char path[128];
    write_model();
    unlink(in_folder(path, "model.safetensors"));
    expect_refusal(EK_ENOENT, "no weights in this folder; expected "
                              "model.safetensors.index.json or model.safetensors");
    unlink(in_folder(path, "config.json"));
    expect_refusal(EK_ENOENT, "no config.json in this folder; expected a Hugging Face "
                              "model folder or a GGUF file");
}

static void broken_json_is_named_with_its_file(void **state)
{
    (void)state;
    write_model();
    write_text("config.json", "{\"a\":}");
    expect_refusal(EK_EFORMAT, "/config.json: JSON line 1 column");
    write_text("config.json", "[]");
    expect_refusal(EK_EFORMAT, "/config.json: expected a JSON object");
    write_text("config.json", "");
    expect_refusal(EK_EFORMAT, "/config.json: ");
    write_text("config.json", "{}");
    write_text("generation_config.json", "{\"a\":1,\"a\":2}");
    expect_refusal(EK_EFORMAT, "/generation_config.json: JSON line 1");
}

static void json_over_its_ceiling_is_refused(void **state)
{
    (void)state;
    size_t n = (16 << 20) + 1;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, ' ', n);
    write_model();
    write_file("config.json", text, n);
    free(text);
    expect_refusal(EK_ELIMIT, "/config.json: is larger than 16777216 bytes");
}

static void single_file_takes_what_lies_beside_it(void **state)
{
    (void)state;
    struct ek_modelfile m;
    char path[128];
    write_model();
    in_folder(path, "model.safetensors");
    assert_int_equal(ek_modelfile_open(&m, path, NULL), 0);
    assert_non_null(m.config);
    ek_modelfile_close(&m);
    char config[128];
    unlink(in_folder(config, "config.json"));
    assert_int_equal(ek_modelfile_open(&m, path, NULL), 0);
    assert_null(m.config);
    ek_modelfile_close(&m);
}

static void any_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    write_model();
    write_text("tokenizer_config.json", "{\"chat_template\":\"x\"}");
    write_text("chat_template.jinja", "y");
    EK_EACH_FAILURE (k) {
        struct ek_modelfile m;
        char *source = NULL;
        size_t n = 0;
        int rc = ek_modelfile_open(&m, folder, NULL);
        if (!rc)
            rc = ek_modelfile_template(&source, &n, &m, NULL);
        ek_assert_rc(rc);
        ek_free(source);
        ek_modelfile_close(&m);
    }
}

/* The template's source, or NULL and *rc. The caller frees. */
static char *template_of(const char *path, int *rc, struct ek_err *err)
{
    struct ek_modelfile m;
    char *source = NULL;
    size_t n = 0;
    assert_int_equal(ek_modelfile_open(&m, path, err), 0);
    *rc = ek_modelfile_template(&source, &n, &m, err);
    if (source)
        assert_int_equal(strlen(source), n);
    ek_modelfile_close(&m);
    return source;
}

static void expect_template(const char *path, const char *expected)
{
    struct ek_err err = EK_ERR_INIT;
    int rc = 0;
    char *source = template_of(path, &rc, &err);
    assert_int_equal(rc, expected ? 0 : EK_ENOENT);
    assert_string_equal(err.text, "");
    if (expected)
        assert_string_equal(source, expected);
    ek_free(source);
}

static void template_is_found_where_it_lies(void **state)
{
    (void)state;
    write_model();
    expect_template(folder, NULL);
    write_text("tokenizer_config.json", "{\"chat_template\":null}");
    expect_template(folder, NULL);
    write_text("tokenizer_config.json", "{\"chat_template\":\"{{ 1 }}\"}");
    expect_template(folder, "{{ 1 }}");
    write_text("tokenizer_config.json",
               "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"t\"},"
               "{\"name\":\"default\",\"template\":\"d\"}]}");
    expect_template(folder, "d");
    write_text("chat_template.jinja", "jinja\n");
    expect_template(folder, "jinja\n");
    struct ek_buf b;
    char path[128];
    put_head(&b, 0, 1);
    put_kv_str(&b, "tokenizer.chat_template", "gguf");
    write_file("m.gguf", b.data, b.len);
    expect_template(in_folder(path, "m.gguf"), "gguf");
    ek_buf_release(&b);
    put_head(&b, 0, 0);
    write_file("m.gguf", b.data, b.len);
    expect_template(path, NULL);
    ek_buf_release(&b);
}

static void template_that_is_no_text_or_too_long_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"{\"chat_template\":1}",
                                        "{\"chat_template\":[]}",
                                        "{\"chat_template\":[{\"name\":\"default\"}]}"};
    struct ek_err err = EK_ERR_INIT;
    int rc = 0;
    write_model();
    for (size_t i = 0; i < 3; i++) {
        write_text("tokenizer_config.json", wrong[i]);
        assert_null(template_of(folder, &rc, &err));
        assert_int_equal(rc, EK_EFORMAT);
        assert_non_null(strstr(err.text, "tokenizer_config.json: key 'chat_template': "
                                         "expected a string, or a list with one named "
                                         "'default'"));
    }
    size_t n = (1 << 20) + 1;
    char *text = calloc(1, n);
    assert_non_null(text);
    memset(text, 'x', n);
    write_file("chat_template.jinja", text, n);
    free(text);
    assert_null(template_of(folder, &rc, &err));
    assert_int_equal(rc, EK_ELIMIT);
    assert_non_null(
        strstr(err.text, "chat_template.jinja: is larger than 1048576 bytes"));
}

static void folder_without_tokenizer_is_named(void **state)
{
    (void)state;
    struct ek_modelfile m;
    struct ek_tokenizer *t = NULL;
    struct ek_err err = EK_ERR_INIT;
    write_model();
    assert_int_equal(ek_modelfile_open(&m, folder, NULL), 0);
    assert_int_equal(ek_modelfile_tokenizer(&t, &m, &err), EK_ENOENT);
    assert_non_null(
        strstr(err.text, "/tokenizer.json: not found; expected the tokenizer"));
    ek_modelfile_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folder_is_read_with_the_parts_it_has),
        cmocka_unit_test(index_is_preferred_to_a_single_file),
        cmocka_unit_test(missing_parts_are_named),
        cmocka_unit_test(broken_json_is_named_with_its_file),
        cmocka_unit_test(json_over_its_ceiling_is_refused),
        cmocka_unit_test(single_file_takes_what_lies_beside_it),
        cmocka_unit_test(any_failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(template_is_found_where_it_lies),
        cmocka_unit_test(template_that_is_no_text_or_too_long_is_refused),
        cmocka_unit_test(folder_without_tokenizer_is_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
