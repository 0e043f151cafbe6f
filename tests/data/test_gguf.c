/* The GGUF reader: what an honest file says comes out, and each lie has its sentence. */
#include "ggufkit.h"

#include <math.h>
#include <stdio.h>

/* A small honest file: every value type, two tensors, the last byte needed. */
static void put_honest(struct ek_buf *b)
{
    put_head(b, 2, 15);
    put_kv_str(b, "general.architecture", "llama");
    put_key(b, "u8", EK_GGUF_U8);
    put(b, "\xfe", 1);
    put_key(b, "i8", EK_GGUF_I8);
    put(b, "\xfe", 1);
    put_key(b, "u16", EK_GGUF_U16);
    put(b, "\xfe\xff", 2);
    put_key(b, "i16", EK_GGUF_I16);
    put(b, "\xfe\xff", 2);
    put_kv_u32(b, "u32", 0xfffffffe);
    put_key(b, "i32", EK_GGUF_I32);
    put_u32(b, 0xfffffffe);
    put_key(b, "f32", EK_GGUF_F32);
    put_u32(b, 0x40490fdb);
    put_key(b, "bool", EK_GGUF_BOOL);
    put(b, "\1", 1);
    put_key(b, "u64", EK_GGUF_U64);
    put_u64(b, UINT64_MAX);
    put_key(b, "i64", EK_GGUF_I64);
    put_u64(b, (uint64_t)-3);
    put_key(b, "f64", EK_GGUF_F64);
    put_u64(b, 0x400921fb54442d18u);
    put_array(b, "words", EK_GGUF_STR, 3);
    put_str(b, "one");
    put_str(b, "");
    put_str(b, "dr\xc3\xa9i");
    put_array(b, "halves", EK_GGUF_F32, 2);
    put_u32(b, 0x3f000000);
    put_u32(b, 0xbf000000);
    put_array(b, "none", EK_GGUF_STR, 0);
    put_info(b, "embd.weight", (uint64_t[]){64, 3}, 2, 2, 0); /* q4_0: 3 x 36 bytes */
    put_info(b, "norm.weight", (uint64_t[]){5}, 1, 0, 128);
    put_padding(b, 32);
    put_zeros(b, 128);
    put_zeros(b, 20);
}

static int parse(struct ek_gguf **g, const struct ek_buf *b, struct ek_err *err)
{
    return ek_gguf_parse(g, b->data, b->len, "t.gguf", err);
}

/* Consumes b: refused with exactly this status and sentence. */
static void expect_refusal(struct ek_buf *b, int status, const char *sentence)
{
    struct ek_gguf *g = NULL;
    struct ek_err err = EK_ERR_INIT;
    char *exact = ek_exact_copy(b->data, b->len);
    int rc = ek_gguf_parse(&g, exact, b->len, "t.gguf", &err);
    assert_string_equal(err.text, sentence);
    assert_int_equal(rc, status);
    assert_int_equal(err.status, status);
    assert_null(g);
    /* The sentence is for whoever wants it. */
    assert_int_equal(ek_gguf_parse(&g, exact, b->len, "t.gguf", NULL), status);
    free(exact);
    ek_buf_release(b);
}

/* The invariant of the header, asked after every parse that succeeded. */
static void check_sane(const struct ek_gguf *g, const void *p, size_t n)
{
    const struct ek_tensors *all = ek_gguf_tensors(g);
    const char *begin = p, *end = begin + n;
    for (size_t i = 0; i < all->n; i++) {
        const struct ek_tensor *t = &all->items[i];
        const char *data = t->data;
        size_t bytes = 0;
        assert_true(data >= begin && t->bytes <= (size_t)(end - data));
        assert_int_equal(ek_tensor_bytes(&bytes, t->dtype, t->shape, t->n_dims), 0);
        assert_int_equal(bytes, t->bytes);
        assert_ptr_equal(ek_tensors_find(all, t->name), t);
        for (size_t j = 0; j < i; j++) {
            const char *other = all->items[j].data;
            assert_true(other + all->items[j].bytes <= data ||
                        data + t->bytes <= other || !t->bytes || !all->items[j].bytes);
        }
    }
    for (size_t i = 0; i < ek_gguf_n_kv(g); i++) {
        const struct ek_gguf_kv *kv = ek_gguf_kv_at(g, i);
        for (uint64_t e = 0; e < kv->n && kv->elem == EK_GGUF_STR; e++) {
            struct ek_str s = ek_gguf_str_at(kv, e);
            assert_true(s.p >= begin && s.n <= (size_t)(end - s.p));
        }
        for (uint64_t e = 0; e < kv->n && kv->elem != EK_GGUF_STR; e++)
            (void)ek_gguf_num_at(kv, e);
    }
}

