#include "data/template_value.h"

#include "data/template_int.h"

#include <math.h>
#include <string.h>

/* Values: making, truth, equality and order as Python has them. */

struct ek_tpl_val ek_tpl_none(void)
{
    return (struct ek_tpl_val){.kind = EK_TPL_NONE};
}

struct ek_tpl_val ek_tpl_bool(bool b)
{
    return (struct ek_tpl_val){.kind = EK_TPL_BOOL, .b = b};
}

struct ek_tpl_val ek_tpl_int(int64_t i)
{
    return (struct ek_tpl_val){.kind = EK_TPL_INT, .i = i};
}

struct ek_tpl_val ek_tpl_float(double f)
{
    return (struct ek_tpl_val){.kind = EK_TPL_FLOAT, .f = f};
}

int ek_tpl_undef(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_val *owner, const struct ek_tpl_val *key,
                 const char *hint)
{
    struct ek_tpl_undef *u = ek_tpl_alloc(rt, 1, sizeof *u);
    if (!u)
        return ek_tpl_no_memory(rt);
    *u = (struct ek_tpl_undef){.hint = hint};
    if (owner)
        u->owner = *owner;
    if (key)
        u->key = *key;
    *out = (struct ek_tpl_val){.kind = EK_TPL_UNDEF, .u = u};
    return 0;
}

int ek_tpl_undef_fail(struct ek_tpl_rt *rt, const struct ek_tpl_val *v)
{
    const struct ek_tpl_undef *u = v->u;
    if (u->hint)
        return ek_tpl_fail(rt, EK_EFORMAT, "%s", u->hint);
    if (u->key.kind != EK_TPL_STR)
        return ek_tpl_fail(rt, EK_EFORMAT, "%s object has no such element",
                           ek_tpl_type(&u->owner));
    int n = u->key.s->n > 200 ? 200 : (int)u->key.s->n;
    if (u->owner.kind == EK_TPL_MISSING)
        return ek_tpl_fail(rt, EK_EFORMAT, "'%.*s' is undefined", n, u->key.s->p);
    return ek_tpl_fail(rt, EK_EFORMAT, "'%s object' has no attribute '%.*s'",
                       ek_tpl_type(&u->owner), n, u->key.s->p);
}

static int from_array(struct ek_tpl_rt *rt, struct ek_tpl_val *out, const json_t *json,
                      bool is_plain)
{
    size_t n = json_array_size(json);
    struct ek_tpl_list *l = ek_tpl_alloc(rt, 1, sizeof *l);
    if (l)
        *l = (struct ek_tpl_list){ek_tpl_alloc(rt, n, sizeof *l->v), n};
    if (!l || !l->v)
        return ek_tpl_no_memory(rt);
    for (size_t i = 0; i < n; i++) {
        int rc = ek_tpl_from_json(rt, &l->v[i], json_array_get(json, i), is_plain);
        if (rc)
            return rc;
    }
    *out = (struct ek_tpl_val){.kind = EK_TPL_LIST, .l = l};
    return 0;
}

static int from_object(struct ek_tpl_rt *rt, struct ek_tpl_val *out, const json_t *json,
                       bool is_plain)
{
    struct ek_tpl_dict *d;
    int rc = ek_tpl_dict_new(rt, &d, json_object_size(json));
    if (rc)
        return rc;
    /* jansson's iterators take a json_t that is not const and leave it as it is. */
    union {
        const json_t *c;
        json_t *p;
    } object = {.c = json};
    for (void *it = json_object_iter(object.p); it;
         it = json_object_iter_next(object.p, it)) {
        const char *key = json_object_iter_key(it);
        size_t len = json_object_iter_key_len(it);
        rc = ek_tpl_str_new(rt, &d->keys[d->n], key, len, is_plain);
        if (!rc)
            rc = ek_tpl_from_json(rt, &d->vals[d->n], json_object_iter_value(it),
                                  is_plain);
        if (rc)
            return rc;
        d->n++;
    }
    *out = (struct ek_tpl_val){.kind = EK_TPL_DICT, .d = d};
    return 0;
}

int ek_tpl_from_json(struct ek_tpl_rt *rt, struct ek_tpl_val *out, const json_t *json,
                     bool is_plain)
{
    int rc = ek_tpl_down(rt);
    if (rc)
        return rc;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        rc = from_object(rt, out, json, is_plain);
        break;
    case JSON_ARRAY:
        rc = from_array(rt, out, json, is_plain);
        break;
    case JSON_STRING:
        rc = ek_tpl_str_new(rt, out, json_string_value(json), json_string_length(json),
                            is_plain);
        break;
    case JSON_INTEGER:
        *out = ek_tpl_int(json_integer_value(json));
        break;
    case JSON_REAL:
        *out = ek_tpl_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = ek_tpl_bool(json_is_true(json));
        break;
    default:
        *out = ek_tpl_none();
        break;
    }
    rt->depth--;
    if (!rc)
        out->is_plain = is_plain;
    return rc;
}

