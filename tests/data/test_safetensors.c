/* The safetensors reader and writer: one file, a sharded set, and each lie by name. */
#include "testkit.h"
/* testkit.h comes first */
#include "base/buf.h"
#include "data/safetensors.h"

#include <stdio.h>
#include <unistd.h>

/* "dtype":"F32","shape":[..],"data_offsets":[..] */
#define F32(shape, begin, end)                                                         \
    "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

#define HONEST                                                                         \
    "{\"__metadata__\":{\"format\":\"pt\",\"made \\u00e9\":\"by\\nhand\"},"            \
    "\"b\":" F32("[2,3]", 0, 24) ",\"a.weight\":{\"shape\":[4],\"data_offsets\":[24,"  \
                                 "32],\"dtype\":\"BF16\"},\"none\":" F32(              \
                                     "[0,7]", 32, 32) ",\"one\":" F32("[]", 32,        \
                                                                      36) "}   "

/* Length word, header, n zero bytes; ek_buf_release it. */
static void put_file(struct ek_buf *b, const char *header, size_t n)
{
    static const char zeros[64];
    size_t length = strlen(header);
    ek_buf_init(b, 1 << 20);
    for (int i = 0; i < 8; i++)
        assert_int_equal(ek_buf_add_char(b, (char)(length >> 8 * i & 0xff)), 0);
    assert_int_equal(ek_buf_add(b, header, length), 0);
    assert_true(n <= sizeof zeros);
    assert_int_equal(ek_buf_add(b, zeros, n), 0);
}

static int parse(struct ek_safetensors **s, const struct ek_buf *b, struct ek_err *err)
{
    return ek_safetensors_parse(s, b->data, b->len, "t.safetensors", err);
}

static void expect_buf_refusal(struct ek_buf *b, int status, const char *sentence)
{
    struct ek_safetensors *s = NULL;
    struct ek_err err = EK_ERR_INIT;
    char *exact = ek_exact_copy(b->data, b->len);
    int rc = ek_safetensors_parse(&s, exact, b->len, "t.safetensors", &err);
    assert_string_equal(err.text, sentence);
    assert_int_equal(rc, status);
    assert_null(s);
    assert_int_equal(ek_safetensors_parse(&s, exact, b->len, "t.safetensors", NULL),
                     status);
    free(exact);
    ek_buf_release(b);
}

static void expect_refusal(const char *header, size_t n, int status,
                           const char *sentence)
{
    struct ek_buf b;
    put_file(&b, header, n);
    expect_buf_refusal(&b, status, sentence);
}

/* The header's invariant: in order, without gap or overlap, sizes as stated. */
static void check_sane(const struct ek_safetensors *s, const char *end)
{
    const struct ek_tensors *all = ek_safetensors_tensors(s);
    for (size_t i = 0; i < all->n; i++) {
        const struct ek_tensor *t = &all->items[i];
        size_t bytes = 0;
        assert_int_equal(ek_tensor_bytes(&bytes, t->dtype, t->shape, t->n_dims), 0);
        assert_int_equal(bytes, t->bytes);
        const char *next = i + 1 < all->n ? all->items[i + 1].data : end;
        assert_ptr_equal((const char *)t->data + t->bytes, next);
        assert_ptr_equal(ek_tensors_find(all, t->name), t);
    }
}

