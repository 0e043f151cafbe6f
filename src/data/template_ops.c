#include "data/template_int.h"

#include <math.h>
#include <string.h>

/* Operators and subscripts with Python's meaning; integers have 64 bits and a result
 * that does not fit is an error. */

static int no_operator(struct ek_tpl_rt *rt, char op, const struct ek_tpl_val *a,
                       const struct ek_tpl_val *b)
{
    const char *text = op == EK_TPL_OP_FLOORDIV ? "//"
                       : op == EK_TPL_OP_POW    ? "**"
                                                : NULL;
    char one[2] = {op, 0};
    return ek_tpl_fail(rt, EK_EFORMAT,
                       "operator '%s' does not take values of type '%s' and '%s'",
                       text ? text : one, ek_tpl_type(a), ek_tpl_type(b));
}

static int overflow(struct ek_tpl_rt *rt)
{
    return ek_tpl_fail(rt, EK_ELIMIT, "an integer does not fit 64 bits");
}

static int by_zero(struct ek_tpl_rt *rt)
{
    return ek_tpl_fail(rt, EK_EFORMAT, "division by zero");
}

static int int_power(struct ek_tpl_rt *rt, int64_t *out, int64_t base, int64_t exp)
{
    int64_t r = 1;
    while (exp > 0) {
        if ((exp & 1) && __builtin_mul_overflow(r, base, &r))
            return overflow(rt);
        exp >>= 1;
        if (exp && __builtin_mul_overflow(base, base, &base))
            return overflow(rt);
    }
    *out = r;
    return 0;
}

static int float_op(struct ek_tpl_rt *rt, struct ek_tpl_val *out, char op, double x,
                    double y)
{
    double r = 0;
    switch (op) {
    case '+':
        r = x + y;
        break;
    case '-':
        r = x - y;
        break;
    case '*':
        r = x * y;
        break;
    case EK_TPL_OP_POW:
        if (x == 0 && y < 0)
            return by_zero(rt);
        if (x < 0 && isfinite(x) && isfinite(y) && y != floor(y))
            return ek_tpl_fail(rt, EK_EUNSUP, "complex numbers are not interpreted");
        r = pow(x, y);
        if (isinf(r) && isfinite(x) && isfinite(y))
            return ek_tpl_fail(rt, EK_EFORMAT, "the result of '**' is too large");
        break;
    default:
        if (y == 0)
            return by_zero(rt);
        if (op == '/') {
            r = x / y;
            break;
        }
        double mod = fmod(x, y);
        double div = (x - mod) / y;
        if (mod != 0 && (y < 0) != (mod < 0)) {
            mod += y;
            div -= 1;
        } else if (mod == 0) {
            mod = copysign(0.0, y);
        }
        double whole = floor(div);
        if (div != 0 && div - whole > 0.5)
            whole += 1;
        if (div == 0)
            whole = copysign(0.0, x / y);
        r = op == '%' ? mod : whole;
        break;
    }
    *out = ek_tpl_float(r);
    return 0;
}

static int int_divide(struct ek_tpl_rt *rt, struct ek_tpl_val *out, char op, int64_t x,
                      int64_t y)
{
    if (y == 0)
        return by_zero(rt);
    if (op == '/') {
        *out = ek_tpl_float((double)((long double)x / (long double)y));
        return 0;
    }
    if (y == -1) {
        int64_t r = 0;
        if (op == EK_TPL_OP_FLOORDIV && __builtin_sub_overflow((int64_t)0, x, &r))
            return overflow(rt);
        *out = ek_tpl_int(r);
        return 0;
    }
    int64_t div = x / y, mod = x % y;
    if (mod && (mod < 0) != (y < 0)) {
        div--;
        mod += y;
    }
    *out = ek_tpl_int(op == '%' ? mod : div);
    return 0;
}

static int int_op(struct ek_tpl_rt *rt, struct ek_tpl_val *out, char op, int64_t x,
                  int64_t y)
{
    int64_t r = 0;
    bool is_over = false;
    switch (op) {
    case '+':
        is_over = __builtin_add_overflow(x, y, &r);
        break;
    case '-':
        is_over = __builtin_sub_overflow(x, y, &r);
        break;
    case '*':
        is_over = __builtin_mul_overflow(x, y, &r);
        break;
    case EK_TPL_OP_POW:
        if (y < 0)
            return float_op(rt, out, op, (double)x, (double)y);
        if (int_power(rt, &r, x, y))
            return EK_ELIMIT;
        break;
    default:
        return int_divide(rt, out, op, x, y);
    }
    if (is_over)
        return overflow(rt);
    *out = ek_tpl_int(r);
    return 0;
}

