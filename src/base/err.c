#include "base/err.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* Copies `src` into dst, keeping whole printable characters; anything else becomes
 * \xNN. Ends with "..." when it does not fit. */
static void copy_printable(char *dst, size_t cap, const char *src, size_t n)
{
    size_t at = 0, i = 0, cut = 0; /* cut: the last end that leaves room for dots */
    while (i < n) {
        uint32_t c;
        size_t len = ek_utf8_decode(&c, src + i, n - i);
        char hex[5];
        const char *piece = src + i;
        size_t piece_len = len;
        if (len == 0 || c < 0x20 || (c >= 0x7f && c <= 0x9f)) {
            snprintf(hex, sizeof hex, "\\x%02x", (unsigned char)src[i]);
            piece = hex;
            piece_len = 4;
            len = 1;
        }
        if (at <= cap - 4)
            cut = at;
        if (at + piece_len > cap - 1) {
            memcpy(dst + cut, "...", 3);
            at = cut + 3;
            break;
        }
        memcpy(dst + at, piece, piece_len);
        at += piece_len;
        i += len;
    }
    dst[at] = 0;
}

int ek_err_setv(struct ek_err *err, int status, const char *fmt, va_list args)
{
    if (!err)
        return status;
    char raw[2 * EK_ERR_CAP];
    int n = vsnprintf(raw, sizeof raw, fmt, args);
    size_t len = n < 0 ? 0 : (size_t)n;
    if (len >= sizeof raw)
        len = sizeof raw - 1;
    err->status = status;
    copy_printable(err->text, sizeof err->text, raw, len);
    return status;
}

int ek_err_write(struct ek_err *err, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ek_err_setv(err, status, fmt, args);
    va_end(args);
    return status;
}

int ek_err_prefix(struct ek_err *err, const char *fmt, ...)
{
    if (!err)
        return 0;
    char old[EK_ERR_CAP];
    memcpy(old, err->text, sizeof old);
    char prefix[EK_ERR_CAP];
    va_list args;
    va_start(args, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, args);
    va_end(args);
    return ek_err_set(err, err->status, "%s: %s", prefix, old);
}