static void every_value_type_reads_back(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"u8", 254.0},
        {"i8", -2.0},
        {"u16", 65534.0},
        {"i16", -2.0},
        {"u32", 4294967294.0},
        {"i32", -2.0},
        {"f32", 3.1415927410125732},
        {"bool", 1.0},
        {"u64", 18446744073709551615.0},
        {"i64", -3.0},
        {"f64", 3.141592653589793},
    };
    struct ek_buf b;
    struct ek_gguf *g = NULL;
    put_honest(&b);
    assert_int_equal(parse(&g, &b, NULL), 0);
    assert_string_equal(ek_gguf_name(g), "t.gguf");
    assert_int_equal(ek_gguf_n_kv(g), 15);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct ek_gguf_kv *kv = ek_gguf_find(g, numbers[i].key);
        assert_non_null(kv);
        assert_string_equal(ek_gguf_type_name(kv->type), numbers[i].key);
        assert_true(ek_gguf_num_at(kv, 0) == numbers[i].value);
    }
    const struct ek_gguf_kv *words = ek_gguf_find(g, "words");
    assert_non_null(words);
    assert_int_equal(words->n, 3);
    assert_int_equal(ek_gguf_str_at(words, 1).n, 0);
    assert_memory_equal(ek_gguf_str_at(words, 2).p, "dr\xc3\xa9i", 5);
    assert_true(ek_gguf_num_at(ek_gguf_find(g, "halves"), 1) == -0.5);
    assert_int_equal(ek_gguf_find(g, "none")->n, 0);
    assert_null(ek_gguf_find(g, "nothing"));
    check_sane(g, b.data, b.len);
    ek_gguf_free(g);
    ek_buf_release(&b);
}

static void tensors_have_their_shapes_outermost_first(void **state)
{
    (void)state;
    struct ek_buf b;
    struct ek_gguf *g = NULL;
    char shape[96];
    put_honest(&b);
    assert_int_equal(parse(&g, &b, NULL), 0);
    const struct ek_tensors *all = ek_gguf_tensors(g);
    const struct ek_tensor *t = ek_tensors_find(all, "embd.weight");
    assert_non_null(t);
    assert_string_equal(ek_tensor_shape_text(shape, t), "(3, 64)");
    assert_int_equal(t->dtype, EK_DTYPE_Q4_0);
    assert_int_equal(t->bytes, 108);
    assert_int_equal(ek_tensor_elems(t), 192);
    t = ek_tensors_find(all, "norm.weight");
    assert_non_null(t);
    assert_ptr_equal(t->data, b.data + b.len - 20);
    assert_null(ek_tensors_find(all, "norm"));
    ek_gguf_free(g);
    ek_buf_release(&b);
}