static int add_strings(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                       const struct ek_tpl_str *a, const struct ek_tpl_str *b)
{
    size_t at = ek_tpl_begin(rt);
    bool is_markup = a->is_markup || b->is_markup;
    int rc = is_markup ? ek_tpl_put_escaped(rt, a) : ek_tpl_put_sub(rt, a, 0, a->n);
    if (!rc)
        rc = is_markup ? ek_tpl_put_escaped(rt, b) : ek_tpl_put_sub(rt, b, 0, b->n);
    if (!rc)
        rc = ek_tpl_end(rt, out, at);
    if (!rc)
        out->new_s->is_markup = is_markup;
    return rc;
}

static int add_lists(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                     const struct ek_tpl_val *a, const struct ek_tpl_val *b)
{
    size_t n = a->l->n + b->l->n;
    struct ek_tpl_val *v = ek_tpl_alloc(rt, n, sizeof *v);
    if (!v)
        return ek_tpl_no_memory(rt);
    if (a->l->n)
        memcpy(v, a->l->v, a->l->n * sizeof *v);
    if (b->l->n)
        memcpy(v + a->l->n, b->l->v, b->l->n * sizeof *v);
    struct ek_tpl_list *l = ek_tpl_alloc(rt, 1, sizeof *l);
    if (!l)
        return ek_tpl_no_memory(rt);
    *l = (struct ek_tpl_list){v, n};
    *out = (struct ek_tpl_val){.kind = a->kind, .l = l};
    return ek_tpl_step(rt, n / 8);
}

static int repeat_list(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                       const struct ek_tpl_val *v, size_t times)
{
    size_t n = v->l->n;
    struct ek_tpl_list *l = ek_tpl_alloc(rt, 1, sizeof *l);
    if (n == 0)
        times = 0;
    if (l)
        l->v = ek_tpl_alloc(rt, times, n ? n * sizeof *l->v : 1);
    if (!l || !l->v)
        return ek_tpl_no_memory(rt);
    for (size_t i = 0; i < times; i++)
        memcpy(l->v + i * n, v->l->v, n * sizeof *l->v);
    l->n = times * n;
    *out = (struct ek_tpl_val){.kind = v->kind, .is_plain = v->is_plain, .l = l};
    return ek_tpl_step(rt, l->n / 8);
}

static int repeat(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                  const struct ek_tpl_val *v, int64_t times)
{
    if (times < 0)
        times = 0;
    if (v->kind != EK_TPL_STR)
        return repeat_list(rt, out, v, (size_t)times);
    size_t at = ek_tpl_begin(rt);
    int rc = 0;
    for (int64_t i = 0; !rc && v->s->n && i < times; i++) {
        rc = ek_tpl_put_sub(rt, v->s, 0, v->s->n);
        if (!rc)
            rc = ek_tpl_step(rt, 1);
    }
    if (!rc)
        rc = ek_tpl_end(rt, out, at);
    if (!rc)
        out->new_s->is_markup = v->s->is_markup;
    return rc;
}

static bool is_sequence(const struct ek_tpl_val *v)
{
    return v->kind == EK_TPL_STR || v->kind == EK_TPL_LIST || v->kind == EK_TPL_TUPLE;
}

int ek_tpl_binary(struct ek_tpl_rt *rt, struct ek_tpl_val *out, char op,
                  const struct ek_tpl_val *a, const struct ek_tpl_val *b)
{
    struct ek_tpl_val x = *a, y = *b;
    int64_t i, j;
    if (op == '%' && x.kind == EK_TPL_STR)
        return ek_tpl_percent(rt, out, x.s, &y);
    if (x.kind == EK_TPL_UNDEF || y.kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, x.kind == EK_TPL_UNDEF ? &x : &y);
    bool is_plain = x.is_plain || y.is_plain;
    int rc;
    if (ek_tpl_is_integer(&x, &i) && ek_tpl_is_integer(&y, &j)) {
        rc = int_op(rt, out, op, i, j);
    } else if (ek_tpl_is_number(&x) && ek_tpl_is_number(&y)) {
        rc = float_op(rt, out, op, ek_tpl_to_double(&x), ek_tpl_to_double(&y));
    } else if (op == '+' && x.kind == y.kind && is_sequence(&x)) {
        if (x.kind == EK_TPL_STR)
            return add_strings(rt, out, x.s, y.s);
        rc = add_lists(rt, out, &x, &y);
    } else if (op == '*' && is_sequence(&x) && ek_tpl_is_integer(&y, &j)) {
        return repeat(rt, out, &x, j);
    } else if (op == '*' && is_sequence(&y) && ek_tpl_is_integer(&x, &i)) {
        return repeat(rt, out, &y, i);
    } else {
        return no_operator(rt, op, &x, &y);
    }
    if (!rc)
        out->is_plain = is_plain;
    return rc;
}

