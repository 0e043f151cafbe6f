#include "base/utf8.h"
#include "data/template_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Tokens -> expressions, by precedence from loose to tight:
 *   a if b else c | or | and | not | comparisons | + - | ~ | * / // % | ** | signs |
 *   x.y x[y] x() | filters and tests
 * Chains of one level are one node, so that a long sum is no deep tree. */

typedef int parse_fn(struct ek_tpl_parser *p, struct ek_tpl_node **out);

static int parse_or(struct ek_tpl_parser *p, struct ek_tpl_node **out);

/* lower (op lower)*, for the operators in `ops`. */
static int parse_chain(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                       const char *ops, parse_fn *lower)
{
    int rc = lower(p, out);
    struct ek_tpl_node *chain = NULL, **end = NULL;
    while (!rc && p->tok->kind == EK_TPL_T_OP && strchr(ops, p->tok->op)) {
        if (!chain) {
            rc = ek_tpl_node_new(p, &chain, EK_TPL_N_BINARY, p->tok->line);
            if (rc)
                return rc;
            chain->a = *out;
            *out = chain;
            end = &chain->kids;
        }
        rc = ek_tpl_node_new(p, end, EK_TPL_N_OPERAND, p->tok->line);
        if (rc)
            return rc;
        (*end)->op = p->tok->op;
        p->tok++;
        rc = lower(p, &(*end)->a);
        end = &(*end)->next;
    }
    return rc;
}

/* lower (sep lower)* as a list of kids. */
static int parse_joined(struct ek_tpl_parser *p, struct ek_tpl_node **out, int kind,
                        parse_fn *lower)
{
    int rc = lower(p, out);
    struct ek_tpl_node *list = NULL, **end = NULL;
    while (!rc && (kind == EK_TPL_N_CONCAT
                       ? ek_tpl_skip_op(p, '~')
                       : ek_tpl_skip_name(p, kind == EK_TPL_N_OR ? "or" : "and"))) {
        if (!list) {
            rc = ek_tpl_node_new(p, &list, kind, p->tok->line);
            if (rc)
                return rc;
            list->kids = *out;
            end = &list->kids->next;
            *out = list;
        }
        rc = lower(p, end);
        if (!rc)
            end = &(*end)->next;
    }
    return rc;
}

static int parse_power_operand(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    return ek_tpl_parse_unary(p, out, true);
}

static int parse_power(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    static const char ops[] = {EK_TPL_OP_POW, 0};
    return parse_chain(p, out, ops, parse_power_operand);
}

static int parse_product(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    static const char ops[] = {'*', '/', EK_TPL_OP_FLOORDIV, '%', 0};
    return parse_chain(p, out, ops, parse_power);
}

static int parse_concat(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    return parse_joined(p, out, EK_TPL_N_CONCAT, parse_product);
}

static int parse_sum(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    return parse_chain(p, out, "+-", parse_concat);
}

/* The comparison that begins here, read, or 0. */
static char skip_comparison(struct ek_tpl_parser *p)
{
    static const char ops[] = {
        EK_TPL_OP_EQ, EK_TPL_OP_NE, EK_TPL_OP_GE, EK_TPL_OP_LE, '<', '>', 0};
    if (p->tok->kind == EK_TPL_T_OP && strchr(ops, p->tok->op))
        return (p->tok++)->op;
    if (ek_tpl_skip_name(p, "in"))
        return EK_TPL_OP_IN;
    if (!ek_tpl_skip_name(p, "not"))
        return 0;
    if (ek_tpl_skip_name(p, "in"))
        return EK_TPL_OP_NOT_IN;
    p->tok--;
    return 0;
}

static int parse_compare(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    int rc = parse_sum(p, out);
    struct ek_tpl_node *chain = NULL, **end = NULL;
    while (!rc) {
        int line = p->tok->line;
        char op = skip_comparison(p);
        if (!op)
            return 0;
        if (!chain) {
            rc = ek_tpl_node_new(p, &chain, EK_TPL_N_COMPARE, line);
            if (rc)
                return rc;
            chain->a = *out;
            *out = chain;
            end = &chain->kids;
        }
        rc = ek_tpl_node_new(p, end, EK_TPL_N_OPERAND, line);
        if (rc)
            return rc;
        (*end)->op = op;
        rc = parse_sum(p, &(*end)->a);
        end = &(*end)->next;
    }
    return rc;
}

static int parse_not(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    if (!ek_tpl_is_name(p, "not"))
        return parse_compare(p, out);
    int rc = ek_tpl_enter(p);
    if (!rc)
        rc = ek_tpl_node_new(p, out, EK_TPL_N_NOT, p->tok->line);
    if (rc)
        return rc;
    p->tok++;
    rc = parse_not(p, &(*out)->a);
    p->depth--;
    return rc;
}

static int parse_and(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    return parse_joined(p, out, EK_TPL_N_AND, parse_not);
}

static int parse_or(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    return parse_joined(p, out, EK_TPL_N_OR, parse_and);
}

