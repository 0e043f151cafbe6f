#include "data/template_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* str.format, the % operator on strings, strftime_now. */

/* [[fill]align][sign][0][width][.precision][type], of format() and, in part, of %. */
struct spec {
    uint32_t fill;
    char align; /* '<' '>' '^' '=' or 0 */
    char sign;  /* '+' ' ' or 0 */
    bool has_comma;
    int64_t width, precision; /* -1: not given */
    char type;                /* 0: not given */
};

static bool read_number(const char **p, const char *end, int64_t *out)
{
    if (*p == end || **p < '0' || **p > '9')
        return false;
    for (*out = 0; *p < end && **p >= '0' && **p <= '9' && *out < 1000000; (*p)++)
        *out = *out * 10 + (**p - '0');
    return true;
}

static bool parse_spec(struct spec *f, const struct ek_tpl_str *s)
{
    const char *p = s->p, *end = s->p + s->n;
    *f = (struct spec){.fill = ' ', .width = -1, .precision = -1};
    uint32_t c;
    size_t len = s->n ? ek_tpl_char(s, 0, &c) : 0;
    if (len && len < s->n && strchr("<>^=", p[len]) && p[len]) {
        f->fill = c;
        p += len;
        f->align = *p++;
    } else if (p < end && *p && strchr("<>^=", *p)) {
        f->align = *p++;
    }
    if (p < end && *p && strchr("+- ", *p))
        f->sign = *p == '-' ? 0 : *p, p++;
    if (p < end && *p == '0') {
        if (!f->align) {
            f->align = '=';
            f->fill = '0';
        }
        p++;
    }
    read_number(&p, end, &f->width);
    if (p < end && *p == ',') {
        f->has_comma = true;
        p++;
    }
    if (p < end && *p == '.') {
        p++;
        if (!read_number(&p, end, &f->precision))
            return false;
    }
    if (p < end)
        f->type = *p++;
    return p == end;
}

/* text with its padding; `sign` characters of it stay in front of '=' padding. */
static int put_padded(struct ek_tpl_rt *rt, const struct spec *f,
                      const struct ek_tpl_str *text, size_t sign, char align)
{
    int64_t pad = f->width - (int64_t)text->n_chars;
    int64_t left = align == '^' ? pad / 2 : align == '<' ? 0 : pad, right = pad - left;
    int rc = 0;
    if (align != '=')
        sign = 0;
    rc = ek_tpl_put_sub(rt, text, 0, sign);
    for (int64_t i = 0; !rc && i < left; i++)
        rc = ek_tpl_put_char(rt, f->fill, false);
    if (!rc)
        rc = ek_tpl_put_sub(rt, text, sign, text->n);
    for (int64_t i = 0; !rc && pad > 0 && i < right; i++)
        rc = ek_tpl_put_char(rt, f->fill, false);
    return rc;
}

static int put_number(struct ek_tpl_rt *rt, const struct spec *f,
                      const struct ek_tpl_val *v)
{
    char text[512], sign[2] = {f->sign, 0};
    int64_t i;
    bool is_int = ek_tpl_is_integer(v, &i);
    char type = f->type ? f->type : is_int ? 'd' : 'g';
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    const char *plus = v->kind == EK_TPL_FLOAT || is_int ? sign : "";
    double d = ek_tpl_to_double(v);
    if (is_int ? i < 0 : d < 0)
        plus = "";
    if (precision > 100 || f->has_comma)
        return ek_tpl_fail(rt, EK_EUNSUP, "this number format is not interpreted");
    if (is_int && type == 'd')
        snprintf(text, sizeof text, "%s%" PRId64, plus, i);
    else if (is_int && (type == 'x' || type == 'X' || type == 'o') && i >= 0)
        snprintf(text, sizeof text,
                 type == 'x'   ? "%s%" PRIx64
                 : type == 'X' ? "%s%" PRIX64
                               : "%s%" PRIo64,
                 plus, (uint64_t)i);
    else if (type == 'f' || type == 'F')
        snprintf(text, sizeof text, "%s%.*f", plus, precision, d);
    else if (type == 'e')
        snprintf(text, sizeof text, "%s%.*e", plus, precision, d);
    else if (type == 'g' && f->type)
        snprintf(text, sizeof text, "%s%.*g", plus, precision, d);
    else if (type == '%')
        snprintf(text, sizeof text, "%s%.*f%%", plus, precision, d * 100);
    else if (!f->type && f->precision < 0 && !is_int) {
        memcpy(text, sign, 2);
        if (!*plus)
            text[0] = 0;
        ek_tpl_float_text(text + strlen(text), d);
    } else
        return ek_tpl_fail(rt, EK_EUNSUP, "number format '%c' is not interpreted",
                           type);
    struct ek_tpl_val s;
    int rc = ek_tpl_str_new(rt, &s, text, strlen(text), v->is_plain);
    size_t n_sign = text[0] == '-' || text[0] == '+' || text[0] == ' ';
    return rc ? rc : put_padded(rt, f, s.s, n_sign, f->align ? f->align : '>');
}