const char *ek_tpl_type(const struct ek_tpl_val *v)
{
    static const char *const names[] = {
        [EK_TPL_MISSING] = "missing", [EK_TPL_UNDEF] = "Undefined",
        [EK_TPL_NONE] = "NoneType",   [EK_TPL_BOOL] = "bool",
        [EK_TPL_INT] = "int",         [EK_TPL_FLOAT] = "float",
        [EK_TPL_STR] = "str",         [EK_TPL_LIST] = "list",
        [EK_TPL_TUPLE] = "tuple",     [EK_TPL_RANGE] = "range",
        [EK_TPL_VIEW] = "dict view",  [EK_TPL_ITER] = "generator",
        [EK_TPL_DICT] = "dict",       [EK_TPL_NS] = "namespace",
        [EK_TPL_LOOP] = "loop",       [EK_TPL_MACRO] = "macro",
        [EK_TPL_FUNC] = "function",
    };
    return names[v->kind];
}

bool ek_tpl_truth(const struct ek_tpl_val *v)
{
    switch (v->kind) {
    case EK_TPL_MISSING:
    case EK_TPL_UNDEF:
    case EK_TPL_NONE:
        return false;
    case EK_TPL_BOOL:
        return v->b;
    case EK_TPL_INT:
        return v->i != 0;
    case EK_TPL_FLOAT:
        return v->f != 0;
    case EK_TPL_STR:
        return v->s->n > 0;
    case EK_TPL_LIST:
    case EK_TPL_TUPLE:
    case EK_TPL_RANGE:
    case EK_TPL_VIEW:
        return v->l->n > 0;
    case EK_TPL_DICT:
        return v->d->n > 0;
    default:
        return true;
    }
}

bool ek_tpl_is_number(const struct ek_tpl_val *v)
{
    return v->kind == EK_TPL_BOOL || v->kind == EK_TPL_INT || v->kind == EK_TPL_FLOAT;
}

bool ek_tpl_is_integer(const struct ek_tpl_val *v, int64_t *i)
{
    if (v->kind == EK_TPL_BOOL)
        *i = v->b;
    else if (v->kind == EK_TPL_INT)
        *i = v->i;
    else
        return false;
    return true;
}

double ek_tpl_to_double(const struct ek_tpl_val *v)
{
    return v->kind == EK_TPL_FLOAT ? v->f
           : v->kind == EK_TPL_INT ? (double)v->i
                                   : (double)v->b;
}

/* Exact order of an integer and a double; 2 for NaN. */
static int order_int_double(int64_t i, double f)
{
    if (isnan(f))
        return 2;
    if (f >= 9223372036854775808.0)
        return -1;
    if (f < -9223372036854775808.0)
        return 1;
    double whole = floor(f);
    int64_t w = (int64_t)whole;
    if (i != w)
        return i < w ? -1 : 1;
    return f > whole ? -1 : 0;
}

static int order_numbers(const struct ek_tpl_val *a, const struct ek_tpl_val *b)
{
    int64_t x, y;
    bool is_x = ek_tpl_is_integer(a, &x), is_y = ek_tpl_is_integer(b, &y);
    if (is_x && is_y)
        return (x > y) - (x < y);
    if (is_x)
        return order_int_double(x, b->f);
    if (is_y) {
        int o = order_int_double(y, a->f);
        return o == 2 ? 2 : -o;
    }
    if (isnan(a->f) || isnan(b->f))
        return 2;
    return (a->f > b->f) - (a->f < b->f);
}

static int order_strings(const struct ek_tpl_str *a, const struct ek_tpl_str *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int o = n ? memcmp(a->p, b->p, n) : 0;
    return o ? (o > 0) - (o < 0) : (a->n > b->n) - (a->n < b->n);
}

static int equal_lists(struct ek_tpl_rt *rt, bool *out, const struct ek_tpl_list *a,
                       const struct ek_tpl_list *b)
{
    *out = a->n == b->n;
    int rc = 0;
    for (size_t i = 0; !rc && *out && i < a->n; i++)
        rc = ek_tpl_equal(rt, out, &a->v[i], &b->v[i]);
    return rc;
}

