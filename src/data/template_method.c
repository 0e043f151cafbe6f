#include "data/template_int.h"

#include <string.h>

/* Methods of str and dict; those of list that change it are unsafe in the sandbox. */

#define METHOD(name)                                                                   \
    static int name(struct ek_tpl_rt *rt, struct ek_tpl_val *out,                      \
                    const struct ek_tpl_val *self, const struct ek_tpl_args *args)

static int no_args(struct ek_tpl_rt *rt, const struct ek_tpl_args *args)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    return ek_tpl_bind(rt, v, args, "");
}

static bool is_in_set(const struct ek_tpl_str *set, uint32_t c)
{
    if (!set)
        return ek_tpl_is_space(c);
    for (size_t i = 0; i < set->n;) {
        uint32_t x;
        i += ek_tpl_char(set, i, &x);
        if (x == c)
            return true;
    }
    return false;
}

int ek_tpl_strip(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_str *s, const struct ek_tpl_val *chars, int ends)
{
    const struct ek_tpl_str *set = NULL;
    size_t from = 0, to = s->n, len;
    uint32_t c;
    int rc = 0;
    if (chars->kind != EK_TPL_MISSING && chars->kind != EK_TPL_NONE)
        rc = ek_tpl_arg_str(rt, &set, chars, "strip");
    if (rc)
        return rc;
    while ((ends & EK_TPL_LEFT) && from < to && (len = ek_tpl_char(s, from, &c)) &&
           is_in_set(set, c))
        from += len;
    while ((ends & EK_TPL_RIGHT) && to > from &&
           (len = ek_tpl_char_before(s, to, &c)) && is_in_set(set, c))
        to -= len;
    rc = ek_tpl_step(rt, (set ? set->n + 1 : 1) * (s->n - (to - from)) / 64);
    return rc ? rc : ek_tpl_str_sub(rt, out, s, from, to);
}

static int strip(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                 int ends)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    int rc = ek_tpl_bind(rt, v, args, "/| chars");
    return rc ? rc : ek_tpl_strip(rt, out, self->s, &v[0], ends);
}

METHOD(m_strip)
{
    return strip(rt, out, self, args, EK_TPL_LEFT | EK_TPL_RIGHT);
}

METHOD(m_lstrip)
{
    return strip(rt, out, self, args, EK_TPL_LEFT);
}

METHOD(m_rstrip)
{
    return strip(rt, out, self, args, EK_TPL_RIGHT);
}

/* Whether s has `part` at its start or end. */
static bool has_affix(const struct ek_tpl_str *s, const struct ek_tpl_str *part,
                      bool at_end)
{
    if (part->n > s->n)
        return false;
    return memcmp(s->p + (at_end ? s->n - part->n : 0), part->p, part->n) == 0;
}

static int affix(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                 bool at_end)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX], bounds[3] = {{0}}, part;
    bool is_match = false;
    int rc = ek_tpl_bind(rt, v, args, "/prefix | start end");
    bounds[0] = v[1];
    bounds[1] = v[2];
    if (!rc)
        rc = ek_tpl_slice(rt, &part, self, bounds);
    if (rc)
        return rc;
    struct ek_tpl_list one = {v, 1};
    const struct ek_tpl_list *l = v[0].kind == EK_TPL_TUPLE ? v[0].l : &one;
    for (size_t i = 0; !rc && i < l->n; i++) {
        const struct ek_tpl_str *s;
        rc = ek_tpl_arg_str(rt, &s, &l->v[i], args->what);
        is_match |= !rc && has_affix(part.s, s, at_end);
    }
    *out = ek_tpl_bool(is_match);
    return rc;
}

METHOD(m_startswith)
{
    return affix(rt, out, self, args, false);
}

METHOD(m_endswith)
{
    return affix(rt, out, self, args, true);
}

static int remove_affix(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                        const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                        bool at_end)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    const struct ek_tpl_str *part, *s = self->s;
    int rc = ek_tpl_bind(rt, v, args, "/affix");
    if (!rc)
        rc = ek_tpl_arg_str(rt, &part, &v[0], args->what);
    if (rc)
        return rc;
    size_t n = has_affix(s, part, at_end) ? part->n : 0;
    return ek_tpl_str_sub(rt, out, s, at_end ? 0 : n, at_end ? s->n - n : s->n);
}

METHOD(m_removeprefix)
{
    return remove_affix(rt, out, self, args, false);
}

METHOD(m_removesuffix)
{
    return remove_affix(rt, out, self, args, true);
}

