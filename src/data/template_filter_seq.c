#include "data/template_int.h"

#include <string.h>

/* Filters on sequences. Those that are generators in jinja2 give an EK_TPL_ITER: no
 * length, no subscripts, read once. */

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

static int new_list(struct ek_tpl_rt *rt, struct ek_tpl_list *out, size_t room)
{
    *out = (struct ek_tpl_list){ek_tpl_alloc(rt, room, sizeof *out->v), 0};
    return out->v ? 0 : ek_tpl_no_memory(rt);
}

/* One part of a dotted path: digits are an index. */
static int path_part(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                     const struct ek_tpl_str *path, size_t from, size_t to)
{
    int64_t i = 0;
    bool is_index = to > from && to - from < 18;
    for (size_t k = from; is_index && k < to; k++) {
        is_index = path->p[k] >= '0' && path->p[k] <= '9';
        i = i * 10 + (path->p[k] & 15);
    }
    if (!is_index)
        return ek_tpl_str_sub(rt, out, path, from, to);
    *out = ek_tpl_int(i);
    return 0;
}

/* x[path], "a.b.0"; undefined parts become `fallback` where that is given. */
static int get_path(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                    const struct ek_tpl_val *x, const struct ek_tpl_val *path,
                    const struct ek_tpl_val *fallback)
{
    *out = *x;
    if (path->kind != EK_TPL_STR)
        return is_given(path) ? ek_tpl_item(rt, out, x, path) : 0;
    const struct ek_tpl_str *s = path->s;
    for (size_t from = 0;;) {
        const char *dot = from < s->n ? memchr(s->p + from, '.', s->n - from) : NULL;
        size_t to = dot ? (size_t)(dot - s->p) : s->n;
        struct ek_tpl_val key;
        int rc = path_part(rt, &key, s, from, to);
        if (!rc)
            rc = ek_tpl_item(rt, out, out, &key);
        if (rc)
            return rc;
        if (out->kind == EK_TPL_UNDEF && fallback && is_given(fallback))
            *out = *fallback;
        if (!dot)
            return 0;
        from = to + 1;
    }
}

static int ignore_case(struct ek_tpl_rt *rt, struct ek_tpl_val *v)
{
    return v->kind == EK_TPL_STR ? ek_tpl_case(rt, v, v->s, EK_TPL_LOWER) : 0;
}

FILTER(f_list)
{
    struct ek_tpl_list l;
    int rc = no_args(rt, args);
    if (!rc)
        rc = ek_tpl_items(rt, &l, self);
    return rc ? rc : ek_tpl_list_new(rt, out, EK_TPL_LIST, l.v, l.n);
}

static int end_item(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                    const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                    bool is_last)
{
    struct ek_tpl_list l;
    int rc = no_args(rt, args);
    if (!rc && is_last && self->kind == EK_TPL_ITER)
        rc = ek_tpl_fail(rt, EK_EFORMAT, "a generator has no last item");
    if (!rc && !is_last && self->kind == EK_TPL_ITER &&
        self->it->at < self->it->list.n) {
        *out = self->it->list.v[self->it->at++];
        return 0;
    }
    if (!rc)
        rc = ek_tpl_items(rt, &l, self);
    if (rc)
        return rc;
    if (l.n == 0)
        return ek_tpl_undef(rt, out, NULL, NULL, "the sequence was empty");
    *out = l.v[is_last ? l.n - 1 : 0];
    return 0;
}

FILTER(f_first)
{
    return end_item(rt, out, self, args, false);
}

FILTER(f_last)
{
    return end_item(rt, out, self, args, true);
}

FILTER(f_join)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    struct ek_tpl_list l;
    const struct ek_tpl_str *sep = NULL;
    int rc = ek_tpl_bind(rt, v, args, "| d attribute");
    if (!rc && v[0].kind != EK_TPL_MISSING)
        rc = ek_tpl_to_str(rt, &sep, &v[0]);
    if (!rc)
        rc = ek_tpl_items(rt, &l, self);
    size_t at = ek_tpl_begin(rt);
    for (size_t i = 0; !rc && i < l.n; i++) {
        struct ek_tpl_val item = l.v[i];
        if (ek_tpl_truth(&v[1]))
            rc = get_path(rt, &item, &l.v[i], &v[1], NULL);
        if (!rc && i && sep)
            rc = ek_tpl_put_sub(rt, sep, 0, sep->n);
        if (!rc)
            rc = ek_tpl_put_val(rt, &item);
    }
    return rc ? rc : ek_tpl_end(rt, out, at);
}

