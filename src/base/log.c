#include "base/log.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_CAP 2048

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

struct line {
    char text[LINE_CAP];
    size_t len;
};

/* Two bytes stay free for the closing "}\n". */
static void put(struct line *l, const char *s, size_t n)
{
    if (n > LINE_CAP - 2 - l->len)
        return;
    memcpy(l->text + l->len, s, n);
    l->len += n;
}

static void put_json_char(struct line *l, const char *p, size_t n)
{
    char esc[7];
    unsigned char c = (unsigned char)*p;
    if (n > 1) {
        put(l, p, n);
    } else if (c == '"' || c == '\\') {
        put(l, (char[2]){'\\', (char)c}, 2);
    } else if (c < 0x20 || c >= 0x7f) {
        snprintf(esc, sizeof esc, "\\u%04x", c);
        put(l, esc, 6);
    } else {
        put(l, p, 1);
    }
}

/* One value of the field list: bare up to a space, or quoted. Returns where it ends. */
static const char *put_json_value(struct line *l, const char *p, const char *end)
{
    bool is_quoted = p < end && *p == '"';
    p += is_quoted;
    while (p < end && *p != (is_quoted ? '"' : ' ')) {
        if (is_quoted && *p == '\\' && p + 1 < end)
            p++;
        uint32_t c;
        size_t n = ek_utf8_decode(&c, p, (size_t)(end - p));
        put_json_char(l, p, n ? n : 1);
        p += n ? n : 1;
    }
    return p + (is_quoted && p < end);
}

static void put_json_fields(struct line *l, const char *p, const char *end)
{
    while (p < end) {
        const char *eq = memchr(p, '=', (size_t)(end - p));
        if (!eq)
            break;
        put(l, ",\"", 2);
        for (; p < eq; p++)
            put_json_char(l, p, 1);
        put(l, "\":\"", 3);
        p = put_json_value(l, eq + 1, end);
        put(l, "\"", 1);
        while (p < end && *p == ' ')
            p++;
    }
}

void ek_log(enum ek_log_level level, const char *event, const char *fmt, ...)
{
    int max = atomic_load_explicit(&current_level, memory_order_relaxed);
    if ((int)level > max)
        return;
    int form = atomic_load_explicit(&current_form, memory_order_relaxed);
    bool is_json = form == EK_LOG_JSON || (form == EK_LOG_AUTO && !isatty(2));

    char fields[LINE_CAP / 2] = "";
    if (fmt) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(fields, sizeof fields, fmt, args);
        va_end(args);
    }
    int64_t now_us = ek_clock_wall_us();
    time_t now = (time_t)(now_us / 1000000);
    int ms = (int)(now_us / 1000 % 1000);
    struct tm tm;
    gmtime_r(&now, &tm);

    struct line l = {.len = 0};
    char head[160], stamp[32];
    if (is_json) {
        strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(head, sizeof head,
                 "{\"ts\":\"%s.%03dZ\",\"level\":\"%s\",\"event\":\"%s\"", stamp, ms,
                 level_names[level], event);
        put(&l, head, strlen(head));
        put_json_fields(&l, fields, fields + strlen(fields));
        l.text[l.len++] = '}';
    } else {
        strftime(stamp, sizeof stamp, "%H:%M:%S", &tm);
        snprintf(head, sizeof head, "%s.%03d %s %s ", stamp, ms, level_names[level],
                 event);
        put(&l, head, strlen(head));
        put(&l, fields, strlen(fields));
    }
    l.text[l.len++] = '\n';
    ssize_t ignored = write(2, l.text, l.len);
    (void)ignored;
}