METHOD(m_replace)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    const struct ek_tpl_str *old = NULL, *new = NULL;
    int64_t count = -1;
    int rc = ek_tpl_bind(rt, v, args, "/old new | count");
    if (!rc)
        rc = ek_tpl_arg_str(rt, &old, &v[0], args->what);
    if (!rc)
        rc = ek_tpl_arg_str(rt, &new, &v[1], args->what);
    if (!rc && v[2].kind != EK_TPL_MISSING)
        rc = ek_tpl_arg_int(rt, &count, &v[2], args->what);
    return rc ? rc : ek_tpl_replace(rt, out, self->s, old, new, count);
}

int ek_tpl_replace(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_str *s, const struct ek_tpl_str *old,
                   const struct ek_tpl_str *new, int64_t count)
{
    size_t start = ek_tpl_begin(rt), done = 0, at, from = 0;
    int rc = 0;
    while (!rc && count != 0 && ek_tpl_str_find(s, old, from, &at)) {
        rc = ek_tpl_put_sub(rt, s, done, at);
        if (!rc)
            rc = ek_tpl_put_sub(rt, new, 0, new->n);
        if (!rc)
            rc = ek_tpl_step(rt, 1);
        done = from = at + old->n;
        count -= count > 0;
        if (old->n)
            continue;
        if (at == s->n)
            break;
        uint32_t c; /* an empty `old` is found before every character and at the end */
        from = at + ek_tpl_char(s, at, &c);
    }
    if (!rc)
        rc = ek_tpl_put_sub(rt, s, done, s->n);
    return rc ? rc : ek_tpl_end(rt, out, start);
}

static int find(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                bool is_last)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    const struct ek_tpl_str *sub, *s = self->s;
    int rc = ek_tpl_bind(rt, v, args, "/sub");
    if (!rc)
        rc = ek_tpl_arg_str(rt, &sub, &v[0], args->what);
    if (rc)
        return rc;
    size_t at = 0, next;
    bool is_found = ek_tpl_str_find(s, sub, 0, &at);
    if (is_found && is_last && sub->n == 0)
        at = s->n;
    else if (is_found && is_last)
        while (ek_tpl_str_find(s, sub, at + 1, &next))
            at = next;
    *out = ek_tpl_int(is_found ? (int64_t)ek_tpl_count_chars(s->p, at) : -1);
    return ek_tpl_step(rt, s->n / 64);
}

METHOD(m_find)
{
    return find(rt, out, self, args, false);
}

METHOD(m_rfind)
{
    return find(rt, out, self, args, true);
}

METHOD(m_index)
{
    int rc = find(rt, out, self, args, false);
    if (!rc && out->i < 0)
        return ek_tpl_fail(rt, EK_EFORMAT, "%s: substring not found", args->what);
    return rc;
}

METHOD(m_rindex)
{
    int rc = find(rt, out, self, args, true);
    if (!rc && out->i < 0)
        return ek_tpl_fail(rt, EK_EFORMAT, "%s: substring not found", args->what);
    return rc;
}

METHOD(m_count)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    const struct ek_tpl_str *sub;
    int rc = ek_tpl_bind(rt, v, args, "/sub");
    if (!rc)
        rc = ek_tpl_arg_str(rt, &sub, &v[0], args->what);
    if (rc)
        return rc;
    int64_t n = 0;
    if (sub->n == 0)
        n = (int64_t)self->s->n_chars + 1;
    for (size_t at = 0; sub->n && ek_tpl_str_find(self->s, sub, at, &at); at += sub->n)
        n++;
    *out = ek_tpl_int(n);
    return ek_tpl_step(rt, self->s->n / 64);
}

METHOD(m_join)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    struct ek_tpl_list items;
    int rc = ek_tpl_bind(rt, v, args, "/iterable");
    if (!rc)
        rc = ek_tpl_items(rt, &items, &v[0]);
    size_t at = ek_tpl_begin(rt);
    for (size_t i = 0; !rc && i < items.n; i++) {
        const struct ek_tpl_str *s;
        rc = ek_tpl_arg_str(rt, &s, &items.v[i], args->what);
        if (!rc && i)
            rc = ek_tpl_put_sub(rt, self->s, 0, self->s->n);
        if (!rc)
            rc = ek_tpl_put_sub(rt, s, 0, s->n);
    }
    return rc ? rc : ek_tpl_end(rt, out, at);
}

METHOD(m_format)
{
    return ek_tpl_format(rt, out, self->s, args);
}