FILTER(f_items)
{
    struct ek_tpl_list l = {NULL, 0};
    int rc = no_args(rt, args);
    if (!rc && self->kind == EK_TPL_DICT)
        rc = ek_tpl_dict_pairs(rt, &l, self->d);
    else if (!rc && self->kind != EK_TPL_UNDEF)
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s takes a dict, not a value of type '%s'",
                         args->what, ek_tpl_type(self));
    return rc ? rc : ek_tpl_iter_new(rt, out, l);
}

FILTER(f_reverse)
{
    struct ek_tpl_list l = {0}, r = {0};
    int rc = no_args(rt, args);
    if (!rc && self->kind == EK_TPL_STR) {
        struct ek_tpl_val bounds[3] = {ek_tpl_none(), ek_tpl_none(), ek_tpl_int(-1)};
        return ek_tpl_slice(rt, out, self, bounds);
    }
    if (!rc)
        rc = ek_tpl_items(rt, &l, self);
    if (!rc)
        rc = new_list(rt, &r, l.n);
    if (rc)
        return rc;
    for (size_t i = l.n; i > 0; i--)
        r.v[r.n++] = l.v[i - 1];
    return self->kind == EK_TPL_ITER ? ek_tpl_list_new(rt, out, EK_TPL_LIST, r.v, r.n)
                                     : ek_tpl_iter_new(rt, out, r);
}

/* ---- map, select, reject --------------------------------------------------------- */

struct caller { /* a filter or test by name, with the rest of the arguments */
    const struct ek_tpl_def *def;
    struct ek_tpl_args args;
};

static int find_caller(struct ek_tpl_rt *rt, struct caller *c,
                       const struct ek_tpl_args *args, size_t at, bool is_test)
{
    const struct ek_tpl_str *name;
    int rc = ek_tpl_arg_str(rt, &name, &args->pos[at], args->what);
    if (rc)
        return rc;
    c->def = is_test ? ek_tpl_find_test(name->p, name->n)
                     : ek_tpl_find_filter(name->p, name->n);
    if (!c->def)
        return ek_tpl_fail(rt, EK_EUNSUP, "%s: %s '%.*s' is not known", args->what,
                           is_test ? "test" : "filter",
                           (int)(name->n > 80 ? 80 : name->n), name->p);
    c->args = (struct ek_tpl_args){args->what, args->pos + at + 1, args->n_pos - at - 1,
                                   args->kw};
    return 0;
}

static int select_items(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                        const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                        bool by_attr, bool is_wanted)
{
    struct ek_tpl_list l = {0}, kept = {0};
    struct caller c = {0};
    int rc = 0;
    if (ek_tpl_truth(self))
        rc = ek_tpl_items(rt, &l, self);
    if (!rc && by_attr && args->n_pos == 0)
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s needs the name of an attribute",
                         args->what);
    if (!rc && args->n_pos > by_attr)
        rc = find_caller(rt, &c, args, by_attr, true);
    if (!rc)
        rc = new_list(rt, &kept, l.n);
    for (size_t i = 0; !rc && i < l.n; i++) {
        struct ek_tpl_val v = l.v[i], test;
        if (by_attr)
            rc = get_path(rt, &v, &l.v[i], &args->pos[0], NULL);
        test = v;
        if (!rc && c.def)
            rc = c.def->fn(rt, &test, &v, &c.args);
        if (!rc)
            rc = ek_tpl_step(rt, 1);
        if (!rc && ek_tpl_truth(&test) == is_wanted)
            kept.v[kept.n++] = l.v[i];
    }
    return rc ? rc : ek_tpl_iter_new(rt, out, kept);
}

FILTER(f_select)
{
    return select_items(rt, out, self, args, false, true);
}

FILTER(f_reject)
{
    return select_items(rt, out, self, args, false, false);
}

FILTER(f_selectattr)
{
    return select_items(rt, out, self, args, true, true);
}

FILTER(f_rejectattr)
{
    return select_items(rt, out, self, args, true, false);
}

