#include "data/template_int.h"

#include <string.h>

/* Runs statements. */

int ek_tpl_scope_reset(struct ek_tpl_rt *rt, struct ek_tpl_scope *s, const int *unset,
                       int n)
{
    int rc = 0;
    s->n = 0;
    for (int i = 0; !rc && i < n; i++)
        rc = ek_tpl_scope_set(rt, s, unset[i], (struct ek_tpl_val){0});
    return rc;
}

int ek_tpl_scope_new(struct ek_tpl_rt *rt, struct ek_tpl_scope **out,
                     struct ek_tpl_scope *up, const int *unset, int n)
{
    struct ek_tpl_scope *s = ek_tpl_alloc(rt, 1, sizeof *s);
    if (!s)
        return ek_tpl_no_memory(rt);
    *s = (struct ek_tpl_scope){.up = up};
    *out = s;
    return ek_tpl_scope_reset(rt, s, unset, n);
}

int ek_tpl_scope_set(struct ek_tpl_rt *rt, struct ek_tpl_scope *s, int name,
                     struct ek_tpl_val v)
{
    if (ek_tpl_step(rt, (size_t)s->n / 8))
        return EK_ELIMIT;
    for (int i = 0; i < s->n; i++) {
        if (s->vars[i].name == name) {
            s->vars[i].val = v;
            return 0;
        }
    }
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 8;
        struct ek_tpl_var *vars = ek_tpl_alloc(rt, (size_t)cap, sizeof *vars);
        if (!vars)
            return ek_tpl_no_memory(rt);
        if (s->n)
            memcpy(vars, s->vars, (size_t)s->n * sizeof *vars);
        s->vars = vars;
        s->cap = cap;
    }
    s->vars[s->n++] = (struct ek_tpl_var){name, v};
    return 0;
}

int ek_tpl_scope_get(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                     const struct ek_tpl_scope *s, int name)
{
    for (bool is_found = false; s && !is_found; s = s->up) {
        if (ek_tpl_step(rt, (size_t)s->n / 8))
            return EK_ELIMIT;
        for (int i = 0; i < s->n && !is_found; i++) {
            if (s->vars[i].name != name)
                continue;
            is_found = true;
            if (s->vars[i].val.kind != EK_TPL_MISSING) {
                *out = s->vars[i].val;
                return 0;
            }
        }
    }
    static const struct ek_tpl_def foreign[] = {
        {"self", NULL}, {"lipsum", NULL}, {"cycler", NULL}, {"joiner", NULL}, {0}};
    struct ek_tpl_val key;
    const struct ek_tpl_name *text = &rt->t->names[name];
    if (ek_tpl_find_def(foreign, text->p, text->n))
        return ek_tpl_fail(rt, EK_EUNSUP, "the function '%.*s' is not interpreted",
                           (int)text->n, text->p);
    int rc = ek_tpl_str_new(rt, &key, text->p, text->n, false);
    return rc ? rc : ek_tpl_undef(rt, out, NULL, &key, NULL);
}

static int assign_ns(struct ek_tpl_rt *rt, struct ek_tpl_scope *s,
                     const struct ek_tpl_node *target, struct ek_tpl_val v)
{
    struct ek_tpl_val ns;
    int rc = ek_tpl_scope_get(rt, &ns, s, target->name);
    if (rc)
        return rc;
    rt->line = target->line;
    if (ns.kind != EK_TPL_NS)
        return ek_tpl_fail(rt, EK_EFORMAT,
                           "cannot assign attribute '%.*s' of a value of type '%s'",
                           (int)target->val.s->n, target->val.s->p, ek_tpl_type(&ns));
    if (target->val.s->p[0] == '_')
        return ek_tpl_fail(rt, EK_EFORMAT,
                           "attributes of a namespace cannot begin with '_'");
    return ek_tpl_dict_put(rt, &ns.ns->d, target->val, v);
}

