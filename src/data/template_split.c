#include "data/template_int.h"

#include <string.h>

/* Methods of str that make lists: split, splitlines, partition. */

#define METHOD(name)                                                                   \
    int name(struct ek_tpl_rt *rt, struct ek_tpl_val *out,                             \
             const struct ek_tpl_val *self, const struct ek_tpl_args *args)

struct pieces { /* a growing list of parts of s */
    struct ek_tpl_rt *rt;
    const struct ek_tpl_str *s;
    struct ek_tpl_val *v;
    size_t n, cap;
};

static int add(struct pieces *p, size_t from, size_t to)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 8;
        struct ek_tpl_val *v = ek_tpl_alloc(p->rt, cap, sizeof *v);
        if (!v)
            return ek_tpl_no_memory(p->rt);
        if (p->n)
            memcpy(v, p->v, p->n * sizeof *v);
        p->v = v;
        p->cap = cap;
    }
    int rc = ek_tpl_step(p->rt, 1);
    return rc ? rc : ek_tpl_str_sub(p->rt, &p->v[p->n++], p->s, from, to);
}

static int finish(struct pieces *p, struct ek_tpl_val *out, bool is_reversed)
{
    for (size_t i = 0; is_reversed && i < p->n / 2; i++) {
        struct ek_tpl_val v = p->v[i];
        p->v[i] = p->v[p->n - 1 - i];
        p->v[p->n - 1 - i] = v;
    }
    int rc = ek_tpl_step(p->rt, p->s->n / 64);
    return rc ? rc : ek_tpl_list_new(p->rt, out, EK_TPL_LIST, p->v, p->n);
}

static int split_space(struct pieces *p, int64_t max)
{
    const struct ek_tpl_str *s = p->s;
    size_t at = 0, len;
    uint32_t c;
    int rc = 0;
    for (int64_t n = 0; !rc; n++) {
        while (at < s->n && (len = ek_tpl_char(s, at, &c)) && ek_tpl_is_space(c))
            at += len;
        if (at == s->n)
            return 0;
        if (n == max)
            return add(p, at, s->n);
        size_t from = at;
        while (at < s->n && (len = ek_tpl_char(s, at, &c)) && !ek_tpl_is_space(c))
            at += len;
        rc = add(p, from, at);
    }
    return rc;
}

static int rsplit_space(struct pieces *p, int64_t max)
{
    const struct ek_tpl_str *s = p->s;
    size_t at = s->n, len;
    uint32_t c;
    int rc = 0;
    for (int64_t n = 0; !rc; n++) {
        while (at > 0 && (len = ek_tpl_char_before(s, at, &c)) && ek_tpl_is_space(c))
            at -= len;
        if (at == 0)
            return 0;
        if (n == max)
            return add(p, 0, at);
        size_t to = at;
        while (at > 0 && (len = ek_tpl_char_before(s, at, &c)) && !ek_tpl_is_space(c))
            at -= len;
        rc = add(p, at, to);
    }
    return rc;
}

/* The last place of sep that ends at or before `to`. */
static bool find_last(const struct ek_tpl_str *s, const struct ek_tpl_str *sep,
                      size_t to, size_t *at)
{
    for (size_t i = to; i >= sep->n; i--) {
        if (memcmp(s->p + i - sep->n, sep->p, sep->n) == 0) {
            *at = i - sep->n;
            return true;
        }
    }
    return false;
}

static int split_sep(struct pieces *p, const struct ek_tpl_str *sep, int64_t max)
{
    size_t from = 0, at;
    int rc = 0;
    for (int64_t n = 0; !rc && n != max && ek_tpl_str_find(p->s, sep, from, &at); n++) {
        rc = add(p, from, at);
        from = at + sep->n;
    }
    return rc ? rc : add(p, from, p->s->n);
}

static int rsplit_sep(struct pieces *p, const struct ek_tpl_str *sep, int64_t max)
{
    size_t to = p->s->n, at;
    int rc = 0;
    for (int64_t n = 0; !rc && n != max && find_last(p->s, sep, to, &at); n++) {
        rc = add(p, at + sep->n, to);
        to = at;
    }
    return rc ? rc : add(p, 0, to);
}

static int split(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                 bool is_right)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    struct pieces p = {.rt = rt, .s = self->s};
    const struct ek_tpl_str *sep = NULL;
    int64_t max = -1;
    int rc = ek_tpl_bind(rt, v, args, "| sep maxsplit");
    if (!rc && v[0].kind != EK_TPL_MISSING && v[0].kind != EK_TPL_NONE)
        rc = ek_tpl_arg_str(rt, &sep, &v[0], args->what);
    if (!rc && v[1].kind != EK_TPL_MISSING)
        rc = ek_tpl_arg_int(rt, &max, &v[1], args->what);
    if (!rc && sep && sep->n == 0)
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s: the separator is empty", args->what);
    if (rc)
        return rc;
    if (max < 0)
        max = -1;
    if (sep)
        rc = is_right ? rsplit_sep(&p, sep, max) : split_sep(&p, sep, max);
    else
        rc = is_right ? rsplit_space(&p, max) : split_space(&p, max);
    return rc ? rc : finish(&p, out, is_right);
}

METHOD(ek_tpl_split)
{
    return split(rt, out, self, args, false);
}

METHOD(ek_tpl_rsplit)
{
    return split(rt, out, self, args, true);
}

static bool is_line_end(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
           c == 0x2028 || c == 0x2029;
}

METHOD(ek_tpl_splitlines)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    struct pieces p = {.rt = rt, .s = self->s};
    int rc = ek_tpl_bind(rt, v, args, "| keepends");
    bool keeps = !rc && ek_tpl_truth(&v[0]);
    size_t from = 0;
    for (size_t at = 0; !rc && at < self->s->n;) {
        uint32_t c, next;
        size_t end = at + ek_tpl_char(self->s, at, &c);
        if (is_line_end(c)) {
            if (c == '\r' && end < self->s->n && ek_tpl_char(self->s, end, &next) &&
                next == '\n')
                end++;
            rc = add(&p, from, keeps ? end : at);
            from = end;
        }
        at = end;
    }
    if (!rc && from < self->s->n)
        rc = add(&p, from, self->s->n);
    return rc ? rc : finish(&p, out, false);
}

static int partition(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                     const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                     bool is_right)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    struct pieces p = {.rt = rt, .s = self->s};
    const struct ek_tpl_str *sep = NULL, *s = self->s;
    int rc = ek_tpl_bind(rt, v, args, "/sep");
    if (!rc)
        rc = ek_tpl_arg_str(rt, &sep, &v[0], args->what);
    if (!rc && sep->n == 0)
        rc = ek_tpl_fail(rt, EK_EFORMAT, "%s: the separator is empty", args->what);
    if (rc)
        return rc;
    size_t at = 0;
    bool is_found =
        is_right ? find_last(s, sep, s->n, &at) : ek_tpl_str_find(s, sep, 0, &at);
    size_t n = is_found ? sep->n : 0;
    if (!is_found)
        at = is_right ? 0 : s->n;
    rc = add(&p, 0, at);
    if (!rc)
        rc = add(&p, at, at + n);
    if (!rc)
        rc = add(&p, at + n, s->n);
    return rc ? rc : ek_tpl_list_new(rt, out, EK_TPL_TUPLE, p.v, p.n);
}

METHOD(ek_tpl_partition)
{
    return partition(rt, out, self, args, false);
}

METHOD(ek_tpl_rpartition)
{
    return partition(rt, out, self, args, true);
}
