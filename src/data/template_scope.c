#include "base/mem.h"
#include "data/template_int.h"

#include <string.h>

/* jinja2 decides before a template runs which names are local to a frame (the template,
 * the body of a loop, macro or block): a name that a frame stores and has not read
 * before, and that no frame around knows, is unassigned from the frame's start on, even
 * where a variable of that name was given. This pass finds those names. It reads a
 * frame's own statements first, then the frames inside it.
 *
 * An unknown filter or test is an error of the template, unless an `if` stands around
 * it in the same frame: then of the rendering, if it comes that far. */

#define DEPTH 1000 /* of the tree; nests and chains together */

enum load { LOAD_NONE, LOAD_UNSET, LOAD_OTHER };

struct state { /* of one name in the frame that is read */
    int frame;
    uint8_t load;     /* enum load: what the name is when the frame begins */
    bool is_stored;   /* the frame assigns it */
    bool is_outer;    /* a frame around knows it */
    bool is_reported; /* it is in the list of this frame */
};

struct change {
    int name;
    struct state was;
};

struct scan {
    struct ek_template *t;
    struct ek_err *err;
    struct state *names; /* by number */
    struct change *log;  /* how to undo, newest last */
    size_t n_log, cap_log;
    int frame, n_frames, depth;
    bool is_soft;  /* an `if` is around within the frame, while walking */
    bool is_in_if; /* likewise, while reading names */
};

static int no_memory(const struct scan *s)
{
    return ek_err_set(s->err, EK_ENOMEM, "out of memory");
}

static const struct state *now(const struct scan *s, int name)
{
    static const struct state untouched = {0};
    const struct state *n = &s->names[name];
    return n->frame == s->frame ? n : &untouched;
}

/* The state of a name in this frame, about to be changed. */
static int touch(struct scan *s, struct state **out, int name)
{
    if (s->n_log == s->cap_log) {
        size_t cap = s->cap_log ? 2 * s->cap_log : 256;
        struct change *log = ek_realloc_array(s->log, cap, sizeof *log);
        if (!log)
            return no_memory(s);
        s->log = log;
        s->cap_log = cap;
    }
    struct state *n = &s->names[name];
    s->log[s->n_log++] = (struct change){name, *n};
    if (n->frame != s->frame)
        *n = (struct state){.frame = s->frame,
                            .is_outer = n->is_outer || n->load != LOAD_NONE};
    *out = n;
    return 0;
}

static void undo(struct scan *s, size_t mark)
{
    while (s->n_log > mark) {
        s->n_log--;
        s->names[s->log[s->n_log].name] = s->log[s->n_log].was;
    }
}

static int load(struct scan *s, int name)
{
    struct state *n;
    if (now(s, name)->load != LOAD_NONE)
        return 0;
    int rc = touch(s, &n, name);
    if (!rc && n->load == LOAD_NONE && !n->is_outer)
        n->load = LOAD_OTHER;
    return rc;
}

static int store(struct scan *s, int name, bool is_param)
{
    struct state *n;
    if (now(s, name)->is_stored && !is_param)
        return 0;
    int rc = touch(s, &n, name);
    if (rc)
        return rc;
    n->is_stored = true;
    if (is_param || (n->load == LOAD_NONE && (n->is_outer || s->is_in_if)))
        n->load = LOAD_OTHER;
    else if (n->load == LOAD_NONE)
        n->load = LOAD_UNSET;
    return 0;
}

static int target(struct scan *s, const struct ek_tpl_node *n, bool is_param)
{
    if (n->kind == EK_TPL_N_NAME)
        return store(s, n->name, is_param);
    if (n->kind == EK_TPL_N_NSREF)
        return load(s, n->name);
    int rc = 0;
    for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next)
        rc = target(s, k, is_param);
    return rc;
}

static int down(struct scan *s, int line)
{
    if (s->depth == DEPTH)
        return ek_err_set(s->err, EK_ELIMIT, "line %d: nested deeper than %d levels",
                          line, DEPTH);
    s->depth++;
    return 0;
}

/* ---- first reading: the names of this frame -------------------------------------- */

static int names_in(struct scan *s, const struct ek_tpl_node *list);

