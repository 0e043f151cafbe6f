#include "data/template.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "data/template_int.h"

#include <stdarg.h>
#include <string.h>

/* Parsing and rendering from outside. */

#define TREE_MAX     (64u << 20) /* arena of one parsed template */
#define NAMES_MAX    (1u << 20)
#define DEPTH_MAX    1000 /* what max_depth may be: the C stack bears it */
#define STEPS_USUAL  10000000
#define OUTPUT_USUAL (16u << 20)
#define MEMORY_USUAL (256u << 20)
#define DEPTH_USUAL  200

int ek_tpl_fail_write(struct ek_tpl_rt *rt, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ek_err_setv(rt->err, status, fmt, args);
    va_end(args);
    ek_err_prefix(rt->err, "line %d", rt->line);
    return status;
}

void *ek_tpl_alloc(struct ek_tpl_rt *rt, size_t n, size_t size)
{
    size_t bytes;
    struct ek_arena *a = rt->arena;
    if (!ek_mul_size(&bytes, n, size) || bytes > a->max_bytes - a->used_bytes) {
        rt->is_over_memory = true;
        return NULL;
    }
    void *p = ek_arena_alloc(a, bytes);
    if (!p)
        rt->is_over_memory = bytes + 16 > a->max_bytes - a->used_bytes;
    return p;
}

int ek_tpl_step(struct ek_tpl_rt *rt, size_t n)
{
    if (n >= rt->max_steps - rt->steps)
        return ek_tpl_fail(rt, EK_ELIMIT, "rendering takes more than max_steps (%zu)",
                           rt->max_steps);
    rt->steps += n;
    return 0;
}

int ek_tpl_down(struct ek_tpl_rt *rt)
{
    if (rt->depth >= rt->max_depth)
        return ek_tpl_fail(rt, EK_ELIMIT, "nested deeper than max_depth (%zu)",
                           rt->max_depth);
    rt->depth++;
    return 0;
}

/* A copy of the source with "\n" for every kind of newline and without the last one. */
static int normalize(struct ek_template *t, const char **out, size_t *n,
                     const char *source, size_t size)
{
    char *text = ek_arena_alloc(&t->arena, size + 1);
    size_t at = 0;
    if (!text)
        return EK_ENOMEM;
    for (size_t i = 0; i < size; i++) {
        text[at++] = (char)(source[i] == '\r' ? '\n' : source[i]);
        if (source[i] == '\r' && i + 1 < size && source[i + 1] == '\n')
            i++;
    }
    if (at && text[at - 1] == '\n')
        at--;
    text[at] = 0;
    *out = text;
    *n = at;
    return 0;
}

static int parse(struct ek_template *t, const char *source, size_t n,
                 struct ek_err *err)
{
    struct ek_tpl_tokens tokens = {0};
    const char *text;
    size_t len;
    int rc = normalize(t, &text, &len, source, n);
    if (rc)
        return ek_err_set(err, rc, "out of memory");
    rc = ek_tpl_lex(&tokens, text, len, err);
    if (!rc) {
        struct ek_tpl_parser p = {.t = t, .err = err, .tok = tokens.v};
        rc = ek_tpl_parse_body(&p, &t->body, "");
    }
    ek_free(tokens.v);
    return rc ? rc : ek_tpl_scope_check(t, err);
}

int ek_template_parse(struct ek_template **t, const char *source, size_t n,
                      struct ek_err *err)
{
    if (n > EK_TPL_SOURCE_MAX)
        return ek_err_set(err, EK_ELIMIT, "the template is longer than %u bytes (%zu)",
                          EK_TPL_SOURCE_MAX, n);
    if (!ek_utf8_is_valid(source, n))
        return ek_err_set(err, EK_EFORMAT, "the template is not UTF-8");
    struct ek_template *made = ek_calloc(1, sizeof *made);
    if (!made)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    ek_arena_init(&made->arena, TREE_MAX);
    ek_map_init(&made->index, NAMES_MAX, 0);
    int rc = parse(made, source, n, err);
    if (rc) {
        ek_template_free(made);
        return rc;
    }
    *t = made;
    return 0;
}