static int assign_tuple(struct ek_tpl_rt *rt, struct ek_tpl_scope *s,
                        const struct ek_tpl_node *target, const struct ek_tpl_val *v)
{
    struct ek_tpl_list items;
    size_t n = 0;
    rt->line = target->line;
    if (v->kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, v);
    int rc = ek_tpl_items(rt, &items, v);
    if (rc)
        return rc;
    for (const struct ek_tpl_node *k = target->kids; k; k = k->next)
        n++;
    if (items.n != n)
        return ek_tpl_fail(rt, EK_EFORMAT, "cannot unpack %zu values into %zu names",
                           items.n, n);
    const struct ek_tpl_node *k = target->kids;
    for (size_t i = 0; !rc && i < n; i++, k = k->next)
        rc = ek_tpl_assign(rt, s, k, items.v[i]);
    return rc;
}

int ek_tpl_assign(struct ek_tpl_rt *rt, struct ek_tpl_scope *s,
                  const struct ek_tpl_node *target, struct ek_tpl_val v)
{
    if (target->kind == EK_TPL_N_NAME)
        return ek_tpl_scope_set(rt, s, target->name, v);
    if (target->kind == EK_TPL_N_NSREF)
        return assign_ns(rt, s, target, v);
    int rc = ek_tpl_down(rt);
    if (rc)
        return rc;
    rc = assign_tuple(rt, s, target, &v);
    rt->depth--;
    return rc;
}

size_t ek_tpl_capture_begin(struct ek_tpl_rt *rt)
{
    rt->n_captures++;
    return rt->text.len;
}

int ek_tpl_capture_end(struct ek_tpl_rt *rt, struct ek_tpl_val *out, size_t at)
{
    size_t n = rt->text.len - at;
    int rc = ek_tpl_str_copy(rt, out, n ? rt->text.data + at : "",
                             n ? (const uint8_t *)rt->mark.data + at : NULL, n);
    rt->text.len = rt->mark.len = at;
    rt->n_captures--;
    return rc;
}

static int write_str(struct ek_tpl_rt *rt, const struct ek_tpl_str *s)
{
    int rc = ek_tpl_step(rt, s->n / 64);
    if (rc || s->n == 0)
        return rc;
    rc = ek_buf_reserve(&rt->text, s->n);
    if (!rc)
        rc = ek_buf_reserve(&rt->mark, s->n);
    if (rc == EK_ELIMIT)
        return ek_tpl_fail(rt, rc, "the output is over max_output_bytes (%zu)",
                           rt->max_output);
    if (rc)
        return ek_tpl_no_memory(rt);
    memcpy(rt->text.data + rt->text.len, s->p, s->n);
    if (s->mark)
        memcpy(rt->mark.data + rt->mark.len, s->mark, s->n);
    else
        memset(rt->mark.data + rt->mark.len, s->is_plain, s->n);
    rt->text.len += s->n;
    rt->mark.len += s->n;
    return 0;
}

int ek_tpl_write(struct ek_tpl_rt *rt, const struct ek_tpl_val *v)
{
    if (v->kind == EK_TPL_UNDEF)
        return 0;
    const struct ek_tpl_str *s;
    int rc = ek_tpl_to_str(rt, &s, v);
    return rc ? rc : write_str(rt, s);
}

static int exec_print(struct ek_tpl_rt *rt, const struct ek_tpl_node *n,
                      struct ek_tpl_scope *s)
{
    struct ek_tpl_val v;
    int rc = ek_tpl_eval(rt, &v, n->a, s);
    rt->line = n->line;
    return rc ? rc : ek_tpl_write(rt, &v);
}

/* body, once an item. */
static int exec_items(struct ek_tpl_rt *rt, const struct ek_tpl_node *n,
                      struct ek_tpl_loop *loop, bool *is_empty)
{
    struct ek_tpl_val self = {.kind = EK_TPL_LOOP, .loop = loop};
    struct ek_tpl_scope *inner = NULL;
    int rc = ek_tpl_scope_new(rt, &inner, loop->scope, NULL, 0);
    *is_empty = true;
    while (!rc) {
        rc = ek_tpl_loop_next(rt, loop);
        if (rc || loop->item.kind == EK_TPL_MISSING)
            return rc;
        *is_empty = false;
        rc = ek_tpl_scope_reset(rt, inner, n->unset, n->n_unset);
        if (!rc)
            rc = ek_tpl_assign(rt, inner, n->a, loop->item);
        if (!rc)
            rc = ek_tpl_scope_set(rt, inner, n->name, self);
        if (!rc)
            rc = ek_tpl_exec(rt, n->body, inner);
        if (rt->jump == EK_TPL_BREAK)
            break;
        rt->jump = EK_TPL_GO_ON;
    }
    rt->jump = EK_TPL_GO_ON;
    return rc;
}

