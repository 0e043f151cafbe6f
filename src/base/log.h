/* log.h - leveled logging to standard error: text on a terminal, one JSON object a
 * line otherwise. Events are names, facts are fields, so that both forms say the same:
 *   ek_log(EK_LOG_INFO, "server_started", "listen=%s threads=%d", addr, n);
 * text   12:00:03.120 info server_started listen=127.0.0.1:8080 threads=2
 * JSON   {"ts":"2026-01-02T12:00:03.120Z","level":"info","event":"server_started",
 *         "listen":"127.0.0.1:8080","threads":2}
 * Threads: any; a line is one write. Prompts and answers are never logged.
 */
#ifndef EVENKEEL_BASE_LOG_H
#define EVENKEEL_BASE_LOG_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum ek_log_level { EK_LOG_ERROR, EK_LOG_WARN, EK_LOG_INFO, EK_LOG_DEBUG };
enum ek_log_form { EK_LOG_AUTO, EK_LOG_TEXT, EK_LOG_JSON };

/* Process-wide settings; call before threads start. Default: info, auto. */
void ek_log_setup(enum ek_log_level level, enum ek_log_form form);

/* "error" | "warn" | "info" | "debug" -> *level; EK_EINVAL otherwise. */
int ek_log_level_parse(enum ek_log_level *level, const char *name) EK_MUST_USE;

/* fmt yields `key=value` fields separated by spaces; a value with spaces is written
 * key="...", with \" and \\ escaped. fmt may be NULL. In JSON a value without quotes
 * that is a decimal number (-1, 0.25; no exponent, no leading zeros, at most 18
 * characters) is a number, every other one a string: write a text that may look like a
 * number in quotes. Control characters are written \u00NN. Fields past 2 KiB are cut,
 * and cut=true says so. Cannot fail. */
void ek_log(enum ek_log_level level, const char *event, const char *fmt, ...)
    EK_PRINTF(3, 4);

/* Lines of one thread that are written together: many short ones cost one write. What
 * is gathered and not flushed is lost with the process. Zeroed: empty.
 * Threads: the owner's. */
enum { EK_LOG_LINES_BYTES = 16384 };
struct ek_log_lines {
    size_t len;   /* of text */
    bool is_json; /* the form of what is gathered */
    char text[EK_LOG_LINES_BYTES];
};

/* As ek_log, gathered; a full one is flushed first. */
void ek_log_add(struct ek_log_lines *lines, enum ek_log_level level, const char *event,
                const char *fmt, ...) EK_PRINTF(4, 5);
void ek_log_flush(struct ek_log_lines *lines);

/* s as the inside of a quoted value of fmt: for text that others chose. Writes at most
 * cap >= 3 bytes, NUL included; what does not fit is left out. Returns out. */
const char *ek_log_quote(char *out, size_t cap, const char *s);

#endif
