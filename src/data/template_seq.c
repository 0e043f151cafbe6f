#include "data/template_int.h"

#include <string.h>

/* Lists, tuples, generators and dicts: making them, reading them. */

int ek_tpl_list_new(struct ek_tpl_rt *rt, struct ek_tpl_val *out, int kind,
                    const struct ek_tpl_val *v, size_t n)
{
    struct ek_tpl_list *l = ek_tpl_alloc(rt, 1, sizeof *l);
    if (l)
        *l = (struct ek_tpl_list){ek_tpl_alloc(rt, n, sizeof *v), n};
    if (!l || !l->v)
        return ek_tpl_no_memory(rt);
    if (n)
        memcpy(l->v, v, n * sizeof *v);
    *out = (struct ek_tpl_val){.kind = (uint8_t)kind, .l = l};
    return ek_tpl_step(rt, n / 8);
}

int ek_tpl_iter_new(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                    struct ek_tpl_list list)
{
    struct ek_tpl_iter *it = ek_tpl_alloc(rt, 1, sizeof *it);
    if (!it)
        return ek_tpl_no_memory(rt);
    *it = (struct ek_tpl_iter){.list = list};
    *out = (struct ek_tpl_val){.kind = EK_TPL_ITER, .it = it};
    return 0;
}

int ek_tpl_dict_new(struct ek_tpl_rt *rt, struct ek_tpl_dict **out, size_t cap)
{
    struct ek_tpl_dict *d = ek_tpl_alloc(rt, 1, sizeof *d);
    if (!d)
        return ek_tpl_no_memory(rt);
    *d = (struct ek_tpl_dict){.cap = cap};
    d->keys = ek_tpl_alloc(rt, cap, sizeof *d->keys);
    d->vals = d->keys ? ek_tpl_alloc(rt, cap, sizeof *d->vals) : NULL;
    if (!d->vals)
        return ek_tpl_no_memory(rt);
    *out = d;
    return 0;
}

bool ek_tpl_is_hashable(const struct ek_tpl_val *v)
{
    if (v->kind == EK_TPL_TUPLE) {
        for (size_t i = 0; i < v->l->n; i++)
            if (v->l->v[i].kind == EK_TPL_TUPLE || !ek_tpl_is_hashable(&v->l->v[i]))
                return false;
        return true;
    }
    return v->kind != EK_TPL_LIST && v->kind != EK_TPL_DICT && v->kind != EK_TPL_VIEW;
}

static int find_key(struct ek_tpl_rt *rt, size_t *at, const struct ek_tpl_dict *d,
                    const struct ek_tpl_val *key)
{
    int rc = ek_tpl_step(rt, d->n / 8);
    if (!rc && !ek_tpl_is_hashable(key))
        rc = ek_tpl_fail(rt, EK_EFORMAT, "a value of type '%s' cannot be a key",
                         ek_tpl_type(key));
    size_t i = 0;
    for (; !rc && i < d->n; i++) {
        bool is_equal;
        const struct ek_tpl_val *k = &d->keys[i];
        if (k->kind == EK_TPL_STR && key->kind == EK_TPL_STR) {
            is_equal = k->s->n == key->s->n && !memcmp(k->s->p, key->s->p, k->s->n);
        } else if (k->kind == EK_TPL_STR || key->kind == EK_TPL_STR) {
            is_equal = false;
        } else {
            rc = ek_tpl_equal(rt, &is_equal, k, key);
        }
        if (!rc && is_equal)
            break;
    }
    *at = i;
    return rc;
}

int ek_tpl_dict_put(struct ek_tpl_rt *rt, struct ek_tpl_dict *d, struct ek_tpl_val key,
                    struct ek_tpl_val v)
{
    size_t at;
    int rc = find_key(rt, &at, d, &key);
    if (rc)
        return rc;
    if (at < d->n) {
        d->vals[at] = v;
        return 0;
    }
    if (d->n == d->cap) {
        struct ek_tpl_dict *more;
        rc = ek_tpl_dict_new(rt, &more, d->cap ? 2 * d->cap : 4);
        if (rc)
            return rc;
        if (d->n) {
            memcpy(more->keys, d->keys, d->n * sizeof *d->keys);
            memcpy(more->vals, d->vals, d->n * sizeof *d->vals);
        }
        more->n = d->n;
        *d = *more;
    }
    d->keys[d->n] = key;
    d->vals[d->n++] = v;
    return 0;
}

