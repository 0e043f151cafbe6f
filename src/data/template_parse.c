#include "base/mem.h"
#include "data/template_int.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

/* Tokens -> statements. Recursion is bounded by ek_tpl_enter. */

int ek_tpl_parse_fail_write(struct ek_tpl_parser *p, int status, int line,
                            const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ek_err_setv(p->err, status, fmt, args);
    va_end(args);
    ek_err_prefix(p->err, "line %d", line);
    return status;
}

int ek_tpl_unexpected(struct ek_tpl_parser *p, const char *wanted)
{
    const struct ek_tpl_token *t = p->tok;
    const char *sep = *wanted ? ", expected " : "";
    switch (t->kind) {
    case EK_TPL_T_EOF:
        return ek_tpl_parse_fail(p, EK_EFORMAT, t->line,
                                 "unexpected end of the template%s%s", sep, wanted);
    case EK_TPL_T_BLOCK_END:
        return ek_tpl_parse_fail(p, EK_EFORMAT, t->line, "unexpected '%%}'%s%s", sep,
                                 wanted);
    case EK_TPL_T_VAR_END:
        return ek_tpl_parse_fail(p, EK_EFORMAT, t->line, "unexpected '}}'%s%s", sep,
                                 wanted);
    default:
        return ek_tpl_parse_fail(p, EK_EFORMAT, t->line, "unexpected '%.*s'%s%s",
                                 t->n > 80 ? 80 : (int)t->n, t->p, sep, wanted);
    }
}

int ek_tpl_node_new(struct ek_tpl_parser *p, struct ek_tpl_node **out, int kind,
                    int line)
{
    struct ek_tpl_node *n = ek_arena_calloc(&p->t->arena, 1, sizeof *n);
    if (!n)
        return ek_tpl_parse_fail(p, EK_ENOMEM, line, "out of memory");
    n->kind = (uint8_t)kind;
    n->line = line;
    *out = n;
    return 0;
}

int ek_tpl_name_id(struct ek_tpl_parser *p, int *id, const char *s, size_t n)
{
    struct ek_template *t = p->t;
    uint64_t found;
    if (ek_map_get(&t->index, s, n, &found)) {
        *id = (int)found;
        return 0;
    }
    if (t->n_names == t->cap_names) {
        int cap = t->cap_names ? 2 * t->cap_names : 64;
        struct ek_tpl_name *names =
            ek_realloc_array(t->names, (size_t)cap, sizeof *names);
        if (!names)
            return ek_tpl_parse_fail(p, EK_ENOMEM, p->tok->line, "out of memory");
        t->names = names;
        t->cap_names = cap;
    }
    int rc = ek_map_put(&t->index, s, n, (uint64_t)t->n_names, NULL);
    if (rc)
        return ek_tpl_parse_fail(p, rc, p->tok->line, "%s", ek_status_text(rc));
    t->names[t->n_names] = (struct ek_tpl_name){s, n};
    *id = t->n_names++;
    return 0;
}

int ek_tpl_const_str(struct ek_tpl_parser *p, struct ek_tpl_val *out, const char *s,
                     size_t n)
{
    struct ek_tpl_str *str = ek_arena_calloc(&p->t->arena, 1, sizeof *str);
    if (!str)
        return ek_tpl_parse_fail(p, EK_ENOMEM, p->tok->line, "out of memory");
    *str = (struct ek_tpl_str){.p = s, .n = n, .n_chars = ek_tpl_count_chars(s, n)};
    *out = (struct ek_tpl_val){.kind = EK_TPL_STR, .s = str};
    return 0;
}

int ek_tpl_enter(struct ek_tpl_parser *p)
{
    if (p->depth == EK_TPL_PARSE_DEPTH)
        return ek_tpl_parse_fail(p, EK_ELIMIT, p->tok->line,
                                 "nested deeper than %d levels", EK_TPL_PARSE_DEPTH);
    p->depth++;
    return 0;
}

bool ek_tpl_is_op(const struct ek_tpl_parser *p, char op)
{
    return p->tok->kind == EK_TPL_T_OP && p->tok->op == op;
}

