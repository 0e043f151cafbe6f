#include "base/log.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_CAP   4096
#define FIELDS_CAP 2048
#define NUMBER_CAP 18 /* characters; every such integer fits 64 bits */
#define TAIL_BYTES 32 /* kept free for the note that fields were left out and the end */

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* Set before threads start, read by all: relaxed is enough. */
static atomic_int current_level = EK_LOG_INFO;
static atomic_int current_form = EK_LOG_AUTO;

void ek_log_setup(enum ek_log_level level, enum ek_log_form form)
{
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
    atomic_store_explicit(&current_form, (int)form, memory_order_relaxed);
}

int ek_log_level_parse(enum ek_log_level *level, const char *name)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(level_names[i], name) == 0) {
            *level = (enum ek_log_level)i;
            return 0;
        }
    }
    return EK_EINVAL;
}

/* A line being written. What does not fit is left out and noted. */
struct line {
    char text[LINE_CAP];
    size_t len; /* <= LINE_CAP - TAIL_BYTES until the tail is put */
    bool is_cut;
};

static void put(struct line *l, const char *s, size_t n)
{
    if (n > LINE_CAP - TAIL_BYTES - l->len) {
        l->is_cut = true;
        return;
    }
    memcpy(l->text + l->len, s, n);
    l->len += n;
}

static void put_tail(struct line *l, const char *s)
{
    size_t n = strlen(s);
    memcpy(l->text + l->len, s, n);
    l->len += n;
}

/* One character of at most `n` bytes at p, escaped so that it neither ends a JSON
 * string nor acts on a terminal. Returns the bytes it took. */
static size_t put_char(struct line *l, const char *p, size_t n, bool is_json)
{
    char escaped[8];
    uint32_t c;
    size_t len = ek_utf8_decode(&c, p, n);
    if (len == 0) {
        put(l, "\xef\xbf\xbd", 3);
        return ek_utf8_bad_length(p, n);
    }
    if (c < 0x20 || (c >= 0x7f && c <= 0x9f)) {
        snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)c);
        put(l, escaped, 6);
    } else if (is_json && (c == '"' || c == '\\')) {
        put(l, "\\", 1);
        put(l, p, 1);
    } else {
        put(l, p, len);
    }
    return len;
}

/* The bytes from p on that may stand as they are, everywhere. */
static size_t plain_length(const char *p, const char *end)
{
    const char *at = p;
    while (at<end && * at> ' ' && *at < 0x7f && *at != '"' && *at != '\\')
        at++;
    return (size_t)(at - p);
}

/* Puts what stands at p, one character or many plain ones; returns its bytes. */
static size_t put_some(struct line *l, const char *p, const char *end, bool is_json)
{
    size_t n = plain_length(p, end);
    if (n == 0 || n > LINE_CAP - TAIL_BYTES - l->len)
        return put_char(l, p, (size_t)(end - p), is_json);
    put(l, p, n);
    return n;
}

static void put_text_fields(struct line *l, const char *p, const char *end)
{
    if (p < end)
        put(l, " ", 1);
    while (p < end)
        p += put_some(l, p, end, false);
}

/* A bare value ends at a space; a quoted one at a quote before a space or the end, so
 * that a quote in a value nobody escaped does not tear the line apart. */
static bool ends_value(const char *p, const char *end, bool is_quoted)
{
    if (p == end)
        return true;
    if (!is_quoted)
        return *p == ' ';
    return *p == '"' && (p + 1 == end || p[1] == ' ');
}

/* Bytes of the bare value at p when it is a number as JSON writes it, else 0. No
 * exponent: 12e5 is rather an id. One that ends where the fields were cut may be half
 * of another. */
static size_t number_length(const char *p, const char *end, bool is_cut)
{
    const char *at = p + (p < end && *p == '-'), *digits = at;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    if (at == digits || (*digits == '0' && at - digits > 1))
        return 0;
    if (at < end && *at == '.') {
        const char *fraction = ++at;
        while (at < end && *at >= '0' && *at <= '9')
            at++;
        if (at == fraction)
            return 0;
    }
    if (at < end ? *at != ' ' : is_cut)
        return 0;
    return at - p <= NUMBER_CAP ? (size_t)(at - p) : 0;
}

/* One value of the field list. Returns where the next field may begin. */
static const char *put_json_value(struct line *l, const char *p, const char *end,
                                  bool is_cut)
{
    size_t n = number_length(p, end, is_cut);
    if (n > 0) {
        put(l, p, n);
        return p + n;
    }
    bool is_quoted = p < end && *p == '"';
    p += is_quoted;
    put(l, "\"", 1);
    while (!ends_value(p, end, is_quoted)) {
        if (is_quoted && *p == '\\' && p + 1 < end)
            p++;
        p += put_some(l, p, end, true);
    }
    put(l, "\"", 1);
    return p + (is_quoted && p < end);
}