static void honest_file_reads_back(void **state)
{
    (void)state;
    struct ek_buf b;
    struct ek_safetensors *s = NULL;
    const char *key, *value;
    char shape[96];
    put_file(&b, HONEST, 36);
    assert_int_equal(parse(&s, &b, NULL), 0);
    const struct ek_tensors *all = ek_safetensors_tensors(s);
    assert_int_equal(all->n, 4);
    const struct ek_tensor *t = ek_tensors_find(all, "a.weight");
    assert_non_null(t);
    assert_int_equal(t->dtype, EK_DTYPE_BF16);
    assert_ptr_equal(t->data, b.data + b.len - 12);
    assert_string_equal(ek_tensor_shape_text(shape, ek_tensors_find(all, "b")),
                        "(2, 3)");
    assert_string_equal(ek_tensor_shape_text(shape, ek_tensors_find(all, "one")), "()");
    assert_int_equal(ek_tensor_elems(ek_tensors_find(all, "one")), 1);
    assert_int_equal(ek_tensor_elems(ek_tensors_find(all, "none")), 0);
    assert_string_equal(ek_safetensors_meta(s, "format"), "pt");
    assert_string_equal(ek_safetensors_meta(s, "made \xc3\xa9"), "by\nhand");
    assert_null(ek_safetensors_meta(s, "other"));
    assert_true(ek_safetensors_meta_at(s, 1, &key, &value));
    assert_string_equal(value, "by\nhand");
    assert_false(ek_safetensors_meta_at(s, 2, &key, &value));
    check_sane(s, b.data + b.len);
    ek_safetensors_free(s);
    ek_buf_release(&b);
}

static void empty_set_of_tensors_is_a_file(void **state)
{
    (void)state;
    struct ek_buf b;
    struct ek_safetensors *s = NULL;
    put_file(&b, "{}", 0);
    assert_int_equal(parse(&s, &b, NULL), 0);
    assert_int_equal(ek_safetensors_tensors(s)->n, 0);
    assert_null(ek_tensors_find(ek_safetensors_tensors(s), "a"));
    ek_safetensors_free(s);
    ek_buf_release(&b);
}

static void parse_prefix(void *full, const char *p, size_t n)
{
    struct ek_safetensors *s = NULL;
    int rc = ek_safetensors_parse(&s, p, n, "t", NULL);
    assert_int_equal(rc, n == *(size_t *)full ? 0 : EK_EFORMAT);
    ek_safetensors_free(s);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_file(&b, HONEST, 36);
    ek_each_prefix(b.data, b.len, parse_prefix, &b.len);
    ek_buf_release(&b);
}

/* The length word made to fit, so that the JSON walk itself meets every end. */
static void every_truncated_header_is_refused(void **state)
{
    (void)state;
    char header[sizeof HONEST];
    for (size_t n = 0; n < strlen(HONEST) - 3; n++) {
        struct ek_buf b;
        struct ek_safetensors *s = NULL;
        memcpy(header, HONEST, n);
        header[n] = 0;
        put_file(&b, header, 36);
        char *exact = ek_exact_copy(b.data, b.len);
        assert_int_equal(ek_safetensors_parse(&s, exact, b.len, "t", NULL), EK_EFORMAT);
        free(exact);
        ek_buf_release(&b);
    }
}