int ek_tpl_sign(struct ek_tpl_rt *rt, struct ek_tpl_val *out, char op,
                const struct ek_tpl_val *v)
{
    int64_t i;
    bool is_plain = v->is_plain;
    if (v->kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, v);
    if (ek_tpl_is_integer(v, &i)) {
        if (op == '-' && __builtin_sub_overflow((int64_t)0, i, &i))
            return overflow(rt);
        *out = ek_tpl_int(i);
    } else if (v->kind == EK_TPL_FLOAT) {
        *out = ek_tpl_float(op == '-' ? -v->f : v->f);
    } else {
        return ek_tpl_fail(rt, EK_EFORMAT,
                           "sign '%c' does not take a value of type '%s'", op,
                           ek_tpl_type(v));
    }
    out->is_plain = is_plain;
    return 0;
}

int ek_tpl_compare(struct ek_tpl_rt *rt, bool *out, char op, const struct ek_tpl_val *a,
                   const struct ek_tpl_val *b)
{
    int order = 0, rc;
    switch (op) {
    case EK_TPL_OP_EQ:
        return ek_tpl_equal(rt, out, a, b);
    case EK_TPL_OP_NE:
        rc = ek_tpl_equal(rt, out, a, b);
        *out = !*out;
        return rc;
    case EK_TPL_OP_IN:
        return ek_tpl_contains(rt, out, b, a);
    case EK_TPL_OP_NOT_IN:
        rc = ek_tpl_contains(rt, out, b, a);
        *out = !*out;
        return rc;
    default:
        rc = ek_tpl_order(rt, &order, a, b);
        *out = op == '<'            ? order == -1
               : op == '>'          ? order == 1
               : op == EK_TPL_OP_LE ? order == -1 || order == 0
                                    : order == 1 || order == 0;
        return rc;
    }
}

/* Python's rule for an index; false when outside. */
static bool in_bounds(int64_t *i, size_t n)
{
    if (*i < 0)
        *i += (int64_t)n;
    return *i >= 0 && (uint64_t)*i < n;
}

/* x[key] as the value itself has it; *is_there false for Python's TypeError and
 * LookupError. */
static int own_item(struct ek_tpl_rt *rt, struct ek_tpl_val *out, bool *is_there,
                    const struct ek_tpl_val *x, const struct ek_tpl_val *key)
{
    int64_t i;
    *is_there = false;
    if (x->kind == EK_TPL_DICT) {
        const struct ek_tpl_val *v = NULL;
        if (!ek_tpl_is_hashable(key))
            return 0;
        int rc = ek_tpl_dict_get(rt, &v, x->d, key);
        if (!rc && v) {
            *out = *v;
            *is_there = true;
        }
        return rc;
    }
    if (!ek_tpl_is_integer(key, &i))
        return 0;
    if (x->kind == EK_TPL_STR && in_bounds(&i, x->s->n_chars)) {
        size_t at = ek_tpl_str_offset(x->s, (size_t)i);
        uint32_t c;
        *is_there = true;
        int rc = ek_tpl_str_sub(rt, out, x->s, at, at + ek_tpl_char(x->s, at, &c));
        return rc ? rc : ek_tpl_step(rt, at / 64);
    }
    if (x->kind >= EK_TPL_LIST && x->kind <= EK_TPL_RANGE && in_bounds(&i, x->l->n)) {
        *out = x->l->v[i];
        *is_there = true;
    }
    return 0;
}

/* The attributes values have of themselves: methods, loop.*, those of a namespace. */
static int own_attr(struct ek_tpl_rt *rt, struct ek_tpl_val *out, bool *is_there,
                    const struct ek_tpl_val *x, const struct ek_tpl_str *name)
{
    *is_there = false;
    if (name->n > 3 && memcmp(name->p, "__", 2) == 0 &&
        memcmp(name->p + name->n - 2, "__", 2) == 0) {
        *is_there = true;
        return ek_tpl_undef(rt, out, x, NULL,
                            "access to an internal attribute is unsafe");
    }
    if (x->kind == EK_TPL_NS) {
        const struct ek_tpl_val *v = ek_tpl_dict_get_text(&x->ns->d, name->p, name->n);
        if (v) {
            *out = *v;
            *is_there = true;
        }
        return ek_tpl_step(rt, x->ns->d.n / 8);
    }
    if (x->kind == EK_TPL_LOOP)
        return ek_tpl_loop_attr(rt, out, is_there, x->loop, name);
    return ek_tpl_method(rt, out, is_there, x, name);
}

