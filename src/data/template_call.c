#include "data/template_int.h"

#include <stdio.h>
#include <string.h>

/* Calls: binding arguments, macros, the functions of the environment. */

const struct ek_tpl_def *ek_tpl_find_def(const struct ek_tpl_def *table,
                                         const char *name, size_t n)
{
    for (; table->name; table++)
        if (strlen(table->name) == n && memcmp(table->name, name, n) == 0)
            return table;
    return NULL;
}

int ek_tpl_bind_method(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                       const struct ek_tpl_def *def, const struct ek_tpl_val *self)
{
    struct ek_tpl_bound *bound = ek_tpl_alloc(rt, 1, sizeof *bound);
    if (!bound)
        return ek_tpl_no_memory(rt);
    *bound = (struct ek_tpl_bound){def, *self};
    *out = (struct ek_tpl_val){.kind = EK_TPL_FUNC, .fn = bound};
    return 0;
}

int ek_tpl_call(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_val *callee, const struct ek_tpl_args *args)
{
    if (callee->kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, callee);
    if (callee->kind == EK_TPL_MACRO)
        return ek_tpl_call_macro(rt, out, callee->m, args);
    if (callee->kind != EK_TPL_FUNC)
        return ek_tpl_fail(rt, EK_EFORMAT, "a value of type '%s' cannot be called",
                           ek_tpl_type(callee));
    struct ek_tpl_args named = *args;
    char what[48];
    snprintf(what, sizeof what, "%s()", callee->fn->def->name);
    named.what = what;
    return callee->fn->def->fn(rt, out, &callee->fn->self, &named);
}

/* The next word of a spec: its length, and whether a bar came before it. */
static size_t next_param(const char **spec, bool *is_optional)
{
    while (**spec == ' ' || **spec == '|') {
        *is_optional |= **spec == '|';
        (*spec)++;
    }
    return strcspn(*spec, " |");
}

int ek_tpl_bind(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_args *args, const char *spec)
{
    size_t n = 0, n_kw = 0;
    bool is_optional = false;
    if (*spec == '/') {
        spec++;
        if (args->kw->n)
            return ek_tpl_fail(rt, EK_EFORMAT, "%s takes no parameters by name",
                               args->what);
    }
    for (size_t len; (len = next_param(&spec, &is_optional)); spec += len, n++) {
        const struct ek_tpl_val *kw = ek_tpl_dict_get_text(args->kw, spec, len);
        out[n] = (struct ek_tpl_val){.kind = EK_TPL_MISSING};
        if (kw && n < args->n_pos)
            return ek_tpl_fail(rt, EK_EFORMAT, "%s got parameter '%.*s' twice",
                               args->what, (int)len, spec);
        if (n < args->n_pos)
            out[n] = args->pos[n];
        else if (kw)
            out[n] = *kw;
        else if (!is_optional)
            return ek_tpl_fail(rt, EK_EFORMAT, "%s needs parameter '%.*s'", args->what,
                               (int)len, spec);
        n_kw += kw != NULL;
    }
    if (args->n_pos > n)
        return ek_tpl_fail(rt, EK_EFORMAT, "%s takes at most %zu parameters, not %zu",
                           args->what, n, args->n_pos);
    if (args->kw->n > n_kw)
        return ek_tpl_fail(rt, EK_EFORMAT, "%s got a parameter it does not know",
                           args->what);
    return 0;
}

int ek_tpl_arg_int(struct ek_tpl_rt *rt, int64_t *out, const struct ek_tpl_val *v,
                   const char *what)
{
    if (ek_tpl_is_integer(v, out))
        return 0;
    return ek_tpl_fail(rt, EK_EFORMAT,
                       "%s takes a whole number, not a value of type '%s'", what,
                       ek_tpl_type(v));
}