static void every_corrupt_byte_is_refused_or_harmless(void **state)
{
    (void)state;
    static const unsigned char flips[] = {0x01, 0x02, 0x20, 0x80, 0xff};
    struct ek_buf b;
    put_file(&b, HONEST, 36);
    char *copy = ek_exact_copy(b.data, b.len);
    for (size_t i = 0; i < b.len; i++) {
        for (size_t k = 0; k < sizeof flips; k++) {
            struct ek_safetensors *s = NULL;
            copy[i] = (char)(b.data[i] ^ flips[k]);
            if (!ek_safetensors_parse(&s, copy, b.len, "t", NULL))
                check_sane(s, copy + b.len);
            ek_safetensors_free(s);
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
    put_file(&b, HONEST, 36);
    EK_EACH_FAILURE (k) {
        struct ek_safetensors *s = NULL;
        int rc = parse(&s, &b, NULL);
        ek_assert_rc(rc);
        ek_safetensors_free(s);
    }
    ek_buf_release(&b);
}

/* ---- the lies ---- */

static void lying_header_length_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    put_file(&b, "{}", 0);
    memset(b.data, 0xff, 8);
    expect_buf_refusal(&b, EK_EFORMAT,
                       "t.safetensors: header length 18446744073709551615; expected at "
                       "most 2, what the file holds (truncated?)");
    put_file(&b, "", 5);
    expect_buf_refusal(&b, EK_EFORMAT,
                       "t.safetensors: header of 0 bytes; expected '{' first");
    put_file(&b, "[]", 0);
    expect_buf_refusal(&b, EK_EFORMAT,
                       "t.safetensors: header of 2 bytes; expected '{' first");
    put_file(&b, "{}", 0);
    b.len = 7;
    expect_buf_refusal(&b, EK_EFORMAT,
                       "t.safetensors: 7 bytes; expected at least 8, the length of the "
                       "header");
}

static void other_formats_are_named(void **state)
{
    (void)state;
    struct ek_buf b;
    put_file(&b, "", 60);
    memcpy(b.data, "GGUF\3\0\0\0", 8);
    expect_buf_refusal(&b, EK_EFORMAT,
                       "t.safetensors: header length 14064895815; expected at most 60, "
                       "what the file holds (it is a GGUF file)");
    put_file(&b, "", 60);
    memcpy(b.data, "version https://git-lfs", 23);
    expect_buf_refusal(&b, EK_EFORMAT,
                       "t.safetensors: header length 2336927755350992246; expected at "
                       "most 60, what the file holds (perhaps a Git LFS pointer: `git "
                       "lfs pull`)");
}

static void header_over_100_mb_is_refused(void **state)
{
    (void)state;
    size_t length = 100000001;
    char *p = calloc(1, 8 + length);
    struct ek_safetensors *s = NULL;
    struct ek_err err = EK_ERR_INIT;
    assert_non_null(p);
    for (int i = 0; i < 8; i++)
        p[i] = (char)(length >> 8 * i & 0xff);
    assert_int_equal(ek_safetensors_parse(&s, p, 8 + length, "t", &err), EK_ELIMIT);
    assert_string_equal(err.text,
                        "t: header length 100000001; expected at most 100000000");
    free(p);
}

static void header_that_is_no_utf8_is_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\xff\":" F32("[1]", 0, 4) "}", 4, EK_EFORMAT,
                   "t.safetensors: header is not UTF-8; expected UTF-8");
}

static void nested_header_is_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\":[[[[[[[[[[[[", 0, EK_EFORMAT,
                   "t.safetensors: header: tensor 'a': byte 5: expected '{', found "
                   "'[[[[[[[['");
    expect_refusal("{\"a\":{\"dtype\":{\"dtype\":{}}}}", 0, EK_EFORMAT,
                   "t.safetensors: header: tensor 'a': byte 14: expected a string, "
                   "found '{\"dtype\"'");
}

static void text_behind_the_header_is_refused(void **state)
{
    (void)state;
    expect_refusal("{} {}", 0, EK_EFORMAT,
                   "t.safetensors: header: byte 3: expected the end, found '{}'");
}

static void wrong_member_is_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, EK_EFORMAT,
                   "t.safetensors: tensor 'a': key 'data_offsets' is missing");
    expect_refusal("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 4, EK_EFORMAT,
                   "t.safetensors: tensor 'a': key 'dtype' is there twice; expected "
                   "once");
    expect_refusal(
        "{\"a\":{\"stride\":[1]}}", 4, EK_EFORMAT,
        "t.safetensors: tensor 'a': key 'stride' is unknown; expected dtype, "
        "shape, data_offsets");
}

static void unread_dtype_is_named(void **state)
{
    (void)state;
    expect_refusal("{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
                   8, EK_EUNSUP,
                   "t.safetensors: tensor 'a': dtype 'C64' is not supported; known: "
                   "F32, F64, F16, BF16, F8_E4M3, F8_E5M2, F8_E8M0, I8, I16, I32, I64, "
                   "U8, BOOL");
}