static bool token_is(const struct ek_tpl_token *t, const char *name)
{
    return t->kind == EK_TPL_T_NAME && t->n == strlen(name) &&
           memcmp(t->p, name, t->n) == 0;
}

bool ek_tpl_is_name(const struct ek_tpl_parser *p, const char *name)
{
    return token_is(p->tok, name);
}

bool ek_tpl_skip_op(struct ek_tpl_parser *p, char op)
{
    bool is = ek_tpl_is_op(p, op);
    p->tok += is;
    return is;
}

bool ek_tpl_skip_name(struct ek_tpl_parser *p, const char *name)
{
    bool is = ek_tpl_is_name(p, name);
    p->tok += is;
    return is;
}

int ek_tpl_want_op(struct ek_tpl_parser *p, char op, const char *text)
{
    return ek_tpl_skip_op(p, op) ? 0 : ek_tpl_unexpected(p, text);
}

int ek_tpl_parse_word(struct ek_tpl_parser *p, int *id)
{
    if (p->tok->kind != EK_TPL_T_NAME)
        return ek_tpl_unexpected(p, "a name");
    int rc = ek_tpl_name_id(p, id, p->tok->p, p->tok->n);
    p->tok++;
    return rc;
}

/* "%}", then the statements up to one of the words of `ends`, which is left as the
 * current token. */
static int parse_block(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                       const char *ends)
{
    ek_tpl_skip_op(p, ':');
    if (p->tok->kind != EK_TPL_T_BLOCK_END)
        return ek_tpl_unexpected(p, "'%}'");
    int line = p->tok->line;
    p->tok++;
    int rc = ek_tpl_enter(p);
    if (rc)
        return rc;
    rc = ek_tpl_parse_body(p, out, ends);
    p->depth--;
    if (!rc && p->tok->kind == EK_TPL_T_EOF)
        return ek_tpl_parse_fail(p, EK_EFORMAT, line,
                                 "the block that begins here has no end (expected: %s)",
                                 ends);
    return rc;
}

/* Likewise for one word, which is read. */
static int parse_to(struct ek_tpl_parser *p, struct ek_tpl_node **out, const char *end)
{
    int rc = parse_block(p, out, end);
    p->tok += !rc;
    return rc;
}

static int parse_for_else(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    if (ek_tpl_skip_name(p, "endfor"))
        return 0;
    p->tok++;
    struct ek_tpl_node *branch = NULL;
    int rc = ek_tpl_node_new(p, &branch, EK_TPL_N_BRANCH, p->tok->line);
    if (rc)
        return rc;
    n->kids = branch;
    return parse_to(p, &branch->body, "endfor");
}

static int parse_for(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    n->kind = EK_TPL_N_FOR;
    int rc = ek_tpl_name_id(p, &n->name, "loop", 4);
    if (!rc)
        rc = ek_tpl_parse_target(p, &n->a, false, "in");
    if (rc)
        return rc;
    if (!ek_tpl_skip_name(p, "in"))
        return ek_tpl_unexpected(p, "'in'");
    rc = ek_tpl_parse_tuple(p, &n->b, false, "recursive");
    if (!rc && ek_tpl_skip_name(p, "if"))
        rc = ek_tpl_parse_expr(p, &n->c);
    if (rc)
        return rc;
    if (ek_tpl_is_name(p, "recursive"))
        return ek_tpl_parse_fail(p, EK_EUNSUP, n->line,
                                 "a recursive for loop is not interpreted");
    p->loops++;
    rc = parse_block(p, &n->body, "endfor else");
    p->loops--;
    return rc ? rc : parse_for_else(p, n);
}

static int parse_if(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    n->kind = EK_TPL_N_IF;
    struct ek_tpl_node **end = &n->kids;
    for (bool is_else = false;;) {
        struct ek_tpl_node *branch = NULL;
        int rc = ek_tpl_node_new(p, &branch, EK_TPL_N_BRANCH, p->tok->line);
        if (!rc && !is_else)
            rc = ek_tpl_parse_tuple(p, &branch->a, false, NULL);
        if (!rc)
            rc = parse_block(p, &branch->body, is_else ? "endif" : "elif else endif");
        if (rc)
            return rc;
        *end = branch;
        end = &branch->next;
        if (ek_tpl_skip_name(p, "endif"))
            return 0;
        is_else = ek_tpl_is_name(p, "else");
        p->tok++;
    }
}