int ek_tpl_arg_str(struct ek_tpl_rt *rt, const struct ek_tpl_str **out,
                   const struct ek_tpl_val *v, const char *what)
{
    if (v->kind != EK_TPL_STR)
        return ek_tpl_fail(rt, EK_EFORMAT,
                           "%s takes a string, not a value of type '%s'", what,
                           ek_tpl_type(v));
    *out = v->s;
    return 0;
}

/* ---- macros ---------------------------------------------------------------------- */

struct macro_call {
    const struct ek_tpl_node *def;
    const struct ek_tpl_args *args;
    struct ek_tpl_scope *scope;
    size_t n_kw; /* keywords that went to a parameter */
};

static int set_named(struct ek_tpl_rt *rt, struct ek_tpl_scope *s, const char *name,
                     struct ek_tpl_val v)
{
    uint64_t id;
    if (!ek_map_get(&rt->t->index, name, strlen(name), &id))
        return 0;
    return ek_tpl_scope_set(rt, s, (int)id, v);
}

static int set_params(struct ek_tpl_rt *rt, struct macro_call *c, size_t *n_params)
{
    int rc = 0;
    *n_params = 0;
    for (const struct ek_tpl_node *k = c->def->kids; !rc && k; k = k->next) {
        size_t i = (*n_params)++;
        const struct ek_tpl_name *name = &rt->t->names[k->name];
        const struct ek_tpl_val *kw = NULL;
        struct ek_tpl_val v = {.kind = EK_TPL_MISSING};
        if (i < c->args->n_pos)
            v = c->args->pos[i];
        else if ((kw = ek_tpl_dict_get_text(c->args->kw, name->p, name->n)))
            v = *kw;
        else if (k->a)
            rc = ek_tpl_eval(rt, &v, k->a, c->scope);
        c->n_kw += kw != NULL;
        if (!rc)
            rc = ek_tpl_scope_set(rt, c->scope, k->name, v);
    }
    return rc;
}

static bool is_taken(const struct ek_tpl_rt *rt, const struct macro_call *c,
                     const struct ek_tpl_str *key)
{
    if (c->def->uses_caller && ek_tpl_str_is(key, "caller"))
        return true;
    size_t i = 0;
    for (const struct ek_tpl_node *k = c->def->kids; k; k = k->next, i++) {
        const struct ek_tpl_name *name = &rt->t->names[k->name];
        if (i >= c->args->n_pos && name->n == key->n &&
            !memcmp(name->p, key->p, key->n))
            return true;
    }
    return false;
}

static int set_kwargs(struct ek_tpl_rt *rt, struct macro_call *c)
{
    const struct ek_tpl_dict *kw = c->args->kw;
    struct ek_tpl_dict *d;
    int rc = ek_tpl_dict_new(rt, &d, kw->n);
    for (size_t i = 0; !rc && i < kw->n; i++)
        if (!is_taken(rt, c, kw->keys[i].s))
            rc = ek_tpl_dict_put(rt, d, kw->keys[i], kw->vals[i]);
    struct ek_tpl_val v = {.kind = EK_TPL_DICT, .d = d};
    return rc ? rc : set_named(rt, c->scope, "kwargs", v);
}

/* caller, kwargs and varargs, where the body uses them. */
static int set_extras(struct ek_tpl_rt *rt, struct macro_call *c, size_t n_params)
{
    const struct ek_tpl_args *args = c->args;
    const struct ek_tpl_val *caller = ek_tpl_dict_get_text(args->kw, "caller", 6);
    int rc = 0;
    if (c->def->uses_caller) {
        struct ek_tpl_val v;
        rc = caller ? 0 : ek_tpl_undef(rt, &v, NULL, NULL, "no caller is defined");
        if (!rc)
            rc = set_named(rt, c->scope, "caller", caller ? *caller : v);
        c->n_kw += caller != NULL;
    }
    if (!rc && c->def->uses_kwargs)
        rc = set_kwargs(rt, c);
    if (!rc && c->def->uses_varargs) {
        struct ek_tpl_val rest;
        bool has_rest = args->n_pos > n_params;
        rc = ek_tpl_list_new(rt, &rest, EK_TPL_TUPLE,
                             has_rest ? args->pos + n_params : NULL,
                             has_rest ? args->n_pos - n_params : 0);
        if (!rc)
            rc = set_named(rt, c->scope, "varargs", rest);
    }
    return rc;
}

