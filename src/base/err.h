/* err.h - the sentence a person reads when something at a border failed.
 *
 * It names the file, line, key and value and what would be right:
 *   model.gguf: tensor 'blk.3.ffn_up.weight': offset 0x5f00000 + 1.5 MiB is past the
 *   end of the file (97.8 MiB)
 * The struct lives in the caller's frame; a NULL `err` is allowed everywhere.
 */
#ifndef EVENKEEL_BASE_ERR_H
#define EVENKEEL_BASE_ERR_H

#include "base/status.h"

#include <stdarg.h>
#include <stddef.h>

#define EK_ERR_CAP 1024 /* a longer sentence is cut at a whole character, with "..." */

struct ek_err {
    int status;            /* 0 or EK_E* */
    char text[EK_ERR_CAP]; /* NUL-terminated UTF-8 without control characters */
};

/* Empty: status 0, text "". */
#define EK_ERR_INIT                                                                    \
    {                                                                                  \
        0, ""                                                                          \
    }

/* Writes status and the formatted sentence into `err` (if not NULL) and returns
 * `status`, so a failing function ends with `return ek_err_set(err, ...)`.
 * Bytes that are not UTF-8 and control characters are written as \xNN.
 * Cannot fail, does not allocate. A macro, which evaluates `status` twice. */
#define ek_err_set(err, status, ...)                                                   \
    ek_err_as(status, ek_err_write(err, status, __VA_ARGS__))
int ek_err_write(struct ek_err *err, int status, const char *fmt, ...) EK_PRINTF(3, 4);
int ek_err_setv(struct ek_err *err, int status, const char *fmt, va_list args)
    EK_PRINTF(3, 0);

/* Puts "<prefix>: " before the sentence that is there; for callers that know the file
 * or key while the callee does not. Returns err's status (0 if err is NULL). */
int ek_err_prefix(struct ek_err *err, const char *fmt, ...) EK_PRINTF(2, 3);

/* The status of a variadic function that always returns the one it was given: static
 * analysis looks into no variadic function, and would take failure for success. */
static inline int ek_err_as(int status, int returned)
{
    (void)returned;
    return status;
}

#endif
