#include "base/utf8.h"

#include <assert.h>

/* Total length a lead byte announces, and the allowed range of the second byte;
 * 0 for a byte that cannot lead. */
static size_t lead(unsigned char b, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xbf;
    if (b < 0x80)
        return 1;
    if (b < 0xc2)
        return 0;
    if (b < 0xe0)
        return 2;
    if (b < 0xf0) {
        if (b == 0xe0)
            *lo = 0xa0;
        if (b == 0xed)
            *hi = 0x9f;
        return 3;
    }
    if (b > 0xf4)
        return 0;
    if (b == 0xf0)
        *lo = 0x90;
    if (b == 0xf4)
        *hi = 0x8f;
    return 4;
}

/* Bytes at p that agree with a character so far; *need is the full length (0: p
 * cannot lead). */
static size_t matched(const char *p, size_t n, size_t *need)
{
    unsigned char lo, hi;
    *need = lead((unsigned char)p[0], &lo, &hi);
    if (*need == 0)
        return 0;
    size_t i = 1;
    for (; i < *need && i < n; i++) {
        unsigned char b = (unsigned char)p[i];
        if (b < lo || b > hi)
            break;
        lo = 0x80;
        hi = 0xbf;
    }
    return i;
}

size_t ek_utf8_decode(uint32_t *c, const char *p, size_t n)
{
    static const unsigned char mask[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    size_t need;
    if (n == 0 || matched(p, n, &need) != need || need == 0)
        return 0;
    uint32_t v = (unsigned char)p[0] & mask[need];
    for (size_t i = 1; i < need; i++)
        v = v << 6 | ((unsigned char)p[i] & 0x3f);
    *c = v;
    return need;
}

size_t ek_utf8_encode(char out[4], uint32_t c)
{
    assert(c <= 0x10ffff && (c < 0xd800 || c > 0xdfff));
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

bool ek_utf8_is_valid(const char *p, size_t n)
{
    uint32_t c;
    for (size_t i = 0; i < n;) {
        size_t len = ek_utf8_decode(&c, p + i, n - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

size_t ek_utf8_whole_prefix(const char *p, size_t n)
{
    /* Only the last three bytes can belong to an unfinished character. */
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        size_t need;
        size_t have = matched(p + n - back, back, &need);
        if (have == back && need > back)
            return n - back;
    }
    return n;
}

size_t ek_utf8_bad_length(const char *p, size_t n)
{
    assert(n >= 1);
    size_t need;
    size_t have = matched(p, n, &need);
    return have ? have : 1;
}