int ek_tpl_parse_expr(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    int rc = ek_tpl_enter(p);
    if (rc)
        return rc;
    rc = parse_or(p, out);
    for (int n = 0; !rc && ek_tpl_is_name(p, "if"); n++) {
        struct ek_tpl_node *cond = NULL;
        if (n == EK_TPL_PARSE_DEPTH)
            return ek_tpl_parse_fail(p, EK_ELIMIT, p->tok->line,
                                     "more than %d inline ifs in a row", n);
        rc = ek_tpl_node_new(p, &cond, EK_TPL_N_COND, p->tok->line);
        p->tok++;
        if (rc)
            return rc;
        cond->a = *out;
        *out = cond;
        rc = parse_or(p, &cond->b);
        if (!rc && ek_tpl_skip_name(p, "else"))
            rc = ek_tpl_parse_expr(p, &cond->c);
    }
    p->depth--;
    return rc;
}

enum tuple_mode { TUPLE_COND, TUPLE_NO_COND, TUPLE_TARGET, TUPLE_NS_TARGET };

static int parse_tuple_item(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                            enum tuple_mode mode)
{
    switch (mode) {
    case TUPLE_COND:
        return ek_tpl_parse_expr(p, out);
    case TUPLE_NO_COND:
        return parse_or(p, out);
    default:
        return ek_tpl_parse_primary(p, out, mode == TUPLE_NS_TARGET);
    }
}

static bool is_tuple_end(const struct ek_tpl_parser *p, const char *end)
{
    return p->tok->kind == EK_TPL_T_VAR_END || p->tok->kind == EK_TPL_T_BLOCK_END ||
           ek_tpl_is_op(p, ')') || (end && ek_tpl_is_name(p, end));
}

/* An expression, or a tuple where commas follow; in parentheses it may be empty. */
static int parse_tuple(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                       enum tuple_mode mode, const char *end, bool in_parens)
{
    struct ek_tpl_node *list = NULL, **at = &list;
    bool is_tuple = false;
    int line = p->tok->line;
    while (!is_tuple_end(p, end)) {
        int rc = parse_tuple_item(p, at, mode);
        if (rc)
            return rc;
        at = &(*at)->next;
        if (!ek_tpl_skip_op(p, ','))
            break;
        is_tuple = true;
    }
    if (!is_tuple && list) {
        *out = list;
        return 0;
    }
    if (!is_tuple && !in_parens)
        return ek_tpl_unexpected(p, "an expression");
    int rc = ek_tpl_node_new(p, out, EK_TPL_N_TUPLE, line);
    if (!rc)
        (*out)->kids = list;
    return rc;
}

int ek_tpl_parse_tuple(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                       bool with_cond, const char *end)
{
    return parse_tuple(p, out, with_cond ? TUPLE_COND : TUPLE_NO_COND, end, false);
}

/* Names, tuples and lists of names; lists become tuples. */
static int check_target(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    if (n->kind == EK_TPL_N_NAME || n->kind == EK_TPL_N_NSREF)
        return 0;
    if (n->kind != EK_TPL_N_TUPLE)
        return ek_tpl_parse_fail(p, EK_EFORMAT, n->line, "cannot assign to this");
    for (struct ek_tpl_node *k = n->kids; k; k = k->next) {
        int rc = check_target(p, k);
        if (rc)
            return rc;
    }
    return 0;
}

int ek_tpl_parse_target(struct ek_tpl_parser *p, struct ek_tpl_node **out, bool with_ns,
                        const char *end)
{
    int rc = parse_tuple(p, out, with_ns ? TUPLE_NS_TARGET : TUPLE_TARGET, end, false);
    return rc ? rc : check_target(p, *out);
}

static int int_value(struct ek_tpl_parser *p, struct ek_tpl_val *out)
{
    const struct ek_tpl_token *t = p->tok;
    int64_t v = 0;
    size_t i = 0;
    int base = 10;
    if (t->n > 1 && t->p[0] == '0' && (t->p[1] | 0x20) > '9') {
        char c = t->p[1] | 0x20;
        base = c == 'x' ? 16 : c == 'o' ? 8 : 2;
        i = 2;
    }
    for (; i < t->n; i++) {
        int c = (unsigned char)t->p[i];
        if (c == '_')
            continue;
        int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
        if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, digit, &v))
            return ek_tpl_parse_fail(p, EK_ELIMIT, t->line,
                                     "the number %.*s does not fit 64 bits",
                                     t->n > 80 ? 80 : (int)t->n, t->p);
    }
    *out = ek_tpl_int(v);
    return 0;
}

static int float_value(struct ek_tpl_parser *p, struct ek_tpl_val *out)
{
    const struct ek_tpl_token *t = p->tok;
    char text[256];
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->p[i] != '_' && n < sizeof text - 1)
            text[n++] = t->p[i];
    if (n == sizeof text - 1)
        return ek_tpl_parse_fail(p, EK_ELIMIT, t->line,
                                 "a number of more than %zu digits", n - 1);
    text[n] = 0;
    *out = ek_tpl_float(strtod(text, NULL));
    return 0;
}