METHOD(m_upper)
{
    int rc = no_args(rt, args);
    return rc ? rc : ek_tpl_case(rt, out, self->s, EK_TPL_UPPER);
}

METHOD(m_lower)
{
    int rc = no_args(rt, args);
    return rc ? rc : ek_tpl_case(rt, out, self->s, EK_TPL_LOWER);
}

METHOD(m_title)
{
    int rc = no_args(rt, args);
    return rc ? rc : ek_tpl_case(rt, out, self->s, EK_TPL_TITLE);
}

METHOD(m_capitalize)
{
    int rc = no_args(rt, args);
    return rc ? rc : ek_tpl_case(rt, out, self->s, EK_TPL_CAPITALIZE);
}

METHOD(m_swapcase)
{
    int rc = no_args(rt, args);
    return rc ? rc : ek_tpl_case(rt, out, self->s, EK_TPL_SWAPCASE);
}

METHOD(m_zfill)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    const struct ek_tpl_str *s = self->s;
    int64_t width;
    int rc = ek_tpl_bind(rt, v, args, "/width");
    if (!rc)
        rc = ek_tpl_arg_int(rt, &width, &v[0], args->what);
    if (rc)
        return rc;
    size_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+'), at = ek_tpl_begin(rt);
    rc = ek_tpl_put_sub(rt, s, 0, sign);
    for (int64_t i = (int64_t)s->n_chars; !rc && i < width; i++) {
        rc = ek_tpl_put(rt, "0", 1, false);
        if (!rc)
            rc = ek_tpl_step(rt, 1);
    }
    if (!rc)
        rc = ek_tpl_put_sub(rt, s, sign, s->n);
    return rc ? rc : ek_tpl_end(rt, out, at);
}

/* ---- dict ------------------------------------------------------------------------ */

METHOD(d_get)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    const struct ek_tpl_val *found = NULL;
    int rc = ek_tpl_bind(rt, v, args, "/key | default");
    if (!rc)
        rc = ek_tpl_dict_get(rt, &found, self->d, &v[0]);
    if (!rc)
        *out = found ? *found : v[1].kind == EK_TPL_MISSING ? ek_tpl_none() : v[1];
    return rc;
}

static int view(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                char what)
{
    struct ek_tpl_list l = {what == 'k' ? self->d->keys : self->d->vals, self->d->n};
    int rc = no_args(rt, args);
    if (!rc && what == 'i')
        rc = ek_tpl_dict_pairs(rt, &l, self->d);
    if (!rc)
        rc = ek_tpl_list_new(rt, out, EK_TPL_VIEW, l.v, l.n);
    out->view = what;
    return rc;
}

METHOD(d_items)
{
    return view(rt, out, self, args, 'i');
}

METHOD(d_keys)
{
    return view(rt, out, self, args, 'k');
}

METHOD(d_values)
{
    return view(rt, out, self, args, 'v');
}

METHOD(d_copy)
{
    *out = *self;
    return no_args(rt, args);
}

/* ---- list and tuple -------------------------------------------------------------- */

METHOD(l_index)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    bool is_equal = false;
    size_t i = 0;
    int rc = ek_tpl_bind(rt, v, args, "/value");
    for (; !rc && i < self->l->n; i++) {
        rc = ek_tpl_equal(rt, &is_equal, &self->l->v[i], &v[0]);
        if (is_equal)
            break;
    }
    *out = ek_tpl_int((int64_t)i);
    if (!rc && !is_equal)
        return ek_tpl_fail(rt, EK_EFORMAT, "%s: the value is not in the list",
                           args->what);
    return rc;
}

METHOD(l_count)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    int64_t n = 0;
    int rc = ek_tpl_bind(rt, v, args, "/value");
    for (size_t i = 0; !rc && i < self->l->n; i++) {
        bool is_equal = false;
        rc = ek_tpl_equal(rt, &is_equal, &self->l->v[i], &v[0]);
        n += is_equal;
    }
    *out = ek_tpl_int(n);
    return rc;
}

/* Stands in the tables for methods the sandbox does not give out. */
METHOD(unsafe)
{
    (void)out;
    (void)self;
    return ek_tpl_fail(rt, EK_EFORMAT, "%s is not allowed", args->what);
}

METHOD(unsupported)
{
    (void)out;
    return ek_tpl_fail(rt, EK_EUNSUP, "method %s of '%s' is not interpreted",
                       args->what, ek_tpl_type(self));
}