static int check_args(struct ek_tpl_rt *rt, const struct macro_call *c, size_t n_params)
{
    const struct ek_tpl_name *name = &rt->t->names[c->def->name];
    int n = name->n > 80 ? 80 : (int)name->n;
    if (c->args->n_pos > n_params && !c->def->uses_varargs)
        return ek_tpl_fail(rt, EK_EFORMAT,
                           "macro '%.*s' takes at most %zu parameters, not %zu", n,
                           name->p, n_params, c->args->n_pos);
    if (c->args->kw->n > c->n_kw && !c->def->uses_kwargs)
        return ek_tpl_fail(rt, EK_EFORMAT,
                           "macro '%.*s' got a parameter it does not know", n, name->p);
    return 0;
}

int ek_tpl_call_macro(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                      const struct ek_tpl_macro *m, const struct ek_tpl_args *args)
{
    struct macro_call c = {m->def, args, NULL, 0};
    size_t n_params = 0;
    int rc = ek_tpl_scope_new(rt, &c.scope, m->scope, m->def->unset, m->def->n_unset);
    if (!rc)
        rc = set_params(rt, &c, &n_params);
    if (!rc)
        rc = set_extras(rt, &c, n_params);
    if (!rc)
        rc = check_args(rt, &c, n_params);
    if (rc)
        return rc;
    size_t at = ek_tpl_capture_begin(rt);
    rc = ek_tpl_exec(rt, m->def->body, c.scope);
    return rc ? rc : ek_tpl_capture_end(rt, out, at);
}

/* ---- functions of the environment ------------------------------------------------ */

static int raise_exception(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                           const struct ek_tpl_val *self,
                           const struct ek_tpl_args *args)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    const struct ek_tpl_str *s;
    (void)out;
    (void)self;
    int rc = ek_tpl_bind(rt, v, args, "message");
    if (!rc)
        rc = ek_tpl_to_str(rt, &s, &v[0]);
    if (rc)
        return rc;
    if (s->n == 0)
        return ek_tpl_fail(rt, EK_EINVAL, "raise_exception() without a text");
    /* The sentence is the template's own, without a line. */
    return ek_err_set(rt->err, EK_EINVAL, "%.*s", (int)(s->n > 4096 ? 4096 : s->n),
                      s->p);
}

static int strftime_now(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                        const struct ek_tpl_val *self, const struct ek_tpl_args *args)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    const struct ek_tpl_str *format = NULL;
    (void)self;
    int rc = ek_tpl_bind(rt, v, args, "format");
    if (!rc)
        rc = ek_tpl_arg_str(rt, &format, &v[0], args->what);
    return rc ? rc : ek_tpl_strftime(rt, out, format);
}

static int put_pairs(struct ek_tpl_rt *rt, struct ek_tpl_dict *d,
                     const struct ek_tpl_val *from)
{
    struct ek_tpl_list pairs, pair;
    int rc = 0;
    if (from->kind == EK_TPL_DICT)
        rc = ek_tpl_dict_pairs(rt, &pairs, from->d);
    else
        rc = ek_tpl_items(rt, &pairs, from);
    for (size_t i = 0; !rc && i < pairs.n; i++) {
        rc = ek_tpl_items(rt, &pair, &pairs.v[i]);
        if (!rc && pair.n != 2)
            rc = ek_tpl_fail(rt, EK_EFORMAT, "a dict is made of pairs");
        if (!rc)
            rc = ek_tpl_dict_put(rt, d, pair.v[0], pair.v[1]);
    }
    return rc;
}