static void typed_access_converts_or_says_why_not(void **state)
{
    (void)state;
    struct ek_buf b;
    struct ek_gguf *g = NULL;
    struct ek_err err = EK_ERR_INIT;
    uint32_t u = 7;
    float f = 7.0f;
    bool is_on = false;
    struct ek_str s = {NULL, 0};
    put_honest(&b);
    assert_int_equal(parse(&g, &b, NULL), 0);
    assert_int_equal(ek_gguf_get_u32(g, "u16", &u, &err), 0);
    assert_int_equal(u, 65534);
    assert_int_equal(ek_gguf_get_f32(g, "i64", &f, &err), 0);
    assert_true(f == -3.0f);
    assert_int_equal(ek_gguf_get_bool(g, "bool", &is_on, &err), 0);
    assert_true(is_on);
    assert_int_equal(ek_gguf_get_str(g, "general.architecture", &s, &err), 0);
    assert_int_equal(s.n, 5);
    assert_int_equal(ek_gguf_get_u32(g, "nothing", &u, &err), EK_ENOENT);
    assert_int_equal(u, 65534);
    assert_string_equal(err.text, "");
    assert_int_equal(ek_gguf_get_u32(g, "i8", &u, &err), EK_EFORMAT);
    assert_string_equal(
        err.text, "t.gguf: key 'i8': -2 is out of range; expected 0 to 4294967295");
    assert_int_equal(ek_gguf_get_u32(g, "u64", &u, &err), EK_EFORMAT);
    assert_string_equal(err.text, "t.gguf: key 'u64': 18446744073709551615 is out of "
                                  "range; expected 0 to 4294967295");
    assert_int_equal(ek_gguf_get_u32(g, "f32", &u, &err), EK_EFORMAT);
    assert_string_equal(err.text,
                        "t.gguf: key 'f32': is of type f32; expected an integer");
    assert_int_equal(ek_gguf_get_f32(g, "bool", &f, &err), EK_EFORMAT);
    assert_int_equal(ek_gguf_get_bool(g, "u8", &is_on, &err), EK_EFORMAT);
    assert_int_equal(ek_gguf_get_str(g, "words", &s, &err), EK_EFORMAT);
    assert_string_equal(err.text,
                        "t.gguf: key 'words': is of type array; expected a string");
    ek_gguf_free(g);
    ek_buf_release(&b);
}

static void infinite_number_and_odd_bool_are_refused_on_access(void **state)
{
    (void)state;
    struct ek_buf b;
    struct ek_gguf *g = NULL;
    struct ek_err err = EK_ERR_INIT;
    float f = 7.0f;
    bool is_on = false;
    put_head(&b, 0, 2);
    put_key(&b, "eps", EK_GGUF_F32);
    put_u32(&b, 0x7f800000);
    put_key(&b, "flag", EK_GGUF_BOOL);
    put(&b, "\2", 1);
    assert_int_equal(parse(&g, &b, NULL), 0);
    assert_int_equal(ek_gguf_get_f32(g, "eps", &f, &err), EK_EFORMAT);
    assert_string_equal(err.text,
                        "t.gguf: key 'eps': inf is not a finite f32; expected one");
    assert_int_equal(ek_gguf_get_bool(g, "flag", &is_on, &err), EK_EFORMAT);
    assert_string_equal(err.text,
                        "t.gguf: key 'flag': byte 2 is no bool; expected 0 or 1");
    ek_gguf_free(g);
    ek_buf_release(&b);
}

static void parse_prefix(void *full, const char *p, size_t n)
{
    struct ek_gguf *g = NULL;
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_gguf_parse(&g, p, n, "t.gguf", &err);
    if (n == *(size_t *)full) {
        assert_int_equal(rc, 0);
        ek_gguf_free(g);
        return;
    }
    assert_int_equal(rc, EK_EFORMAT);
    assert_memory_equal(err.text, "t.gguf: ", 8);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_honest(&b);
    ek_each_prefix(b.data, b.len, parse_prefix, &b.len);
    ek_buf_release(&b);
}

static void every_corrupt_byte_is_refused_or_harmless(void **state)
{
    (void)state;
    static const unsigned char flips[] = {0x01, 0x80, 0xff, 0x20, 0x7f};
    struct ek_buf b;
    put_honest(&b);
    char *copy = ek_exact_copy(b.data, b.len);
    for (size_t i = 0; i < b.len; i++) {
        for (size_t k = 0; k < sizeof flips; k++) {
            struct ek_gguf *g = NULL;
            copy[i] = (char)(b.data[i] ^ flips[k]);
            if (!ek_gguf_parse(&g, copy, b.len, "t.gguf", NULL))
                check_sane(g, copy, b.len);
            ek_gguf_free(g);
        }
        copy[i] = b.data[i];
    }
    free(copy);
    ek_buf_release(&b);
}

static void any_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    struct ek_buf b;
    put_honest(&b);
    EK_EACH_FAILURE (k) {
        struct ek_gguf *g = NULL;
        int rc = parse(&g, &b, NULL);
        ek_assert_rc(rc);
        ek_gguf_free(g);
    }
    ek_buf_release(&b);
}