static void number_that_is_no_count_is_refused(void **state)
{
    (void)state;
    expect_refusal(
        "{\"a\":" F32("[-1]", 0, 4) "}", 4, EK_EFORMAT,
        "t.safetensors: header: tensor 'a': byte 29: expected a whole number "
        "of 0 or more, found '-1],\"dat'");
    expect_refusal(
        "{\"a\":" F32("[1.0]", 0, 4) "}", 4, EK_EFORMAT,
        "t.safetensors: header: tensor 'a': byte 29: expected a whole number "
        "of 0 or more, found '1.0],\"da'");
    expect_refusal(
        "{\"a\":" F32("[01]", 0, 4) "}", 4, EK_EFORMAT,
        "t.safetensors: header: tensor 'a': byte 29: expected a whole number "
        "of 0 or more, found '01],\"dat'");
    expect_refusal(
        "{\"a\":" F32("[18446744073709551616]", 0, 4) "}", 4, EK_EFORMAT,
        "t.safetensors: header: tensor 'a': byte 29: expected a whole number "
        "below 2^64, found '18446744'");
    expect_refusal("{\"a\":" F32("[9223372036854775808]", 0, 4) "}", 4, EK_EFORMAT,
                   "t.safetensors: tensor 'a': shape: dimension 9223372036854775808; "
                   "expected less than 2^63");
}

static void too_many_dimensions_are_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\":" F32("[1,1,1,1,1]", 0, 4) "}", 4, EK_EUNSUP,
                   "t.safetensors: tensor 'a': shape has more than 4 dimensions");
}

static void overflowing_shape_is_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\":" F32("[4294967296,4294967296]", 0, 4) "}", 4, EK_EFORMAT,
                   "t.safetensors: tensor 'a': shape (4294967296, 4294967296) has more "
                   "than 2^63 elements or bytes; expected a tensor that fits the file");
}

static void size_that_contradicts_the_shape_is_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\":" F32("[2]", 0, 4) "}", 4, EK_EFORMAT,
                   "t.safetensors: tensor 'a': data_offsets [0, 4] are 4 bytes; "
                   "expected 8 for F32 of (2)");
}

static void offsets_outside_the_data_are_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\":" F32("[1]", 4, 8) "}", 4, EK_EFORMAT,
                   "t.safetensors: tensor 'a': data_offsets [4, 8]; expected begin <= "
                   "end <= 4, the bytes of data in the file (truncated?)");
    expect_refusal("{\"a\":" F32("[1]", 4, 0) "}", 4, EK_EFORMAT,
                   "t.safetensors: tensor 'a': data_offsets [4, 0]; expected begin <= "
                   "end <= 4, the bytes of data in the file (truncated?)");
}

static void overlap_is_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\":" F32("[2]", 0, 8) ",\"b\":" F32("[1]", 4, 8) "}", 8,
                   EK_EFORMAT,
                   "t.safetensors: tensor 'b': begins at 4 and overlaps tensor 'a'; "
                   "expected 8");
    expect_refusal("{\"a\":" F32("[1]", 0, 4) ",\"b\":" F32("[1]", 0, 4) "}", 4,
                   EK_EFORMAT,
                   "t.safetensors: tensor 'b': begins at 0 and overlaps tensor 'a'; "
                   "expected 4");
}

static void gap_is_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\":" F32("[1]", 0, 4) ",\"b\":" F32("[1]", 8, 12) "}", 12,
                   EK_EFORMAT,
                   "t.safetensors: tensor 'b': begins at 8 after a gap of 4 bytes; "
                   "expected 4");
    expect_refusal("{\"a\":" F32("[1]", 4, 8) "}", 8, EK_EFORMAT,
                   "t.safetensors: tensor 'a': begins at 4 after a gap of 4 bytes; "
                   "expected 0");
}

static void bytes_behind_the_last_tensor_are_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\":" F32("[1]", 0, 4) "}", 5, EK_EFORMAT,
                   "t.safetensors: 5 bytes of data, but the tensors end at 4; expected "
                   "no bytes behind the last tensor");
}

static void duplicate_names_are_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\":" F32("[1]", 0, 4) ",\"a\":" F32("[1]", 4, 8) "}", 8,
                   EK_EFORMAT,
                   "t.safetensors: tensor 'a' is there twice; expected once");
    expect_refusal("{\"__metadata__\":{},\"__metadata__\":{}}", 0, EK_EFORMAT,
                   "t.safetensors: __metadata__: is there twice; expected once");
    expect_refusal(
        "{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, EK_EFORMAT,
        "t.safetensors: __metadata__: key 'a' is there twice; expected once");
}

