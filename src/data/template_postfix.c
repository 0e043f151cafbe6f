#include "base/utf8.h"
#include "data/template_int.h"

#include <assert.h>
#include <string.h>

/* What follows a value: .name [key] (arguments) |filter `is test`; and the escapes
 * inside string literals. */

static int wrap(struct ek_tpl_parser *p, struct ek_tpl_node **out, int kind)
{
    struct ek_tpl_node *n = NULL;
    int rc = ek_tpl_node_new(p, &n, kind, p->tok->line);
    if (rc)
        return rc;
    n->a = *out;
    *out = n;
    return 0;
}

static int parse_dot(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    int rc = wrap(p, out, EK_TPL_N_ATTR);
    p->tok++;
    if (rc)
        return rc;
    if (p->tok->kind == EK_TPL_T_NAME) {
        rc = ek_tpl_const_str(p, &(*out)->val, p->tok->p, p->tok->n);
        p->tok++;
        return rc;
    }
    if (p->tok->kind != EK_TPL_T_INT)
        return ek_tpl_unexpected(p, "a name or number after '.'");
    (*out)->kind = EK_TPL_N_ITEM;
    return ek_tpl_parse_primary(p, &(*out)->b, false);
}

static bool ends_bound(const struct ek_tpl_parser *p)
{
    return ek_tpl_is_op(p, ':') || ek_tpl_is_op(p, ']') || ek_tpl_is_op(p, ',');
}

/* The three bounds of a slice whose first was read into first->a. */
static int parse_slice(struct ek_tpl_parser *p, struct ek_tpl_node *n,
                       struct ek_tpl_node *first)
{
    n->kind = EK_TPL_N_SLICE;
    n->kids = first;
    struct ek_tpl_node *at = first;
    for (int i = 1; i < 3; i++) {
        int rc = ek_tpl_node_new(p, &at->next, EK_TPL_N_ARG, p->tok->line);
        if (rc)
            return rc;
        at = at->next;
        if (!ek_tpl_skip_op(p, ':') || ends_bound(p))
            continue;
        rc = ek_tpl_parse_expr(p, &at->a);
        if (rc)
            return rc;
    }
    return 0;
}

static int parse_subscript(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    struct ek_tpl_node *first = NULL;
    int rc = wrap(p, out, EK_TPL_N_ITEM);
    p->tok++;
    if (!rc)
        rc = ek_tpl_node_new(p, &first, EK_TPL_N_ARG, p->tok->line);
    if (!rc && !ek_tpl_is_op(p, ':'))
        rc = ek_tpl_parse_expr(p, &first->a);
    if (rc)
        return rc;
    struct ek_tpl_node *n = *out;
    if (ek_tpl_is_op(p, ':')) {
        rc = parse_slice(p, n, first);
    } else if (ek_tpl_is_op(p, ',')) {
        n->b = first->a;
        rc = wrap(p, &n->b, EK_TPL_N_TUPLE);
        if (rc)
            return rc;
        n->b->kids = n->b->a;
        n->b->a = NULL;
        for (struct ek_tpl_node **end = &n->b->kids->next;
             !rc && ek_tpl_skip_op(p, ',');) {
            rc = ek_tpl_parse_expr(p, end);
            if (!rc)
                end = &(*end)->next;
        }
    } else {
        n->b = first->a;
    }
    return rc ? rc : ek_tpl_want_op(p, ']', "']'");
}

static int parse_arg(struct ek_tpl_parser *p, struct ek_tpl_node *arg)
{
    if (ek_tpl_skip_op(p, '*')) {
        arg->op = '*';
    } else if (ek_tpl_skip_op(p, EK_TPL_OP_POW)) {
        arg->op = EK_TPL_OP_POW;
    } else if (p->tok->kind == EK_TPL_T_NAME && p->tok[1].kind == EK_TPL_T_OP &&
               p->tok[1].op == '=') {
        arg->op = '=';
        int rc = ek_tpl_const_str(p, &arg->val, p->tok->p, p->tok->n);
        if (rc)
            return rc;
        p->tok += 2;
    }
    return ek_tpl_parse_expr(p, &arg->a);
}

/* Positional arguments come before *x, those and names before **x. */
static bool is_in_order(const struct ek_tpl_node *first, const struct ek_tpl_node *arg)
{
    bool has_star = false, has_names = false, has_stars = false;
    for (const struct ek_tpl_node *n = first; n && n != arg; n = n->next) {
        has_star |= n->op == '*';
        has_names |= n->op == '=';
        has_stars |= n->op == EK_TPL_OP_POW;
    }
    switch (arg->op) {
    case '*':
        return !has_star && !has_stars;
    case '=':
    case EK_TPL_OP_POW:
        return !has_stars;
    default:
        return !has_star && !has_names && !has_stars;
    }
}

