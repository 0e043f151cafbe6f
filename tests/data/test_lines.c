/* test_lines.c - lines of text, plain and gzip, cut and damaged. */
#include "data/lines.h"
#include "testkit.h"

#include <stdio.h>
#include <zlib.h>

#define CAP 4096

/* text as one gzip member into out; its size. */
static size_t pack(unsigned char *out, size_t cap, const void *text, size_t n)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY),
                     Z_OK);
    union {
        const void *in;
        unsigned char *out;
    } u = {.in = text};
    z.next_in = u.out;
    z.avail_in = (unsigned)n;
    z.next_out = out;
    z.avail_out = (unsigned)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

/* All lines joined by '|', or the sentence. */
static int join(char out[CAP], const void *p, size_t n, size_t max_line)
{
    struct ek_lines l;
    struct ek_err err = EK_ERR_INIT;
    const char *line;
    size_t len, at = 0;
    int rc = ek_lines_of(&l, "f", p, n, max_line, &err);
    while (!rc) {
        rc = ek_lines_next(&l, &line, &len, &err);
        if (rc || !line)
            break;
        assert_true(at + len + 2 < CAP);
        memcpy(out + at, line, len);
        at += len;
        out[at++] = '|';
    }
    out[at] = 0;
    if (rc)
        snprintf(out, CAP, "%s", err.text);
    ek_lines_release(&l);
    return rc;
}

static void lines_lose_their_ends_and_nothing_else(void **state)
{
    (void)state;
    static const struct {
        const char *text, *lines;
    } t[] = {{"", ""},
             {"a", "a|"},
             {"a\n", "a|"},
             {"a\n\nb", "a||b|"},
             {"a\r\nb\rc\r\n", "a|b\rc|"},
             {"\xef\xbb\xbfx\ny\n", "x|y|"},
             {"\n", "|"}};
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        char got[CAP];
        char *copy = ek_exact_copy(t[i].text, strlen(t[i].text));
        assert_int_equal(join(got, copy, strlen(t[i].text), 100), 0);
        assert_string_equal(got, t[i].lines);
        free(copy);
    }
}

static void gzip_members_are_one_text(void **state)
{
    (void)state;
    unsigned char packed[1024];
    char got[CAP];
    size_t n = pack(packed, sizeof packed, "one\ntw", 6);
    n += pack(packed + n, sizeof packed - n, "o\nthree", 7);
    memset(packed + n, 0, 20); /* filled up to a block */
    assert_int_equal(join(got, packed, n + 20, 100), 0);
    assert_string_equal(got, "one|two|three|");
    n = pack(packed, sizeof packed, "\xef\xbb\xbfone\n", 7);
    assert_int_equal(join(got, packed, n, 100), 0);
    assert_string_equal(got, "one|"); /* a byte order mark inside, too */
}

static void gzip_that_is_cut_off_is_refused_wherever_it_is_cut(void **state)
{
    (void)state;
    unsigned char packed[1024];
    char got[CAP];
    size_t n = pack(packed, sizeof packed, "one two three\nfour\n", 19);
    for (size_t cut = 2; cut < n; cut++) {
        char *copy = ek_exact_copy(packed, cut);
        assert_int_equal(join(got, copy, cut, 100), EK_EFORMAT);
        assert_non_null(strstr(got, "gzip data is cut off"));
        free(copy);
    }
}

static void gzip_that_is_damaged_never_passes_for_the_text(void **state)
{
    (void)state;
    unsigned char packed[1024];
    char got[CAP];
    size_t n = pack(packed, sizeof packed, "one two three\nfour\n", 19);
    for (size_t i = 10; i < n; i++) {
        packed[i] ^= 0x10;
        int rc = join(got, packed, n, 100);
        /* Bits that fill the last byte of the data mean nothing. */
        if (rc)
            assert_int_equal(rc, EK_EFORMAT);
        else
            assert_string_equal(got, "one two three|four|");
        packed[i] ^= 0x10;
    }
    packed[n] = 'x'; /* garbage behind the end */
    assert_int_equal(join(got, packed, n + 1, 100), EK_EFORMAT);
}

static void a_line_over_the_limit_is_named(void **state)
{
    (void)state;
    char got[CAP];
    assert_int_equal(join(got, "12345\n1234567\n", 14, 6), EK_ELIMIT);
    assert_string_equal(got, "f:2: the line has more than 6 bytes");
    assert_int_equal(join(got, "123456\r\n", 8, 7), 0);
}

/* Longer than the reader's pieces: what carries over is put together again. */
static void lines_longer_than_a_piece_stay_whole(void **state)
{
    (void)state;
    size_t n = (size_t)3 << 20, len;
    char *text = malloc(n);
    struct ek_lines l;
    const char *line;
    assert_non_null(text);
    memset(text, 'x', n);
    for (size_t i = 100; i < n; i += i)
        text[i] = '\n';
    assert_int_equal(ek_lines_of(&l, "f", text, n, n, NULL), 0);
    size_t sum = 0, n_lines = 0;
    for (;;) {
        assert_int_equal(ek_lines_next(&l, &line, &len, NULL), 0);
        if (!line)
            break;
        assert_ptr_equal(memchr(line, '\n', len), NULL);
        sum += len;
        n_lines++;
    }
    assert_int_equal(sum + n_lines - 1, n);
    assert_int_equal(l.number, n_lines);
    ek_lines_release(&l);
    free(text);
}

static void any_failed_allocation_is_only_that(void **state)
{
    (void)state;
    unsigned char packed[1024];
    size_t n = pack(packed, sizeof packed, "one\ntwo\n", 8);
    EK_EACH_FAILURE (k) {
        char got[CAP];
        ek_assert_rc(join(got, packed, n, 100));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_lose_their_ends_and_nothing_else),
        cmocka_unit_test(gzip_members_are_one_text),
        cmocka_unit_test(gzip_that_is_cut_off_is_refused_wherever_it_is_cut),
        cmocka_unit_test(gzip_that_is_damaged_never_passes_for_the_text),
        cmocka_unit_test(a_line_over_the_limit_is_named),
        cmocka_unit_test(lines_longer_than_a_piece_stay_whole),
        cmocka_unit_test(any_failed_allocation_is_only_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
