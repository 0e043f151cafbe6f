#include "data/template_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Filters on one value; those on sequences are in template_filter_seq.c. */

#define FILTER(name)                                                                   \
    static int name(struct ek_tpl_rt *rt, struct ek_tpl_val *out,                      \
                    const struct ek_tpl_val *self, const struct ek_tpl_args *args)

static int no_args(struct ek_tpl_rt *rt, const struct ek_tpl_args *args)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    return ek_tpl_bind(rt, v, args, "");
}

static bool is_given(const struct ek_tpl_val *v)
{
    return v->kind != EK_TPL_MISSING && v->kind != EK_TPL_NONE;
}

FILTER(f_trim)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    const struct ek_tpl_str *s;
    int rc = ek_tpl_bind(rt, v, args, "| chars");
    if (!rc)
        rc = ek_tpl_to_str(rt, &s, self);
    return rc ? rc : ek_tpl_strip(rt, out, s, &v[0], EK_TPL_LEFT | EK_TPL_RIGHT);
}

FILTER(f_string)
{
    const struct ek_tpl_str *s;
    int rc = no_args(rt, args);
    if (!rc)
        rc = ek_tpl_to_str(rt, &s, self);
    if (!rc)
        *out = (struct ek_tpl_val){.kind = EK_TPL_STR, .s = s};
    return rc;
}

static int change_case(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                       const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                       enum ek_tpl_case how)
{
    const struct ek_tpl_str *s;
    int rc = no_args(rt, args);
    if (!rc)
        rc = ek_tpl_to_str(rt, &s, self);
    return rc ? rc : ek_tpl_case(rt, out, s, how);
}

FILTER(f_upper)
{
    return change_case(rt, out, self, args, EK_TPL_UPPER);
}

FILTER(f_lower)
{
    return change_case(rt, out, self, args, EK_TPL_LOWER);
}

FILTER(f_capitalize)
{
    return change_case(rt, out, self, args, EK_TPL_CAPITALIZE);
}

/* Unlike str.title, words are parted by spaces, hyphens and opening brackets only. */
FILTER(f_title)
{
    const struct ek_tpl_str *s;
    int rc = no_args(rt, args);
    if (!rc)
        rc = ek_tpl_to_str(rt, &s, self);
    size_t start = ek_tpl_begin(rt);
    for (size_t from = 0, at = 0; !rc && from < s->n; from = at) {
        uint32_t c;
        struct ek_tpl_val word;
        bool is_sep = false;
        for (; at < s->n; at += ek_tpl_char(s, at, &c)) {
            ek_tpl_char(s, at, &c);
            bool is = ek_tpl_is_space(c) || (c && c < 0x80 && strchr("-({[<", (int)c));
            if (at == from)
                is_sep = is;
            else if (is != is_sep)
                break;
        }
        rc = ek_tpl_str_sub(rt, &word, s, from, at);
        if (!rc)
            rc = ek_tpl_case(rt, &word, word.s, EK_TPL_CAPITALIZE);
        if (!rc)
            rc = ek_tpl_put_val(rt, &word);
    }
    return rc ? rc : ek_tpl_end(rt, out, start);
}

FILTER(f_replace)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    const struct ek_tpl_str *s = NULL, *old = NULL, *new = NULL;
    int64_t count = -1;
    int rc = ek_tpl_bind(rt, v, args, "old new | count");
    if (!rc)
        rc = ek_tpl_to_str(rt, &s, self);
    if (!rc)
        rc = ek_tpl_to_str(rt, &old, &v[0]);
    if (!rc)
        rc = ek_tpl_to_str(rt, &new, &v[1]);
    if (!rc && is_given(&v[2]))
        rc = ek_tpl_arg_int(rt, &count, &v[2], args->what);
    return rc ? rc : ek_tpl_replace(rt, out, s, old, new, count);
}

FILTER(f_default)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    int rc = ek_tpl_bind(rt, v, args, "| default_value boolean");
    if (rc)
        return rc;
    bool is_used =
        self->kind == EK_TPL_UNDEF || (ek_tpl_truth(&v[1]) && !ek_tpl_truth(self));
    if (!is_used)
        *out = *self;
    else if (v[0].kind == EK_TPL_MISSING)
        return ek_tpl_str_text(rt, out, "");
    else
        *out = v[0];
    return 0;
}