static int parse_args(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    struct ek_tpl_node **end = &n->kids;
    int line = p->tok->line;
    int rc = ek_tpl_want_op(p, '(', "'('");
    for (int count = 0; !rc && !ek_tpl_skip_op(p, ')'); count++) {
        if (count == 255)
            return ek_tpl_parse_fail(p, EK_ELIMIT, line, "more than 255 arguments");
        if (n->kids) {
            rc = ek_tpl_want_op(p, ',', "',' or ')'");
            if (!rc && ek_tpl_skip_op(p, ')'))
                return 0;
        }
        struct ek_tpl_node *arg = NULL;
        if (!rc)
            rc = ek_tpl_node_new(p, &arg, EK_TPL_N_ARG, p->tok->line);
        if (rc)
            return rc;
        assert(arg);
        *end = arg;
        rc = parse_arg(p, arg);
        if (rc)
            return rc;
        if (!is_in_order(n->kids, arg))
            return ek_tpl_parse_fail(p, EK_EFORMAT, line,
                                     "arguments in a wrong order: first values, then "
                                     "name=value");
        end = &arg->next;
    }
    return rc;
}

static int parse_call(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    int rc = wrap(p, out, EK_TPL_N_CALL);
    if (rc)
        return rc;
    assert(*out);
    return parse_args(p, *out);
}

/* Chains are trees as deep as they are long. */
static int check_chain(struct ek_tpl_parser *p, int n)
{
    if (n < EK_TPL_PARSE_DEPTH)
        return 0;
    return ek_tpl_parse_fail(p, EK_ELIMIT, p->tok->line,
                             "more than %d subscripts, calls or filters in a row",
                             EK_TPL_PARSE_DEPTH);
}

static int parse_postfix(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    int rc = 0;
    for (int n = 0; !rc; n++) {
        if (ek_tpl_is_op(p, '.'))
            rc = parse_dot(p, out);
        else if (ek_tpl_is_op(p, '['))
            rc = parse_subscript(p, out);
        else if (ek_tpl_is_op(p, '('))
            rc = parse_call(p, out);
        else
            return 0;
        if (!rc)
            rc = check_chain(p, n);
    }
    return rc;
}

/* The name of a filter or test; one with dots is never known. */
static int parse_dotted(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    const struct ek_tpl_token *t = p->tok;
    if (t->kind != EK_TPL_T_NAME)
        return ek_tpl_unexpected(p, n->kind == EK_TPL_N_TEST ? "the name of a test"
                                                             : "the name of a filter");
    p->tok++;
    if (ek_tpl_is_op(p, '.'))
        return ek_tpl_unexpected(p, "a name without dots");
    n->def = n->kind == EK_TPL_N_TEST ? ek_tpl_find_test(t->p, t->n)
                                      : ek_tpl_find_filter(t->p, t->n);
    return ek_tpl_const_str(p, &n->val, t->p, t->n);
}

int ek_tpl_parse_filters(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                         bool is_first_bare)
{
    for (int n = 0; is_first_bare || ek_tpl_skip_op(p, '|'); n++) {
        int rc = wrap(p, out, EK_TPL_N_FILTER);
        if (!rc)
            rc = parse_dotted(p, *out);
        if (!rc && ek_tpl_is_op(p, '('))
            rc = parse_args(p, *out);
        if (!rc)
            rc = check_chain(p, n);
        if (rc)
            return rc;
        is_first_bare = false;
    }
    return 0;
}

static bool begins_test_arg(const struct ek_tpl_parser *p)
{
    switch (p->tok->kind) {
    case EK_TPL_T_NAME:
        return !ek_tpl_is_name(p, "else") && !ek_tpl_is_name(p, "or") &&
               !ek_tpl_is_name(p, "and");
    case EK_TPL_T_STRING:
    case EK_TPL_T_INT:
    case EK_TPL_T_FLOAT:
        return true;
    default:
        return ek_tpl_is_op(p, '[') || ek_tpl_is_op(p, '{');
    }
}

static int parse_test_arg(struct ek_tpl_parser *p, struct ek_tpl_node *n)
{
    if (ek_tpl_is_op(p, '('))
        return parse_args(p, n);
    if (!begins_test_arg(p))
        return 0;
    if (ek_tpl_is_name(p, "is"))
        return ek_tpl_parse_fail(p, EK_EFORMAT, p->tok->line,
                                 "tests cannot be chained with 'is'");
    int rc = ek_tpl_node_new(p, &n->kids, EK_TPL_N_ARG, p->tok->line);
    if (!rc)
        rc = ek_tpl_parse_primary(p, &n->kids->a, false);
    return rc ? rc : parse_postfix(p, &n->kids->a);
}