static int parse_set(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    n->kind = EK_TPL_N_SET;
    int rc = ek_tpl_parse_target(p, &n->a, true, NULL);
    if (rc)
        return rc;
    if (ek_tpl_skip_op(p, '='))
        return ek_tpl_parse_tuple(p, &n->b, true, NULL);
    n->kind = EK_TPL_N_SETBLOCK;
    rc = ek_tpl_parse_filters(p, &n->b, false);
    return rc ? rc : parse_to(p, &n->body, "endset");
}

static int parse_params(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    int rc = ek_tpl_want_op(p, '(', "'('");
    struct ek_tpl_node **end = &n->kids;
    bool has_default = false;
    while (!rc && !ek_tpl_skip_op(p, ')')) {
        struct ek_tpl_node *param = NULL;
        if (n->kids)
            rc = ek_tpl_want_op(p, ',', "',' or ')'");
        if (!rc)
            rc = ek_tpl_node_new(p, &param, EK_TPL_N_PARAM, p->tok->line);
        if (!rc)
            rc = ek_tpl_parse_word(p, &param->name);
        if (rc)
            return rc;
        if (ek_tpl_skip_op(p, '=')) {
            has_default = true;
            rc = ek_tpl_parse_expr(p, &param->a);
        } else if (has_default) {
            return ek_tpl_parse_fail(p, EK_EFORMAT, param->line,
                                     "a parameter without default follows one with");
        }
        *end = param;
        end = &param->next;
    }
    return rc;
}

/* The body of what becomes a function: no break out of it, its own use of caller. */
static int parse_function_body(struct ek_tpl_parser *p, struct ek_tpl_node *n,
                               const char *end)
{
    struct ek_tpl_node *outer = p->macro;
    int loops = p->loops;
    p->macro = n;
    p->loops = 0;
    int rc = parse_to(p, &n->body, end);
    p->macro = outer;
    p->loops = loops;
    if (outer) {
        outer->uses_caller |= n->uses_caller;
        outer->uses_varargs |= n->uses_varargs;
        outer->uses_kwargs |= n->uses_kwargs;
    }
    return rc;
}

static int parse_macro(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    n->kind = EK_TPL_N_MACRO;
    int rc = ek_tpl_parse_word(p, &n->name);
    if (!rc)
        rc = parse_params(p, n);
    return rc ? rc : parse_function_body(p, n, "endmacro");
}

static int parse_call(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    n->kind = EK_TPL_N_CALL_BLOCK;
    int rc = ek_tpl_is_op(p, '(') ? parse_params(p, n) : 0;
    if (!rc)
        rc = ek_tpl_parse_expr(p, &n->b);
    if (rc)
        return rc;
    if (n->b->kind != EK_TPL_N_CALL)
        return ek_tpl_parse_fail(
            p, EK_EFORMAT, n->line,
            "tag 'call' expects a call, as in {%% call name() %%}");
    return parse_function_body(p, n, "endcall");
}

static int parse_filter(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    n->kind = EK_TPL_N_FILTER_BLOCK;
    int rc = ek_tpl_parse_filters(p, &n->b, true);
    return rc ? rc : parse_to(p, &n->body, "endfilter");
}

static int parse_generation(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    n->kind = EK_TPL_N_SCOPE;
    return parse_function_body(p, n, "endgeneration");
}

static int parse_with(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    n->kind = EK_TPL_N_WITH;
    struct ek_tpl_node **end = &n->kids;
    while (p->tok->kind != EK_TPL_T_BLOCK_END) {
        struct ek_tpl_node *pair = NULL;
        int rc = n->kids ? ek_tpl_want_op(p, ',', "',' or '%}'") : 0;
        if (!rc)
            rc = ek_tpl_node_new(p, &pair, EK_TPL_N_PAIR, p->tok->line);
        if (!rc)
            rc = ek_tpl_parse_target(p, &pair->a, false, NULL);
        if (!rc)
            rc = ek_tpl_want_op(p, '=', "'='");
        if (!rc)
            rc = ek_tpl_parse_expr(p, &pair->b);
        if (rc)
            return rc;
        *end = pair;
        end = &pair->next;
    }
    return parse_to(p, &n->body, "endwith");
}