static int names_in_expr(struct scan *s, const struct ek_tpl_node *n)
{
    int rc = n ? down(s, n->line) : 0;
    if (rc || !n)
        return rc;
    if (n->kind == EK_TPL_N_NAME)
        rc = load(s, n->name);
    if (!rc)
        rc = names_in_expr(s, n->a);
    if (!rc)
        rc = names_in_expr(s, n->b);
    if (!rc)
        rc = names_in_expr(s, n->c);
    for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next)
        rc = names_in_expr(s, k);
    s->depth--;
    return rc;
}

/* What an if stores may be unassigned behind it: it is looked up outside. */
static int names_in_if(struct scan *s, const struct ek_tpl_node *branch)
{
    bool was_in_if = s->is_in_if;
    int rc = 0;
    s->is_in_if = true;
    for (; !rc && branch; branch = branch->next) {
        rc = names_in_expr(s, branch->a);
        if (!rc)
            rc = names_in(s, branch->body);
    }
    s->is_in_if = was_in_if;
    return rc;
}

static int names_in_node(struct scan *s, const struct ek_tpl_node *n)
{
    int rc = 0;
    switch (n->kind) {
    case EK_TPL_N_PRINT:
        return names_in_expr(s, n->a);
    case EK_TPL_N_IF:
        return names_in_if(s, n->kids);
    case EK_TPL_N_SET:
        rc = names_in_expr(s, n->b);
        return rc ? rc : target(s, n->a, false);
    case EK_TPL_N_SETBLOCK:
        return target(s, n->a, false);
    case EK_TPL_N_MACRO:
        return store(s, n->name, false);
    case EK_TPL_N_FOR:
    case EK_TPL_N_CALL_BLOCK:
    case EK_TPL_N_FILTER_BLOCK:
        return names_in_expr(s, n->b);
    case EK_TPL_N_WITH:
        for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next)
            rc = names_in_expr(s, k->b);
        return rc;
    default:
        return 0;
    }
}

static int names_in(struct scan *s, const struct ek_tpl_node *list)
{
    int rc = list ? down(s, list->line) : 0;
    if (rc || !list)
        return rc;
    for (; !rc && list; list = list->next)
        rc = names_in_node(s, list);
    s->depth--;
    return rc;
}

/* ---- second reading: the frames inside, filters and tests ------------------------ */

static int walk(struct scan *s, struct ek_tpl_node *list);

static int check_def(struct scan *s, const struct ek_tpl_node *n)
{
    bool is_filter = n->kind == EK_TPL_N_FILTER;
    if ((!is_filter && n->kind != EK_TPL_N_TEST) || n->def)
        return 0;
    int len = n->val.s->n > 80 ? 80 : (int)n->val.s->n;
    if (is_filter && ek_tpl_is_foreign_filter(n->val.s->p, n->val.s->n))
        return ek_err_set(s->err, EK_EUNSUP,
                          "line %d: filter '%.*s' is not interpreted", n->line, len,
                          n->val.s->p);
    if (s->is_soft)
        return 0;
    return ek_err_set(s->err, EK_EFORMAT, "line %d: no %s is named '%.*s'", n->line,
                      is_filter ? "filter" : "test", len, n->val.s->p);
}

static int walk_expr(struct scan *s, const struct ek_tpl_node *n)
{
    int rc = n ? down(s, n->line) : 0;
    if (rc || !n)
        return rc;
    bool was_soft = s->is_soft;
    s->is_soft |= n->kind == EK_TPL_N_COND;
    rc = check_def(s, n);
    if (!rc)
        rc = walk_expr(s, n->a);
    if (!rc)
        rc = walk_expr(s, n->b);
    if (!rc)
        rc = walk_expr(s, n->c);
    for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next)
        rc = walk_expr(s, k);
    s->is_soft = was_soft;
    s->depth--;
    return rc;
}

/* The names of this frame that are unassigned at its start, into the tree. */
static int report(struct scan *s, size_t mark, const int **unset, int *n_unset)
{
    size_t n = 0, room = 0;
    for (size_t i = mark; i < s->n_log; i++)
        room += now(s, s->log[i].name)->load == LOAD_UNSET;
    int *names = room ? ek_arena_alloc(&s->t->arena, room * sizeof *names) : NULL;
    if (room && !names)
        return no_memory(s);
    for (size_t i = mark; i < s->n_log; i++) {
        struct state *name = &s->names[s->log[i].name];
        if (now(s, s->log[i].name)->load != LOAD_UNSET || name->is_reported)
            continue;
        name->is_reported = true;
        names[n++] = s->log[i].name;
    }
    *unset = names;
    *n_unset = (int)n;
    return 0;
}