static int put_formatted(struct ek_tpl_rt *rt, const struct ek_tpl_val *v,
                         const struct ek_tpl_str *spec)
{
    struct spec f;
    if (spec->n == 0)
        return ek_tpl_put_val(rt, v);
    if (!parse_spec(&f, spec))
        return ek_tpl_fail(rt, EK_EFORMAT, "invalid format '%.*s'",
                           (int)(spec->n > 80 ? 80 : spec->n), spec->p);
    if (v->kind == EK_TPL_INT || v->kind == EK_TPL_FLOAT ||
        (v->kind == EK_TPL_BOOL && f.type))
        return put_number(rt, &f, v);
    if (v->kind != EK_TPL_STR || (f.type && f.type != 's') || f.sign ||
        f.align == '=' || f.has_comma)
        return ek_tpl_fail(rt, EK_EFORMAT,
                           "format '%.*s' does not fit a value of type '%s'",
                           (int)(spec->n > 80 ? 80 : spec->n), spec->p, ek_tpl_type(v));
    struct ek_tpl_val cut;
    size_t to = v->s->n;
    if (f.precision >= 0 && (size_t)f.precision < v->s->n_chars)
        to = ek_tpl_str_offset(v->s, (size_t)f.precision);
    int rc = ek_tpl_str_sub(rt, &cut, v->s, 0, to);
    return rc ? rc : put_padded(rt, &f, cut.s, 0, f.align ? f.align : '<');
}

struct field { /* "{name!conversion:spec}" at bytes of the format string */
    size_t name, name_end, spec, spec_end;
    char conversion;
};

/* The field whose '{' is before `at`: the byte behind its '}', or 0. */
static size_t parse_field(struct field *f, const struct ek_tpl_str *s, size_t at)
{
    *f = (struct field){.name = at};
    while (at < s->n && !strchr("!:}{", s->p[at] ? s->p[at] : '{'))
        at++;
    f->name_end = f->spec = f->spec_end = at;
    if (at + 1 < s->n && s->p[at] == '!') {
        f->conversion = s->p[at + 1];
        at += 2;
    }
    if (at < s->n && s->p[at] == ':') {
        f->spec = ++at;
        while (at < s->n && s->p[at] != '}' && s->p[at] != '{')
            at++;
        f->spec_end = at;
    }
    return at < s->n && s->p[at] == '}' ? at + 1 : 0;
}

/* The value a field names: {} {0} {name}, then .attribute and [key]. */
static int field_value(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                       const struct ek_tpl_str *s, const struct field *f,
                       const struct ek_tpl_args *args, int64_t *next)
{
    const char *p = s->p + f->name, *end = s->p + f->name_end;
    const char *from = p;
    int64_t i;
    while (p < end && *p != '.' && *p != '[')
        p++;
    const char *digits = from;
    if (p == from || (read_number(&digits, p, &i) && digits == p)) {
        if (p == from)
            i = (*next)++;
        if (i < 0 || (size_t)i >= args->n_pos)
            return ek_tpl_fail(rt, EK_EFORMAT, "format() has no value %lld",
                               (long long)i);
        *out = args->pos[i];
    } else {
        const struct ek_tpl_val *kw =
            ek_tpl_dict_get_text(args->kw, from, (size_t)(p - from));
        if (!kw)
            return ek_tpl_fail(rt, EK_EFORMAT, "format() has no value '%.*s'",
                               (int)(p - from), from);
        *out = *kw;
    }
    if (p < end)
        return ek_tpl_fail(rt, EK_EUNSUP,
                           "attributes in a format field are not interpreted");
    return 0;
}