int ek_tpl_attr(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_val *x, const struct ek_tpl_val *name)
{
    struct ek_tpl_val v = *x;
    bool is_there;
    if (v.kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, &v);
    int rc = own_attr(rt, out, &is_there, &v, name->s);
    if (!rc && !is_there)
        rc = own_item(rt, out, &is_there, &v, name);
    if (!rc && !is_there)
        rc = ek_tpl_undef(rt, out, &v, name, NULL);
    return rc;
}

int ek_tpl_item(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_val *x, const struct ek_tpl_val *key)
{
    struct ek_tpl_val v = *x, k = *key;
    bool is_there;
    if (v.kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, &v);
    int rc = own_item(rt, out, &is_there, &v, &k);
    if (!rc && !is_there && k.kind == EK_TPL_STR)
        rc = own_attr(rt, out, &is_there, &v, k.s);
    if (!rc && !is_there)
        rc = ek_tpl_undef(rt, out, &v, &k, NULL);
    return rc;
}

/* Start, stop and step as Python's slice.indices gives them for n items. */
static int slice_bounds(struct ek_tpl_rt *rt, int64_t out[3],
                        const struct ek_tpl_val bounds[3], size_t n)
{
    bool has[3];
    for (int k = 0; k < 3; k++) {
        has[k] = bounds[k].kind != EK_TPL_NONE && bounds[k].kind != EK_TPL_MISSING;
        if (has[k] && !ek_tpl_is_integer(&bounds[k], &out[k]))
            return ek_tpl_fail(rt, EK_EFORMAT,
                               "a slice takes whole numbers, not a value of type '%s'",
                               ek_tpl_type(&bounds[k]));
    }
    int64_t len = (int64_t)n, step = has[2] ? out[2] : 1;
    if (step == 0)
        return ek_tpl_fail(rt, EK_EFORMAT, "the step of a slice cannot be 0");
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? len - 1 : len;
    for (int k = 0; k < 2; k++) {
        if (!has[k]) {
            out[k] = (k == 0) == (step < 0) ? high : low;
            continue;
        }
        if (out[k] < 0)
            out[k] = out[k] < -len ? -len - 1 : out[k];
        if (out[k] < 0)
            out[k] += len;
        out[k] = out[k] < low ? low : out[k] > high ? high : out[k];
    }
    out[2] = step < -len - 1 ? -len - 1 : step > len + 1 ? len + 1 : step;
    return 0;
}

static int slice_string(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                        const struct ek_tpl_str *s, const int64_t at[3])
{
    if (at[2] == 1) {
        size_t from = ek_tpl_str_offset(s, (size_t)at[0]);
        size_t to = at[1] > at[0] ? ek_tpl_str_offset(s, (size_t)at[1]) : from;
        int rc = ek_tpl_str_sub(rt, out, s, from, to);
        return rc ? rc : ek_tpl_step(rt, s->n / 64);
    }
    struct ek_tpl_val all = {.kind = EK_TPL_STR, .s = s};
    struct ek_tpl_list chars;
    int rc = ek_tpl_items(rt, &chars, &all);
    size_t start = ek_tpl_begin(rt);
    for (int64_t i = at[0]; !rc && (at[2] > 0 ? i < at[1] : i > at[1]); i += at[2])
        rc = ek_tpl_put_sub(rt, chars.v[i].s, 0, chars.v[i].s->n);
    if (!rc)
        rc = ek_tpl_end(rt, out, start);
    if (!rc)
        out->new_s->is_markup = s->is_markup;
    return rc;
}

int ek_tpl_slice(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_val *x, const struct ek_tpl_val bounds[3])
{
    struct ek_tpl_val v = *x;
    int64_t at[3];
    if (v.kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, &v);
    bool is_list = v.kind >= EK_TPL_LIST && v.kind <= EK_TPL_RANGE;
    if (!is_list && v.kind != EK_TPL_STR)
        return ek_tpl_fail(rt, EK_EFORMAT, "a value of type '%s' cannot be sliced",
                           ek_tpl_type(&v));
    int rc = slice_bounds(rt, at, bounds, is_list ? v.l->n : v.s->n_chars);
    if (rc)
        return rc;
    if (!is_list)
        return slice_string(rt, out, v.s, at);
    rc = ek_tpl_list_new(rt, out, v.kind, v.l->v, v.l->n);
    if (rc)
        return rc;
    out->is_plain = v.is_plain;
    size_t n = 0;
    for (int64_t i = at[0]; at[2] > 0 ? i < at[1] : i > at[1]; i += at[2])
        out->l->v[n++] = v.l->v[i];
    struct ek_tpl_list *l = ek_tpl_alloc(rt, 1, sizeof *l);
    if (!l)
        return ek_tpl_no_memory(rt);
    *l = (struct ek_tpl_list){out->l->v, n};
    out->l = l;
    return 0;
}