FILTER(f_map)
{
    struct ek_tpl_list l = {0}, made = {0};
    struct caller c = {0};
    const struct ek_tpl_val *path = ek_tpl_dict_get_text(args->kw, "attribute", 9);
    const struct ek_tpl_val *fallback = ek_tpl_dict_get_text(args->kw, "default", 7);
    int rc = 0;
    if (ek_tpl_truth(self))
        rc = ek_tpl_items(rt, &l, self);
    if (!rc && args->n_pos)
        rc = find_caller(rt, &c, args, 0, false);
    else if (!rc && (!path || args->kw->n > 1 + (size_t)(fallback != NULL)))
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s needs a filter or attribute=name",
                         args->what);
    if (!rc)
        rc = new_list(rt, &made, l.n);
    for (size_t i = 0; !rc && i < l.n; i++) {
        struct ek_tpl_val *v = &made.v[made.n++];
        rc = ek_tpl_step(rt, 1);
        if (!rc)
            rc = c.def ? c.def->fn(rt, v, &l.v[i], &c.args)
                       : get_path(rt, v, &l.v[i], path, fallback);
    }
    return rc ? rc : ek_tpl_iter_new(rt, out, made);
}

/* ---- order ----------------------------------------------------------------------- */

struct sortable {
    struct ek_tpl_val key, val;
};

/* Stable merge sort of v[0,n), with room for n/2 more at `spare`. */
static int merge_sort(struct ek_tpl_rt *rt, struct sortable *v, size_t n,
                      struct sortable *spare, bool is_reverse)
{
    if (n < 2)
        return 0;
    size_t half = n / 2;
    int rc = merge_sort(rt, v, half, spare, is_reverse);
    if (!rc)
        rc = merge_sort(rt, v + half, n - half, spare, is_reverse);
    if (rc)
        return rc;
    memcpy(spare, v, half * sizeof *v);
    size_t i = 0, j = half, to = 0;
    while (i < half && j < n) {
        int order;
        rc = is_reverse ? ek_tpl_order(rt, &order, &spare[i].key, &v[j].key)
                        : ek_tpl_order(rt, &order, &v[j].key, &spare[i].key);
        if (rc)
            return rc;
        v[to++] = order == -1 ? v[j++] : spare[i++];
    }
    while (i < half)
        v[to++] = spare[i++];
    return 0;
}

/* Items by their keys, which are in sortable.key already. */
static int sort_into(struct ek_tpl_rt *rt, struct ek_tpl_val *out, struct sortable *v,
                     size_t n, bool is_reverse)
{
    struct sortable *spare = ek_tpl_alloc(rt, n / 2 + 1, sizeof *spare);
    struct ek_tpl_list l;
    if (!spare)
        return ek_tpl_no_memory(rt);
    int rc = merge_sort(rt, v, n, spare, is_reverse);
    if (!rc)
        rc = new_list(rt, &l, n);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        l.v[l.n++] = v[i].val;
    return ek_tpl_list_new(rt, out, EK_TPL_LIST, l.v, l.n);
}

/* The key of one item: the attributes of `path` ("a,b.c"), letters lowered unless
 * is_exact; more than one as a list. */
static int sort_key(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                    const struct ek_tpl_val *item, const struct ek_tpl_val *path,
                    bool is_exact)
{
    struct ek_tpl_val keys[EK_TPL_PARAMS_MAX];
    size_t n = 0, from = 0;
    int rc = 0;
    bool is_text = path->kind == EK_TPL_STR;
    do {
        struct ek_tpl_val part = *path;
        if (n == EK_TPL_PARAMS_MAX)
            return ek_tpl_fail(rt, EK_ELIMIT, "more than %d attributes to sort by",
                               EK_TPL_PARAMS_MAX);
        if (is_text) {
            const char *at = memchr(path->s->p + from, ',', path->s->n - from);
            size_t to = at ? (size_t)(at - path->s->p) : path->s->n;
            rc = ek_tpl_str_sub(rt, &part, path->s, from, to);
            from = to + 1;
        }
        if (!rc)
            rc = get_path(rt, &keys[n], item, &part, NULL);
        if (!rc && !is_exact)
            rc = ignore_case(rt, &keys[n]);
        n++;
    } while (!rc && is_text && from <= path->s->n);
    return rc ? rc : ek_tpl_list_new(rt, out, EK_TPL_LIST, keys, n);
}

FILTER(f_sort)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    struct ek_tpl_list l;
    int rc = ek_tpl_bind(rt, v, args, "| reverse case_sensitive attribute");
    if (!rc)
        rc = ek_tpl_items(rt, &l, self);
    struct sortable *items = rc ? NULL : ek_tpl_alloc(rt, l.n, sizeof *items);
    if (!items)
        return rc ? rc : ek_tpl_no_memory(rt);
    for (size_t i = 0; !rc && i < l.n; i++) {
        items[i].val = l.v[i];
        rc = sort_key(rt, &items[i].key, &l.v[i], &v[2], ek_tpl_truth(&v[1]));
    }
    return rc ? rc : sort_into(rt, out, items, l.n, ek_tpl_truth(&v[0]));
}