static void put_json_fields(struct line *l, const char *p, const char *end, bool is_cut)
{
    while (p < end) {
        const char *eq = memchr(p, '=', (size_t)(end - p));
        if (!eq)
            break;
        size_t start = l->len;
        put(l, ",\"", 2);
        while (p < eq)
            p += put_some(l, p, eq, true);
        put(l, "\":", 2);
        p = put_json_value(l, eq + 1, end, is_cut);
        if (l->is_cut) { /* half a field is no JSON */
            l->len = start;
            break;
        }
        while (p < end && *p == ' ')
            p++;
    }
}

/* n, in `width` digits, at out. */
static void put_digits(char *out, int width, int n)
{
    for (int i = width - 1; i >= 0; i--, n /= 10)
        out[i] = (char)('0' + n % 10);
}

static void put_text(struct line *l, const char *s)
{
    put(l, s, strlen(s));
}

static void put_head(struct line *l, enum ek_log_level level, const char *event,
                     bool is_json)
{
    int64_t now_us = ek_clock_wall_us();
    time_t now = (time_t)(now_us / 1000000);
    struct tm tm;
    char stamp[] = "0000-00-00T00:00:00.000Z";
    gmtime_r(&now, &tm);
    put_digits(stamp, 4, tm.tm_year + 1900);
    put_digits(stamp + 5, 2, tm.tm_mon + 1);
    put_digits(stamp + 8, 2, tm.tm_mday);
    put_digits(stamp + 11, 2, tm.tm_hour);
    put_digits(stamp + 14, 2, tm.tm_min);
    put_digits(stamp + 17, 2, tm.tm_sec);
    put_digits(stamp + 20, 3, (int)(now_us / 1000 % 1000));
    size_t event_n = strnlen(event, 64);
    if (is_json) {
        put_text(l, "{\"ts\":\"");
        put(l, stamp, 24);
        put_text(l, "\",\"level\":\"");
        put_text(l, level_names[level]);
        put_text(l, "\",\"event\":\"");
        put(l, event, event_n);
        put(l, "\"", 1);
    } else {
        put(l, stamp + 11, 12);
        put(l, " ", 1);
        put_text(l, level_names[level]);
        put(l, " ", 1);
        put(l, event, event_n);
    }
}

static bool is_wanted(enum ek_log_level level)
{
    return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

static bool writes_json(void)
{
    int form = atomic_load_explicit(&current_form, memory_order_relaxed);
    return form == EK_LOG_JSON || (form == EK_LOG_AUTO && !isatty(2));
}

static void make_line(struct line *l, enum ek_log_level level, const char *event,
                      bool is_json, const char *fmt, va_list args) EK_PRINTF(5, 0);

static void make_line(struct line *l, enum ek_log_level level, const char *event,
                      bool is_json, const char *fmt, va_list args)
{
    char fields[FIELDS_CAP];
    size_t n_fields = 0;
    bool is_cut = false;
    if (fmt) {
        int n = vsnprintf(fields, sizeof fields, fmt, args);
        is_cut = n < 0 || (size_t)n >= sizeof fields;
        n_fields = n < 0 ? 0 : is_cut ? sizeof fields - 1 : (size_t)n;
    }
    l->len = 0;
    l->is_cut = false;
    put_head(l, level, event, is_json);
    if (is_json)
        put_json_fields(l, fields, fields + n_fields, is_cut);
    else
        put_text_fields(l, fields, fields + n_fields);
    if (is_cut || l->is_cut)
        put_tail(l, is_json ? ",\"cut\":\"true\"" : " cut=true");
    put_tail(l, is_json ? "}\n" : "\n");
}

static void write_out(const char *p, size_t n)
{
    ssize_t ignored = write(2, p, n);
    (void)ignored;
}

void ek_log(enum ek_log_level level, const char *event, const char *fmt, ...)
{
    struct line l;
    va_list args;
    if (!is_wanted(level))
        return;
    va_start(args, fmt);
    make_line(&l, level, event, writes_json(), fmt, args);
    va_end(args);
    write_out(l.text, l.len);
}

void ek_log_add(struct ek_log_lines *lines, enum ek_log_level level, const char *event,
                const char *fmt, ...)
{
    struct line l;
    va_list args;
    if (!is_wanted(level))
        return;
    if (lines->len == 0)
        lines->is_json = writes_json();
    va_start(args, fmt);
    make_line(&l, level, event, lines->is_json, fmt, args);
    va_end(args);
    if (l.len > sizeof lines->text - lines->len)
        ek_log_flush(lines);
    memcpy(lines->text + lines->len, l.text, l.len);
    lines->len += l.len;
}

void ek_log_flush(struct ek_log_lines *lines)
{
    if (lines->len > 0)
        write_out(lines->text, lines->len);
    lines->len = 0;
}

const char *ek_log_quote(char *out, size_t cap, const char *s)
{
    size_t n = 0;
    for (; *s && n + 2 < cap; s++) {
        if (*s == '"' || *s == '\\')
            out[n++] = '\\';
        out[n++] = *s;
    }
    out[n] = 0;
    return out;
}