FILTER(f_length)
{
    size_t n = 0;
    int rc = no_args(rt, args);
    if (!rc)
        rc = ek_tpl_length(rt, &n, self);
    *out = ek_tpl_int((int64_t)n);
    return rc;
}

static int separators(struct ek_tpl_rt *rt, struct ek_tpl_json_style *style,
                      const struct ek_tpl_val *v, const char *what)
{
    if (!is_given(v))
        return 0;
    struct ek_tpl_list l;
    int rc = ek_tpl_items(rt, &l, v);
    if (!rc && l.n != 2)
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s: separators are a pair of strings", what);
    if (!rc)
        rc = ek_tpl_arg_str(rt, &style->item_sep, &l.v[0], what);
    return rc ? rc : ek_tpl_arg_str(rt, &style->key_sep, &l.v[1], what);
}

/* A string of `width` blanks, or the string given itself. */
static int indent_text(struct ek_tpl_rt *rt, const struct ek_tpl_str **out,
                       const struct ek_tpl_val *v, const char *what)
{
    int64_t width;
    if (v->kind == EK_TPL_STR) {
        *out = v->s;
        return 0;
    }
    int rc = ek_tpl_arg_int(rt, &width, v, what);
    struct ek_tpl_val blank, text, n = ek_tpl_int(rc ? 0 : width);
    if (!rc)
        rc = ek_tpl_str_text(rt, &blank, " ");
    if (!rc)
        rc = ek_tpl_binary(rt, &text, '*', &blank, &n);
    if (!rc)
        *out = text.s;
    return rc;
}

FILTER(f_tojson)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    struct ek_tpl_json_style style = {0};
    int rc = ek_tpl_bind(rt, v, args, "| ensure_ascii indent separators sort_keys");
    if (!rc && is_given(&v[1]))
        rc = indent_text(rt, &style.indent, &v[1], args->what);
    if (!rc)
        rc = separators(rt, &style, &v[2], args->what);
    if (rc)
        return rc;
    style.is_ascii = ek_tpl_truth(&v[0]);
    style.is_sorted = ek_tpl_truth(&v[3]);
    size_t at = ek_tpl_begin(rt);
    rc = ek_tpl_put_json(rt, self, &style);
    return rc ? rc : ek_tpl_end(rt, out, at);
}

FILTER(f_indent)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX], s, lines, width = ek_tpl_int(4);
    const struct ek_tpl_str *pad, *text;
    const struct ek_tpl_args none = {"splitlines", NULL, 0, &(struct ek_tpl_dict){0}};
    int rc = ek_tpl_bind(rt, v, args, "| width first blank");
    if (!rc)
        rc = indent_text(rt, &pad, v[0].kind == EK_TPL_MISSING ? &width : &v[0],
                         args->what);
    if (!rc)
        rc = ek_tpl_arg_str(rt, &text, self, args->what);
    size_t at = ek_tpl_begin(rt);
    if (!rc)
        rc = ek_tpl_put_sub(rt, text, 0, text->n);
    if (!rc)
        rc = ek_tpl_put_text(rt, "\n", false);
    if (!rc)
        rc = ek_tpl_end(rt, &s, at);
    if (!rc)
        rc = ek_tpl_splitlines(rt, &lines, &s, &none);
    at = ek_tpl_begin(rt);
    for (size_t i = 0; !rc && i < lines.l->n; i++) {
        const struct ek_tpl_str *line = lines.l->v[i].s;
        bool is_padded = i ? line->n || ek_tpl_truth(&v[2]) : ek_tpl_truth(&v[1]);
        if (i)
            rc = ek_tpl_put_text(rt, "\n", false);
        if (!rc && is_padded)
            rc = ek_tpl_put_sub(rt, pad, 0, pad->n);
        if (!rc)
            rc = ek_tpl_put_sub(rt, line, 0, line->n);
    }
    if (!rc)
        rc = ek_tpl_end(rt, out, at);
    if (!rc)
        out->new_s->is_markup = text->is_markup;
    return rc;
}