void ek_template_free(struct ek_template *t)
{
    if (!t)
        return;
    ek_free(t->names);
    ek_map_release(&t->index);
    ek_arena_release(&t->arena);
    ek_free(t);
}

static bool is_in(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* The functions of the environment and the variables, as far as the template names
 * them; a variable hides a function. */
static int set_globals(struct ek_tpl_rt *rt, struct ek_tpl_scope *s, const json_t *vars,
                       const char *const *trusted)
{
    const struct ek_tpl_val none = {.kind = EK_TPL_MISSING};
    int rc = 0;
    for (int i = 0; !rc && i < rt->t->n_names; i++) {
        const struct ek_tpl_name *name = &rt->t->names[i];
        const struct ek_tpl_def *def =
            ek_tpl_find_def(ek_tpl_globals, name->p, name->n);
        const json_t *json = json_object_getn(vars, name->p, name->n);
        struct ek_tpl_val v;
        if (json) {
            char *text = ek_tpl_alloc(rt, name->n + 1, 1);
            if (!text)
                return ek_tpl_no_memory(rt);
            memcpy(text, name->p, name->n);
            text[name->n] = 0;
            rc = ek_tpl_from_json(rt, &v, json, !is_in(trusted, text));
        } else if (def) {
            rc = ek_tpl_bind_method(rt, &v, def, &none);
        } else {
            continue;
        }
        if (!rc)
            rc = ek_tpl_scope_set(rt, s, i, v);
    }
    return rc;
}

static int render(struct ek_tpl_rt *rt, const json_t *vars, const char *const *trusted)
{
    struct ek_tpl_scope *globals, *top;
    int rc = ek_tpl_scope_new(rt, &globals, NULL, NULL, 0);
    if (!rc)
        rc = set_globals(rt, globals, vars, trusted);
    if (!rc)
        rc = ek_tpl_scope_new(rt, &top, globals, rt->t->unset, rt->t->n_unset);
    return rc ? rc : ek_tpl_exec(rt, rt->t->body, top);
}

static size_t or_usual(size_t v, size_t usual)
{
    return v ? v : usual;
}

int ek_template_render(const struct ek_template *t, struct ek_buf *out,
                       struct ek_buf *is_plain, const json_t *vars,
                       const char *const *trusted, int64_t now_us,
                       const struct ek_template_limits *limits, struct ek_err *err)
{
    static const struct ek_template_limits usual = {0};
    const struct ek_template_limits *l = limits ? limits : &usual;
    struct ek_arena arena;
    struct ek_tpl_rt rt = {.t = t, .arena = &arena, .err = err, .now_us = now_us};
    rt.max_steps = or_usual(l->max_steps, STEPS_USUAL);
    rt.max_output = or_usual(l->max_output_bytes, OUTPUT_USUAL);
    rt.max_depth = or_usual(l->max_depth, DEPTH_USUAL);
    if (rt.max_depth > DEPTH_MAX)
        rt.max_depth = DEPTH_MAX;
    if (err)
        *err = (struct ek_err)EK_ERR_INIT;
    size_t memory = or_usual(l->max_memory_bytes, MEMORY_USUAL);
    size_t len = out->len, len_plain = is_plain->len;
    ek_arena_init(&arena, memory);
    ek_buf_init(&rt.text, rt.max_output);
    ek_buf_init(&rt.mark, rt.max_output);
    ek_buf_init(&rt.scratch, memory);
    ek_buf_init(&rt.scratch_m, memory);
    int rc = render(&rt, vars, trusted);
    if (!rc && (rc = ek_buf_add(out, rt.text.data, rt.text.len)) == 0)
        rc = ek_buf_add(is_plain, rt.mark.data, rt.mark.len);
    if (rc) {
        out->len = len;
        is_plain->len = len_plain;
        if (err && err->status != rc)
            ek_err_set(err, rc, "%s", ek_status_text(rc));
    }
    ek_buf_release(&rt.text);
    ek_buf_release(&rt.mark);
    ek_buf_release(&rt.scratch);
    ek_buf_release(&rt.scratch_m);
    ek_arena_release(&arena);
    return rc;
}
