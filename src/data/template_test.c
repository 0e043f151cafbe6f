#include "data/template_int.h"

#include <math.h>
#include <string.h>

/* Tests: `x is name`. */

#define TEST(name)                                                                     \
    static int name(struct ek_tpl_rt *rt, struct ek_tpl_val *out,                      \
                    const struct ek_tpl_val *self, const struct ek_tpl_args *args)

/* A test without parameters that is one expression of self. */
#define SIMPLE_TEST(name, expr)                                                        \
    TEST(name)                                                                         \
    {                                                                                  \
        struct ek_tpl_val v[EK_TPL_PARAMS_MAX];                                        \
        *out = ek_tpl_bool(expr);                                                      \
        return ek_tpl_bind(rt, v, args, "");                                           \
    }

static bool is_sequence(const struct ek_tpl_val *v)
{
    return ek_tpl_has_length(v) && v->kind != EK_TPL_VIEW;
}

SIMPLE_TEST(t_defined, self->kind != EK_TPL_UNDEF)
SIMPLE_TEST(t_undefined, self->kind == EK_TPL_UNDEF)
SIMPLE_TEST(t_none, self->kind == EK_TPL_NONE)
SIMPLE_TEST(t_boolean, self->kind == EK_TPL_BOOL)
SIMPLE_TEST(t_true, self->kind == EK_TPL_BOOL && self->b)
SIMPLE_TEST(t_false, self->kind == EK_TPL_BOOL && !self->b)
SIMPLE_TEST(t_integer, self->kind == EK_TPL_INT)
SIMPLE_TEST(t_float, self->kind == EK_TPL_FLOAT)
SIMPLE_TEST(t_number, ek_tpl_is_number(self))
SIMPLE_TEST(t_string, self->kind == EK_TPL_STR)
SIMPLE_TEST(t_mapping, self->kind == EK_TPL_DICT)
SIMPLE_TEST(t_iterable, ek_tpl_is_iterable(self) || self->kind == EK_TPL_LOOP)
SIMPLE_TEST(t_sequence, is_sequence(self))
SIMPLE_TEST(t_callable, self->kind == EK_TPL_UNDEF || self->kind == EK_TPL_MACRO ||
                            self->kind == EK_TPL_FUNC)
SIMPLE_TEST(t_escaped, self->kind == EK_TPL_STR && self->s->is_markup)

/* self % n == rest, with the operator's own errors. */
static int remainder_is(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                        const struct ek_tpl_val *self, struct ek_tpl_val n,
                        int64_t rest)
{
    struct ek_tpl_val mod, want = ek_tpl_int(rest);
    bool is_equal = false;
    int rc = ek_tpl_binary(rt, &mod, '%', self, &n);
    if (!rc)
        rc = ek_tpl_equal(rt, &is_equal, &mod, &want);
    *out = ek_tpl_bool(is_equal);
    return rc;
}

TEST(t_odd)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    int rc = ek_tpl_bind(rt, v, args, "");
    return rc ? rc : remainder_is(rt, out, self, ek_tpl_int(2), 1);
}

TEST(t_even)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    int rc = ek_tpl_bind(rt, v, args, "");
    return rc ? rc : remainder_is(rt, out, self, ek_tpl_int(2), 0);
}

TEST(t_divisibleby)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    int rc = ek_tpl_bind(rt, v, args, "num");
    return rc ? rc : remainder_is(rt, out, self, v[0], 0);
}

static int cased(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                 ek_tpl_fn *fn)
{
    struct ek_tpl_val text = {.kind = EK_TPL_STR};
    int rc = ek_tpl_to_str(rt, &text.s, self);
    return rc ? rc : fn(rt, out, &text, args);
}

TEST(t_lower)
{
    return cased(rt, out, self, args, ek_tpl_islower);
}

TEST(t_upper)
{
    return cased(rt, out, self, args, ek_tpl_isupper);
}

static int compare(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                   char op)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    bool is_true = false;
    int rc = ek_tpl_bind(rt, v, args, op == EK_TPL_OP_IN ? "seq" : "b");
    if (!rc)
        rc = ek_tpl_compare(rt, &is_true, op, self, &v[0]);
    *out = ek_tpl_bool(is_true);
    return rc;
}

#define COMPARE_TEST(name, op)                                                         \
    TEST(name)                                                                         \
    {                                                                                  \
        return compare(rt, out, self, args, op);                                       \
    }

COMPARE_TEST(t_eq, EK_TPL_OP_EQ)
COMPARE_TEST(t_ne, EK_TPL_OP_NE)
COMPARE_TEST(t_lt, '<')
COMPARE_TEST(t_le, EK_TPL_OP_LE)
COMPARE_TEST(t_gt, '>')
COMPARE_TEST(t_ge, EK_TPL_OP_GE)
COMPARE_TEST(t_in, EK_TPL_OP_IN)

/* Identity: of small values it is equality of the same type. */
TEST(t_sameas)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    bool is_same = false;
    int rc = ek_tpl_bind(rt, v, args, "other");
    if (!rc && self->kind == v[0].kind) {
        if (self->kind <= EK_TPL_STR)
            rc = ek_tpl_equal(rt, &is_same, self, &v[0]);
        else
            is_same = self->ns == v[0].ns;
    }
    *out = ek_tpl_bool(is_same);
    return rc;
}

static int is_name_known(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                         const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                         const struct ek_tpl_def *(*find)(const char *, size_t))
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    *out = ek_tpl_bool(self->kind == EK_TPL_STR && find(self->s->p, self->s->n));
    return ek_tpl_bind(rt, v, args, "");
}

TEST(t_filter)
{
    return is_name_known(rt, out, self, args, ek_tpl_find_filter);
}

TEST(t_test)
{
    return is_name_known(rt, out, self, args, ek_tpl_find_test);
}

static const struct ek_tpl_def tests[] = {
    {"defined", t_defined},
    {"undefined", t_undefined},
    {"none", t_none},
    {"boolean", t_boolean},
    {"true", t_true},
    {"false", t_false},
    {"integer", t_integer},
    {"float", t_float},
    {"number", t_number},
    {"string", t_string},
    {"mapping", t_mapping},
    {"iterable", t_iterable},
    {"sequence", t_sequence},
    {"callable", t_callable},
    {"escaped", t_escaped},
    {"odd", t_odd},
    {"even", t_even},
    {"divisibleby", t_divisibleby},
    {"lower", t_lower},
    {"upper", t_upper},
    {"in", t_in},
    {"sameas", t_sameas},
    {"filter", t_filter},
    {"test", t_test},
    {"eq", t_eq},
    {"equalto", t_eq},
    {"==", t_eq},
    {"ne", t_ne},
    {"!=", t_ne},
    {"lt", t_lt},
    {"lessthan", t_lt},
    {"<", t_lt},
    {"le", t_le},
    {"<=", t_le},
    {"gt", t_gt},
    {"greaterthan", t_gt},
    {">", t_gt},
    {"ge", t_ge},
    {">=", t_ge},
    {0},
};

const struct ek_tpl_def *ek_tpl_find_test(const char *name, size_t n)
{
    return ek_tpl_find_def(tests, name, n);
}
