#include "data/template_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The filter tojson: what Python's json.dumps writes. */

struct writer {
    struct ek_tpl_rt *rt;
    const struct ek_tpl_json_style *style;
    size_t level; /* open containers */
};

static int put_value(struct writer *w, const struct ek_tpl_val *v);

static int put_string_char(struct ek_tpl_rt *rt, const struct ek_tpl_str *s, size_t i,
                           size_t len, uint32_t c, bool is_ascii)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    char text[16];
    const char *at = c && c < 0x80 ? strchr(from, (int)c) : NULL;
    if (at)
        snprintf(text, sizeof text, "\\%c", to[at - from]);
    else if (c < 0x20 || (is_ascii && c >= 0x7f && c < 0x10000))
        snprintf(text, sizeof text, "\\u%04x", c);
    else if (is_ascii && c >= 0x10000)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                 0xdc00 + ((c - 0x10000) & 0x3ff));
    else
        return ek_tpl_put_sub(rt, s, i, i + len);
    return ek_tpl_put_text(rt, text, ek_tpl_plain_at(s, i));
}

static int put_string(struct writer *w, const struct ek_tpl_str *s)
{
    bool is_plain = s->is_plain || s->mark;
    int rc = ek_tpl_put_text(w->rt, "\"", is_plain);
    for (size_t i = 0; !rc && i < s->n;) {
        uint32_t c;
        size_t len = ek_tpl_char(s, i, &c);
        rc = put_string_char(w->rt, s, i, len, c, w->style->is_ascii);
        i += len;
    }
    return rc ? rc : ek_tpl_put_text(w->rt, "\"", is_plain);
}

static int put_scalar(struct writer *w, const struct ek_tpl_val *v)
{
    switch (v->kind) {
    case EK_TPL_NONE:
        return ek_tpl_put_text(w->rt, "null", v->is_plain);
    case EK_TPL_BOOL:
        return ek_tpl_put_text(w->rt, v->b ? "true" : "false", v->is_plain);
    case EK_TPL_FLOAT:
        if (isnan(v->f) || isinf(v->f))
            return ek_tpl_put_text(w->rt,
                                   isnan(v->f) ? "NaN"
                                   : v->f < 0  ? "-Infinity"
                                               : "Infinity",
                                   v->is_plain);
        return ek_tpl_put_repr(w->rt, v);
    case EK_TPL_INT:
        return ek_tpl_put_repr(w->rt, v);
    default:
        return ek_tpl_fail(w->rt, EK_EFORMAT,
                           "a value of type '%s' cannot be written as JSON",
                           ek_tpl_type(v));
    }
}

/* Keys are strings, numbers, true, false or null; all become strings. */
static int put_key(struct writer *w, const struct ek_tpl_val *key)
{
    if (key->kind == EK_TPL_STR)
        return put_string(w, key->s);
    if (key->kind != EK_TPL_NONE && !ek_tpl_is_number(key))
        return ek_tpl_fail(w->rt, EK_EFORMAT,
                           "a key of type '%s' is not allowed in JSON",
                           ek_tpl_type(key));
    int rc = ek_tpl_put_text(w->rt, "\"", key->is_plain);
    if (!rc)
        rc = put_scalar(w, key);
    return rc ? rc : ek_tpl_put_text(w->rt, "\"", key->is_plain);
}

static int new_line(struct writer *w)
{
    if (!w->style->indent)
        return 0;
    int rc = ek_tpl_put_text(w->rt, "\n", false);
    for (size_t i = 0; !rc && i < w->level; i++)
        rc = ek_tpl_put_sub(w->rt, w->style->indent, 0, w->style->indent->n);
    return rc;
}

static int separator(struct writer *w, bool is_plain)
{
    const struct ek_tpl_str *s = w->style->item_sep;
    int rc = s ? ek_tpl_put_sub(w->rt, s, 0, s->n)
               : ek_tpl_put_text(w->rt, w->style->indent ? "," : ", ", is_plain);
    return rc ? rc : new_line(w);
}

static int put_list(struct writer *w, const struct ek_tpl_val *v)
{
    int rc = ek_tpl_put_text(w->rt, "[", v->is_plain);
    w->level++;
    for (size_t i = 0; !rc && i < v->l->n; i++) {
        rc = i ? separator(w, v->is_plain) : new_line(w);
        if (!rc)
            rc = put_value(w, &v->l->v[i]);
    }
    w->level--;
    if (!rc && v->l->n)
        rc = new_line(w);
    return rc ? rc : ek_tpl_put_text(w->rt, "]", v->is_plain);
}

static int put_dict(struct writer *w, const struct ek_tpl_val *v)
{
    const struct ek_tpl_dict *d = v->d;
    const struct ek_tpl_str *colon = w->style->key_sep;
    int rc = w->style->is_sorted ? ek_tpl_dict_sorted(w->rt, &d, v->d) : 0;
    if (!rc)
        rc = ek_tpl_put_text(w->rt, "{", v->is_plain);
    w->level++;
    for (size_t i = 0; !rc && i < d->n; i++) {
        rc = i ? separator(w, v->is_plain) : new_line(w);
        if (!rc)
            rc = put_key(w, &d->keys[i]);
        if (!rc)
            rc = colon ? ek_tpl_put_sub(w->rt, colon, 0, colon->n)
                       : ek_tpl_put_text(w->rt, ": ", v->is_plain);
        if (!rc)
            rc = put_value(w, &d->vals[i]);
    }
    w->level--;
    if (!rc && d->n)
        rc = new_line(w);
    return rc ? rc : ek_tpl_put_text(w->rt, "}", v->is_plain);
}

static int put_value(struct writer *w, const struct ek_tpl_val *v)
{
    int rc = ek_tpl_step(w->rt, 1);
    if (!rc)
        rc = ek_tpl_down(w->rt);
    if (rc)
        return rc;
    if (v->kind == EK_TPL_STR)
        rc = put_string(w, v->s);
    else if (v->kind == EK_TPL_LIST || v->kind == EK_TPL_TUPLE)
        rc = put_list(w, v);
    else if (v->kind == EK_TPL_DICT)
        rc = put_dict(w, v);
    else
        rc = put_scalar(w, v);
    w->rt->depth--;
    return rc;
}

int ek_tpl_put_json(struct ek_tpl_rt *rt, const struct ek_tpl_val *v,
                    const struct ek_tpl_json_style *style)
{
    struct writer w = {rt, style, 0};
    return put_value(&w, v);
}