/* A number in text as Python's float() reads it; false when it is none. */
static bool parse_float(double *out, const struct ek_tpl_str *s)
{
    char text[128];
    size_t n = 0;
    size_t from = 0, to = s->n;
    while (from < to && ek_tpl_is_space((unsigned char)s->p[from]))
        from++;
    while (to > from && ek_tpl_is_space((unsigned char)s->p[to - 1]))
        to--;
    for (size_t i = from; i < to; i++) {
        char c = s->p[i];
        bool is_inner = i > from && i + 1 < to && s->p[i - 1] >= '0' &&
                        s->p[i - 1] <= '9' && s->p[i + 1] >= '0' && s->p[i + 1] <= '9';
        if (c == '_' && is_inner)
            continue;
        if (n == sizeof text - 1 || !c || c == 'x' || c == 'X' || c == 'p' || c == '(')
            return false;
        text[n++] = c;
    }
    text[n] = 0;
    char *end;
    *out = strtod(text, &end);
    return n > 0 && *end == 0;
}

/* Likewise for int(text, base). */
static bool parse_int(int64_t *out, const struct ek_tpl_str *s, int base)
{
    char text[80];
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->p[i] == '_' && i && i + 1 < s->n)
            continue;
        if (n == sizeof text - 1 || !s->p[i])
            return false;
        text[n++] = s->p[i];
    }
    while (n && ek_tpl_is_space((unsigned char)text[n - 1]))
        n--;
    text[n] = 0;
    char *end;
    long long v = strtoll(text, &end, base);
    *out = v;
    bool is_limit = v == INT64_MAX || v == INT64_MIN;
    return n > 0 && *end == 0 && end != text && !is_limit;
}

static int int_of_float(struct ek_tpl_rt *rt, struct ek_tpl_val *out, double f)
{
    if (!(f > -9223372036854775808.0 && f < 9223372036854775808.0))
        return ek_tpl_fail(rt, EK_ELIMIT, "an integer does not fit 64 bits");
    *out = ek_tpl_int((int64_t)f);
    return 0;
}

FILTER(f_int)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    int64_t base = 10, i;
    double f;
    int rc = ek_tpl_bind(rt, v, args, "| default base");
    if (!rc && v[1].kind != EK_TPL_MISSING)
        rc = ek_tpl_arg_int(rt, &base, &v[1], args->what);
    if (!rc && (base == 1 || base < 0 || base > 36))
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s: base must be 0 or 2 to 36", args->what);
    if (rc)
        return rc;
    if (self->kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, self);
    if (ek_tpl_is_integer(self, &i) ||
        (self->kind == EK_TPL_STR && parse_int(&i, self->s, (int)base)))
        *out = ek_tpl_int(i);
    else if (self->kind == EK_TPL_FLOAT && !isnan(self->f))
        rc = int_of_float(rt, out, self->f);
    else if (self->kind == EK_TPL_STR && parse_float(&f, self->s) && isfinite(f))
        rc = int_of_float(rt, out, f);
    else
        *out = v[0].kind == EK_TPL_MISSING ? ek_tpl_int(0) : v[0];
    out->is_plain = self->is_plain;
    return rc;
}

FILTER(f_float)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    double f;
    int rc = ek_tpl_bind(rt, v, args, "| default");
    if (rc)
        return rc;
    if (self->kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, self);
    if (ek_tpl_is_number(self))
        *out = ek_tpl_float(ek_tpl_to_double(self));
    else if (self->kind == EK_TPL_STR && parse_float(&f, self->s))
        *out = ek_tpl_float(f);
    else
        *out = v[0].kind == EK_TPL_MISSING ? ek_tpl_float(0) : v[0];
    out->is_plain = self->is_plain;
    return 0;
}

FILTER(f_abs)
{
    bool is_negative = ek_tpl_is_number(self) && ek_tpl_to_double(self) < 0;
    int rc = no_args(rt, args);
    return rc ? rc : ek_tpl_sign(rt, out, is_negative ? '-' : '+', self);
}