/* ---- the lies, one test each ---- */

static void other_magic_is_named(void **state)
{
    (void)state;
    struct ek_buf b;
    ek_buf_init(&b, 4096);
    put(&b, "tjgg\3\0\0\0", 8);
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: begins with 'tjgg', expected the magic 'GGUF': it is a GGJT "
        "file, older than GGUF: convert it");
    put(&b, "PK\3\4", 4);
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: begins with 'PK\\x03\\x04', expected the magic 'GGUF': it is "
        "a zip archive, perhaps a PyTorch checkpoint");
    put(&b, "version https://git-lfs.github.com/spec/v1\n", 43);
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: begins with 'vers', expected the magic 'GGUF': perhaps a Git "
        "LFS pointer: `git lfs pull` fetches the file");
    put_u64(&b, 2);
    put(&b, "{}", 2);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: begins with '\\x02', expected the magic 'GGUF': perhaps a "
                   "safetensors file: name it .safetensors");
}

static void empty_file_is_named(void **state)
{
    (void)state;
    struct ek_gguf *g = NULL;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_gguf_parse(&g, NULL, 0, "t.gguf", &err), EK_EFORMAT);
    assert_string_equal(err.text, "t.gguf: begins with '', expected the magic 'GGUF': "
                                  "it is something else");
}

static void other_version_is_named(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, 0);
    b.data[4] = 1;
    expect_refusal(&b, EK_EUNSUP, "t.gguf: is GGUF version 1; expected 3 (or 2)");
    put_head(&b, 0, 0);
    b.data[4] = 4;
    expect_refusal(&b, EK_EUNSUP, "t.gguf: is GGUF version 4; expected 3 (or 2)");
}

static void version_2_is_read(void **state)
{
    (void)state;
    struct ek_gguf *g = NULL;
    struct ek_buf b;
    put_honest(&b);
    b.data[4] = 2;
    assert_int_equal(parse(&g, &b, NULL), 0);
    ek_gguf_free(g);
    ek_buf_release(&b);
}

static void big_endian_is_named(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, 0);
    memcpy(b.data + 4, "\0\0\0\3", 4);
    expect_refusal(&b, EK_EUNSUP,
                   "t.gguf: is big-endian GGUF version 3; expected little-endian");
}

static void lying_key_count_is_refused_before_allocating(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, UINT64_MAX);
    put_kv_u32(&b, "a", 1);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: n_kv 18446744073709551615 is a lie: the file ends after 17 "
                   "bytes and each key takes 14 or more (truncated?)");
}

static void too_many_keys_are_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, 65537);
    put_zeros(&b, 65537 * 14);
    expect_refusal(&b, EK_ELIMIT, "t.gguf: n_kv 65537; expected at most 65536");
}

static void lying_tensor_count_is_refused_before_allocating(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, (uint64_t)1 << 61, 0);
    put_info(&b, "a", (uint64_t[]){1}, 1, 0, 0);
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: n_tensors 2305843009213693952 is a lie: the file ends after "
        "33 bytes and each takes 25 or more (truncated?)");
}

static void lying_string_length_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, 1);
    put_key(&b, "name", EK_GGUF_STR);
    put_u64(&b, UINT64_MAX - 3);
    put(&b, "abc", 3);
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: key 'name': the string at byte 48 takes "
        "18446744073709551612 bytes, but the file ends after 3 (truncated?)");
}

static void lying_key_length_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, 1);
    put_u64(&b, 1 << 20);
    put_zeros(&b, 40);
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: key 1 of 1: the key at byte 32 takes 1048576 bytes, but the "
        "file ends after 40 (truncated?)");
}

static void lying_array_count_is_refused_before_allocating(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, 1);
    put_array(&b, "ids", EK_GGUF_U64, ((uint64_t)1 << 61) + 1);
    put_u64(&b, 0);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: key 'ids': count 2305843009213693953 of 8-byte elements is "
                   "a lie: the file ends after 8 bytes (truncated?)");
    put_head(&b, 0, 1);
    put_array(&b, "words", EK_GGUF_STR, (uint64_t)1 << 61);
    put_str(&b, "a");
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: key 'words': count 2305843009213693952 of strings is a lie: "
        "the file ends after 9 bytes and each takes 8 or more (truncated?)");
}

