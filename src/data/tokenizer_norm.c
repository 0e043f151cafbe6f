/* Normalizers: NFC, a space put first, spaces written as U+2581.
 *
 * NFC is utf8proc's tables around our own ordering of combining marks: utf8proc sorts
 * them by exchange, which takes quadratic time over a long run of marks. */
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer_int.h"

#include <string.h>
#include <utf8proc.h>

#define SPACE_ESCAPE "\xe2\x96\x81"

/* Stable by combining class, counting sort: classes are 0..254. */
static void order_marks(int32_t *c, int32_t *spare, size_t n)
{
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[utf8proc_get_property(c[i])->combining_class + 1]++;
    for (int k = 1; k < 257; k++)
        start[k] += start[k - 1];
    for (size_t i = 0; i < n; i++)
        spare[start[utf8proc_get_property(c[i])->combining_class]++] = c[i];
    memcpy(c, spare, n * sizeof *c);
}

static void order_all(int32_t *c, int32_t *spare, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && utf8proc_get_property(c[end])->combining_class != 0)
            end++;
        if (end - i > 1)
            order_marks(c + i, spare, end - i);
        i = end + 1;
    }
}

static size_t decompose(int32_t *c, size_t cap, const char *p, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        uint32_t point = 0;
        i += ek_utf8_decode(&point, p + i, n - i);
        utf8proc_ssize_t more = utf8proc_decompose_char(
            (int32_t)point, c + count, (utf8proc_ssize_t)(cap - count),
            UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, NULL);
        count += more > 0 ? (size_t)more : 0;
    }
    return count;
}

/* Room for one stretch, decomposed and in order. */
struct nfc {
    int32_t *points, *spare; /* heap, owned */
    size_t cap;
};

static int reserve(struct nfc *w, size_t n)
{
    if (n <= w->cap)
        return 0;
    ek_free(w->points);
    ek_free(w->spare);
    w->points = ek_alloc_array(n, sizeof *w->points);
    w->spare = ek_alloc_array(n, sizeof *w->spare);
    w->cap = w->points && w->spare ? n : 0;
    return w->cap ? 0 : EK_ENOMEM;
}

static int add_stretch(struct nfc *w, struct ek_buf *out, const char *p, size_t n)
{
    /* No canonical decomposition is longer than 4 characters. */
    int rc = reserve(w, 4 * n);
    if (rc)
        return rc;
    size_t count = decompose(w->points, w->cap, p, n);
    order_all(w->points, w->spare, count);
    utf8proc_ssize_t m = utf8proc_normalize_utf32(w->points, (utf8proc_ssize_t)count,
                                                  UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; !rc && i < m; i++) {
        char utf8[4];
        rc = ek_buf_add(out, utf8, ek_utf8_encode(utf8, (uint32_t)w->points[i]));
    }
    return rc;
}

/* ASCII is in NFC and composes with nothing before it: only stretches of other
 * characters, with the one ASCII character that they may compose with, need work. Bytes
 * that are no UTF-8 pass as they are. */
static int add_nfc(struct ek_buf *out, const char *p, size_t n)
{
    struct nfc w = {0};
    int rc = 0;
    for (size_t i = 0, len; !rc && i < n;) {
        size_t end = i;
        uint32_t c;
        while (end < n && (unsigned char)p[end] < 0x80)
            end++;
        size_t start = end > i ? end - 1 : end;
        while (end < n && (unsigned char)p[end] >= 0x80 &&
               (len = ek_utf8_decode(&c, p + end, n - end)) > 0)
            end += len;
        rc = ek_buf_add(out, p + i, start - i);
        if (!rc)
            rc = add_stretch(&w, out, p + start, end - start);
        i = end;
        if (!rc && i < n && (unsigned char)p[i] >= 0x80) {
            size_t bad = ek_utf8_bad_length(p + i, n - i);
            rc = ek_buf_add(out, p + i, bad);
            i += bad;
        }
    }
    ek_free(w.points);
    ek_free(w.spare);
    return rc;
}

static int add_escaped(struct ek_buf *out, const char *p, size_t n)
{
    int rc = 0;
    while (!rc && n) {
        const char *space = memchr(p, ' ', n);
        size_t len = space ? (size_t)(space - p) : n;
        rc = ek_buf_add(out, p, len);
        p += len;
        n -= len;
        if (!rc && n) {
            rc = ek_buf_add(out, SPACE_ESCAPE, 3);
            p++;
            n--;
        }
    }
    return rc;
}

static bool wants_prefix(const struct ek_tok_norm *norm, const char *p, size_t n,
                         bool is_first)
{
    if (norm->prefix == EK_TOK_PREFIX_NONE || n == 0)
        return false;
    if (norm->prefix == EK_TOK_PREFIX_FIRST && !is_first)
        return false;
    if (!norm->prefix_unless_there)
        return true;
    bool is_space = p[0] == ' ';
    bool is_escape = norm->escapes_space && n >= 3 && memcmp(p, SPACE_ESCAPE, 3) == 0;
    return !is_space && !is_escape;
}

int ek_tok_normalize(const struct ek_tok_norm *norm, struct ek_buf *out, const char *p,
                     size_t n, bool is_first)
{
    int rc = 0;
    if (wants_prefix(norm, p, n, is_first))
        rc = norm->escapes_space ? ek_buf_add(out, SPACE_ESCAPE, 3)
                                 : ek_buf_add_char(out, ' ');
    if (rc)
        return rc;
    if (norm->is_nfc)
        return add_nfc(out, p, n);
    return norm->escapes_space ? add_escaped(out, p, n) : ek_buf_add(out, p, n);
}