static double round_to(double f, int64_t places)
{
    char text[512];
    if (places > 17 || !isfinite(f))
        return f;
    if (places < 0) {
        double unit = pow(10, (double)-places);
        return rint(f / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", (int)places, f);
    return strtod(text, NULL);
}

FILTER(f_round)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    int64_t places = 0, i;
    const struct ek_tpl_str *how = NULL;
    int rc = ek_tpl_bind(rt, v, args, "| precision method");
    if (!rc && v[0].kind != EK_TPL_MISSING)
        rc = ek_tpl_arg_int(rt, &places, &v[0], args->what);
    if (!rc && v[1].kind != EK_TPL_MISSING)
        rc = ek_tpl_arg_str(rt, &how, &v[1], args->what);
    if (rc)
        return rc;
    if (self->kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, self);
    if (!ek_tpl_is_number(self))
        return ek_tpl_fail(rt, EK_EFORMAT,
                           "%s takes a number, not a value of type '%s'", args->what,
                           ek_tpl_type(self));
    bool is_common = !how || ek_tpl_str_is(how, "common");
    if (!is_common && !ek_tpl_str_is(how, "ceil") && !ek_tpl_str_is(how, "floor"))
        return ek_tpl_fail(rt, EK_EFORMAT, "%s: method must be common, ceil or floor",
                           args->what);
    if (is_common && places >= 0 && ek_tpl_is_integer(self, &i)) {
        *out = ek_tpl_int(i);
    } else if (is_common) {
        *out = ek_tpl_float(round_to(ek_tpl_to_double(self), places));
    } else {
        double unit = pow(10, (double)places), f = ek_tpl_to_double(self) * unit;
        *out = ek_tpl_float((how->p[0] == 'c' ? ceil(f) : floor(f)) / unit);
    }
    out->is_plain = self->is_plain;
    return 0;
}

static int markup(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                  const struct ek_tpl_val *self, bool is_escaped)
{
    const struct ek_tpl_str *s;
    size_t at = ek_tpl_begin(rt);
    int rc = ek_tpl_to_str(rt, &s, self);
    if (!rc)
        rc = is_escaped ? ek_tpl_put_escaped(rt, s) : ek_tpl_put_sub(rt, s, 0, s->n);
    if (!rc)
        rc = ek_tpl_end(rt, out, at);
    if (!rc)
        out->new_s->is_markup = true;
    return rc;
}

FILTER(f_safe)
{
    int rc = no_args(rt, args);
    return rc ? rc : markup(rt, out, self, false);
}

FILTER(f_escape)
{
    int rc = no_args(rt, args);
    return rc ? rc : markup(rt, out, self, true);
}

FILTER(f_format)
{
    const struct ek_tpl_str *s;
    struct ek_tpl_val v;
    if (args->kw->n && args->n_pos)
        return ek_tpl_fail(rt, EK_EFORMAT,
                           "%s takes values or names with values, not both",
                           args->what);
    int rc = ek_tpl_to_str(rt, &s, self);
    if (!rc)
        rc = ek_tpl_list_new(rt, &v, EK_TPL_TUPLE, args->pos, args->n_pos);
    if (!rc && args->kw->n)
        v = (struct ek_tpl_val){.kind = EK_TPL_DICT, .d = args->kw};
    return rc ? rc : ek_tpl_percent(rt, out, s, &v);
}

FILTER(f_wordcount)
{
    const struct ek_tpl_str *s;
    int64_t n = 0;
    int rc = no_args(rt, args);
    if (!rc)
        rc = ek_tpl_to_str(rt, &s, self);
    bool in_word = false;
    for (size_t i = 0; !rc && i < s->n;) {
        uint32_t c;
        i += ek_tpl_char(s, i, &c);
        bool is = ek_tpl_is_word(c);
        n += is && !in_word;
        in_word = is;
    }
    *out = ek_tpl_int(n);
    return rc;
}

static const struct ek_tpl_def filters[] = {
    {"trim", f_trim},
    {"string", f_string},
    {"upper", f_upper},
    {"lower", f_lower},
    {"capitalize", f_capitalize},
    {"title", f_title},
    {"replace", f_replace},
    {"default", f_default},
    {"d", f_default},
    {"length", f_length},
    {"count", f_length},
    {"tojson", f_tojson},
    {"indent", f_indent},
    {"int", f_int},
    {"float", f_float},
    {"abs", f_abs},
    {"round", f_round},
    {"safe", f_safe},
    {"escape", f_escape},
    {"e", f_escape},
    {"format", f_format},
    {"wordcount", f_wordcount},
    {0},
};

const struct ek_tpl_def *ek_tpl_find_filter(const char *name, size_t n)
{
    const struct ek_tpl_def *def = ek_tpl_find_def(filters, name, n);
    return def ? def : ek_tpl_find_def(ek_tpl_seq_filters, name, n);
}

bool ek_tpl_is_foreign_filter(const char *name, size_t n)
{
    static const char *const names[] = {
        "attr",   "center",   "filesizeformat", "forceescape", "groupby",
        "pprint", "random",   "striptags",      "truncate",    "urlencode",
        "urlize", "wordwrap", "xmlattr",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0)
            return true;
    return false;
}
