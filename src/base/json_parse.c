/* RFC 8259 text into jansson's values, by recursive descent.
 *
 * Not jansson's own reader: that one ignores when its token buffer cannot grow and then
 * walks past the end of the token (fuzz_json with a failing allocation found it). Here
 * strings are taken from the text itself, and every allocation is checked.
 *
 * Invariant: at <= n. A function that fails has written the error and owns nothing. */
#include "base/json_int.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const char *text; /* borrowed */
    size_t n;
    size_t at;             /* next byte */
    struct ek_buf scratch; /* the string or number that is being decoded */
    struct ek_err *err;
};

static int parse_value(struct parser *p, json_t **out);

static int no_memory(const struct parser *p)
{
    return ek_err_set(p->err, EK_ENOMEM, "JSON: out of memory");
}

/* "JSON line 2 column 7: " and the sentence, for the byte at `at`. */
static int refuse(const struct parser *p, size_t at, const char *what)
{
    size_t line = 1, start = 0, column = 1;
    for (size_t i = 0; i < at; i++) {
        if (p->text[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    for (size_t i = start; i < at; i++)
        column += ((unsigned char)p->text[i] & 0xc0) != 0x80; /* starts a character */
    return ek_err_set(p->err, EK_EFORMAT, "JSON line %zu column %zu: %s", line, column,
                      what);
}

/* "expected X, found Y" at the next byte. */
static int refuse_next(const struct parser *p, const char *expected)
{
    char what[128];
    if (p->at == p->n) {
        snprintf(what, sizeof what, "expected %s, found the end of the text", expected);
    } else {
        unsigned char c = (unsigned char)p->text[p->at];
        bool is_shown = c >= 0x20 && c < 0x7f;
        snprintf(what, sizeof what,
                 is_shown ? "expected %s, found '%c'"
                          : "expected %s, found byte 0x%02x",
                 expected, c);
    }
    return refuse(p, p->at, what);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(struct parser *p)
{
    while (p->at < p->n && is_space(p->text[p->at]))
        p->at++;
}

static bool take(struct parser *p, char c)
{
    if (p->at == p->n || p->text[p->at] != c)
        return false;
    p->at++;
    return true;
}

static int hex4(const struct parser *p, size_t at, uint32_t *out)
{
    uint32_t v = 0;
    if (p->n - at < 4)
        return EK_EFORMAT;
    for (size_t i = at; i < at + 4; i++) {
        char c = p->text[i];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            return EK_EFORMAT;
        v = v << 4 | digit;
    }
    *out = v;
    return 0;
}

/* Behind "\u": one code point of one or two escapes. */
static int take_code_point(struct parser *p, uint32_t *out)
{
    size_t start = p->at - 2;
    uint32_t high = 0, low = 0;
    if (hex4(p, p->at, &high))
        return refuse(p, start, "invalid escape, expected four hexadecimal digits");
    p->at += 4;
    if (high < 0xd800 || high > 0xdfff) {
        *out = high;
        return 0;
    }
    bool is_pair = high <= 0xdbff && p->n - p->at >= 6 && p->text[p->at] == '\\' &&
                   p->text[p->at + 1] == 'u' && !hex4(p, p->at + 2, &low) &&
                   low >= 0xdc00 && low <= 0xdfff;
    if (!is_pair)
        return refuse(p, start, "half of a Unicode surrogate pair");
    p->at += 6;
    *out = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return 0;
}

/* Behind a backslash: appends what the escape stands for. */
static int take_escape(struct parser *p)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *name = p->at < p->n && p->text[p->at]
                           ? memchr(names, p->text[p->at], sizeof names - 1)
                           : NULL;
    if (name) {
        p->at++;
        return ek_buf_add_char(&p->scratch, values[name - names]) ? no_memory(p) : 0;
    }
    if (!take(p, 'u'))
        return refuse(p, p->at - 1, "invalid escape in a string");
    uint32_t c = 0;
    char utf8[4];
    int rc = take_code_point(p, &c);
    if (rc)
        return rc;
    size_t len = ek_utf8_encode(utf8, c);
    return ek_buf_add(&p->scratch, utf8, len) ? no_memory(p) : 0;
}

/* Bytes from `at` that a string may hold as they are; *rc tells why they ended when
 * that is neither a quote nor a backslash. */
static size_t plain_length(const struct parser *p, int *rc)
{
    size_t i = p->at;
    *rc = 0;
    while (i < p->n && p->text[i] != '"' && p->text[i] != '\\') {
        uint32_t c = 0;
        size_t len = ek_utf8_decode(&c, p->text + i, p->n - i);
        if (len == 0)
            *rc = refuse(p, i, "unable to decode bytes that are not UTF-8");
        else if (c < 0x20)
            *rc = refuse(p, i, "control character in a string, expected an escape");
        if (*rc)
            break;
        i += len;
    }
    if (i == p->n)
        *rc = refuse(p, i, "a string without its closing quote");
    return i - p->at;
}

/* At the opening quote: *s, *n is the decoded string, in the text or in scratch, good
 * until the next string or number. */
static int take_string(struct parser *p, const char **s, size_t *n)
{
    int rc;
    p->at++;
    ek_buf_reset(&p->scratch);
    for (bool is_first = true;; is_first = false) {
        const char *piece = p->text + p->at;
        size_t len = plain_length(p, &rc);
        if (rc)
            return rc;
        p->at += len;
        if (is_first && take(p, '"')) { /* no escapes: no copy */
            *s = piece;
            *n = len;
            return 0;
        }
        if (ek_buf_add(&p->scratch, piece, len))
            return no_memory(p);
        if (take(p, '"'))
            break;
        p->at++; /* the backslash */
        rc = take_escape(p);
        if (rc)
            return rc;
    }
    *s = p->scratch.data;
    *n = p->scratch.len;
    return 0;
}

static int parse_string(struct parser *p, json_t **out)
{
    const char *s = NULL;
    size_t n = 0;
    int rc = take_string(p, &s, &n);
    if (rc)
        return rc;
    *out = json_stringn_nocheck(s, n);
    return *out ? 0 : no_memory(p);
}

static size_t skip_digits(struct parser *p)
{
    size_t start = p->at;
    while (p->at < p->n && p->text[p->at] >= '0' && p->text[p->at] <= '9')
        p->at++;
    return p->at - start;
}

/* -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? */
static int skip_number(struct parser *p, bool *is_real)
{
    *is_real = false;
    take(p, '-');
    if (!take(p, '0') && skip_digits(p) == 0)
        return refuse_next(p, "a digit");
    if (take(p, '.')) {
        *is_real = true;
        if (skip_digits(p) == 0)
            return refuse_next(p, "a digit behind the point");
    }
    if (take(p, 'e') || take(p, 'E')) {
        *is_real = true;
        if (!take(p, '-'))
            take(p, '+');
        if (skip_digits(p) == 0)
            return refuse_next(p, "a digit in the exponent");
    }
    return 0;
}

static int parse_number(struct parser *p, json_t **out)
{
    size_t start = p->at;
    bool is_real;
    int rc = skip_number(p, &is_real);
    if (rc)
        return rc;
    ek_buf_reset(&p->scratch);
    if (ek_buf_add(&p->scratch, p->text + start, p->at - start))
        return no_memory(p);
    errno = 0;
    if (is_real) {
        double v = strtod(p->scratch.data, NULL);
        if (!isfinite(v))
            return refuse(p, start, "real number overflow: larger than a double");
        *out = json_real(v);
    } else {
        long long v = strtoll(p->scratch.data, NULL, 10);
        if (errno)
            return refuse(p, start, "too big integer: does not fit 64 bits");
        *out = json_integer(v);
    }
    return *out ? 0 : no_memory(p);
}

static int parse_word(struct parser *p, json_t **out)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (p->n - p->at >= n && !memcmp(p->text + p->at, words[i], n)) {
            p->at += n;
            *out = i == 0 ? json_true() : i == 1 ? json_false() : json_null();
            return 0;
        }
    }
    return refuse_next(p, "a value");
}

static int parse_array(struct parser *p, json_t **out)
{
    json_t *array = json_array();
    int rc = array ? 0 : no_memory(p);
    p->at++;
    skip_space(p);
    bool is_over = take(p, ']');
    while (!rc && !is_over) {
        json_t *item = NULL;
        rc = parse_value(p, &item);
        if (!rc && json_array_append_new(array, item))
            rc = no_memory(p);
        if (rc)
            break;
        skip_space(p);
        is_over = take(p, ']');
        if (!is_over && !take(p, ','))
            rc = refuse_next(p, "',' or ']'");
    }
    if (rc)
        json_decref(array);
    else
        *out = array;
    return rc;
}

/* The next key, which the object must not hold yet; good until the next string. */
static int take_key(struct parser *p, json_t *object, const char **key, size_t *n)
{
    char what[128];
    skip_space(p);
    size_t start = p->at;
    if (p->at == p->n || p->text[p->at] != '"')
        return refuse_next(p, "a key in double quotes");
    int rc = take_string(p, key, n);
    if (rc)
        return rc;
    if (memchr(*key, 0, *n))
        return refuse(p, start, "a key with a NUL character");
    if (json_object_getn(object, *key, *n)) {
        snprintf(what, sizeof what, "duplicate key '%.*s'", *n < 64 ? (int)*n : 64,
                 *key);
        return refuse(p, start, what);
    }
    return 0;
}

static int parse_member(struct parser *p, json_t *object)
{
    const char *key = NULL;
    size_t n = 0;
    char *copy = NULL;
    json_t *value = NULL;
    int rc = take_key(p, object, &key, &n);
    if (rc)
        return rc;
    skip_space(p);
    if (!take(p, ':'))
        return refuse_next(p, "':'");
    if (key == p->scratch.data) { /* the value will use scratch too */
        copy = ek_strndup(key, n);
        if (!copy)
            return no_memory(p);
        key = copy;
    }
    rc = parse_value(p, &value);
    if (!rc && json_object_setn_new_nocheck(object, key, n, value))
        rc = no_memory(p);
    ek_free(copy);
    return rc;
}

static int parse_object(struct parser *p, json_t **out)
{
    json_t *object = json_object();
    int rc = object ? 0 : no_memory(p);
    p->at++;
    skip_space(p);
    bool is_over = take(p, '}');
    while (!rc && !is_over) {
        rc = parse_member(p, object);
        if (rc)
            break;
        skip_space(p);
        is_over = take(p, '}');
        if (!is_over && !take(p, ','))
            rc = refuse_next(p, "',' or '}'");
    }
    if (rc)
        json_decref(object);
    else
        *out = object;
    return rc;
}

static int parse_value(struct parser *p, json_t **out)
{
    skip_space(p);
    char c = p->at < p->n ? p->text[p->at] : 0;
    switch (c) {
    case '{':
        return parse_object(p, out);
    case '[':
        return parse_array(p, out);
    case '"':
        return parse_string(p, out);
    default:
        return c == '-' || (c >= '0' && c <= '9') ? parse_number(p, out)
                                                  : parse_word(p, out);
    }
}

int ek_json_parse_text(json_t **out, const char *text, size_t n, struct ek_err *err)
{
    struct parser p = {.text = text, .n = n, .err = err};
    json_t *root = NULL;
    ek_buf_init(&p.scratch, n);
    int rc = parse_value(&p, &root);
    if (!rc) {
        skip_space(&p);
        if (p.at < n)
            rc = refuse_next(&p, "the end of the text");
    }
    ek_buf_release(&p.scratch);
    if (rc)
        json_decref(root);
    else
        *out = root;
    return rc;
}