/* A frame made of: names that are given, and a list of statements. The places for its
 * unassigned names are those of `out`, or of the template. */
static int frame(struct scan *s, struct ek_tpl_node *out,
                 const struct ek_tpl_node *given, struct ek_tpl_node *body)
{
    size_t mark = s->n_log;
    int outer = s->frame, rc = 0;
    bool was_soft = s->is_soft;
    s->frame = ++s->n_frames;
    s->is_soft = false;
    if (out && out->kind == EK_TPL_N_FOR) {
        rc = target(s, out->a, true);
        if (!rc)
            rc = store(s, out->name, true);
    }
    for (const struct ek_tpl_node *k = given; !rc && k; k = k->next)
        rc =
            k->kind == EK_TPL_N_PARAM ? store(s, k->name, true) : target(s, k->a, true);
    for (const struct ek_tpl_node *k = given; !rc && k; k = k->next)
        if (k->kind == EK_TPL_N_PARAM)
            rc = names_in_expr(s, k->a);
    if (!rc)
        rc = names_in(s, body);
    if (!rc)
        rc = out ? report(s, mark, &out->unset, &out->n_unset)
                 : report(s, mark, &s->t->unset, &s->t->n_unset);
    for (const struct ek_tpl_node *k = given; !rc && k; k = k->next)
        if (k->kind == EK_TPL_N_PARAM)
            rc = walk_expr(s, k->a);
    if (!rc)
        rc = walk(s, body);
    s->is_soft = was_soft;
    s->frame = outer;
    undo(s, mark);
    return rc;
}

static int walk_if(struct scan *s, const struct ek_tpl_node *n)
{
    bool was_soft = s->is_soft;
    int rc = 0;
    s->is_soft = true;
    for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next) {
        rc = walk_expr(s, k->a);
        if (!rc)
            rc = walk(s, k->body);
    }
    s->is_soft = was_soft;
    return rc;
}

static int walk_for(struct scan *s, struct ek_tpl_node *n)
{
    bool was_soft = s->is_soft;
    int rc = walk_expr(s, n->b);
    s->is_soft = false;
    if (!rc)
        rc = walk_expr(s, n->c);
    s->is_soft = was_soft;
    if (!rc)
        rc = frame(s, n, NULL, n->body);
    return rc || !n->kids ? rc : frame(s, n->kids, NULL, n->kids->body);
}

static int walk_node(struct scan *s, struct ek_tpl_node *n)
{
    int rc;
    switch (n->kind) {
    case EK_TPL_N_PRINT:
        return walk_expr(s, n->a);
    case EK_TPL_N_IF:
        return walk_if(s, n);
    case EK_TPL_N_SET:
        return walk_expr(s, n->b);
    case EK_TPL_N_FOR:
        return walk_for(s, n);
    case EK_TPL_N_MACRO:
        return frame(s, n, n->kids, n->body);
    case EK_TPL_N_CALL_BLOCK:
    case EK_TPL_N_SETBLOCK:
    case EK_TPL_N_FILTER_BLOCK:
        rc = walk_expr(s, n->b);
        return rc ? rc : frame(s, n, n->kids, n->body);
    case EK_TPL_N_WITH:
        rc = 0;
        for (const struct ek_tpl_node *k = n->kids; !rc && k; k = k->next)
            rc = walk_expr(s, k->b);
        return rc ? rc : frame(s, n, n->kids, n->body);
    case EK_TPL_N_SCOPE:
        return frame(s, n, NULL, n->body);
    default:
        return 0;
    }
}

static int walk(struct scan *s, struct ek_tpl_node *list)
{
    int rc = list ? down(s, list->line) : 0;
    if (rc || !list)
        return rc;
    for (; !rc && list; list = list->next)
        rc = walk_node(s, list);
    s->depth--;
    return rc;
}

int ek_tpl_scope_check(struct ek_template *t, struct ek_err *err)
{
    struct scan s = {.t = t, .err = err};
    size_t n = (size_t)t->n_names;
    s.names = ek_calloc(n, sizeof *s.names);
    int rc = s.names ? frame(&s, NULL, NULL, t->body) : no_memory(&s);
    ek_free(s.names);
    ek_free(s.log);
    return rc;
}