static int parse_jump(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    bool is_break = token_is(p->tok - 1, "break");
    n->kind = is_break ? EK_TPL_N_BREAK : EK_TPL_N_CONTINUE;
    if (p->loops)
        return 0;
    return ek_tpl_parse_fail(p, EK_EFORMAT, n->line, "'%s' outside a for loop",
                             is_break ? "break" : "continue");
}

static int parse_unsupported(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    const struct ek_tpl_token *t = p->tok - 1;
    return ek_tpl_parse_fail(p, EK_EUNSUP, n->line, "tag '%.*s' is not interpreted",
                             (int)t->n, t->p);
}

/* The tag whose name is the current token, up to its "%}". */
static int parse_statement(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    static const struct {
        const char *name;
        int (*parse)(struct ek_tpl_parser *, struct ek_tpl_node *);
    } tags[] = {
        {"for", parse_for},
        {"if", parse_if},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call},
        {"filter", parse_filter},
        {"generation", parse_generation},
        {"with", parse_with},
        {"break", parse_jump},
        {"continue", parse_jump},
        {"block", parse_unsupported},
        {"extends", parse_unsupported},
        {"include", parse_unsupported},
        {"import", parse_unsupported},
        {"from", parse_unsupported},
        {"autoescape", parse_unsupported},
        {"print", parse_unsupported},
    };
    const struct ek_tpl_token *t = p->tok;
    if (t->kind != EK_TPL_T_NAME)
        return ek_tpl_unexpected(p, "the name of a tag");
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!token_is(t, tags[i].name))
            continue;
        int rc = ek_tpl_node_new(p, out, EK_TPL_N_TEXT, t->line);
        p->tok++;
        return rc ? rc : tags[i].parse(p, *out);
    }
    return ek_tpl_parse_fail(p, EK_EFORMAT, t->line, "unknown tag '%.*s'",
                             t->n > 80 ? 80 : (int)t->n, t->p);
}

static bool is_one_of(const struct ek_tpl_token *t, const char *words)
{
    if (t->kind != EK_TPL_T_NAME)
        return false;
    for (const char *w = words; *w;) {
        size_t n = strcspn(w, " ");
        if (n == t->n && memcmp(w, t->p, n) == 0)
            return true;
        w += n + (w[n] == ' ');
    }
    return false;
}

static int parse_print(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    int rc = ek_tpl_node_new(p, out, EK_TPL_N_PRINT, p->tok->line);
    p->tok++;
    if (!rc)
        rc = ek_tpl_parse_tuple(p, &(*out)->a, true, NULL);
    if (!rc && p->tok->kind != EK_TPL_T_VAR_END)
        return ek_tpl_unexpected(p, "'}}'");
    p->tok++;
    return rc;
}

static int parse_text(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    int rc = ek_tpl_node_new(p, out, EK_TPL_N_TEXT, p->tok->line);
    if (!rc)
        rc = ek_tpl_const_str(p, &(*out)->val, p->tok->p, p->tok->n);
    p->tok++;
    return rc;
}

static int parse_tag(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    int rc = parse_statement(p, out);
    if (!rc && p->tok->kind != EK_TPL_T_BLOCK_END)
        return ek_tpl_unexpected(p, "'%}'");
    p->tok++;
    return rc;
}

int ek_tpl_parse_body(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                      const char *ends)
{
    struct ek_tpl_node **end = out;
    *out = NULL;
    while (p->tok->kind != EK_TPL_T_EOF) {
        int rc;
        if (p->tok->kind == EK_TPL_T_DATA) {
            rc = parse_text(p, end);
        } else if (p->tok->kind == EK_TPL_T_VAR_BEGIN) {
            rc = parse_print(p, end);
        } else {
            p->tok++;
            if (is_one_of(p->tok, ends))
                return 0;
            rc = parse_tag(p, end);
        }
        if (rc)
            return rc;
        assert(*end);
        end = &(*end)->next;
    }
    return 0;
}
