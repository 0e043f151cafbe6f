#include "serve/out.h"

#include "base/json.h"

#include <stdarg.h>
#include <string.h>

void ek_out_add(struct ek_out *o, const char *p, size_t n)
{
    if (!o->rc)
        o->rc = ek_buf_add(o->buf, p, n);
}

void ek_out_str(struct ek_out *o, const char *s)
{
    ek_out_add(o, s, strlen(s));
}

void ek_out_printf(struct ek_out *o, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!o->rc)
        o->rc = ek_buf_addv(o->buf, fmt, args);
    va_end(args);
}

void ek_out_json(struct ek_out *o, const char *p, size_t n)
{
    if (!o->rc)
        o->rc = ek_json_add_str(o->buf, p, n);
}

void ek_out_number(struct ek_out *o, double v)
{
    if (!o->rc)
        o->rc = ek_json_add_double(o->buf, v);
}
