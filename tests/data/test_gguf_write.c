/* test_gguf_write.c - a header that was written from a file reads back with the same
 * keys, the changed ones changed, and the tensors asked for. */
#include "data/gguf_write.h"
#include "ggufkit.h"

#define GOLDEN EK_TESTS_DIR "/lm/golden/llama3.gguf"

static void add_all(struct ek_buf *b, const struct ek_gguf *from,
                    const struct ek_tensors *t)
{
    for (size_t i = 0; i < t->n; i++) {
        put(b, t->items[i].data, t->items[i].bytes);
        put_zeros(b, ek_gguf_padding(from, t->items[i].bytes));
    }
}

static void a_file_written_from_itself_is_byte_for_byte_itself(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct ek_file file = {0};
    struct ek_gguf *g = NULL;
    struct ek_buf b;
    assert_int_equal(ek_file_open(&file, GOLDEN, &err), 0);
    assert_int_equal(ek_gguf_open(&g, GOLDEN, &err), 0);
    ek_buf_init(&b, 1 << 24);
    assert_int_equal(ek_gguf_header(&b, "out", g, NULL, 0, ek_gguf_tensors(g), &err),
                     0);
    add_all(&b, g, ek_gguf_tensors(g));
    assert_int_equal(b.len, file.size);
    assert_memory_equal(b.data, file.data, file.size);
    ek_buf_release(&b);
    ek_gguf_free(g);
    ek_file_close(&file);
}

/* Every type a value may have, empty arrays and strings too. */
static void put_every_type(struct ek_buf *b)
{
    put_head(b, 0, 9);
    put_kv_u32(b, "general.alignment", 64);
    put_key(b, "a.u8", EK_GGUF_U8);
    put(b, "\x07", 1);
    put_key(b, "a.f64", EK_GGUF_F64);
    put_u64(b, 0x400921fb54442d18u);
    put_key(b, "a.i16", EK_GGUF_I16);
    put(b, "\xff\xff", 2);
    put_kv_str(b, "a.str", "");
    put_array(b, "a.strings", EK_GGUF_STR, 3);
    put_str(b, "one");
    put_str(b, "");
    put_str(b, "three");
    put_array(b, "a.none", EK_GGUF_STR, 0);
    put_array(b, "a.bools", EK_GGUF_BOOL, 5);
    put(b, "\1\0\1\0\1", 5);
    put_kv_str(b, "general.file_type", "a string where a number belongs");
}

static struct ek_gguf *rewrite(struct ek_buf *out, const struct ek_gguf *g,
                               const struct ek_tensors *tensors)
{
    static const struct ek_gguf_set sets[] = {{"general.file_type", 2},
                                              {"general.quantization_version", 7}};
    struct ek_err err = EK_ERR_INIT;
    struct ek_gguf *again = NULL;
    ek_buf_init(out, 1 << 24);
    if (ek_gguf_header(out, "out", g, sets, 2, tensors, &err))
        fail_msg("%s", err.text);
    assert_int_equal(out->len % 64, 0);
    add_all(out, g, tensors);
    if (ek_gguf_parse(&again, out->data, out->len, "again", &err))
        fail_msg("%s", err.text);
    return again;
}

static void keys_are_carried_over_and_set(void **state)
{
    (void)state;
    static const float data[48] = {1, 2, 3};
    struct ek_tensor items[] = {{
                                    "x",
                                    EK_DTYPE_F32,
                                    2,
                                    {3, 16},
                                    data,
                                    192,
                                },
                                {"y", EK_DTYPE_Q4_1, 1, {32}, data, 20}};
    struct ek_tensors tensors = {.items = items, .n = 2};
    struct ek_err err = EK_ERR_INIT;
    struct ek_gguf *g = NULL;
    struct ek_buf b, out;
    put_every_type(&b);
    assert_int_equal(ek_gguf_parse(&g, b.data, b.len, "in", &err), 0);
    struct ek_gguf *again = rewrite(&out, g, &tensors);
    assert_int_equal(ek_gguf_n_kv(again), 10);
    for (size_t i = 0; i < 8; i++) {
        const struct ek_gguf_kv *a = ek_gguf_kv_at(g, i), *c = ek_gguf_kv_at(again, i);
        assert_int_equal(a->key.n, c->key.n);
        assert_memory_equal(a->key.p, c->key.p, a->key.n);
        assert_true(a->type == c->type && a->elem == c->elem && a->n == c->n);
    }
    const struct ek_gguf_kv *words = ek_gguf_find(again, "a.strings");
    assert_memory_equal(ek_gguf_str_at(words, 2).p, "three", 5);
    uint32_t v = 0;
    assert_int_equal(ek_gguf_get_u32(again, "general.file_type", &v, &err), 0);
    assert_int_equal(v, 2);
    assert_int_equal(ek_gguf_get_u32(again, "general.quantization_version", &v, &err),
                     0);
    assert_int_equal(v, 7);
    const struct ek_tensors *t = ek_gguf_tensors(again);
    assert_int_equal(t->n, 2);
    assert_int_equal(t->items[1].dtype, EK_DTYPE_Q4_1);
    assert_memory_equal(t->items[0].data, data, 192);
    assert_int_equal(t->items[0].shape[0], 3);
    ek_gguf_free(again);
    ek_gguf_free(g);
    ek_buf_release(&b);
    ek_buf_release(&out);
}

static void what_gguf_cannot_hold_is_refused(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct ek_gguf *g = NULL;
    struct ek_buf out;
    struct ek_tensor t = {"w", EK_DTYPE_E4M3, 1, {4}, NULL, 4};
    struct ek_tensors tensors = {.items = &t, .n = 1};
    char name[300];
    assert_int_equal(ek_gguf_open(&g, GOLDEN, &err), 0);
    ek_buf_init(&out, 1 << 24);
    assert_int_equal(ek_gguf_header(&out, "out", g, NULL, 0, &tensors, &err),
                     EK_EUNSUP);
    assert_non_null(strstr(err.text, "out: tensor 'w'"));
    memset(name, 'n', sizeof name);
    name[256] = 0;
    t = (struct ek_tensor){name, EK_DTYPE_F32, 1, {1}, NULL, 4};
    assert_int_equal(ek_gguf_header(&out, "out", g, NULL, 0, &tensors, &err),
                     EK_EINVAL);
    ek_buf_release(&out);
    ek_buf_init(&out, 100);
    assert_int_equal(ek_gguf_header(&out, "out", g, NULL, 0, ek_gguf_tensors(g), &err),
                     EK_ELIMIT);
    ek_buf_release(&out);
    EK_EACH_FAILURE (k) {
        ek_buf_init(&out, 1 << 24);
        ek_assert_rc(ek_gguf_header(&out, "out", g, NULL, 0, ek_gguf_tensors(g), &err));
        ek_buf_release(&out);
    }
    ek_gguf_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_written_from_itself_is_byte_for_byte_itself),
        cmocka_unit_test(keys_are_carried_over_and_set),
        cmocka_unit_test(what_gguf_cannot_hold_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