FILTER(f_dictsort)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    const struct ek_tpl_str *by = NULL;
    struct ek_tpl_list l;
    int rc = ek_tpl_bind(rt, v, args, "| case_sensitive by reverse");
    if (!rc && v[1].kind != EK_TPL_MISSING)
        rc = ek_tpl_arg_str(rt, &by, &v[1], args->what);
    if (!rc && by && !ek_tpl_str_is(by, "key") && !ek_tpl_str_is(by, "value"))
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s sorts by 'key' or 'value'", args->what);
    if (!rc && self->kind == EK_TPL_UNDEF)
        return ek_tpl_undef_fail(rt, self);
    if (!rc && self->kind != EK_TPL_DICT)
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s takes a dict, not a value of type '%s'",
                         args->what, ek_tpl_type(self));
    if (!rc)
        rc = ek_tpl_dict_pairs(rt, &l, self->d);
    struct sortable *items = rc ? NULL : ek_tpl_alloc(rt, l.n, sizeof *items);
    if (!items)
        return rc ? rc : ek_tpl_no_memory(rt);
    for (size_t i = 0; !rc && i < l.n; i++) {
        items[i] = (struct sortable){l.v[i].l->v[by && by->p[0] == 'v'], l.v[i]};
        if (!ek_tpl_truth(&v[0]))
            rc = ignore_case(rt, &items[i].key);
    }
    return rc ? rc : sort_into(rt, out, items, l.n, ek_tpl_truth(&v[2]));
}

int ek_tpl_dict_sorted(struct ek_tpl_rt *rt, const struct ek_tpl_dict **out,
                       const struct ek_tpl_dict *d)
{
    struct ek_tpl_val sorted;
    struct ek_tpl_dict *made;
    struct sortable *items = ek_tpl_alloc(rt, d->n, sizeof *items);
    if (!items)
        return ek_tpl_no_memory(rt);
    for (size_t i = 0; i < d->n; i++)
        items[i] = (struct sortable){d->keys[i], ek_tpl_int((int64_t)i)};
    int rc = sort_into(rt, &sorted, items, d->n, false);
    if (!rc)
        rc = ek_tpl_dict_new(rt, &made, d->n);
    if (rc)
        return rc;
    for (; made->n < d->n; made->n++) {
        size_t from = (size_t)sorted.l->v[made->n].i;
        made->keys[made->n] = d->keys[from];
        made->vals[made->n] = d->vals[from];
    }
    *out = made;
    return 0;
}

static int extreme(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                   int wanted)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX], best, key;
    struct ek_tpl_list l;
    int rc = ek_tpl_bind(rt, v, args, "| case_sensitive attribute");
    if (!rc)
        rc = ek_tpl_items(rt, &l, self);
    if (!rc && l.n == 0)
        return ek_tpl_undef(rt, out, NULL, NULL, "the sequence was empty");
    for (size_t i = 0; !rc && i < l.n; i++) {
        int order = wanted;
        rc = get_path(rt, &key, &l.v[i], &v[1], NULL);
        if (!rc && !ek_tpl_truth(&v[0]))
            rc = ignore_case(rt, &key);
        if (!rc && i)
            rc = ek_tpl_order(rt, &order, &key, &best);
        if (!rc && order == wanted) {
            best = key;
            *out = l.v[i];
        }
    }
    return rc;
}

FILTER(f_min)
{
    return extreme(rt, out, self, args, -1);
}

FILTER(f_max)
{
    return extreme(rt, out, self, args, 1);
}

FILTER(f_sum)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX], item;
    struct ek_tpl_list l = {0};
    int rc = ek_tpl_bind(rt, v, args, "| attribute start");
    if (!rc)
        rc = ek_tpl_items(rt, &l, self);
    *out = v[1].kind == EK_TPL_MISSING ? ek_tpl_int(0) : v[1];
    if (!rc && out->kind == EK_TPL_STR)
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s cannot add strings", args->what);
    for (size_t i = 0; !rc && i < l.n; i++) {
        rc = get_path(rt, &item, &l.v[i], &v[0], NULL);
        if (!rc)
            rc = ek_tpl_binary(rt, out, '+', out, &item);
    }
    return rc;
}