static int exec_for(struct ek_tpl_rt *rt, const struct ek_tpl_node *n,
                    struct ek_tpl_scope *s)
{
    struct ek_tpl_val v;
    bool is_empty = true;
    int rc = ek_tpl_eval(rt, &v, n->b, s);
    struct ek_tpl_loop *loop = rc ? NULL : ek_tpl_alloc(rt, 1, sizeof *loop);
    rt->line = n->line;
    if (!loop)
        return rc ? rc : ek_tpl_no_memory(rt);
    *loop = (struct ek_tpl_loop){.node = n, .scope = s};
    if (v.kind == EK_TPL_ITER) {
        loop->it = v.it;
    } else {
        loop->it = &loop->own;
        rc = ek_tpl_items(rt, &loop->own.list, &v);
    }
    if (!rc)
        rc = exec_items(rt, n, loop, &is_empty);
    if (rc || !is_empty || !n->kids)
        return rc;
    struct ek_tpl_scope *inner = NULL;
    rc = ek_tpl_scope_new(rt, &inner, s, n->kids->unset, n->kids->n_unset);
    return rc ? rc : ek_tpl_exec(rt, n->kids->body, inner);
}

static int exec_if(struct ek_tpl_rt *rt, const struct ek_tpl_node *n,
                   struct ek_tpl_scope *s)
{
    for (const struct ek_tpl_node *branch = n->kids; branch; branch = branch->next) {
        struct ek_tpl_val test = ek_tpl_bool(true);
        int rc = branch->a ? ek_tpl_eval(rt, &test, branch->a, s) : 0;
        if (rc)
            return rc;
        if (ek_tpl_truth(&test))
            return ek_tpl_exec(rt, branch->body, s);
    }
    return 0;
}

static int exec_set(struct ek_tpl_rt *rt, const struct ek_tpl_node *n,
                    struct ek_tpl_scope *s)
{
    struct ek_tpl_val v;
    int rc = ek_tpl_eval(rt, &v, n->b, s);
    return rc ? rc : ek_tpl_assign(rt, s, n->a, v);
}

/* The text of the body, through the filters; *is_done false after break or continue. */
static int exec_captured(struct ek_tpl_rt *rt, struct ek_tpl_val *out, bool *is_done,
                         const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    struct ek_tpl_scope *inner = NULL;
    size_t at = ek_tpl_capture_begin(rt);
    int rc = ek_tpl_scope_new(rt, &inner, s, n->unset, n->n_unset);
    if (!rc)
        rc = ek_tpl_exec(rt, n->body, inner);
    if (!rc)
        rc = ek_tpl_capture_end(rt, out, at);
    *is_done = rt->jump == EK_TPL_GO_ON;
    if (!rc && *is_done && n->b) {
        struct ek_tpl_val text = *out;
        rc = ek_tpl_filter_chain(rt, out, n->b, &text, s);
    }
    return rc;
}

static int exec_set_block(struct ek_tpl_rt *rt, const struct ek_tpl_node *n,
                          struct ek_tpl_scope *s)
{
    struct ek_tpl_val v;
    bool is_done;
    int rc = exec_captured(rt, &v, &is_done, n, s);
    return rc || !is_done ? rc : ek_tpl_assign(rt, s, n->a, v);
}

static int exec_filter_block(struct ek_tpl_rt *rt, const struct ek_tpl_node *n,
                             struct ek_tpl_scope *s)
{
    struct ek_tpl_val v;
    bool is_done;
    int rc = exec_captured(rt, &v, &is_done, n, s);
    return rc || !is_done ? rc : ek_tpl_write(rt, &v);
}