static int put_field(struct ek_tpl_rt *rt, const struct ek_tpl_str *s,
                     const struct field *f, const struct ek_tpl_args *args,
                     int64_t *next)
{
    struct ek_tpl_val v, spec;
    int rc = field_value(rt, &v, s, f, args, next);
    if (!rc && f->conversion && f->conversion != 's' && f->conversion != 'r')
        rc = ek_tpl_fail(rt, EK_EUNSUP, "conversion '!%c' is not interpreted",
                         f->conversion);
    if (!rc && f->conversion) {
        size_t at = ek_tpl_begin(rt);
        rc = f->conversion == 'r' ? ek_tpl_put_repr(rt, &v) : ek_tpl_put_val(rt, &v);
        if (!rc)
            rc = ek_tpl_end(rt, &v, at);
    }
    if (!rc)
        rc = ek_tpl_str_sub(rt, &spec, s, f->spec, f->spec_end);
    return rc ? rc : put_formatted(rt, &v, spec.s);
}

int ek_tpl_format(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                  const struct ek_tpl_str *s, const struct ek_tpl_args *args)
{
    size_t start = ek_tpl_begin(rt);
    int64_t next = 0;
    int rc = 0;
    if (s->is_markup)
        return ek_tpl_fail(rt, EK_EUNSUP,
                           "format() of a safe string is not interpreted");
    for (size_t at = 0; !rc && at < s->n;) {
        size_t from = at;
        while (at < s->n && s->p[at] != '{' && s->p[at] != '}')
            at++;
        rc = ek_tpl_put_sub(rt, s, from, at);
        if (rc || at == s->n)
            break;
        if (at + 1 < s->n && s->p[at + 1] == s->p[at]) {
            rc = ek_tpl_put_sub(rt, s, at, at + 1);
            at += 2;
            continue;
        }
        struct field f;
        size_t end = s->p[at] == '{' ? parse_field(&f, s, at + 1) : 0;
        if (end == 0)
            return ek_tpl_fail(rt, EK_EFORMAT, "format(): a single '%c' in the string",
                               s->p[at]);
        rc = put_field(rt, s, &f, args, &next);
        at = end;
    }
    return rc ? rc : ek_tpl_end(rt, out, start);
}

/* One "%..." at s[at] (behind the sign); v is its value. */
static int put_percent(struct ek_tpl_rt *rt, const struct spec *f, char type,
                       const struct ek_tpl_val *v)
{
    struct ek_tpl_val text = *v;
    int64_t i;
    if (type == 's' || type == 'r') {
        size_t at = ek_tpl_begin(rt);
        int rc = type == 'r' ? ek_tpl_put_repr(rt, v) : ek_tpl_put_val(rt, v);
        if (!rc)
            rc = ek_tpl_end(rt, &text, at);
        if (!rc && f->precision >= 0 && (size_t)f->precision < text.s->n_chars)
            rc = ek_tpl_str_sub(rt, &text, text.s, 0,
                                ek_tpl_str_offset(text.s, (size_t)f->precision));
        return rc ? rc : put_padded(rt, f, text.s, 0, f->align == '<' ? '<' : '>');
    }
    if (v->kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, v);
    if (!ek_tpl_is_number(v))
        return ek_tpl_fail(rt, EK_EFORMAT,
                           "'%%%c' needs a number, not a value of type '%s'", type,
                           ek_tpl_type(v));
    struct spec number = *f;
    number.type = type == 'i' || type == 'u' ? 'd' : type;
    if (number.type == 'd' && !ek_tpl_is_integer(v, &i)) {
        if (!(v->f > -9e18 && v->f < 9e18))
            return ek_tpl_fail(rt, EK_ELIMIT, "an integer does not fit 64 bits");
        text = ek_tpl_int((int64_t)v->f);
    }
    if (f->precision >= 0 && number.type == 'd')
        return ek_tpl_fail(rt, EK_EUNSUP, "this number format is not interpreted");
    return put_number(rt, &number, &text);
}