static int make_dict(struct ek_tpl_rt *rt, struct ek_tpl_dict **out,
                     const struct ek_tpl_args *args)
{
    int rc = ek_tpl_dict_new(rt, out, 0);
    if (!rc && args->n_pos > 1)
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s takes at most 1 parameter without name",
                         args->what);
    if (!rc && args->n_pos)
        rc = put_pairs(rt, *out, &args->pos[0]);
    for (size_t i = 0; !rc && i < args->kw->n; i++)
        rc = ek_tpl_dict_put(rt, *out, args->kw->keys[i], args->kw->vals[i]);
    return rc;
}

static int dict_fn(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_val *self, const struct ek_tpl_args *args)
{
    struct ek_tpl_dict *d;
    (void)self;
    int rc = make_dict(rt, &d, args);
    if (!rc)
        *out = (struct ek_tpl_val){.kind = EK_TPL_DICT, .d = d};
    return rc;
}

static int namespace_fn(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                        const struct ek_tpl_val *self, const struct ek_tpl_args *args)
{
    struct ek_tpl_dict *d;
    (void)self;
    int rc = make_dict(rt, &d, args);
    struct ek_tpl_ns *ns = rc ? NULL : ek_tpl_alloc(rt, 1, sizeof *ns);
    if (!ns)
        return rc ? rc : ek_tpl_no_memory(rt);
    ns->d = *d;
    for (size_t i = 0; i < d->n; i++)
        if (d->keys[i].kind == EK_TPL_STR && d->keys[i].s->n &&
            d->keys[i].s->p[0] == '_')
            return ek_tpl_fail(rt, EK_EFORMAT,
                               "attributes of a namespace cannot begin with '_'");
    *out = (struct ek_tpl_val){.kind = EK_TPL_NS, .ns = ns};
    return 0;
}

/* Items of range(lo, hi, step), or EK_TPL_RANGE_MAX + 1. step is not 0. */
static uint64_t range_length(int64_t lo, int64_t hi, int64_t step)
{
    bool is_up = step > 0;
    if (is_up ? lo >= hi : lo <= hi)
        return 0;
    uint64_t span = is_up ? (uint64_t)hi - (uint64_t)lo : (uint64_t)lo - (uint64_t)hi;
    uint64_t size = is_up ? (uint64_t)step : -(uint64_t)step;
    uint64_t n = (span - 1) / size + 1;
    return n > EK_TPL_RANGE_MAX ? EK_TPL_RANGE_MAX + 1 : n;
}

static int range_fn(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                    const struct ek_tpl_val *self, const struct ek_tpl_args *args)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    int64_t at[3] = {0, 0, 1};
    (void)self;
    int rc = ek_tpl_bind(rt, v, args, "/start | stop step");
    for (size_t i = 0; !rc && i < args->n_pos; i++)
        rc = ek_tpl_arg_int(rt, &at[i], &v[i], args->what);
    if (rc)
        return rc;
    if (args->n_pos == 1) {
        at[1] = at[0];
        at[0] = 0;
    }
    if (at[2] == 0)
        return ek_tpl_fail(rt, EK_EFORMAT, "the step of range() cannot be 0");
    uint64_t n = range_length(at[0], at[1], at[2]);
    if (n > EK_TPL_RANGE_MAX)
        return ek_tpl_fail(rt, EK_ELIMIT, "range() is longer than %d",
                           EK_TPL_RANGE_MAX);
    struct ek_tpl_list *l = ek_tpl_alloc(rt, 1, sizeof *l);
    if (l)
        *l = (struct ek_tpl_list){ek_tpl_alloc(rt, n, sizeof *l->v), n};
    if (!l || !l->v)
        return ek_tpl_no_memory(rt);
    for (size_t i = 0; i < n; i++)
        l->v[i] = ek_tpl_int(at[0] + (int64_t)i * at[2]);
    *out = (struct ek_tpl_val){.kind = EK_TPL_RANGE, .l = l};
    return ek_tpl_step(rt, n / 8);
}

const struct ek_tpl_def ek_tpl_globals[] = {
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"namespace", namespace_fn},
    {"dict", dict_fn},
    {"range", range_fn},
    {0},
};