static int parse_test(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    p->tok++;
    bool is_not = ek_tpl_skip_name(p, "not");
    int rc = wrap(p, out, EK_TPL_N_TEST);
    if (!rc)
        rc = parse_dotted(p, *out);
    if (!rc)
        rc = parse_test_arg(p, *out);
    return rc || !is_not ? rc : wrap(p, out, EK_TPL_N_NOT);
}

static int parse_filter_expr(struct ek_tpl_parser *p, struct ek_tpl_node **out)
{
    int rc = 0;
    for (int n = 0; !rc; n++) {
        if (ek_tpl_is_op(p, '|'))
            rc = ek_tpl_parse_filters(p, out, false);
        else if (ek_tpl_is_name(p, "is"))
            rc = parse_test(p, out);
        else if (ek_tpl_is_op(p, '('))
            rc = parse_call(p, out);
        else
            return 0;
        if (!rc)
            rc = check_chain(p, n);
    }
    return rc;
}

int ek_tpl_parse_unary(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                       bool with_filter)
{
    int rc;
    if (ek_tpl_is_op(p, '-') || ek_tpl_is_op(p, '+')) {
        rc = ek_tpl_enter(p);
        if (!rc)
            rc = ek_tpl_node_new(p, out, EK_TPL_N_SIGN, p->tok->line);
        if (rc)
            return rc;
        (*out)->op = p->tok->op;
        p->tok++;
        rc = ek_tpl_parse_unary(p, &(*out)->a, false);
        p->depth--;
    } else {
        rc = ek_tpl_parse_primary(p, out, false);
    }
    if (!rc)
        rc = parse_postfix(p, out);
    return rc || !with_filter ? rc : parse_filter_expr(p, out);
}

static int hex_digits(const char *s, size_t n, uint32_t *c)
{
    *c = 0;
    for (size_t i = 0; i < n; i++) {
        int ch = (unsigned char)s[i], low = ch | 0x20;
        if (ch >= '0' && ch <= '9')
            *c = *c * 16 + (uint32_t)(ch - '0');
        else if (low >= 'a' && low <= 'f')
            *c = *c * 16 + (uint32_t)(low - 'a' + 10);
        else
            return EK_EFORMAT;
    }
    return 0;
}

/* The escape at s[0] (behind the backslash): its length, or 0 when it is none and the
 * backslash stands for itself; *c is the character, UINT32_MAX for none. */
static int escape(const char *s, size_t n, uint32_t *c, size_t *len)
{
    static const char from[] = "\\'\"abfnrtv\n", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *at = s[0] ? strchr(from, s[0]) : NULL;
    *len = 1;
    *c = UINT32_MAX;
    if (at) {
        if (*at != '\n')
            *c = (uint32_t)to[at - from];
        return 0;
    }
    size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    if (digits) {
        *len = 1 + digits;
        return n < *len ? EK_EFORMAT : hex_digits(s + 1, digits, c);
    }
    if (s[0] == 'N')
        return EK_EUNSUP;
    *len = 0;
    uint32_t octal = 0;
    while (*len < 3 && *len < n && s[*len] >= '0' && s[*len] <= '7')
        octal = octal * 8 + (uint32_t)(s[(*len)++] - '0');
    if (*len)
        *c = octal;
    return 0;
}

static bool is_scalar(uint32_t c)
{
    return c < 0xd800 || (c > 0xdfff && c <= 0x10ffff);
}

int ek_tpl_unescape(struct ek_tpl_parser *p, const struct ek_tpl_token *t, char *out,
                    size_t *n)
{
    const char *s = t->p + 1, *end = t->p + t->n - 1;
    char *at = out;
    while (s < end) {
        if (*s != '\\' || s + 1 == end) {
            *at++ = *s++;
            continue;
        }
        uint32_t c;
        size_t len;
        s++;
        int rc = escape(s, (size_t)(end - s), &c, &len);
        if (!rc && c != UINT32_MAX && !is_scalar(c))
            rc = EK_EFORMAT;
        if (rc)
            return ek_tpl_parse_fail(p, rc, t->line,
                                     "escape '\\%.*s' in a string is %s",
                                     (int)(len <= (size_t)(end - s) ? len : 1), s,
                                     rc == EK_EUNSUP ? "not interpreted" : "malformed");
        if (len == 0) {
            *at++ = '\\';
        } else if (c != UINT32_MAX) {
            at += ek_utf8_encode(at, c);
        }
        s += len;
    }
    *n = (size_t)(at - out);
    return 0;
}
