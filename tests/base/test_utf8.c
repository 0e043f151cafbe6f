/* Against table 3-7 of the Unicode standard written out, not against a decoder. */
#include "base/utf8.h"
#include "testkit.h"

struct row {
    size_t n;
    unsigned char lo[4], hi[4];
};

static const struct row table[] = {
    {1, {0x00}, {0x7f}},
    {2, {0xc2, 0x80}, {0xdf, 0xbf}},
    {3, {0xe0, 0xa0, 0x80}, {0xe0, 0xbf, 0xbf}},
    {3, {0xe1, 0x80, 0x80}, {0xec, 0xbf, 0xbf}},
    {3, {0xed, 0x80, 0x80}, {0xed, 0x9f, 0xbf}},
    {3, {0xee, 0x80, 0x80}, {0xef, 0xbf, 0xbf}},
    {4, {0xf0, 0x90, 0x80, 0x80}, {0xf0, 0xbf, 0xbf, 0xbf}},
    {4, {0xf1, 0x80, 0x80, 0x80}, {0xf3, 0xbf, 0xbf, 0xbf}},
    {4, {0xf4, 0x80, 0x80, 0x80}, {0xf4, 0x8f, 0xbf, 0xbf}},
};
#define N_ROWS (sizeof table / sizeof table[0])

/* p[0,k) begins a character of the table; *is_whole when it is one. */
static bool begins(const char *p, size_t k, bool *is_whole)
{
    for (size_t r = 0; r < N_ROWS; r++) {
        size_t i = 0;
        while (i < k && i < table[r].n && (unsigned char)p[i] >= table[r].lo[i] &&
               (unsigned char)p[i] <= table[r].hi[i])
            i++;
        if (i == k) {
            *is_whole = k == table[r].n;
            return true;
        }
    }
    return false;
}

static size_t naive_decode(const char *p, size_t n)
{
    bool is_whole;
    for (size_t k = 1; k <= n && k <= 4; k++) {
        if (begins(p, k, &is_whole) && is_whole)
            return k;
    }
    return 0;
}

static size_t naive_bad_length(const char *p, size_t n)
{
    bool is_whole;
    size_t k = 1;
    while (k < n && begins(p, k + 1, &is_whole))
        k++;
    return k;
}

/* Walks from the front, as one reads the standard. */
static size_t naive_whole_prefix(const char *p, size_t n)
{
    size_t at = 0;
    while (at < n) {
        bool is_whole = false;
        size_t k = naive_decode(p + at, n - at);
        if (k == 0 && begins(p + at, n - at, &is_whole) && !is_whole)
            return at;
        at += k ? k : naive_bad_length(p + at, n - at);
    }
    return n;
}

static void check(const char *p, size_t n)
{
    uint32_t c = 0xdeadbeef;
    size_t want = n ? naive_decode(p, n) : 0;
    if (ek_utf8_decode(&c, p, n) != want)
        fail_msg("decode of %02x %02x %02x %02x, %zu bytes", (unsigned char)p[0],
                 (unsigned char)p[1], (unsigned char)p[2], (unsigned char)p[3], n);
    if (want == 0 && c != 0xdeadbeef)
        fail_msg("a value was written for no character");
    if (n && want == 0 && ek_utf8_bad_length(p, n) != naive_bad_length(p, n))
        fail_msg("bad length of %02x %02x %02x %02x, %zu bytes", (unsigned char)p[0],
                 (unsigned char)p[1], (unsigned char)p[2], (unsigned char)p[3], n);
    if (ek_utf8_whole_prefix(p, n) != naive_whole_prefix(p, n))
        fail_msg("whole prefix of %02x %02x %02x %02x, %zu bytes", (unsigned char)p[0],
                 (unsigned char)p[1], (unsigned char)p[2], (unsigned char)p[3], n);
}

static bool is_scalar(uint32_t c)
{
    return c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
}

static void every_scalar_value_goes_there_and_back(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        if (!is_scalar(c))
            continue;
        char p[4];
        uint32_t back = 0;
        size_t n = ek_utf8_encode(p, c);
        size_t want = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        if (n != want || naive_decode(p, n) != n || ek_utf8_decode(&back, p, n) != n ||
            back != c || !ek_utf8_is_valid(p, n) || ek_utf8_whole_prefix(p, n) != n)
            fail_msg("U+%04X", (unsigned)c);
        for (size_t k = 1; k < n; k++) {
            if (ek_utf8_decode(&back, p, k) != 0 || ek_utf8_whole_prefix(p, k) != 0 ||
                ek_utf8_is_valid(p, k) || ek_utf8_bad_length(p, k) != k)
                fail_msg("U+%04X cut to %zu bytes", (unsigned)c, k);
        }
    }
}

static void every_pair_of_bytes_follows_the_table(void **state)
{
    (void)state;
    for (unsigned a = 0; a < 256; a++) {
        for (unsigned b = 0; b < 256; b++) {
            char p[4] = {(char)a, (char)b, 0, 0};
            check(p, 0);
            check(p, 1);
            check(p, 2);
        }
    }
}

static void every_mix_of_edge_bytes_follows_the_table(void **state)
{
    (void)state;
    static const unsigned char edge[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f,
                                         0xa0, 0xbf, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1,
                                         0xec, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff};
    size_t n = sizeof edge;
    for (size_t i = 0; i < n * n * n * n; i++) {
        char p[4] = {(char)edge[i % n], (char)edge[i / n % n],
                     (char)edge[i / n / n % n], (char)edge[i / n / n / n]};
        check(p, 3);
        check(p, 4);
    }
}

static void validity_is_decided_over_the_whole_text(void **state)
{
    (void)state;
    assert_true(ek_utf8_is_valid("", 0));
    assert_true(ek_utf8_is_valid("a\0b", 3));
    assert_true(ek_utf8_is_valid("\xe6\xb0\xb4\xf0\x9f\x98\x80", 7));
    assert_false(ek_utf8_is_valid("abc\x80", 4));
    assert_false(ek_utf8_is_valid("\xc0\x80", 2));
    assert_false(ek_utf8_is_valid("a\xed\xa0\x80z", 5));
    assert_false(ek_utf8_is_valid("\xf4\x90\x80\x80", 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scalar_value_goes_there_and_back),
        cmocka_unit_test(every_pair_of_bytes_follows_the_table),
        cmocka_unit_test(every_mix_of_edge_bytes_follows_the_table),
        cmocka_unit_test(validity_is_decided_over_the_whole_text),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
