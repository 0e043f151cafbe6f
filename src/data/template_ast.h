/* template_ast.h - tokens, syntax tree and parser of the template interpreter.
 *
 * The tree is made once, in the arena of the template, and only read afterwards. The
 * parser's functions return 0 or a status after the sentence was written to p->err; the
 * tree may then hold a part and is only freeable.
 */
#ifndef EVENKEEL_DATA_TEMPLATE_AST_H
#define EVENKEEL_DATA_TEMPLATE_AST_H

#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"
#include "data/template_value.h"

#define EK_TPL_SOURCE_MAX                                                              \
    (1u << 20)                 /* bytes of one template; the largest known: 17 KB */
#define EK_TPL_PARSE_DEPTH 200 /* nesting the parser accepts */

/* ---- syntax tree ----------------------------------------------------------------- */

enum ek_tpl_node_kind {
    /* statements */
    EK_TPL_N_TEXT,         /* val */
    EK_TPL_N_PRINT,        /* a */
    EK_TPL_N_FOR,          /* a target, b iterable, c condition; body, kids = else */
    EK_TPL_N_IF,           /* kids: BRANCH (a condition or NULL, body) */
    EK_TPL_N_BRANCH,       /* */
    EK_TPL_N_SET,          /* a target, b value */
    EK_TPL_N_SETBLOCK,     /* a target, b filters over NULL or NULL; body */
    EK_TPL_N_MACRO,        /* name, kids: PARAM (name, a default); body */
    EK_TPL_N_CALL_BLOCK,   /* kids: PARAM, b call; body */
    EK_TPL_N_FILTER_BLOCK, /* b filters over NULL; body */
    EK_TPL_N_SCOPE,        /* body: generation */
    EK_TPL_N_WITH,         /* kids: PAIR (a target, b value); body */
    EK_TPL_N_BREAK,
    EK_TPL_N_CONTINUE,
    /* expressions */
    EK_TPL_N_CONST,   /* val */
    EK_TPL_N_NAME,    /* name */
    EK_TPL_N_NSREF,   /* name, val = attribute: a target of set */
    EK_TPL_N_LIST,    /* kids */
    EK_TPL_N_TUPLE,   /* kids */
    EK_TPL_N_DICT,    /* kids: PAIR */
    EK_TPL_N_PAIR,    /* a, b */
    EK_TPL_N_ATTR,    /* a, val = name */
    EK_TPL_N_ITEM,    /* a, b */
    EK_TPL_N_SLICE,   /* a, kids: three ARG (a or NULL) */
    EK_TPL_N_CALL,    /* a, kids: ARG */
    EK_TPL_N_ARG,     /* a, op: 0, '=' (val = name), '*', 'P' (two stars) */
    EK_TPL_N_FILTER,  /* a (NULL: the text of the block), val = name, def, kids: ARG */
    EK_TPL_N_TEST,    /* likewise */
    EK_TPL_N_NOT,     /* a */
    EK_TPL_N_SIGN,    /* a, op: '-' or '+' */
    EK_TPL_N_BINARY,  /* a, kids: OPERAND; left to right */
    EK_TPL_N_COMPARE, /* a, kids: OPERAND */
    EK_TPL_N_OPERAND, /* op, a */
    EK_TPL_N_AND,     /* kids */
    EK_TPL_N_OR,      /* kids */
    EK_TPL_N_CONCAT,  /* kids */
    EK_TPL_N_COND,    /* a if b else c (NULL: undefined) */
    EK_TPL_N_PARAM,   /* name, a default or NULL */
};

/* Operators and punctuation by one character: themselves, or these for two. */
enum {
    EK_TPL_OP_EQ = 'E',
    EK_TPL_OP_NE = 'N',
    EK_TPL_OP_GE = 'G',
    EK_TPL_OP_LE = 'L',
    EK_TPL_OP_FLOORDIV = 'F',
    EK_TPL_OP_POW = 'P',
    EK_TPL_OP_IN = 'i',
    EK_TPL_OP_NOT_IN = 'n',
};

struct ek_tpl_node {
    uint8_t kind; /* enum ek_tpl_node_kind */
    char op;
    bool uses_caller, uses_varargs, uses_kwargs; /* MACRO, CALL_BLOCK: in the body */
    int line;
    int name;                 /* index of the name, see ek_tpl_names */
    struct ek_tpl_node *next; /* in the list it stands in */
    struct ek_tpl_node *a, *b, *c, *kids, *body;
    struct ek_tpl_val val;
    const struct ek_tpl_def *def; /* NULL: not known, an error when reached */
    const int *unset; /* names local to this frame from its start, or NULL */
    int n_unset;
};

struct ek_tpl_list_of_nodes { /* while a list grows */
    struct ek_tpl_node *first, **end;
};

/* ---- tokens ---------------------------------------------------------------------- */