int ek_tpl_dict_get(struct ek_tpl_rt *rt, const struct ek_tpl_val **out,
                    const struct ek_tpl_dict *d, const struct ek_tpl_val *key)
{
    size_t at;
    int rc = find_key(rt, &at, d, key);
    if (!rc)
        *out = at < d->n ? &d->vals[at] : NULL;
    return rc;
}

const struct ek_tpl_val *ek_tpl_dict_get_text(const struct ek_tpl_dict *d,
                                              const char *key, size_t n)
{
    for (size_t i = 0; i < d->n; i++) {
        const struct ek_tpl_val *k = &d->keys[i];
        if (k->kind == EK_TPL_STR && k->s->n == n && memcmp(k->s->p, key, n) == 0)
            return &d->vals[i];
    }
    return NULL;
}

int ek_tpl_dict_pairs(struct ek_tpl_rt *rt, struct ek_tpl_list *out,
                      const struct ek_tpl_dict *d)
{
    *out = (struct ek_tpl_list){ek_tpl_alloc(rt, d->n, sizeof *out->v), d->n};
    if (!out->v)
        return ek_tpl_no_memory(rt);
    for (size_t i = 0; i < d->n; i++) {
        struct ek_tpl_val pair[2] = {d->keys[i], d->vals[i]};
        int rc = ek_tpl_list_new(rt, &out->v[i], EK_TPL_TUPLE, pair, 2);
        if (rc)
            return rc;
    }
    return ek_tpl_step(rt, d->n / 8);
}

bool ek_tpl_is_iterable(const struct ek_tpl_val *v)
{
    return ek_tpl_has_length(v) || v->kind == EK_TPL_ITER;
}

static int characters(struct ek_tpl_rt *rt, struct ek_tpl_list *out,
                      const struct ek_tpl_str *s)
{
    *out =
        (struct ek_tpl_list){ek_tpl_alloc(rt, s->n_chars, sizeof *out->v), s->n_chars};
    if (!out->v)
        return ek_tpl_no_memory(rt);
    size_t at = 0;
    for (size_t i = 0; i < out->n; i++) {
        uint32_t c;
        size_t len = ek_tpl_char(s, at, &c);
        int rc = ek_tpl_str_sub(rt, &out->v[i], s, at, at + len);
        if (rc)
            return rc;
        out->v[i].new_s->is_markup = false; /* as iterating over Markup has it */
        at += len;
    }
    return ek_tpl_step(rt, out->n / 8);
}

int ek_tpl_items(struct ek_tpl_rt *rt, struct ek_tpl_list *out,
                 const struct ek_tpl_val *v)
{
    switch (v->kind) {
    case EK_TPL_UNDEF:
        *out = (struct ek_tpl_list){NULL, 0};
        return 0;
    case EK_TPL_STR:
        return characters(rt, out, v->s);
    case EK_TPL_LIST:
    case EK_TPL_TUPLE:
    case EK_TPL_RANGE:
    case EK_TPL_VIEW:
        *out = *v->l;
        return 0;
    case EK_TPL_DICT:
        *out = (struct ek_tpl_list){v->d->keys, v->d->n};
        return 0;
    case EK_TPL_ITER:
        *out =
            (struct ek_tpl_list){v->it->list.v + v->it->at, v->it->list.n - v->it->at};
        v->it->at = v->it->list.n;
        return 0;
    default:
        return ek_tpl_fail(rt, EK_EFORMAT, "a value of type '%s' is not iterable",
                           ek_tpl_type(v));
    }
}

int ek_tpl_contains(struct ek_tpl_rt *rt, bool *out, const struct ek_tpl_val *in,
                    const struct ek_tpl_val *what)
{
    *out = false;
    if (in->kind == EK_TPL_STR) {
        size_t at;
        if (what->kind != EK_TPL_STR)
            return ek_tpl_fail(rt, EK_EFORMAT,
                               "'in' a string needs a string on its left, not a value "
                               "of type '%s'",
                               ek_tpl_type(what));
        *out = ek_tpl_str_find(in->s, what->s, 0, &at);
        return ek_tpl_step(rt, in->s->n / 64);
    }
    if (in->kind == EK_TPL_DICT) {
        const struct ek_tpl_val *v;
        int rc = ek_tpl_dict_get(rt, &v, in->d, what);
        if (!rc)
            *out = v != NULL;
        return rc;
    }
    struct ek_tpl_list l;
    int rc = ek_tpl_items(rt, &l, in);
    for (size_t i = 0; !rc && !*out && i < l.n; i++)
        rc = ek_tpl_equal(rt, out, &l.v[i], what);
    return rc;
}
