#include "data/json_pull.h"

#include "base/utf8.h"

#include <string.h>

void ek_json_pull_init(struct ek_json_pull *j, const char *p, size_t n,
                       struct ek_err *err)
{
    *j = (struct ek_json_pull){.p = p, .n = n, .err = err};
}

static void skip_space(struct ek_json_pull *j)
{
    while (j->at < j->n && (j->p[j->at] == ' ' || j->p[j->at] == '\n' ||
                            j->p[j->at] == '\t' || j->p[j->at] == '\r'))
        j->at++;
}

/* "byte 12: expected a string, found '{'" */
static int refuse(struct ek_json_pull *j, const char *expected)
{
    if (j->at >= j->n)
        return ek_err_set(j->err, EK_EFORMAT, "byte %zu: expected %s, found the end",
                          j->at, expected);
    size_t n = j->n - j->at < 8 ? j->n - j->at : 8;
    n = ek_utf8_whole_prefix(j->p + j->at, n);
    return ek_err_set(j->err, EK_EFORMAT, "byte %zu: expected %s, found '%.*s'", j->at,
                      expected, (int)n, j->p + j->at);
}

bool ek_json_pull_try(struct ek_json_pull *j, char c)
{
    skip_space(j);
    if (j->at >= j->n || j->p[j->at] != c)
        return false;
    j->at++;
    return true;
}

int ek_json_pull_expect(struct ek_json_pull *j, char c)
{
    const char quoted[] = {'\'', c, '\'', 0};
    return ek_json_pull_try(j, c) ? 0 : refuse(j, quoted);
}

int ek_json_pull_end(struct ek_json_pull *j)
{
    skip_space(j);
    return j->at == j->n ? 0 : refuse(j, "the end");
}

int ek_json_pull_u64(struct ek_json_pull *j, uint64_t *v)
{
    skip_space(j);
    size_t at = j->at;
    uint64_t value = 0;
    while (at < j->n && j->p[at] >= '0' && j->p[at] <= '9') {
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(j->p[at] - '0'), &value))
            return refuse(j, "a whole number below 2^64");
        at++;
    }
    bool is_padded = at > j->at + 1 && j->p[j->at] == '0';
    char next = at < j->n ? j->p[at] : ',';
    bool is_real = next == '.' || next == 'e' || next == 'E';
    if (at == j->at || is_padded || is_real)
        return refuse(j, "a whole number of 0 or more");
    j->at = at;
    *v = value;
    return 0;
}

/* Four hex digits at p, or -1. */
static int hex4(const char *p, size_t n)
{
    int v = 0;
    for (size_t i = 0; i < 4; i++) {
        if (i >= n)
            return -1;
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

/* j->at is behind "\u". */
static int add_unicode(struct ek_json_pull *j, struct ek_buf *text)
{
    const char *p = j->p + j->at;
    size_t left = j->n - j->at, used = 4;
    int c = hex4(p, left);
    if (c >= 0xd800 && c <= 0xdbff) {
        bool has_pair = left >= 10 && p[4] == '\\' && p[5] == 'u';
        int low = has_pair ? hex4(p + 6, left - 6) : -1;
        c = low >= 0xdc00 && low <= 0xdfff
                ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00)
                : -1;
        used = 10;
    } else if (c >= 0xdc00 && c <= 0xdfff) {
        c = -1;
    }
    if (c < 0)
        return refuse(j, "four hex digits of a character (no lone surrogate)");
    char out[4];
    j->at += used;
    return ek_buf_add(text, out, ek_utf8_encode(out, (uint32_t)c));
}

static int add_escape(struct ek_json_pull *j, struct ek_buf *text)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    j->at++;
    if (j->at < j->n && j->p[j->at] == 'u') {
        j->at++;
        return add_unicode(j, text);
    }
    const char *found =
        j->at < j->n ? memchr(from, j->p[j->at], sizeof from - 1) : NULL;
    if (!found)
        return refuse(j, "an escape");
    j->at++;
    return ek_buf_add_char(text, to[found - from]);
}

int ek_json_pull_str(struct ek_json_pull *j, struct ek_buf *text)
{
    ek_buf_reset(text);
    if (!ek_json_pull_try(j, '"'))
        return refuse(j, "a string");
    int rc = 0;
    while (!rc) {
        size_t start = j->at;
        while (j->at < j->n && j->p[j->at] != '"' && j->p[j->at] != '\\' &&
               (unsigned char)j->p[j->at] >= 0x20)
            j->at++;
        rc = ek_buf_add(text, j->p + start, j->at - start);
        if (rc)
            break;
        if (j->at >= j->n || (unsigned char)j->p[j->at] < 0x20)
            return refuse(j, "'\"'");
        if (j->p[j->at] == '"') {
            j->at++;
            return 0;
        }
        rc = add_escape(j, text);
    }
    if (rc != EK_EFORMAT)
        ek_err_set(j->err, rc, "byte %zu: %s", j->at, ek_status_text(rc));
    return rc;
}

int ek_json_pull_more(struct ek_json_pull *j, char close, size_t *n)
{
    if (ek_json_pull_try(j, close))
        return 0;
    if (*n > 0) {
        const char expected[] = {'\'', ',',  '\'',  ' ',  'o', 'r',
                                 ' ',  '\'', close, '\'', 0};
        if (!ek_json_pull_try(j, ','))
            return refuse(j, expected);
    }
    ++*n;
    return 1;
}

static int skip_word(struct ek_json_pull *j)
{
    static const char *const words[] = {"true", "false", "null"};
    size_t left = j->n - j->at;
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (left >= n && !memcmp(j->p + j->at, words[i], n)) {
            j->at += n;
            return 0;
        }
    }
    size_t start = j->at;
    while (j->at < j->n && j->p[j->at] && strchr("0123456789+-.eE", j->p[j->at]))
        j->at++;
    return j->at > start ? 0 : refuse(j, "a value");
}

int ek_json_pull_skip(struct ek_json_pull *j, struct ek_buf *text, int max_depth)
{
    skip_space(j);
    if (j->at < j->n && j->p[j->at] == '"')
        return ek_json_pull_str(j, text);
    bool is_object = ek_json_pull_try(j, '{');
    if (!is_object && !ek_json_pull_try(j, '['))
        return skip_word(j);
    if (max_depth == 0)
        return ek_err_set(j->err, EK_ELIMIT, "byte %zu: is nested too deeply", j->at);
    size_t n = 0;
    for (;;) {
        int rc = ek_json_pull_more(j, is_object ? '}' : ']', &n);
        if (rc <= 0)
            return rc;
        if (is_object) {
            rc = ek_json_pull_str(j, text);
            if (!rc)
                rc = ek_json_pull_expect(j, ':');
            if (rc)
                return rc;
        }
        rc = ek_json_pull_skip(j, text, max_depth - 1);
        if (rc)
            return rc;
    }
}