enum ek_tpl_token_kind {
    EK_TPL_T_EOF,
    EK_TPL_T_DATA,
    EK_TPL_T_VAR_BEGIN,
    EK_TPL_T_VAR_END,
    EK_TPL_T_BLOCK_BEGIN,
    EK_TPL_T_BLOCK_END,
    EK_TPL_T_NAME,
    EK_TPL_T_STRING, /* with its quotes */
    EK_TPL_T_INT,
    EK_TPL_T_FLOAT,
    EK_TPL_T_OP,
};

struct ek_tpl_token {
    uint8_t kind; /* enum ek_tpl_token_kind */
    char op;
    int line;
    const char *p;
    size_t n;
};

struct ek_tpl_tokens {
    struct ek_tpl_token *v; /* heap, owned; ends with EOF */
    size_t n, cap;
};

/* Appends the tokens of src[0,n) (newlines already "\n"). Errors: EK_EFORMAT, EK_ENOMEM;
 * tokens may hold a part. */
int ek_tpl_lex(struct ek_tpl_tokens *tokens, const char *src, size_t n,
               struct ek_err *err) EK_MUST_USE;

/* ---- a parsed template ----------------------------------------------------------- */

struct ek_tpl_name {
    const char *p;
    size_t n;
};

struct ek_template {
    struct ek_arena arena; /* source, tree, names, constants */
    struct ek_map index;   /* name -> its number */
    struct ek_tpl_name *names;
    int n_names, cap_names;
    struct ek_tpl_node *body;
    const int *unset; /* of the outermost frame */
    int n_unset;
};

struct ek_tpl_parser {
    struct ek_template *t;
    struct ek_err *err;
    const struct ek_tpl_token *tok; /* the current one */
    int depth;                      /* nesting now */
    int loops;                      /* `for` bodies around, within one macro */
    struct ek_tpl_node *macro;      /* innermost macro or call block, or NULL */
};

int ek_tpl_parse_body(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                      const char *ends) EK_MUST_USE;

/* Writes the sentence and is `status`; see ek_err_as. */
#define ek_tpl_parse_fail(p, status, line, ...)                                        \
    ek_err_as(status, ek_tpl_parse_fail_write(p, status, line, __VA_ARGS__))
int ek_tpl_parse_fail_write(struct ek_tpl_parser *p, int status, int line,
                            const char *fmt, ...) EK_PRINTF(4, 5);
int ek_tpl_unexpected(struct ek_tpl_parser *p, const char *wanted);
int ek_tpl_node_new(struct ek_tpl_parser *p, struct ek_tpl_node **out, int kind,
                    int line) EK_MUST_USE;
int ek_tpl_name_id(struct ek_tpl_parser *p, int *id, const char *s,
                   size_t n) EK_MUST_USE;
int ek_tpl_const_str(struct ek_tpl_parser *p, struct ek_tpl_val *out, const char *s,
                     size_t n) EK_MUST_USE;
int ek_tpl_enter(struct ek_tpl_parser *p) EK_MUST_USE; /* EK_ELIMIT past the nesting */
bool ek_tpl_is_op(const struct ek_tpl_parser *p, char op);
bool ek_tpl_is_name(const struct ek_tpl_parser *p, const char *name);
bool ek_tpl_skip_op(struct ek_tpl_parser *p, char op);
bool ek_tpl_skip_name(struct ek_tpl_parser *p, const char *name);
int ek_tpl_want_op(struct ek_tpl_parser *p, char op, const char *text) EK_MUST_USE;

/* Expressions. `ends`: words (", in recursive") that end a bare tuple beside the usual. */
int ek_tpl_parse_expr(struct ek_tpl_parser *p, struct ek_tpl_node **out) EK_MUST_USE;
int ek_tpl_parse_tuple(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                       bool with_cond, const char *end) EK_MUST_USE;
int ek_tpl_parse_target(struct ek_tpl_parser *p, struct ek_tpl_node **out, bool with_ns,
                        const char *end) EK_MUST_USE;
int ek_tpl_parse_filters(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                         bool is_first_bare) EK_MUST_USE;
int ek_tpl_parse_primary(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                         bool with_ns) EK_MUST_USE;
int ek_tpl_parse_unary(struct ek_tpl_parser *p, struct ek_tpl_node **out,
                       bool with_filter) EK_MUST_USE;
int ek_tpl_parse_word(struct ek_tpl_parser *p, int *id) EK_MUST_USE;

/* Decodes what Python's "unicode-escape" decodes of a string token. */
int ek_tpl_unescape(struct ek_tpl_parser *p, const struct ek_tpl_token *t, char *out,
                    size_t *n) EK_MUST_USE;

/* Names local to each frame, unknown filters and tests. */
int ek_tpl_scope_check(struct ek_template *t, struct ek_err *err) EK_MUST_USE;

/* NULL when not known. */
const struct ek_tpl_def *ek_tpl_find_filter(const char *name, size_t n);
const struct ek_tpl_def *ek_tpl_find_test(const char *name, size_t n);
const struct ek_tpl_def *ek_tpl_find_def(const struct ek_tpl_def *table,
                                         const char *name, size_t n);
/* True for a filter jinja2 has and this interpreter does not. */
bool ek_tpl_is_foreign_filter(const char *name, size_t n);

#endif