static int equal_dicts(struct ek_tpl_rt *rt, bool *out, const struct ek_tpl_dict *a,
                       const struct ek_tpl_dict *b)
{
    *out = a->n == b->n;
    int rc = 0;
    for (size_t i = 0; !rc && *out && i < a->n; i++) {
        const struct ek_tpl_val *v;
        rc = ek_tpl_dict_get(rt, &v, b, &a->keys[i]);
        if (rc || !v)
            *out = false;
        else
            rc = ek_tpl_equal(rt, out, &a->vals[i], v);
    }
    return rc;
}

static int equal_same_kind(struct ek_tpl_rt *rt, bool *out, const struct ek_tpl_val *a,
                           const struct ek_tpl_val *b)
{
    switch (a->kind) {
    case EK_TPL_NONE:
    case EK_TPL_UNDEF:
        *out = true;
        return 0;
    case EK_TPL_STR:
        *out = order_strings(a->s, b->s) == 0;
        return ek_tpl_step(rt, a->s->n / 64);
    case EK_TPL_LIST:
    case EK_TPL_TUPLE:
    case EK_TPL_RANGE:
        return equal_lists(rt, out, a->l, b->l);
    case EK_TPL_DICT:
        return equal_dicts(rt, out, a->d, b->d);
    default:
        *out = a->ns == b->ns; /* identity: every member is a pointer */
        return 0;
    }
}

int ek_tpl_equal(struct ek_tpl_rt *rt, bool *out, const struct ek_tpl_val *a,
                 const struct ek_tpl_val *b)
{
    int rc = ek_tpl_step(rt, 1);
    if (rc)
        return rc;
    if (ek_tpl_is_number(a) && ek_tpl_is_number(b)) {
        *out = order_numbers(a, b) == 0;
        return 0;
    }
    if (a->kind != b->kind) {
        *out = false;
        return 0;
    }
    rc = ek_tpl_down(rt);
    if (!rc) {
        rc = equal_same_kind(rt, out, a, b);
        rt->depth--;
    }
    return rc;
}

static int order_lists(struct ek_tpl_rt *rt, int *out, const struct ek_tpl_list *a,
                       const struct ek_tpl_list *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++) {
        bool is_equal;
        int rc = ek_tpl_equal(rt, &is_equal, &a->v[i], &b->v[i]);
        if (rc)
            return rc;
        if (!is_equal)
            return ek_tpl_order(rt, out, &a->v[i], &b->v[i]);
    }
    *out = (a->n > b->n) - (a->n < b->n);
    return 0;
}

int ek_tpl_order(struct ek_tpl_rt *rt, int *out, const struct ek_tpl_val *a,
                 const struct ek_tpl_val *b)
{
    int rc = ek_tpl_step(rt, 1);
    if (rc)
        return rc;
    if (a->kind == EK_TPL_UNDEF || b->kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, a->kind == EK_TPL_UNDEF ? a : b);
    if (ek_tpl_is_number(a) && ek_tpl_is_number(b)) {
        *out = order_numbers(a, b);
        return 0;
    }
    if (a->kind == EK_TPL_STR && b->kind == EK_TPL_STR) {
        *out = order_strings(a->s, b->s);
        return 0;
    }
    if (a->kind == b->kind && (a->kind == EK_TPL_LIST || a->kind == EK_TPL_TUPLE)) {
        rc = ek_tpl_down(rt);
        if (!rc) {
            rc = order_lists(rt, out, a->l, b->l);
            rt->depth--;
        }
        return rc;
    }
    return ek_tpl_fail(rt, EK_EFORMAT, "values of type '%s' and '%s' have no order",
                       ek_tpl_type(a), ek_tpl_type(b));
}

bool ek_tpl_has_length(const struct ek_tpl_val *v)
{
    return v->kind == EK_TPL_UNDEF || v->kind == EK_TPL_STR || v->kind == EK_TPL_DICT ||
           (v->kind >= EK_TPL_LIST && v->kind <= EK_TPL_VIEW);
}

int ek_tpl_length(struct ek_tpl_rt *rt, size_t *out, const struct ek_tpl_val *v)
{
    switch (v->kind) {
    case EK_TPL_UNDEF:
        *out = 0;
        return 0;
    case EK_TPL_STR:
        *out = v->s->n_chars;
        return 0;
    case EK_TPL_LIST:
    case EK_TPL_TUPLE:
    case EK_TPL_RANGE:
    case EK_TPL_VIEW:
        *out = v->l->n;
        return 0;
    case EK_TPL_DICT:
        *out = v->d->n;
        return 0;
    default:
        return ek_tpl_fail(rt, EK_EFORMAT, "a value of type '%s' has no length",
                           ek_tpl_type(v));
    }
}