static void name_with_nul_or_broken_escape_is_refused(void **state)
{
    (void)state;
    expect_refusal("{\"a\\u0000b\":" F32("[1]", 0, 4) "}", 4, EK_EFORMAT,
                   "t.safetensors: tensor name 'a' holds a NUL; expected none");
    expect_refusal("{\"\\ud800\":1}", 0, EK_EFORMAT,
                   "t.safetensors: header: byte 4: expected four hex digits of a "
                   "character (no lone surrogate), found 'd800\":1}'");
    expect_refusal("{\"\\x\":1}", 0, EK_EFORMAT,
                   "t.safetensors: header: byte 3: expected an escape, found 'x\":1}'");
}

static void metadata_must_be_strings(void **state)
{
    (void)state;
    expect_refusal("{\"__metadata__\":{\"a\":1}}", 0, EK_EFORMAT,
                   "t.safetensors: header: __metadata__: byte 21: expected a string, "
                   "found '1}}'");
}

static void endless_metadata_is_refused(void **state)
{
    (void)state;
    struct ek_buf b;
    ek_buf_init(&b, 1 << 20);
    assert_int_equal(ek_buf_add_str(&b, "{\"__metadata__\":{"), 0);
    for (int i = 0; i < 1025; i++)
        assert_int_equal(ek_buf_addf(&b, "%s\"%d\":\"\"", i ? "," : "", i), 0);
    assert_int_equal(ek_buf_add_str(&b, "}}"), 0);
    expect_refusal(b.data, 0, EK_ELIMIT,
                   "t.safetensors: __metadata__: has more than 1024 entries; expected "
                   "fewer");
    ek_buf_release(&b);
}

/* ---- files on disk: the writer and sharded sets ---- */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ek_safetensors_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static const char *const made[] = {"a.safetensors", "b.safetensors", "index.json",
                                   "out.safetensors", "link.safetensors"};

static const char *in_folder(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", folder, name);
    return path;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[128];
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        unlink(in_folder(path, made[i]));
    return rmdir(folder);
}