static void nested_arrays_are_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, 1);
    put_array(&b, "deep", EK_GGUF_ARRAY, 1);
    for (int i = 0; i < 1000; i++) {
        put_u32(&b, EK_GGUF_ARRAY);
        put_u64(&b, 1);
    }
    expect_refusal(&b, EK_EUNSUP,
                   "t.gguf: key 'deep': is an array of arrays; expected an array of "
                   "numbers, bools or strings");
}

static void unknown_value_type_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, 1);
    put_key(&b, "odd", 13);
    put_zeros(&b, 8);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: key 'odd': value type 13 is unknown; expected 0 to 12");
    put_head(&b, 0, 1);
    put_array(&b, "odd", 77, 0);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: key 'odd': element type 77 is unknown; expected 0 to 12");
}

static void key_that_is_no_text_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, 1);
    put_kv_u32(&b, "a\xff\xfe", 1);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: key 1 of 1: key 'a\\xff\\xfe' is not text; expected UTF-8 "
                   "without NUL");
    put_head(&b, 0, 1);
    put_strn(&b, "a\0b", 3);
    put_u32(&b, EK_GGUF_U32);
    put_u32(&b, 1);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: key 1 of 1: key 'a' is not text; expected UTF-8 without "
                   "NUL");
    put_head(&b, 0, 1);
    put_kv_u32(&b, "", 1);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: key 1 of 1: key of 0 bytes; expected 1 to 65535");
}

static void value_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, 1);
    put_kv_str(&b, "general.name", "caf\xe9");
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: key 'general.name': value 'caf\\xe9' is not UTF-8; expected "
        "UTF-8");
    put_head(&b, 0, 1);
    put_array(&b, "tokens", EK_GGUF_STR, 2);
    put_str(&b, "a");
    put_str(&b, "\xc0\x80");
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: key 'tokens': element 1 '\\xc0\\x80' is not UTF-8; expected "
        "UTF-8");
}

static void duplicate_key_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_head(&b, 0, 3);
    put_kv_u32(&b, "a", 1);
    put_kv_u32(&b, "b", 1);
    put_kv_str(&b, "a", "x");
    expect_refusal(&b, EK_EFORMAT, "t.gguf: key 'a' is there twice; expected once");
}

static void impossible_alignment_is_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t alignment;
        const char *sentence;
    } lies[] = {
        {0, "t.gguf: key 'general.alignment': 0 is not valid; expected a power of two "
            "from 8 to 65536"},
        {4, "t.gguf: key 'general.alignment': 4 is not valid; expected a power of two "
            "from 8 to 65536"},
        {48,
         "t.gguf: key 'general.alignment': 48 is not valid; expected a power of two "
         "from 8 to 65536"},
        {0x80000000u, "t.gguf: key 'general.alignment': 2147483648 is not valid; "
                      "expected a power of two from 8 to 65536"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct ek_buf b;
        put_head(&b, 0, 1);
        put_kv_u32(&b, "general.alignment", lies[i].alignment);
        expect_refusal(&b, EK_EFORMAT, lies[i].sentence);
    }
}

static void alignment_of_the_file_is_obeyed(void **state)
{
    (void)state;
    struct ek_buf b;
    struct ek_gguf *g = NULL;
    put_head(&b, 1, 1);
    put_kv_u32(&b, "general.alignment", 256);
    put_info(&b, "a", (uint64_t[]){2}, 1, 0, 0);
    put_padding(&b, 256);
    size_t at = b.len;
    put_zeros(&b, 8);
    assert_int_equal(parse(&g, &b, NULL), 0);
    assert_ptr_equal(ek_gguf_tensors(g)->items[0].data, b.data + at);
    ek_gguf_free(g);
    ek_buf_release(&b);
}

/* One tensor with these parts and 64 bytes of data. */
static void put_one(struct ek_buf *b, const uint64_t *dims, uint32_t n_dims,
                    uint32_t type, uint64_t offset)
{
    put_head(b, 1, 0);
    put_info(b, "w", dims, n_dims, type, offset);
    put_padding(b, 32);
    put_zeros(b, 64);
}