static size_t parse_percent(struct spec *f, const struct ek_tpl_str *s, size_t at)
{
    const char *p = s->p + at, *end = s->p + s->n;
    *f = (struct spec){.fill = ' ', .width = -1, .precision = -1};
    for (; p < end && *p && strchr("-+ 0", *p); p++) {
        if (*p == '-')
            f->align = '<';
        else if (*p == '0' && f->align != '<')
            f->align = '=';
        else if (*p != '0')
            f->sign = *p;
    }
    if (f->align == '=')
        f->fill = '0';
    read_number(&p, end, &f->width);
    if (p < end && *p == '.') {
        p++;
        if (!read_number(&p, end, &f->precision))
            f->precision = 0;
    }
    return (size_t)(p - s->p);
}

struct percent { /* where the values of the % operator come from */
    const struct ek_tpl_val *arg;
    size_t next, n;
};

/* The value of the field at *at: "(key)" or the next one. */
static int percent_value(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                         struct percent *from, const struct ek_tpl_str *s, size_t *at)
{
    if (*at < s->n && s->p[*at] == '(') {
        const char *end = memchr(s->p + *at, ')', s->n - *at);
        if (!end || from->arg->kind != EK_TPL_DICT)
            return ek_tpl_fail(rt, EK_EFORMAT, "'%%(name)' needs a dict");
        size_t n = (size_t)(end - s->p) - *at - 1;
        const struct ek_tpl_val *v =
            ek_tpl_dict_get_text(from->arg->d, s->p + *at + 1, n);
        if (!v)
            return ek_tpl_fail(rt, EK_EFORMAT, "'%%': the dict has no such key");
        *at += n + 2;
        *out = *v;
        return 0;
    }
    if (from->next == from->n)
        return ek_tpl_fail(rt, EK_EFORMAT, "'%%': not enough values");
    *out = from->arg->kind == EK_TPL_TUPLE ? from->arg->l->v[from->next] : *from->arg;
    from->next++;
    return 0;
}

int ek_tpl_percent(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_str *s, const struct ek_tpl_val *arg)
{
    size_t start = ek_tpl_begin(rt);
    struct percent from = {arg, 0, arg->kind == EK_TPL_TUPLE ? arg->l->n : 1};
    int rc = 0;
    if (s->is_markup)
        return ek_tpl_fail(rt, EK_EUNSUP, "'%%' of a safe string is not interpreted");
    for (size_t at = 0; !rc && at < s->n;) {
        size_t text = at;
        while (at < s->n && s->p[at] != '%')
            at++;
        rc = ek_tpl_put_sub(rt, s, text, at);
        if (rc || at == s->n)
            break;
        struct ek_tpl_val v;
        struct spec f;
        if (++at < s->n && s->p[at] == '%') {
            rc = ek_tpl_put_sub(rt, s, at, at + 1);
            at++;
            continue;
        }
        rc = percent_value(rt, &v, &from, s, &at);
        if (rc)
            return rc;
        at = parse_percent(&f, s, at);
        if (at == s->n || !s->p[at] || !strchr("srdiuxXofFeg", s->p[at]))
            return ek_tpl_fail(rt, EK_EUNSUP, "'%%': this format is not interpreted");
        rc = put_percent(rt, &f, s->p[at++], &v);
    }
    if (!rc && from.next < from.n && arg->kind != EK_TPL_DICT &&
        arg->kind != EK_TPL_LIST && arg->kind != EK_TPL_RANGE &&
        arg->kind != EK_TPL_UNDEF)
        rc = ek_tpl_fail(rt, EK_EFORMAT, "'%%': not all values were used");
    return rc ? rc : ek_tpl_end(rt, out, start);
}

int ek_tpl_strftime(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                    const struct ek_tpl_str *format)
{
    time_t seconds = (time_t)(rt->now_us / 1000000);
    struct tm tm;
    char f[256], text[1024];
    if (format->n >= sizeof f || memchr(format->p, 0, format->n))
        return ek_tpl_fail(rt, EK_ELIMIT,
                           "the format of strftime_now() is longer than %zu",
                           sizeof f - 1);
    memcpy(f, format->p, format->n);
    f[format->n] = 0;
    if (!localtime_r(&seconds, &tm))
        return ek_tpl_fail(rt, EK_EFORMAT, "the time is outside the calendar");
    size_t n = 0;
    if (f[0]) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        n = strftime(text, sizeof text, f, &tm);
#pragma GCC diagnostic pop
    }
    size_t at = ek_tpl_begin(rt);
    int rc = ek_tpl_put(rt, text, n, false);
    return rc ? rc : ek_tpl_end(rt, out, at);
}