static const struct ek_tpl_def str_methods[] = {
    {"strip", m_strip},
    {"lstrip", m_lstrip},
    {"rstrip", m_rstrip},
    {"split", ek_tpl_split},
    {"rsplit", ek_tpl_rsplit},
    {"splitlines", ek_tpl_splitlines},
    {"partition", ek_tpl_partition},
    {"rpartition", ek_tpl_rpartition},
    {"startswith", m_startswith},
    {"endswith", m_endswith},
    {"removeprefix", m_removeprefix},
    {"removesuffix", m_removesuffix},
    {"replace", m_replace},
    {"find", m_find},
    {"rfind", m_rfind},
    {"index", m_index},
    {"rindex", m_rindex},
    {"count", m_count},
    {"join", m_join},
    {"format", m_format},
    {"upper", m_upper},
    {"lower", m_lower},
    {"title", m_title},
    {"capitalize", m_capitalize},
    {"swapcase", m_swapcase},
    {"zfill", m_zfill},
    {"isdigit", ek_tpl_isdigit},
    {"isdecimal", ek_tpl_isdecimal},
    {"isalpha", ek_tpl_isalpha},
    {"isalnum", ek_tpl_isalnum},
    {"isspace", ek_tpl_isspace},
    {"isupper", ek_tpl_isupper},
    {"islower", ek_tpl_islower},
    {"isascii", unsupported},
    {"isidentifier", unsupported},
    {"isnumeric", unsupported},
    {"isprintable", unsupported},
    {"istitle", unsupported},
    {"casefold", unsupported},
    {"center", unsupported},
    {"ljust", unsupported},
    {"rjust", unsupported},
    {"expandtabs", unsupported},
    {"encode", unsupported},
    {"format_map", unsupported},
    {"maketrans", unsupported},
    {"translate", unsupported},
    {0},
};

static const struct ek_tpl_def dict_methods[] = {
    {"get", d_get},       {"items", d_items},        {"keys", d_keys},
    {"values", d_values}, {"copy", d_copy},          {"clear", unsafe},
    {"pop", unsafe},      {"popitem", unsafe},       {"setdefault", unsafe},
    {"update", unsafe},   {"fromkeys", unsupported}, {0},
};

static const struct ek_tpl_def list_methods[] = {
    {"index", l_index},  {"count", l_count}, {"append", unsafe}, {"clear", unsafe},
    {"extend", unsafe},  {"insert", unsafe}, {"pop", unsafe},    {"remove", unsafe},
    {"reverse", unsafe}, {"sort", unsafe},   {"copy", d_copy},   {0},
};

static const struct ek_tpl_def tuple_methods[] = {
    {"index", l_index},
    {"count", l_count},
    {0},
};

/* Attributes of Python's numbers: none has a use in a template. */
static const struct ek_tpl_def number_methods[] = {
    {"real", unsupported},       {"imag", unsupported},
    {"numerator", unsupported},  {"denominator", unsupported},
    {"bit_length", unsupported}, {"bit_count", unsupported},
    {"conjugate", unsupported},  {"to_bytes", unsupported},
    {"from_bytes", unsupported}, {"as_integer_ratio", unsupported},
    {"is_integer", unsupported}, {"hex", unsupported},
    {"fromhex", unsupported},    {0},
};

static const struct ek_tpl_def *methods_of(const struct ek_tpl_val *x)
{
    static const struct ek_tpl_def none[] = {{0}};
    switch (x->kind) {
    case EK_TPL_STR:
        return str_methods;
    case EK_TPL_DICT:
        return dict_methods;
    case EK_TPL_LIST:
        return list_methods;
    case EK_TPL_TUPLE:
    case EK_TPL_RANGE:
        return tuple_methods;
    case EK_TPL_BOOL:
    case EK_TPL_INT:
    case EK_TPL_FLOAT:
        return number_methods;
    default:
        return none;
    }
}

int ek_tpl_method(struct ek_tpl_rt *rt, struct ek_tpl_val *out, bool *is_known,
                  const struct ek_tpl_val *x, const struct ek_tpl_str *name)
{
    const struct ek_tpl_def *def = ek_tpl_find_def(methods_of(x), name->p, name->n);
    *is_known = def != NULL;
    if (!def)
        return 0;
    if (def->fn == unsafe)
        return ek_tpl_undef(rt, out, NULL, NULL,
                            "a method that changes its object is not allowed");
    return ek_tpl_bind_method(rt, out, def, x);
}