static void write_file(const char *name, const void *p, size_t n)
{
    char path[128];
    /* A new file: neither ek_file_write's fsync nor what some file systems do when an
     * old one is emptied. */
    unlink(in_folder(path, name));
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_shard(const char *name, const char *header, size_t n)
{
    struct ek_buf b;
    put_file(&b, header, n);
    write_file(name, b.data, b.len);
    ek_buf_release(&b);
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    static const float w[6] = {1.0f, -2.0f, 0.5f, 3.0f, 1e-30f, -0.0f};
    static const unsigned char e[3] = {1, 2, 3};
    struct ek_tensor items[] = {
        {"z \"quoted\"", EK_DTYPE_F32, 2, {2, 3}, w, sizeof w},
        {"e", EK_DTYPE_E4M3, 1, {3}, e, sizeof e},
        {"s", EK_DTYPE_F32, 0, {0}, w, 4},
        {"\xc3\xa9mpty", EK_DTYPE_I64, 2, {0, 9}, w, 0},
    };
    struct ek_tensors tensors = {items, 4, NULL};
    const char *const meta[][2] = {{"format", "pt"}, {"note", "a\tb"}};
    struct ek_safetensors *s = NULL;
    struct ek_err err = EK_ERR_INIT;
    char path[128];
    in_folder(path, "out.safetensors");
    assert_int_equal(ek_safetensors_write(path, &tensors, meta, 2, &err), 0);
    assert_int_equal(ek_safetensors_open(&s, path, &err), 0);
    const struct ek_tensors *all = ek_safetensors_tensors(s);
    assert_int_equal(all->n, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct ek_tensor *t = ek_tensors_find(all, items[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, items[i].dtype);
        assert_int_equal(t->n_dims, items[i].n_dims);
        assert_memory_equal(t->shape, items[i].shape, sizeof t->shape);
        assert_int_equal(t->bytes, items[i].bytes);
        assert_memory_equal(t->data, items[i].data, t->bytes);
    }
    assert_int_equal((uintptr_t)all->items[0].data % 8, 0);
    assert_string_equal(ek_safetensors_meta(s, "note"), "a\tb");
    ek_safetensors_free(s);
}

static void writer_refuses_what_the_reader_would(void **state)
{
    (void)state;
    static const float w[8];
    struct ek_err err = EK_ERR_INIT;
    struct ek_tensor twins[] = {{"a", EK_DTYPE_F32, 1, {2}, w, 8},
                                {"a", EK_DTYPE_F32, 1, {2}, w, 8}};
    struct ek_tensor quant = {"q", EK_DTYPE_Q4_0, 1, {32}, w, 18};
    struct ek_tensor wrong = {"w", EK_DTYPE_F32, 1, {2}, w, 7};
    struct ek_tensor name = {"\xff", EK_DTYPE_F32, 1, {2}, w, 8};
    struct ek_tensors t = {twins, 2, NULL};
    char path[128];
    in_folder(path, "never.safetensors");
    assert_int_equal(ek_safetensors_write(path, &t, NULL, 0, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, ": tensor 'a' is there twice; expected once"));
    t = (struct ek_tensors){&quant, 1, NULL};
    assert_int_equal(ek_safetensors_write(path, &t, NULL, 0, &err), EK_EUNSUP);
    assert_non_null(strstr(err.text, "tensor 'q': safetensors has no name for q4_0"));
    t = (struct ek_tensors){&wrong, 1, NULL};
    assert_int_equal(ek_safetensors_write(path, &t, NULL, 0, &err), EK_EINVAL);
    t = (struct ek_tensors){&name, 1, NULL};
    assert_int_equal(ek_safetensors_write(path, &t, NULL, 0, &err), EK_EINVAL);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void writer_survives_any_failed_allocation(void **state)
{
    (void)state;
    static const float w[2];
    struct ek_tensor item = {"a", EK_DTYPE_F32, 1, {2}, w, 8};
    struct ek_tensors t = {&item, 1, NULL};
    const char *const meta[][2] = {{"format", "pt"}};
    char path[128];
    in_folder(path, "out.safetensors");
    EK_EACH_FAILURE (k) {
        int rc = ek_safetensors_write(path, &t, meta, 1, NULL);
        ek_assert_rc(rc);
    }
}

/* Two shards: x in a, y in b. */
static void write_pair(void)
{
    write_shard("a.safetensors",
                "{\"__metadata__\":{\"m\":\"a\"},\"x\":" F32("[2]", 0, 8) "}", 8);
    write_shard(
        "b.safetensors",
        "{\"__metadata__\":{\"m\":\"b\",\"n\":\"b\"},\"y\":" F32("[1]", 0, 4) "}", 4);
}

static int open_index(struct ek_safetensors **s, const char *json, struct ek_err *err)
{
    char path[128];
    write_file("index.json", json, strlen(json));
    return ek_safetensors_open(s, in_folder(path, "index.json"), err);
}

#define PAIR                                                                           \
    "{\"metadata\":{\"total_size\":12,\"deep\":[[{\"a\":[null,true,-1.5e3]}]]},"       \
    "\"weight_map\":{\"y\":\"b.safetensors\",\"x\":\"a.safetensors\"}}"

static void sharded_set_opens_as_one(void **state)
{
    (void)state;
    struct ek_safetensors *s = NULL;
    struct ek_err err = EK_ERR_INIT;
    write_pair();
    assert_int_equal(open_index(&s, PAIR, &err), 0);
    assert_int_equal(ek_safetensors_tensors(s)->n, 2);
    assert_int_equal(ek_tensors_find(ek_safetensors_tensors(s), "x")->bytes, 8);
    assert_int_equal(ek_tensors_find(ek_safetensors_tensors(s), "y")->bytes, 4);
    assert_string_equal(ek_safetensors_meta(s, "m"), "a");
    assert_string_equal(ek_safetensors_meta(s, "n"), "b");
    ek_safetensors_free(s);
}

static void sharded_set_survives_any_failed_allocation(void **state)
{
    (void)state;
    write_pair();
    char path[128];
    struct ek_safetensors *s = NULL;
    assert_int_equal(open_index(&s, PAIR, NULL), 0);
    ek_safetensors_free(s);
    in_folder(path, "index.json");
    EK_EACH_FAILURE (k) {
        s = NULL;
        int rc = ek_safetensors_open(&s, path, NULL);
        ek_assert_rc(rc);
        ek_safetensors_free(s);
    }
}

static void every_truncated_index_is_refused(void **state)
{
    (void)state;
    char json[sizeof PAIR];
    write_pair();
    for (size_t n = 0; n < strlen(PAIR); n++) {
        struct ek_safetensors *s = NULL;
        memcpy(json, PAIR, n);
        json[n] = 0;
        assert_int_equal(open_index(&s, json, NULL), EK_EFORMAT);
    }
}

static void every_corrupt_index_byte_is_refused_or_harmless(void **state)
{
    (void)state;
    static const unsigned char flips[] = {0x01, 0x02, 0x80};
    char json[sizeof PAIR] = PAIR;
    write_pair();
    for (size_t i = 0; i < strlen(PAIR); i++) {
        for (size_t k = 0; k < sizeof flips; k++) {
            struct ek_safetensors *s = NULL;
            json[i] = (char)(json[i] ^ flips[k]);
            if (!open_index(&s, json, NULL))
                assert_int_equal(ek_safetensors_tensors(s)->n, 2);
            ek_safetensors_free(s);
            json[i] = (char)(json[i] ^ flips[k]);
        }
    }
}

static void expect_index_refusal(const char *map, int status, const char *sentence)
{
    struct ek_safetensors *s = NULL;
    struct ek_err err = EK_ERR_INIT;
    int rc = open_index(&s, map, &err);
    assert_non_null(strstr(err.text, sentence));
    assert_int_equal(rc, status);
    assert_null(s);
}

static void shard_outside_the_folder_is_refused(void **state)
{
    (void)state;
    static const char *const places[] = {
        "../a.safetensors", "/etc/passwd", "..", ".", "", "sub/a.safetensors"};
    write_pair();
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char json[128], sentence[256];
        snprintf(json, sizeof json, "{\"weight_map\":{\"x\":\"%s\"}}", places[i]);
        snprintf(sentence, sizeof sentence,
                 "weight_map 'x': '%s' is not in the index's folder; expected a file "
                 "name without '/'",
                 places[i]);
        expect_index_refusal(json, EK_EFORMAT, sentence);
    }
}

static void link_inside_the_folder_is_followed(void **state)
{
    (void)state;
    struct ek_safetensors *s = NULL;
    char path[128];
    write_pair();
    assert_int_equal(symlink("a.safetensors", in_folder(path, "link.safetensors")), 0);
    assert_int_equal(
        open_index(&s, "{\"weight_map\":{\"x\":\"link.safetensors\"}}", NULL), 0);
    ek_safetensors_free(s);
}

static void lying_weight_map_is_refused(void **state)
{
    (void)state;
    write_pair();
    expect_index_refusal(
        "{\"weight_map\":{\"x\":\"b.safetensors\",\"y\":"
        "\"a.safetensors\"}}",
        EK_EFORMAT, "'a.safetensors' does not hold that tensor; another shard does");
    expect_index_refusal(
        "{\"weight_map\":{\"x\":\"a.safetensors\",\"q\":"
        "\"a.safetensors\"}}",
        EK_EFORMAT,
        "weight_map 'q': 'a.safetensors' does not hold that tensor; no "
        "shard does");
    write_shard("b.safetensors",
                "{\"y\":" F32("[1]", 0, 4) ",\"extra\":" F32("[1]", 4, 8) "}", 8);
    expect_index_refusal(
        PAIR, EK_EFORMAT,
        "weight_map lacks tensor 'extra', which a shard holds; expected "
        "all of them");
    expect_index_refusal("{\"weight_map\":{\"x\":\"a.safetensors\",\"x\":"
                         "\"a.safetensors\"}}",
                         EK_EFORMAT, "weight_map 'x' is there twice; expected once");
}

static void tensor_in_two_shards_is_refused(void **state)
{
    (void)state;
    write_pair();
    write_shard("b.safetensors",
                "{\"y\":" F32("[1]", 0, 4) ",\"x\":" F32("[1]", 4, 8) "}", 8);
    expect_index_refusal(PAIR, EK_EFORMAT, "tensor 'x' is there twice; expected once");
}

static void missing_shard_is_named(void **state)
{
    (void)state;
    expect_index_refusal("{\"weight_map\":{\"x\":\"gone.safetensors\"}}", EK_ENOENT,
                         "/gone.safetensors: No such file or directory");
}

static void broken_index_is_refused(void **state)
{
    (void)state;
    expect_index_refusal("", EK_EFORMAT, "byte 0: expected '{', found the end");
    expect_index_refusal("{}", EK_EFORMAT, "no 'weight_map'; expected one");
    expect_index_refusal("{\"weight_map\":{}}", EK_EFORMAT,
                         "weight_map names 0 shards; expected 1 to 4096");
    expect_index_refusal("{\"weight_map\":{\"x\":1}}", EK_EFORMAT,
                         "byte 19: expected a string, found '1}}'");
    expect_index_refusal("\xff", EK_EFORMAT, "is not UTF-8; expected JSON");
    write_pair();
    expect_index_refusal("{\"weight_map\":{\"x\":\"a.safetensors\"},\"weight_map\":{}}",
                         EK_EFORMAT, "more than one 'weight_map'; expected one");
}

static void deep_index_is_refused(void **state)
{
    (void)state;
    char json[512] = "{\"metadata\":";
    size_t at = strlen(json);
    memset(json + at, '[', 400);
    expect_index_refusal(json, EK_ELIMIT, "is nested too deeply");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_file_reads_back),
        cmocka_unit_test(empty_set_of_tensors_is_a_file),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_truncated_header_is_refused),
        cmocka_unit_test(every_corrupt_byte_is_refused_or_harmless),
        cmocka_unit_test(any_failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(lying_header_length_is_refused),
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(header_over_100_mb_is_refused),
        cmocka_unit_test(header_that_is_no_utf8_is_refused),
        cmocka_unit_test(nested_header_is_refused),
        cmocka_unit_test(text_behind_the_header_is_refused),
        cmocka_unit_test(wrong_member_is_refused),
        cmocka_unit_test(unread_dtype_is_named),
        cmocka_unit_test(number_that_is_no_count_is_refused),
        cmocka_unit_test(too_many_dimensions_are_refused),
        cmocka_unit_test(overflowing_shape_is_refused),
        cmocka_unit_test(size_that_contradicts_the_shape_is_refused),
        cmocka_unit_test(offsets_outside_the_data_are_refused),
        cmocka_unit_test(overlap_is_refused),
        cmocka_unit_test(gap_is_refused),
        cmocka_unit_test(bytes_behind_the_last_tensor_are_refused),
        cmocka_unit_test(duplicate_names_are_refused),
        cmocka_unit_test(name_with_nul_or_broken_escape_is_refused),
        cmocka_unit_test(metadata_must_be_strings),
        cmocka_unit_test(endless_metadata_is_refused),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(writer_refuses_what_the_reader_would),
        cmocka_unit_test(writer_survives_any_failed_allocation),
        cmocka_unit_test(sharded_set_opens_as_one),
        cmocka_unit_test(sharded_set_survives_any_failed_allocation),
        cmocka_unit_test(every_truncated_index_is_refused),
        cmocka_unit_test(every_corrupt_index_byte_is_refused_or_harmless),
        cmocka_unit_test(shard_outside_the_folder_is_refused),
        cmocka_unit_test(link_inside_the_folder_is_followed),
        cmocka_unit_test(lying_weight_map_is_refused),
        cmocka_unit_test(tensor_in_two_shards_is_refused),
        cmocka_unit_test(missing_shard_is_named),
        cmocka_unit_test(broken_index_is_refused),
        cmocka_unit_test(deep_index_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
