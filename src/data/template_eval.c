#include "data/template_int.h"

#include <assert.h>
#include <stdio.h>

/* Runs expressions. */

int ek_tpl_eval_args(struct ek_tpl_rt *rt, struct ek_tpl_args *out,
                     const struct ek_tpl_node *arg, struct ek_tpl_scope *s)
{
    struct ek_tpl_dict *kw;
    struct ek_tpl_list pos = {NULL, 0}, more;
    size_t n = 0;
    for (const struct ek_tpl_node *a = arg; a; a = a->next)
        n += a->op == 0;
    int rc = ek_tpl_dict_new(rt, &kw, 0);
    if (!rc && n && !(pos.v = ek_tpl_alloc(rt, n, sizeof *pos.v)))
        return ek_tpl_no_memory(rt);
    for (; !rc && arg; arg = arg->next) {
        struct ek_tpl_val v;
        rc = ek_tpl_eval(rt, &v, arg->a, s);
        if (rc)
            return rc;
        if (arg->op == 0) {
            pos.v[pos.n++] = v;
        } else if (arg->op == '=') {
            rc = ek_tpl_dict_put(rt, kw, arg->val, v);
        } else if (arg->op == '*') {
            struct ek_tpl_val all[2] = {{.kind = EK_TPL_LIST, .l = &pos},
                                        {.kind = EK_TPL_LIST, .l = &more}};
            rc = ek_tpl_items(rt, &more, &v);
            if (!rc)
                rc = ek_tpl_binary(rt, &v, '+', &all[0], &all[1]);
            if (!rc)
                pos = *v.l;
        } else if (v.kind != EK_TPL_DICT) {
            rc = ek_tpl_fail(rt, EK_EFORMAT,
                             "'**' takes a dict, not a value of type '%s'",
                             ek_tpl_type(&v));
        } else {
            for (size_t i = 0; !rc && i < v.d->n; i++)
                rc = v.d->keys[i].kind == EK_TPL_STR
                         ? ek_tpl_dict_put(rt, kw, v.d->keys[i], v.d->vals[i])
                         : ek_tpl_fail(rt, EK_EFORMAT, "keywords must be strings");
        }
    }
    if (!rc)
        *out = (struct ek_tpl_args){.pos = pos.v, .n_pos = pos.n, .kw = kw};
    return rc;
}

static int eval_list(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                     const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    size_t count = 0;
    for (const struct ek_tpl_node *k = n->kids; k; k = k->next)
        count++;
    struct ek_tpl_list *l = ek_tpl_alloc(rt, 1, sizeof *l);
    if (l)
        *l = (struct ek_tpl_list){ek_tpl_alloc(rt, count, sizeof *l->v), 0};
    if (!l || !l->v)
        return ek_tpl_no_memory(rt);
    for (const struct ek_tpl_node *k = n->kids; k; k = k->next) {
        int rc = ek_tpl_eval(rt, &l->v[l->n++], k, s);
        if (rc)
            return rc;
    }
    *out = (struct ek_tpl_val){.l = l};
    out->kind = n->kind == EK_TPL_N_TUPLE ? EK_TPL_TUPLE : EK_TPL_LIST;
    return 0;
}

static int eval_dict(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                     const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    struct ek_tpl_dict *d;
    int rc = ek_tpl_dict_new(rt, &d, 0);
    for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next) {
        struct ek_tpl_val key = {0}, v = {0};
        rc = ek_tpl_eval(rt, &key, k->a, s);
        if (!rc)
            rc = ek_tpl_eval(rt, &v, k->b, s);
        if (!rc)
            rc = ek_tpl_dict_put(rt, d, key, v);
    }
    *out = (struct ek_tpl_val){.kind = EK_TPL_DICT, .d = d};
    return rc;
}

static int eval_slice(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                      const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    struct ek_tpl_val x, bounds[3] = {{0}};
    int rc = ek_tpl_eval(rt, &x, n->a, s), i = 0;
    for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next, i++)
        if (k->a)
            rc = ek_tpl_eval(rt, &bounds[i], k->a, s);
    rt->line = n->line;
    return rc ? rc : ek_tpl_slice(rt, out, &x, bounds);
}

static int eval_binary(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                       const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    struct ek_tpl_val v, right;
    int rc = ek_tpl_eval(rt, &v, n->a, s);
    for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next) {
        rc = ek_tpl_eval(rt, &right, k->a, s);
        rt->line = k->line;
        if (!rc)
            rc = ek_tpl_binary(rt, &v, k->op, &v, &right);
    }
    *out = v;
    return rc;
}

static int eval_compare(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                        const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    struct ek_tpl_val left, right;
    bool is_true = true;
    int rc = ek_tpl_eval(rt, &left, n->a, s);
    for (const struct ek_tpl_node *k = n->kids; !rc && is_true && k; k = k->next) {
        rc = ek_tpl_eval(rt, &right, k->a, s);
        rt->line = k->line;
        if (!rc)
            rc = ek_tpl_compare(rt, &is_true, k->op, &left, &right);
        left = right;
    }
    *out = ek_tpl_bool(is_true);
    return rc;
}

/* The value of the first kid that decides, else of the last. */
static int eval_logic(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                      const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    int rc = 0;
    for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next) {
        rc = ek_tpl_eval(rt, out, k, s);
        if (!rc && ek_tpl_truth(out) == (n->kind == EK_TPL_N_OR))
            break;
    }
    return rc;
}