static void too_many_dimensions_are_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_one(&b, (uint64_t[]){1, 1, 1, 1, 1}, 5, 0, 0);
    expect_refusal(&b, EK_EFORMAT, "t.gguf: tensor 'w': n_dims 5; expected 0 to 4");
    put_head(&b, 1, 0);
    put_str(&b, "w");
    put_u32(&b, 0xffffffff);
    put_zeros(&b, 64);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 'w': n_dims 4294967295; expected 0 to 4");
}

static void overflowing_shape_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    uint64_t big = (uint64_t)1 << 32;
    put_one(&b, (uint64_t[]){big, big}, 2, 0, 0);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 'w': shape (4294967296, 4294967296) has more than "
                   "2^63 elements or bytes; expected a tensor that fits the file");
    put_one(&b, (uint64_t[]){(uint64_t)1 << 62}, 1, 0, 0);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 'w': shape (4611686018427387904) has more than 2^63 "
                   "elements or bytes; expected a tensor that fits the file");
    put_one(&b, (uint64_t[]){UINT64_MAX}, 1, 0, 0);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 'w': dimension 0 is 18446744073709551615; expected "
                   "less than 2^63");
    put_one(&b, (uint64_t[]){0, big, big}, 3, 0, 0);
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: tensor 'w': shape (4294967296, 4294967296, 0) has more than "
        "2^63 elements or bytes; expected a tensor that fits the file");
}

static void broken_block_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_one(&b, (uint64_t[]){48, 2}, 2, 2, 0);
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: tensor 'w': shape (2, 48) in q4_0: a row is no whole number "
        "of blocks; expected a multiple of 32");
}

static void unread_type_is_named(void **state)
{
    (void)state;
    struct ek_buf b;
    put_one(&b, (uint64_t[]){256}, 1, 16, 0);
    expect_refusal(
        &b, EK_EUNSUP,
        "t.gguf: tensor 'w': type 16 (iq2_xxs) is not supported; known: f32, "
        "f16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, "
        "iq4_nl, iq4_xs, i8, i16, i32, i64, f64, bf16, tq1_0, tq2_0, mxfp4, "
        "nvfp4");
    put_one(&b, (uint64_t[]){256}, 1, 0xdeadbeef, 0);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 'w': type 3735928559 (unknown) is not supported; "
                   "known: f32, f16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, "
                   "q5_k, q6_k, iq4_nl, iq4_xs, i8, i16, i32, i64, f64, bf16, "
                   "tq1_0, tq2_0, mxfp4, nvfp4");
}

static void offset_past_the_end_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_one(&b, (uint64_t[]){17}, 1, 0, 0);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 'w': offset 0x0 + 68 B is past the end of the file "
                   "(128 B, data from 0x40; truncated?)");
    put_one(&b, (uint64_t[]){8}, 1, 0, 64);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 'w': offset 0x40 + 32 B is past the end of the file "
                   "(128 B, data from 0x40; truncated?)");
    put_one(&b, (uint64_t[]){8}, 1, 0, UINT64_MAX - 31);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 'w': offset 0xffffffffffffffe0 + 32 B is past the "
                   "end of the file (128 B, data from 0x40; truncated?)");
}

static void unaligned_offset_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_one(&b, (uint64_t[]){1}, 1, 0, 4);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 'w': offset 0x4; expected a multiple of 32");
}

/* a and c at these offsets, an empty tensor in between. */
static void put_pair(struct ek_buf *b, const char *c, uint64_t offset)
{
    put_head(b, 3, 0);
    put_info(b, "a", (uint64_t[]){16}, 1, 0, 0);
    put_info(b, "b", (uint64_t[]){0}, 1, 0, 32);
    put_info(b, c, (uint64_t[]){8}, 1, 0, offset);
    put_padding(b, 32);
    put_zeros(b, 96);
}

static void overlapping_tensors_are_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_pair(&b, "c", 32);
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: tensor 'c': its bytes overlap those of tensor 'a'; expected "
        "a place of its own");
    put_pair(&b, "c", 0);
    expect_refusal(
        &b, EK_EFORMAT,
        "t.gguf: tensor 'a': its bytes overlap those of tensor 'c'; expected "
        "a place of its own");
}

