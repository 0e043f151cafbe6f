#include "data/template_int.h"

#include <string.h>

/* The variable `loop`. Items are fetched one by one, since the condition of a for loop
 * may read what the body has set; loop.last and loop.nextitem look one ahead. */

static int fetch(struct ek_tpl_rt *rt, struct ek_tpl_loop *loop, struct ek_tpl_val *out)
{
    const struct ek_tpl_node *n = loop->node;
    struct ek_tpl_iter *it = loop->it;
    while (it->at < it->list.n) {
        *out = it->list.v[it->at++];
        if (!n->c)
            return 0;
        struct ek_tpl_val test;
        int rc = 0;
        if (!loop->test)
            rc = ek_tpl_scope_new(rt, &loop->test, loop->scope, NULL, 0);
        if (!rc)
            rc = ek_tpl_assign(rt, loop->test, n->a, *out);
        if (!rc)
            rc = ek_tpl_eval(rt, &test, n->c, loop->test);
        if (rc || ek_tpl_truth(&test))
            return rc;
    }
    *out = (struct ek_tpl_val){.kind = EK_TPL_MISSING};
    return 0;
}

static int peek(struct ek_tpl_rt *rt, struct ek_tpl_loop *loop)
{
    return loop->ahead.kind == EK_TPL_MISSING ? fetch(rt, loop, &loop->ahead) : 0;
}

int ek_tpl_loop_next(struct ek_tpl_rt *rt, struct ek_tpl_loop *loop)
{
    int rc = peek(rt, loop);
    if (rc)
        return rc;
    loop->prev = loop->item;
    loop->item = loop->ahead;
    loop->ahead = (struct ek_tpl_val){.kind = EK_TPL_MISSING};
    loop->n_done++;
    return 0;
}

static int length(struct ek_tpl_rt *rt, struct ek_tpl_loop *loop)
{
    if (loop->has_length)
        return 0;
    if (!loop->node->c && loop->it == &loop->own) {
        loop->length = loop->own.list.n;
        loop->has_length = true;
        return 0;
    }
    /* All that is left is tested now, as jinja2 does, and kept without a condition. */
    struct ek_tpl_list rest = {NULL, 0};
    rest.v = ek_tpl_alloc(rt, loop->it->list.n - loop->it->at + 1, sizeof *rest.v);
    if (!rest.v)
        return ek_tpl_no_memory(rt);
    for (;;) {
        int rc = fetch(rt, loop, &rest.v[rest.n]);
        if (rc)
            return rc;
        if (rest.v[rest.n].kind == EK_TPL_MISSING)
            break;
        rest.n++;
    }
    struct ek_tpl_node *n = ek_tpl_alloc(rt, 1, sizeof *n);
    if (!n)
        return ek_tpl_no_memory(rt);
    *n = *loop->node;
    n->c = NULL;
    loop->node = n;
    loop->own = (struct ek_tpl_iter){rest, 0};
    loop->it = &loop->own;
    loop->length = rest.n + loop->n_done + (loop->ahead.kind != EK_TPL_MISSING);
    loop->has_length = true;
    return 0;
}

static int cycle(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_val *self, const struct ek_tpl_args *args)
{
    if (args->n_pos == 0)
        return ek_tpl_fail(rt, EK_EFORMAT, "loop.cycle() takes the items to cycle");
    *out = args->pos[(self->loop->n_done - 1) % args->n_pos];
    return 0;
}

static int changed(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_val *self, const struct ek_tpl_args *args)
{
    struct ek_tpl_val now;
    struct ek_tpl_loop *loop = self->loop;
    bool is_same = false;
    int rc = ek_tpl_list_new(rt, &now, EK_TPL_TUPLE, args->pos, args->n_pos);
    if (!rc && loop->changed.kind != EK_TPL_MISSING)
        rc = ek_tpl_equal(rt, &is_same, &now, &loop->changed);
    if (!rc && !is_same)
        loop->changed = now;
    *out = ek_tpl_bool(!is_same);
    return rc;
}

static const struct ek_tpl_def methods[] = {
    {"cycle", cycle},
    {"changed", changed},
    {0},
};

/* A value, or undefined with its reason where there is none. */
static int item_or(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_val *item, const char *reason)
{
    *out = *item;
    return item->kind == EK_TPL_MISSING ? ek_tpl_undef(rt, out, NULL, NULL, reason) : 0;
}

int ek_tpl_loop_attr(struct ek_tpl_rt *rt, struct ek_tpl_val *out, bool *is_known,
                     struct ek_tpl_loop *loop, const struct ek_tpl_str *name)
{
    int64_t done = (int64_t)loop->n_done;
    struct ek_tpl_val self = {.kind = EK_TPL_LOOP, .loop = loop};
    const struct ek_tpl_def *def = ek_tpl_find_def(methods, name->p, name->n);
    int rc = 0;
    *is_known = true;
    if (def)
        return ek_tpl_bind_method(rt, out, def, &self);
    if (ek_tpl_str_is(name, "index") || ek_tpl_str_is(name, "index0")) {
        *out = ek_tpl_int(name->n == 5 ? done : done - 1);
    } else if (ek_tpl_str_is(name, "first")) {
        *out = ek_tpl_bool(done == 1);
    } else if (ek_tpl_str_is(name, "depth") || ek_tpl_str_is(name, "depth0")) {
        *out = ek_tpl_int(name->n == 5);
    } else if (ek_tpl_str_is(name, "previtem")) {
        return item_or(rt, out, &loop->prev, "there is no previous item");
    } else if (ek_tpl_str_is(name, "nextitem")) {
        rc = peek(rt, loop);
        return rc ? rc : item_or(rt, out, &loop->ahead, "there is no next item");
    } else if (ek_tpl_str_is(name, "last")) {
        rc = peek(rt, loop);
        *out = ek_tpl_bool(loop->ahead.kind == EK_TPL_MISSING);
    } else if (ek_tpl_str_is(name, "length")) {
        rc = length(rt, loop);
        *out = ek_tpl_int((int64_t)loop->length);
    } else if (ek_tpl_str_is(name, "revindex") || ek_tpl_str_is(name, "revindex0")) {
        rc = length(rt, loop);
        *out = ek_tpl_int((int64_t)loop->length - done + (name->n == 8));
    } else {
        *is_known = false;
    }
    return rc;
}