static int new_macro(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                     const struct ek_tpl_node *n, struct ek_tpl_scope *s)
{
    struct ek_tpl_macro *m = ek_tpl_alloc(rt, 1, sizeof *m);
    if (!m)
        return ek_tpl_no_memory(rt);
    *m = (struct ek_tpl_macro){n, s};
    *out = (struct ek_tpl_val){.kind = EK_TPL_MACRO, .m = m};
    return 0;
}

static int exec_macro(struct ek_tpl_rt *rt, const struct ek_tpl_node *n,
                      struct ek_tpl_scope *s)
{
    struct ek_tpl_val m;
    int rc = new_macro(rt, &m, n, s);
    return rc ? rc : ek_tpl_scope_set(rt, s, n->name, m);
}

static int exec_call_block(struct ek_tpl_rt *rt, const struct ek_tpl_node *n,
                           struct ek_tpl_scope *s)
{
    struct ek_tpl_val callee, caller = {0}, key = {0}, v;
    struct ek_tpl_args args = {0};
    struct ek_tpl_dict *kw = NULL;
    int rc = ek_tpl_eval(rt, &callee, n->b->a, s);
    if (!rc)
        rc = ek_tpl_eval_args(rt, &args, n->b->kids, s);
    if (!rc)
        rc = new_macro(rt, &caller, n, s);
    if (!rc)
        rc = ek_tpl_str_text(rt, &key, "caller");
    if (!rc)
        rc = ek_tpl_dict_new(rt, &kw, args.kw->n + 1);
    for (size_t i = 0; !rc && i < args.kw->n; i++)
        rc = ek_tpl_dict_put(rt, kw, args.kw->keys[i], args.kw->vals[i]);
    if (!rc)
        rc = ek_tpl_dict_put(rt, kw, key, caller);
    if (rc)
        return rc;
    args.kw = kw;
    rt->line = n->line;
    rc = ek_tpl_call(rt, &v, &callee, &args);
    return rc ? rc : ek_tpl_write(rt, &v);
}

static int exec_scope(struct ek_tpl_rt *rt, const struct ek_tpl_node *n,
                      struct ek_tpl_scope *s)
{
    struct ek_tpl_scope *inner = NULL;
    int rc = ek_tpl_scope_new(rt, &inner, s, n->unset, n->n_unset);
    for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next) {
        struct ek_tpl_val v;
        rc = ek_tpl_eval(rt, &v, k->b, s);
        if (!rc)
            rc = ek_tpl_assign(rt, inner, k->a, v);
    }
    return rc ? rc : ek_tpl_exec(rt, n->body, inner);
}

static int exec_node(struct ek_tpl_rt *rt, const struct ek_tpl_node *n,
                     struct ek_tpl_scope *s)
{
    switch (n->kind) {
    case EK_TPL_N_TEXT:
        return write_str(rt, n->val.s);
    case EK_TPL_N_PRINT:
        return exec_print(rt, n, s);
    case EK_TPL_N_FOR:
        return exec_for(rt, n, s);
    case EK_TPL_N_IF:
        return exec_if(rt, n, s);
    case EK_TPL_N_SET:
        return exec_set(rt, n, s);
    case EK_TPL_N_SETBLOCK:
        return exec_set_block(rt, n, s);
    case EK_TPL_N_FILTER_BLOCK:
        return exec_filter_block(rt, n, s);
    case EK_TPL_N_MACRO:
        return exec_macro(rt, n, s);
    case EK_TPL_N_CALL_BLOCK:
        return exec_call_block(rt, n, s);
    case EK_TPL_N_SCOPE:
    case EK_TPL_N_WITH:
        return exec_scope(rt, n, s);
    default:
        rt->jump = n->kind == EK_TPL_N_BREAK ? EK_TPL_BREAK : EK_TPL_CONTINUE;
        return 0;
    }
}

int ek_tpl_exec(struct ek_tpl_rt *rt, const struct ek_tpl_node *list,
                struct ek_tpl_scope *s)
{
    int rc = ek_tpl_down(rt);
    if (rc)
        return rc;
    for (; !rc && list && rt->jump == EK_TPL_GO_ON; list = list->next) {
        rt->line = list->line;
        rc = ek_tpl_step(rt, 1);
        if (!rc)
            rc = exec_node(rt, list, s);
    }
    rt->depth--;
    return rc;
}