static void empty_tensor_may_lie_anywhere_inside(void **state)
{
    (void)state;
    struct ek_gguf *g = NULL;
    struct ek_buf b;
    put_pair(&b, "c", 64);
    assert_int_equal(parse(&g, &b, NULL), 0);
    assert_int_equal(ek_gguf_tensors(g)->items[1].bytes, 0);
    check_sane(g, b.data, b.len);
    ek_gguf_free(g);
    ek_buf_release(&b);
}

static void duplicate_tensor_name_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_pair(&b, "a", 64);
    expect_refusal(&b, EK_EFORMAT, "t.gguf: tensor 'a' is there twice; expected once");
}

static void impossible_tensor_name_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_pair(&b, "", 64);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 3 of 3: name of 0 bytes; expected 1 to 255");
    put_pair(&b, "\x80", 64);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 3 of 3: name '\\x80' is not text; expected UTF-8 "
                   "without NUL");
    put_head(&b, 1, 0);
    put_u64(&b, 256);
    put_zeros(&b, 400);
    expect_refusal(&b, EK_EFORMAT,
                   "t.gguf: tensor 1 of 1: name of 256 bytes; expected 1 to 255");
}

static void long_key_does_not_push_the_sentence_out(void **state)
{
    (void)state;
    char key[3001];
    struct ek_buf b;
    struct ek_gguf *g = NULL;
    struct ek_err err = EK_ERR_INIT;
    memset(key, 'k', 3000);
    key[3000] = 0;
    put_head(&b, 0, 1);
    put_key(&b, key, 99);
    assert_int_equal(parse(&g, &b, &err), EK_EFORMAT);
    assert_non_null(strstr(err.text, "value type 99 is unknown; expected 0 to 12"));
    ek_buf_release(&b);
}

static void missing_file_is_named(void **state)
{
    (void)state;
    struct ek_gguf *g = NULL;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_gguf_open(&g, "/nowhere/x.gguf", &err), EK_ENOENT);
    assert_string_equal(err.text, "/nowhere/x.gguf: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_type_reads_back),
        cmocka_unit_test(tensors_have_their_shapes_outermost_first),
        cmocka_unit_test(typed_access_converts_or_says_why_not),
        cmocka_unit_test(infinite_number_and_odd_bool_are_refused_on_access),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_corrupt_byte_is_refused_or_harmless),
        cmocka_unit_test(any_failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(other_magic_is_named),
        cmocka_unit_test(empty_file_is_named),
        cmocka_unit_test(other_version_is_named),
        cmocka_unit_test(version_2_is_read),
        cmocka_unit_test(big_endian_is_named),
        cmocka_unit_test(lying_key_count_is_refused_before_allocating),
        cmocka_unit_test(too_many_keys_are_refused),
        cmocka_unit_test(lying_tensor_count_is_refused_before_allocating),
        cmocka_unit_test(lying_string_length_is_refused),
        cmocka_unit_test(lying_key_length_is_refused),
        cmocka_unit_test(lying_array_count_is_refused_before_allocating),
        cmocka_unit_test(nested_arrays_are_refused),
        cmocka_unit_test(unknown_value_type_is_refused),
        cmocka_unit_test(key_that_is_no_text_is_refused),
        cmocka_unit_test(value_that_is_not_utf8_is_refused),
        cmocka_unit_test(duplicate_key_is_refused),
        cmocka_unit_test(impossible_alignment_is_refused),
        cmocka_unit_test(alignment_of_the_file_is_obeyed),
        cmocka_unit_test(too_many_dimensions_are_refused),
        cmocka_unit_test(overflowing_shape_is_refused),
        cmocka_unit_test(broken_block_is_refused),
        cmocka_unit_test(unread_type_is_named),
        cmocka_unit_test(offset_past_the_end_is_refused),
        cmocka_unit_test(unaligned_offset_is_refused),
        cmocka_unit_test(overlapping_tensors_are_refused),
        cmocka_unit_test(empty_tensor_may_lie_anywhere_inside),
        cmocka_unit_test(duplicate_tensor_name_is_refused),
        cmocka_unit_test(impossible_tensor_name_is_refused),
        cmocka_unit_test(long_key_does_not_push_the_sentence_out),
        cmocka_unit_test(missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