static int eval_concat(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                       const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    size_t at = ek_tpl_begin(rt);
    int rc = 0;
    for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next) {
        struct ek_tpl_val v;
        rc = ek_tpl_eval(rt, &v, k, s);
        rt->line = n->line;
        if (!rc)
            rc = ek_tpl_put_val(rt, &v);
    }
    return rc ? rc : ek_tpl_end(rt, out, at);
}

static int eval_cond(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                     const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    struct ek_tpl_val test;
    int rc = ek_tpl_eval(rt, &test, n->b, s);
    if (rc)
        return rc;
    if (ek_tpl_truth(&test))
        return ek_tpl_eval(rt, out, n->a, s);
    if (n->c)
        return ek_tpl_eval(rt, out, n->c, s);
    return ek_tpl_undef(rt, out, NULL, NULL,
                        "an inline if was false and has no else part");
}

/* A filter or test on `self`. */
static int apply(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_node *n, const struct ek_tpl_val *self,
                 struct ek_tpl_scope *s)
{
    bool is_test = n->kind == EK_TPL_N_TEST;
    struct ek_tpl_args args;
    char what[64];
    int len = n->val.s->n > 40 ? 40 : (int)n->val.s->n;
    snprintf(what, sizeof what, "%s '%.*s'", is_test ? "test" : "filter", len,
             n->val.s->p);
    rt->line = n->line;
    if (!n->def)
        return ek_tpl_fail(rt, EK_EUNSUP, "%s is not known", what);
    int rc = ek_tpl_eval_args(rt, &args, n->kids, s);
    if (rc)
        return rc;
    rt->line = n->line;
    args.what = what;
    return n->def->fn(rt, out, self, &args);
}

int ek_tpl_filter_chain(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                        const struct ek_tpl_node *n, const struct ek_tpl_val *text,
                        struct ek_tpl_scope *s)
{
    struct ek_tpl_val self = *text;
    int rc = 0;
    if (n->a) {
        rc = ek_tpl_down(rt);
        if (rc)
            return rc;
        rc = ek_tpl_filter_chain(rt, &self, n->a, text, s);
        rt->depth--;
    }
    return rc ? rc : apply(rt, out, n, &self, s);
}

static int eval_applied(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                        const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    struct ek_tpl_val self;
    int rc = ek_tpl_eval(rt, &self, n->a, s);
    return rc ? rc : apply(rt, out, n, &self, s);
}

static int eval_call(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                     const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    struct ek_tpl_val callee;
    struct ek_tpl_args args;
    int rc = ek_tpl_eval(rt, &callee, n->a, s);
    if (!rc)
        rc = ek_tpl_eval_args(rt, &args, n->kids, s);
    rt->line = n->line;
    return rc ? rc : ek_tpl_call(rt, out, &callee, &args);
}

static int eval_subscript(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                          const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    struct ek_tpl_val x, key;
    int rc = ek_tpl_eval(rt, &x, n->a, s);
    if (!rc && n->kind == EK_TPL_N_ITEM)
        rc = ek_tpl_eval(rt, &key, n->b, s);
    rt->line = n->line;
    if (rc)
        return rc;
    return n->kind == EK_TPL_N_ITEM ? ek_tpl_item(rt, out, &x, &key)
                                    : ek_tpl_attr(rt, out, &x, &n->val);
}

static int eval_unary(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                      const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    struct ek_tpl_val v;
    int rc = ek_tpl_eval(rt, &v, n->a, s);
    rt->line = n->line;
    if (rc)
        return rc;
    if (n->kind == EK_TPL_N_SIGN)
        return ek_tpl_sign(rt, out, n->op, &v);
    *out = ek_tpl_bool(!ek_tpl_truth(&v));
    return 0;
}

static int eval_node(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                     const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    switch (n->kind) {
    case EK_TPL_N_CONST:
        *out = n->val;
        return 0;
    case EK_TPL_N_NAME:
        return ek_tpl_scope_get(rt, out, s, n->name);
    case EK_TPL_N_LIST:
    case EK_TPL_N_TUPLE:
        return eval_list(rt, out, n, s);
    case EK_TPL_N_DICT:
        return eval_dict(rt, out, n, s);
    case EK_TPL_N_ATTR:
    case EK_TPL_N_ITEM:
        return eval_subscript(rt, out, n, s);
    case EK_TPL_N_SLICE:
        return eval_slice(rt, out, n, s);
    case EK_TPL_N_CALL:
        return eval_call(rt, out, n, s);
    case EK_TPL_N_FILTER:
    case EK_TPL_N_TEST:
        return eval_applied(rt, out, n, s);
    case EK_TPL_N_NOT:
    case EK_TPL_N_SIGN:
        return eval_unary(rt, out, n, s);
    case EK_TPL_N_BINARY:
        return eval_binary(rt, out, n, s);
    case EK_TPL_N_COMPARE:
        return eval_compare(rt, out, n, s);
    case EK_TPL_N_AND:
    case EK_TPL_N_OR:
        return eval_logic(rt, out, n, s);
    case EK_TPL_N_CONCAT:
        return eval_concat(rt, out, n, s);
    default:
        assert(n->kind == EK_TPL_N_COND);
        return eval_cond(rt, out, n, s);
    }
}

int ek_tpl_eval(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    rt->line = n->line;
    int rc = ek_tpl_step(rt, 1);
    if (!rc)
        rc = ek_tpl_down(rt);
    if (rc)
        return rc;
    rc = eval_node(rt, out, n, s);
    rt->depth--;
    return rc;
}
