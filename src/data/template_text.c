#include "base/utf8.h"
#include "data/template_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Values as text: Python's str() and repr(). */

/* The shortest digits that read back as f, as d.ddde[+-]xx. */
static void shortest(char *text, size_t cap, double f)
{
    for (int digits = 0; digits < 17; digits++) {
        snprintf(text, cap, "%.*e", digits, f);
        if (strtod(text, NULL) == f)
            return;
    }
}

void ek_tpl_float_text(char out[40], double f)
{
    if (isnan(f) || isinf(f)) {
        snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char text[32];
    shortest(text, sizeof text, f);
    char *e = strchr(text, 'e');
    int exp = (int)strtol(e + 1, NULL, 10);
    if (exp >= -4 && exp < 16) {
        int digits = (int)(e - text) - (text[0] == '-') - 1;
        int places = (digits > 0 ? digits - 1 : 0) - exp;
        snprintf(out, 40, "%.*f", places < 1 ? 1 : places, f);
        return;
    }
    *e = 0;
    snprintf(out, 40, "%.25se%c%02d", text, exp < 0 ? '-' : '+', abs(exp));
}

static int put_scalar(struct ek_tpl_rt *rt, const struct ek_tpl_val *v, bool is_plain)
{
    char text[40];
    switch (v->kind) {
    case EK_TPL_NONE:
        return ek_tpl_put_text(rt, "None", is_plain);
    case EK_TPL_BOOL:
        return ek_tpl_put_text(rt, v->b ? "True" : "False", is_plain);
    case EK_TPL_INT:
        snprintf(text, sizeof text, "%" PRId64, v->i);
        return ek_tpl_put_text(rt, text, is_plain);
    default:
        ek_tpl_float_text(text, v->f);
        return ek_tpl_put_text(rt, text, is_plain);
    }
}

static bool is_printable(uint32_t c)
{
    if (c < 0x7f)
        return c >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static int put_repr_char(struct ek_tpl_rt *rt, const struct ek_tpl_str *s, size_t i,
                         char quote)
{
    uint32_t c;
    size_t len = ek_tpl_char(s, i, &c);
    char text[16];
    if (c == '\n' || c == '\r' || c == '\t')
        snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (c == '\\' || c == (unsigned char)quote)
        snprintf(text, sizeof text, "\\%c", (char)c);
    else if (is_printable(c))
        return ek_tpl_put_sub(rt, s, i, i + len);
    else if (c < 0x100)
        snprintf(text, sizeof text, "\\x%02x", c);
    else
        snprintf(text, sizeof text, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    return ek_tpl_put_text(rt, text, ek_tpl_plain_at(s, i));
}

static int put_repr_str(struct ek_tpl_rt *rt, const struct ek_tpl_str *s)
{
    bool has_single = memchr(s->p, '\'', s->n), has_double = memchr(s->p, '"', s->n);
    char quote = has_single && !has_double ? '"' : '\'';
    bool is_plain = s->is_plain || s->mark;
    int rc = 0;
    if (s->is_markup)
        rc = ek_tpl_put_text(rt, "Markup(", false);
    if (!rc)
        rc = ek_tpl_put(rt, &quote, 1, is_plain);
    for (size_t i = 0; !rc && i < s->n;) {
        uint32_t c;
        rc = put_repr_char(rt, s, i, quote);
        i += ek_tpl_char(s, i, &c);
    }
    if (!rc)
        rc = ek_tpl_put(rt, &quote, 1, is_plain);
    if (!rc && s->is_markup)
        rc = ek_tpl_put_text(rt, ")", false);
    return rc;
}

static int put_repr_list(struct ek_tpl_rt *rt, const struct ek_tpl_val *v);

static int put_repr_view(struct ek_tpl_rt *rt, const struct ek_tpl_val *v)
{
    struct ek_tpl_val list = *v;
    list.kind = EK_TPL_LIST;
    const char *name = v->view == 'k'   ? "dict_keys("
                       : v->view == 'v' ? "dict_values("
                                        : "dict_items(";
    int rc = ek_tpl_put_text(rt, name, v->is_plain);
    if (!rc)
        rc = put_repr_list(rt, &list);
    return rc ? rc : ek_tpl_put_text(rt, ")", v->is_plain);
}

static int put_repr_list(struct ek_tpl_rt *rt, const struct ek_tpl_val *v)
{
    bool is_tuple = v->kind == EK_TPL_TUPLE;
    int rc = ek_tpl_put_text(rt, is_tuple ? "(" : "[", v->is_plain);
    for (size_t i = 0; !rc && i < v->l->n; i++) {
        if (i)
            rc = ek_tpl_put_text(rt, ", ", v->is_plain);
        if (!rc)
            rc = ek_tpl_put_repr(rt, &v->l->v[i]);
    }
    if (!rc && is_tuple && v->l->n == 1)
        rc = ek_tpl_put_text(rt, ",", v->is_plain);
    return rc ? rc : ek_tpl_put_text(rt, is_tuple ? ")" : "]", v->is_plain);
}

static int put_repr_dict(struct ek_tpl_rt *rt, const struct ek_tpl_val *v)
{
    int rc = ek_tpl_put_text(rt, "{", v->is_plain);
    for (size_t i = 0; !rc && i < v->d->n; i++) {
        if (i)
            rc = ek_tpl_put_text(rt, ", ", v->is_plain);
        if (!rc)
            rc = ek_tpl_put_repr(rt, &v->d->keys[i]);
        if (!rc)
            rc = ek_tpl_put_text(rt, ": ", v->is_plain);
        if (!rc)
            rc = ek_tpl_put_repr(rt, &v->d->vals[i]);
    }
    return rc ? rc : ek_tpl_put_text(rt, "}", v->is_plain);
}

static int put_repr_deep(struct ek_tpl_rt *rt, const struct ek_tpl_val *v)
{
    switch (v->kind) {
    case EK_TPL_STR:
        return put_repr_str(rt, v->s);
    case EK_TPL_LIST:
    case EK_TPL_TUPLE:
        return put_repr_list(rt, v);
    case EK_TPL_VIEW:
        return put_repr_view(rt, v);
    case EK_TPL_DICT:
        return put_repr_dict(rt, v);
    default:
        return ek_tpl_fail(rt, EK_EUNSUP,
                           "a value of type '%s' as text is not interpreted",
                           ek_tpl_type(v));
    }
}

int ek_tpl_put_repr(struct ek_tpl_rt *rt, const struct ek_tpl_val *v)
{
    if (v->kind == EK_TPL_UNDEF)
        return ek_tpl_put_text(rt, "Undefined", false);
    if (v->kind == EK_TPL_NONE || ek_tpl_is_number(v))
        return put_scalar(rt, v, v->is_plain);
    int rc = ek_tpl_down(rt);
    if (rc)
        return rc;
    rc = put_repr_deep(rt, v);
    rt->depth--;
    return rc;
}

int ek_tpl_put_val(struct ek_tpl_rt *rt, const struct ek_tpl_val *v)
{
    if (v->kind == EK_TPL_UNDEF)
        return 0;
    if (v->kind == EK_TPL_STR)
        return ek_tpl_put_sub(rt, v->s, 0, v->s->n);
    return ek_tpl_put_repr(rt, v);
}

int ek_tpl_to_str(struct ek_tpl_rt *rt, const struct ek_tpl_str **out,
                  const struct ek_tpl_val *v)
{
    struct ek_tpl_val text = *v;
    int rc = 0;
    if (v->kind != EK_TPL_STR) {
        size_t at = ek_tpl_begin(rt);
        rc = ek_tpl_put_val(rt, v);
        if (!rc)
            rc = ek_tpl_end(rt, &text, at);
    }
    if (!rc)
        *out = text.s;
    return rc;
}
