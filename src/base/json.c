#include "base/json.h"

#include "base/json_int.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t skip_string(const char *s, size_t i, size_t n)
{
    for (i++; i < n && s[i] != '"'; i++)
        i += s[i] == '\\';
    return i < n ? i + 1 : n;
}

static bool is_scalar_byte(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           c == '-' || c == '+' || c == '.';
}

/* One pass over the brackets: enough to bound what a parser may build. */
static int check_limits(const char *s, size_t n, const struct ek_json_limits *limits,
                        struct ek_err *err)
{
    size_t max_depth = limits->max_depth ? limits->max_depth : EK_JSON_DEPTH_DEFAULT;
    if (limits->max_bytes && n > limits->max_bytes)
        return ek_err_set(err, EK_ELIMIT, "JSON of %zu bytes is over the limit of %zu",
                          n, limits->max_bytes);
    size_t depth = 0, values = 0;
    for (size_t i = 0; i < n;) {
        char c = s[i];
        if (c == '"') {
            values++;
            i = skip_string(s, i, n);
        } else if (is_scalar_byte(c)) {
            values++;
            while (i < n && is_scalar_byte(s[i]))
                i++;
        } else {
            if (c == '{' || c == '[') {
                values++;
                if (++depth > max_depth)
                    return ek_err_set(err, EK_ELIMIT,
                                      "JSON is nested deeper than %zu levels",
                                      max_depth);
            } else if ((c == '}' || c == ']') && depth > 0) {
                depth--;
            }
            i++;
        }
        if (limits->max_values && values > limits->max_values)
            return ek_err_set(err, EK_ELIMIT, "JSON holds more than %zu values",
                              limits->max_values);
    }
    return 0;
}

/* What was allocated before may be freed after: ek_free takes malloc's blocks. */
static void set_allocator(void)
{
    json_set_alloc_funcs(ek_alloc, ek_free);
}

int ek_json_parse(json_t **out, const char *text, size_t n,
                  const struct ek_json_limits *limits, struct ek_err *err)
{
    static const struct ek_json_limits none = {0};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocator);
    int rc = check_limits(text, n, limits ? limits : &none, err);
    return rc ? rc : ek_json_parse_text(out, text, n, err);
}

static int add_escaped(struct ek_buf *b, unsigned char c)
{
    switch (c) {
    case '"':
        return ek_buf_add(b, "\\\"", 2);
    case '\\':
        return ek_buf_add(b, "\\\\", 2);
    case '\n':
        return ek_buf_add(b, "\\n", 2);
    case '\r':
        return ek_buf_add(b, "\\r", 2);
    case '\t':
        return ek_buf_add(b, "\\t", 2);
    default:
        return ek_buf_addf(b, "\\u%04x", c);
    }
}

int ek_json_add_str(struct ek_buf *b, const char *s, size_t n)
{
    size_t start = b->len;
    int rc = ek_buf_add_char(b, '"');
    for (size_t i = 0; !rc && i < n;) {
        uint32_t c;
        size_t len = ek_utf8_decode(&c, s + i, n - i);
        if (len == 0) {
            len = ek_utf8_bad_length(s + i, n - i);
            rc = ek_buf_add(b, "\xef\xbf\xbd", 3);
        } else if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f) {
            rc = add_escaped(b, (unsigned char)c);
        } else {
            rc = ek_buf_add(b, s + i, len);
        }
        i += len;
    }
    if (!rc)
        rc = ek_buf_add_char(b, '"');
    if (rc) {
        b->len = start;
        if (b->data)
            b->data[start] = 0;
    }
    return rc;
}

int ek_json_add_double(struct ek_buf *b, double v)
{
    if (!isfinite(v))
        return ek_buf_add_str(b, "-9999.0");
    if (v == 0.0 && signbit(v))
        return ek_buf_add_str(b, "-0.0"); /* "-0" would be read as the integer 0 */
    char text[40];
    if (v == trunc(v) && fabs(v) < 1e15) { /* "100", where %g's shortest is "1e+02" */
        snprintf(text, sizeof text, "%.0f", v);
        return ek_buf_add_str(b, text);
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    return ek_buf_add_str(b, text);
}
