#include "session/out.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void ek_put(struct ek_session_out *o, const void *p, size_t n)
{
    if (o->len < o->cap) {
        size_t room = o->cap - o->len;
        memcpy(o->p + o->len, p, n < room ? n : room);
    }
    o->len += n;
}

void ek_put_str(struct ek_session_out *o, const char *s)
{
    ek_put(o, s, strlen(s));
}

void ek_put_with_dot(struct ek_session_out *o, const char *text)
{
    static const char digits[] = "0123456789e+-";
    while (*text) {
        size_t n = strspn(text, digits);
        ek_put(o, text, n);
        text += n;
        n = strcspn(text, digits);
        if (n > 0)
            ek_put(o, ".", 1);
        text += n;
    }
}

void ek_put_number(struct ek_session_out *o, double v)
{
    char text[40];
    if (!isfinite(v))
        v = isnan(v) ? 0 : v > 0 ? DBL_MAX : -DBL_MAX;
    snprintf(text, sizeof text, "%.10g", v + 0.0); /* no -0 */
    ek_put_with_dot(o, text);
}

void ek_put_base64(struct ek_session_out *o, const void *p, size_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *s = p;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t v = (uint32_t)s[i] << 16;
        v |= left > 1 ? (uint32_t)s[i + 1] << 8 : 0;
        v |= left > 2 ? s[i + 2] : 0;
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63], '=', '='};
        if (left > 1)
            four[2] = digits[v >> 6 & 63];
        if (left > 2)
            four[3] = digits[v & 63];
        ek_put(o, four, 4);
    }
}