FILTER(f_unique)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX], key;
    struct ek_tpl_list l = {0}, kept = {0};
    struct ek_tpl_dict *seen = NULL;
    int rc = ek_tpl_bind(rt, v, args, "| case_sensitive attribute");
    if (!rc)
        rc = ek_tpl_items(rt, &l, self);
    if (!rc)
        rc = ek_tpl_dict_new(rt, &seen, 8);
    if (!rc)
        rc = new_list(rt, &kept, l.n);
    for (size_t i = 0; !rc && i < l.n; i++) {
        size_t before = seen->n;
        rc = get_path(rt, &key, &l.v[i], &v[1], NULL);
        if (!rc && !ek_tpl_truth(&v[0]))
            rc = ignore_case(rt, &key);
        if (!rc)
            rc = ek_tpl_dict_put(rt, seen, key, key);
        if (!rc && seen->n > before)
            kept.v[kept.n++] = l.v[i];
    }
    return rc ? rc : ek_tpl_iter_new(rt, out, kept);
}

FILTER(f_batch)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    struct ek_tpl_list l = {0}, rows = {0};
    int64_t n = 0;
    int rc = ek_tpl_bind(rt, v, args, "linecount | fill_with");
    if (!rc)
        rc = ek_tpl_arg_int(rt, &n, &v[0], args->what);
    if (!rc && n < 1)
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s: the line count must be 1 or more",
                         args->what);
    if (!rc)
        rc = ek_tpl_items(rt, &l, self);
    if (!rc)
        rc = new_list(rt, &rows, l.n);
    for (size_t i = 0; !rc && i < l.n; i += (size_t)n) {
        size_t left = l.n - i < (size_t)n ? l.n - i : (size_t)n;
        struct ek_tpl_val *row = &rows.v[rows.n++];
        rc = ek_tpl_list_new(rt, row, EK_TPL_LIST, l.v + i, left);
        struct ek_tpl_val fill, one;
        if (rc || left == (size_t)n || !is_given(&v[1]))
            continue;
        rc = ek_tpl_list_new(rt, &one, EK_TPL_LIST, &v[1], 1);
        struct ek_tpl_val count = ek_tpl_int(n - (int64_t)left);
        if (!rc)
            rc = ek_tpl_binary(rt, &fill, '*', &one, &count);
        if (!rc)
            rc = ek_tpl_binary(rt, row, '+', row, &fill);
        break;
    }
    return rc ? rc : ek_tpl_iter_new(rt, out, rows);
}

FILTER(f_slice)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    struct ek_tpl_list l = {0}, rows = {0};
    int64_t n = 0;
    int rc = ek_tpl_bind(rt, v, args, "slices | fill_with");
    if (!rc)
        rc = ek_tpl_arg_int(rt, &n, &v[0], args->what);
    if (!rc && (n < 1 || n > EK_TPL_RANGE_MAX))
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s: slices must be 1 to %d", args->what,
                         EK_TPL_RANGE_MAX);
    if (!rc)
        rc = ek_tpl_items(rt, &l, self);
    if (!rc)
        rc = new_list(rt, &rows, (size_t)n);
    for (size_t i = 0, at = 0; !rc && i < (size_t)n; i++) {
        size_t extra = l.n % (size_t)n, len = l.n / (size_t)n + (i < extra);
        struct ek_tpl_val *row = &rows.v[rows.n++], one;
        rc = ek_tpl_list_new(rt, row, EK_TPL_LIST, l.v + at, len);
        at += len;
        if (rc || !is_given(&v[1]) || i < extra)
            continue;
        rc = ek_tpl_list_new(rt, &one, EK_TPL_LIST, &v[1], 1);
        if (!rc)
            rc = ek_tpl_binary(rt, row, '+', row, &one);
    }
    return rc ? rc : ek_tpl_iter_new(rt, out, rows);
}

const struct ek_tpl_def ek_tpl_seq_filters[] = {
    {"list", f_list},
    {"first", f_first},
    {"last", f_last},
    {"join", f_join},
    {"items", f_items},
    {"reverse", f_reverse},
    {"select", f_select},
    {"reject", f_reject},
    {"selectattr", f_selectattr},
    {"rejectattr", f_rejectattr},
    {"map", f_map},
    {"sort", f_sort},
    {"dictsort", f_dictsort},
    {"min", f_min},
    {"max", f_max},
    {"sum", f_sum},
    {"unique", f_unique},
    {"batch", f_batch},
    {"slice", f_slice},
    {0},
};