/* Adjacent strings are one. */
static int parse_string(struct ek_tpl_parser *p, struct ek_tpl_val *out)
{
    size_t room = 0, n = 0;
    const struct ek_tpl_token *end = p->tok;
    for (; end->kind == EK_TPL_T_STRING; end++)
        room += end->n;
    char *text = ek_arena_alloc(&p->t->arena, room);
    if (!text)
        return ek_tpl_parse_fail(p, EK_ENOMEM, p->tok->line, "out of memory");
    for (; p->tok < end; p->tok++) {
        size_t len = 0;
        int rc = ek_tpl_unescape(p, p->tok, text + n, &len);
        if (rc)
            return rc;
        n += len;
    }
    return ek_tpl_const_str(p, out, text, n);
}

static int parse_name(struct ek_tpl_parser *p, struct ek_tpl_node **out, bool with_ns)
{
    struct ek_tpl_node *n = *out;
    bool is_true = ek_tpl_is_name(p, "true") || ek_tpl_is_name(p, "True");
    if (is_true || ek_tpl_is_name(p, "false") || ek_tpl_is_name(p, "False")) {
        n->val = ek_tpl_bool(is_true);
        p->tok++;
        return 0;
    }
    if (ek_tpl_is_name(p, "none") || ek_tpl_is_name(p, "None")) {
        n->val = ek_tpl_none();
        p->tok++;
        return 0;
    }
    n->kind = EK_TPL_N_NAME;
    if (p->macro) {
        p->macro->uses_caller |= ek_tpl_is_name(p, "caller");
        p->macro->uses_varargs |= ek_tpl_is_name(p, "varargs");
        p->macro->uses_kwargs |= ek_tpl_is_name(p, "kwargs");
    }
    int rc = ek_tpl_parse_word(p, &n->name);
    if (rc || !with_ns || !ek_tpl_skip_op(p, '.'))
        return rc;
    n->kind = EK_TPL_N_NSREF;
    if (p->tok->kind != EK_TPL_T_NAME)
        return ek_tpl_unexpected(p, "the name of an attribute");
    rc = ek_tpl_const_str(p, &n->val, p->tok->p, p->tok->n);
    p->tok++;
    return rc;
}

static int parse_list(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    struct ek_tpl_node **end = &n->kids;
    n->kind = EK_TPL_N_LIST;
    while (!ek_tpl_skip_op(p, ']')) {
        int rc = n->kids ? ek_tpl_want_op(p, ',', "',' or ']'") : 0;
        if (!rc && ek_tpl_skip_op(p, ']'))
            return 0;
        if (!rc)
            rc = ek_tpl_parse_expr(p, end);
        if (rc)
            return rc;
        assert(*end);
        end = &(*end)->next;
    }
    return 0;
}

static int parse_dict(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    struct ek_tpl_node **end = &n->kids;
    n->kind = EK_TPL_N_DICT;
    while (!ek_tpl_skip_op(p, '}')) {
        int rc = n->kids ? ek_tpl_want_op(p, ',', "',' or '}'") : 0;
        if (!rc && ek_tpl_skip_op(p, '}'))
            return 0;
        if (!rc)
            rc = ek_tpl_node_new(p, end, EK_TPL_N_PAIR, p->tok->line);
        if (rc)
            return rc;
        assert(*end);
        rc = ek_tpl_parse_expr(p, &(*end)->a);
        if (!rc)
            rc = ek_tpl_want_op(p, ':', "':'");
        if (!rc)
            rc = ek_tpl_parse_expr(p, &(*end)->b);
        if (rc)
            return rc;
        end = &(*end)->next;
    }
    return 0;
}

static int parse_parens(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    int rc = ek_tpl_enter(p);
    if (!rc)
        rc = parse_tuple(p, out, TUPLE_COND, NULL, true);
    if (!rc)
        rc = ek_tpl_want_op(p, ')', "')'");
    p->depth--;
    return rc;
}

int ek_tpl_parse_primary(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                         bool with_ns)
{
    int rc = ek_tpl_node_new(p, out, EK_TPL_N_CONST, p->tok->line);
    if (rc)
        return rc;
    switch (p->tok->kind) {
    case EK_TPL_T_NAME:
        return parse_name(p, out, with_ns);
    case EK_TPL_T_STRING:
        return parse_string(p, &(*out)->val);
    case EK_TPL_T_INT:
        rc = int_value(p, &(*out)->val);
        p->tok++;
        return rc;
    case EK_TPL_T_FLOAT:
        rc = float_value(p, &(*out)->val);
        p->tok++;
        return rc;
    default:
        break;
    }
    if (ek_tpl_skip_op(p, '('))
        return parse_parens(p, out);
    if (ek_tpl_skip_op(p, '['))
        return parse_list(p, *out);
    if (ek_tpl_skip_op(p, '{'))
        return parse_dict(p, *out);
    return ek_tpl_unexpected(p, "a value");
}
