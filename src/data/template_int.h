/* template_int.h - what the files of the template interpreter share.
 *
 *   template_lex.c     text -> tokens          template_value.c   values, truth, equality
 *   template_parse.c   tokens -> statements    template_string.c  strings with provenance
 *   template_expr.c    tokens -> expressions   template_text.c    str(), repr(), tojson
 *   template_scope.c   which names are local   template_ops.c     operators, subscripts
 *   template_exec.c    runs statements         template_seq.c     list and tuple making
 *   template_eval.c    runs expressions        template_method.c  methods of str and dict
 *   template_call.c    calls, macros, globals  template_filter*.c filters, tests
 *
 * Values are immutable but for namespaces, live in the arena of one rendering and are
 * passed by value. Every string knows byte by byte whether it came from a variable.
 * Functions that can fail return 0 or a status after the sentence was written to rt->err.
 */
#ifndef EVENKEEL_DATA_TEMPLATE_INT_H
#define EVENKEEL_DATA_TEMPLATE_INT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/map.h"
#include "data/template.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EK_TPL_SOURCE_MAX                                                              \
    (1u << 20)                    /* bytes of one template; the largest known: 17 KB */
#define EK_TPL_PARSE_DEPTH 200    /* nesting the parser accepts */
#define EK_TPL_RANGE_MAX   100000 /* longest range(), as in jinja2's sandbox */
#define EK_TPL_PARAMS_MAX  8      /* parameters of a filter, test or method */

/* ---- values ---------------------------------------------------------------------- */

enum ek_tpl_kind {
    EK_TPL_MISSING, /* no value at all: an absent argument, an unassigned name */
    EK_TPL_UNDEF,
    EK_TPL_NONE,
    EK_TPL_BOOL,
    EK_TPL_INT,
    EK_TPL_FLOAT,
    EK_TPL_STR,
    EK_TPL_LIST,
    EK_TPL_TUPLE,
    EK_TPL_RANGE,
    EK_TPL_VIEW, /* dict.keys(), .values(), .items(): no subscripts */
    EK_TPL_ITER, /* a generator: no length, read once */
    EK_TPL_DICT,
    EK_TPL_NS,
    EK_TPL_LOOP,
    EK_TPL_MACRO,
    EK_TPL_FUNC, /* function of the environment, or a bound method */
};

struct ek_tpl_val {
    uint8_t kind;  /* enum ek_tpl_kind */
    bool is_plain; /* scalar or container that came from a variable */
    union {
        bool b;
        int64_t i;
        double f;
        const struct ek_tpl_str *s;
        struct ek_tpl_str *new_s;    /* s while it is made */
        const struct ek_tpl_list *l; /* LIST TUPLE RANGE VIEW */
        struct ek_tpl_iter *it;
        const struct ek_tpl_dict *d;
        struct ek_tpl_ns *ns;
        struct ek_tpl_loop *loop;
        const struct ek_tpl_macro *m;
        const struct ek_tpl_bound *fn;
        const struct ek_tpl_undef *u;
    };
};

/* UTF-8. mark[i] is 1 where byte i came from a variable; NULL: all bytes are as
 * is_plain says. */
struct ek_tpl_str {
    const char *p;
    size_t n;
    const uint8_t *mark;
    bool is_plain;
    bool is_markup; /* the filter `safe`: `+` escapes what is joined to it */
    size_t n_chars; /* code points */
};

struct ek_tpl_list {
    struct ek_tpl_val *v;
    size_t n;
};

struct ek_tpl_iter {
    struct ek_tpl_list list;
    size_t at; /* items before it were read */
};

struct ek_tpl_dict { /* insertion order */
    struct ek_tpl_val *keys, *vals;
    size_t n, cap;
};

struct ek_tpl_ns {
    struct ek_tpl_dict d;
};

struct ek_tpl_loop { /* a `for` that runs */
    const struct ek_tpl_node *node;
    struct ek_tpl_scope *scope; /* around it */
    struct ek_tpl_scope *test;  /* of its condition; NULL before the first */
    struct ek_tpl_list items;
    size_t at;                           /* items before it were read */
    size_t n_done;                       /* loop.index */
    struct ek_tpl_val prev, item, ahead; /* MISSING where there is none */
    size_t length;                       /* once has_length */
    bool has_length;
    struct ek_tpl_val changed; /* arguments of the last loop.changed() */
};

struct ek_tpl_undef {
    struct ek_tpl_val owner; /* MISSING: a name of the template */
    struct ek_tpl_val key;
    const char *hint; /* or the whole sentence */
};

struct ek_tpl_scope;

struct ek_tpl_macro {
    const struct ek_tpl_node *def; /* MACRO or CALLBLOCK */
    struct ek_tpl_scope *scope;    /* where it was defined */
};

struct ek_tpl_args {
    const char *what; /* "filter 'join'", for sentences */
    const struct ek_tpl_val *pos;
    size_t n_pos;
    const struct ek_tpl_dict *kw; /* never NULL; keys are strings */
};

struct ek_tpl_rt;

/* self: the operand of a filter or test, the object of a method, MISSING for a function */
typedef int ek_tpl_fn(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                      const struct ek_tpl_val *self, const struct ek_tpl_args *args);

struct ek_tpl_def { /* tables end with {0} */
    const char *name;
    ek_tpl_fn *fn;
};

struct ek_tpl_bound {
    const struct ek_tpl_def *def;
    struct ek_tpl_val self;
};

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

int ek_tpl_parse_fail(struct ek_tpl_parser *p, int status, int line, const char *fmt,
                      ...) EK_PRINTF(4, 5);
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

/* ---- rendering ------------------------------------------------------------------- */

struct ek_tpl_var {
    int name;
    struct ek_tpl_val val;
};

struct ek_tpl_scope {
    struct ek_tpl_scope *up;
    struct ek_tpl_var *vars;
    int n, cap;
};

enum ek_tpl_jump { EK_TPL_GO_ON, EK_TPL_BREAK, EK_TPL_CONTINUE };

struct ek_tpl_rt {
    const struct ek_template *t;
    struct ek_arena *arena;
    struct ek_err *err;
    struct ek_buf text, mark;         /* output and, above it, text being captured */
    struct ek_buf scratch, scratch_m; /* strings being built, as a stack */
    size_t steps, max_steps;
    size_t depth, max_depth;
    size_t max_output;
    int64_t now_us;
    int line;
    enum ek_tpl_jump jump;
    size_t n_captures;   /* text being captured around here */
    bool is_over_memory; /* the last failed allocation was over the limit */
};

int ek_tpl_fail(struct ek_tpl_rt *rt, int status, const char *fmt, ...) EK_PRINTF(3, 4);
int ek_tpl_no_memory(struct ek_tpl_rt *rt); /* after ek_tpl_alloc gave NULL */
void *ek_tpl_alloc(struct ek_tpl_rt *rt, size_t n, size_t size) EK_MUST_USE;
int ek_tpl_step(struct ek_tpl_rt *rt,
                size_t n) EK_MUST_USE;             /* EK_ELIMIT past the end */
int ek_tpl_down(struct ek_tpl_rt *rt) EK_MUST_USE; /* depth + 1; caller undoes it */

int ek_tpl_eval(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_node *n, struct ek_tpl_scope *s) EK_MUST_USE;
int ek_tpl_exec(struct ek_tpl_rt *rt, const struct ek_tpl_node *list,
                struct ek_tpl_scope *s) EK_MUST_USE;
int ek_tpl_filter_chain(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                        const struct ek_tpl_node *n, const struct ek_tpl_val *text,
                        struct ek_tpl_scope *s) EK_MUST_USE;

/* Scopes. A new one starts with the names of `unset` known to be unassigned. */
int ek_tpl_scope_new(struct ek_tpl_rt *rt, struct ek_tpl_scope **out,
                     struct ek_tpl_scope *up, const int *unset, int n) EK_MUST_USE;
int ek_tpl_scope_reset(struct ek_tpl_rt *rt, struct ek_tpl_scope *s, const int *unset,
                       int n) EK_MUST_USE;
int ek_tpl_scope_set(struct ek_tpl_rt *rt, struct ek_tpl_scope *s, int name,
                     struct ek_tpl_val v) EK_MUST_USE;
int ek_tpl_scope_get(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                     const struct ek_tpl_scope *s, int name) EK_MUST_USE;

/* Assigns to a NAME, NSREF or TUPLE. */
int ek_tpl_assign(struct ek_tpl_rt *rt, struct ek_tpl_scope *s,
                  const struct ek_tpl_node *target, struct ek_tpl_val v) EK_MUST_USE;

/* Text captured from the output: begin, run, end. */
size_t ek_tpl_capture_begin(struct ek_tpl_rt *rt);
int ek_tpl_capture_end(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                       size_t at) EK_MUST_USE;
int ek_tpl_write(struct ek_tpl_rt *rt, const struct ek_tpl_val *v) EK_MUST_USE;

/* Calls. */
int ek_tpl_call(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_val *callee,
                const struct ek_tpl_args *args) EK_MUST_USE;
int ek_tpl_call_macro(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                      const struct ek_tpl_macro *m,
                      const struct ek_tpl_args *args) EK_MUST_USE;
int ek_tpl_eval_args(struct ek_tpl_rt *rt, struct ek_tpl_args *out,
                     const struct ek_tpl_node *arg, struct ek_tpl_scope *s) EK_MUST_USE;
/* Binds arguments to the parameters of `spec`, "old new | count": those before the bar
 * must be there, others become MISSING. out has EK_TPL_PARAMS_MAX places. */
int ek_tpl_bind(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_args *args, const char *spec) EK_MUST_USE;
int ek_tpl_arg_int(struct ek_tpl_rt *rt, int64_t *out, const struct ek_tpl_val *v,
                   const char *what) EK_MUST_USE;
int ek_tpl_arg_str(struct ek_tpl_rt *rt, const struct ek_tpl_str **out,
                   const struct ek_tpl_val *v, const char *what) EK_MUST_USE;

extern const struct ek_tpl_def ek_tpl_globals[];
extern const struct ek_tpl_def ek_tpl_seq_filters[];

/* The next item that meets the condition; MISSING at the end. */
int ek_tpl_loop_next(struct ek_tpl_rt *rt, struct ek_tpl_loop *loop) EK_MUST_USE;
/* loop.name */
int ek_tpl_loop_attr(struct ek_tpl_rt *rt, struct ek_tpl_val *out, bool *is_known,
                     struct ek_tpl_loop *loop,
                     const struct ek_tpl_str *name) EK_MUST_USE;

/* ---- value helpers --------------------------------------------------------------- */

struct ek_tpl_val ek_tpl_none(void);
struct ek_tpl_val ek_tpl_bool(bool b);
struct ek_tpl_val ek_tpl_int(int64_t i);
struct ek_tpl_val ek_tpl_float(double f);
int ek_tpl_undef(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_val *owner, const struct ek_tpl_val *key,
                 const char *hint) EK_MUST_USE;
int ek_tpl_undef_fail(struct ek_tpl_rt *rt, const struct ek_tpl_val *v);
int ek_tpl_from_json(struct ek_tpl_rt *rt, struct ek_tpl_val *out, const json_t *json,
                     bool is_plain) EK_MUST_USE;

const char *ek_tpl_type(const struct ek_tpl_val *v); /* Python's name of its type */
bool ek_tpl_truth(const struct ek_tpl_val *v);
bool ek_tpl_is_number(const struct ek_tpl_val *v);              /* int, float, bool */
bool ek_tpl_is_integer(const struct ek_tpl_val *v, int64_t *i); /* int, bool */
double ek_tpl_to_double(const struct ek_tpl_val *v);            /* of a number */
int ek_tpl_equal(struct ek_tpl_rt *rt, bool *out, const struct ek_tpl_val *a,
                 const struct ek_tpl_val *b) EK_MUST_USE;
/* -1, 0, 1; 2: not comparable (NaN). Errors: types that have no order. */
int ek_tpl_order(struct ek_tpl_rt *rt, int *out, const struct ek_tpl_val *a,
                 const struct ek_tpl_val *b) EK_MUST_USE;
int ek_tpl_length(struct ek_tpl_rt *rt, size_t *out,
                  const struct ek_tpl_val *v) EK_MUST_USE;
bool ek_tpl_has_length(const struct ek_tpl_val *v);
bool ek_tpl_is_iterable(const struct ek_tpl_val *v);
/* The items of an iterable; a generator is read to its end. */
int ek_tpl_items(struct ek_tpl_rt *rt, struct ek_tpl_list *out,
                 const struct ek_tpl_val *v) EK_MUST_USE;
int ek_tpl_contains(struct ek_tpl_rt *rt, bool *out, const struct ek_tpl_val *in,
                    const struct ek_tpl_val *what) EK_MUST_USE;

int ek_tpl_list_new(struct ek_tpl_rt *rt, struct ek_tpl_val *out, int kind,
                    const struct ek_tpl_val *v, size_t n) EK_MUST_USE; /* copies */
int ek_tpl_iter_new(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                    struct ek_tpl_list list) EK_MUST_USE;
int ek_tpl_dict_new(struct ek_tpl_rt *rt, struct ek_tpl_dict **out,
                    size_t cap) EK_MUST_USE;
/* Adds or replaces; the key must be hashable. */
int ek_tpl_dict_put(struct ek_tpl_rt *rt, struct ek_tpl_dict *d, struct ek_tpl_val key,
                    struct ek_tpl_val v) EK_MUST_USE;
/* NULL in *out when absent. Errors: an unhashable key. */
int ek_tpl_dict_get(struct ek_tpl_rt *rt, const struct ek_tpl_val **out,
                    const struct ek_tpl_dict *d,
                    const struct ek_tpl_val *key) EK_MUST_USE;
const struct ek_tpl_val *ek_tpl_dict_get_text(const struct ek_tpl_dict *d,
                                              const char *key, size_t n);
int ek_tpl_dict_pairs(struct ek_tpl_rt *rt, struct ek_tpl_list *out,
                      const struct ek_tpl_dict *d) EK_MUST_USE;
/* The same entries ordered by key. */
int ek_tpl_dict_sorted(struct ek_tpl_rt *rt, const struct ek_tpl_dict **out,
                       const struct ek_tpl_dict *d) EK_MUST_USE;
bool ek_tpl_is_hashable(const struct ek_tpl_val *v);

/* ---- strings --------------------------------------------------------------------- */

bool ek_tpl_str_is(const struct ek_tpl_str *s, const char *text);
int ek_tpl_str_new(struct ek_tpl_rt *rt, struct ek_tpl_val *out, const char *p,
                   size_t n, bool is_plain) EK_MUST_USE; /* borrows p */
int ek_tpl_str_text(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                    const char *text) EK_MUST_USE; /* borrows a literal */
/* Bytes [from,to) of s, sharing them. */
int ek_tpl_str_sub(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_str *s, size_t from, size_t to) EK_MUST_USE;
/* A copy of p[0,n) marked by mark[0,n). */
int ek_tpl_str_copy(struct ek_tpl_rt *rt, struct ek_tpl_val *out, const char *p,
                    const uint8_t *mark, size_t n) EK_MUST_USE;
size_t ek_tpl_count_chars(const char *p, size_t n);
/* Byte offset of character `at` (at most n_chars). */
size_t ek_tpl_str_offset(const struct ek_tpl_str *s, size_t at);
/* Length of the character at byte i, and the character. */
size_t ek_tpl_char(const struct ek_tpl_str *s, size_t i, uint32_t *c);
size_t ek_tpl_char_before(const struct ek_tpl_str *s, size_t i, uint32_t *c);
bool ek_tpl_is_word(uint32_t c);  /* as \w */
bool ek_tpl_is_space(uint32_t c); /* as Python's str.isspace */
bool ek_tpl_plain_at(const struct ek_tpl_str *s, size_t i);
bool ek_tpl_str_find(const struct ek_tpl_str *s, const struct ek_tpl_str *what,
                     size_t from, size_t *at);

enum { EK_TPL_LEFT = 1, EK_TPL_RIGHT = 2 };
enum ek_tpl_case {
    EK_TPL_UPPER,
    EK_TPL_LOWER,
    EK_TPL_TITLE,
    EK_TPL_CAPITALIZE,
    EK_TPL_SWAPCASE
};
/* str.strip at the ends in `ends`; chars may be MISSING or none. */
int ek_tpl_strip(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_str *s, const struct ek_tpl_val *chars,
                 int ends) EK_MUST_USE;
int ek_tpl_replace(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_str *s, const struct ek_tpl_str *old,
                   const struct ek_tpl_str *new, int64_t count) EK_MUST_USE;
int ek_tpl_case(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_str *s, enum ek_tpl_case how) EK_MUST_USE;
ek_tpl_fn ek_tpl_split, ek_tpl_rsplit, ek_tpl_splitlines, ek_tpl_partition,
    ek_tpl_rpartition, ek_tpl_isdigit, ek_tpl_isdecimal, ek_tpl_isalpha, ek_tpl_isalnum,
    ek_tpl_isspace, ek_tpl_isupper, ek_tpl_islower;

/* Building: put pieces after begin, then end makes the string of all since. */
size_t ek_tpl_begin(struct ek_tpl_rt *rt);
int ek_tpl_put(struct ek_tpl_rt *rt, const char *p, size_t n,
               bool is_plain) EK_MUST_USE;
int ek_tpl_put_text(struct ek_tpl_rt *rt, const char *text, bool is_plain) EK_MUST_USE;
int ek_tpl_put_char(struct ek_tpl_rt *rt, uint32_t c, bool is_plain) EK_MUST_USE;
int ek_tpl_put_sub(struct ek_tpl_rt *rt, const struct ek_tpl_str *s, size_t from,
                   size_t to) EK_MUST_USE;
int ek_tpl_put_val(struct ek_tpl_rt *rt, const struct ek_tpl_val *v) EK_MUST_USE;
int ek_tpl_put_repr(struct ek_tpl_rt *rt, const struct ek_tpl_val *v) EK_MUST_USE;
int ek_tpl_put_escaped(struct ek_tpl_rt *rt, const struct ek_tpl_str *s) EK_MUST_USE;
int ek_tpl_end(struct ek_tpl_rt *rt, struct ek_tpl_val *out, size_t at) EK_MUST_USE;

/* str(v), a string stays itself. */
int ek_tpl_to_str(struct ek_tpl_rt *rt, const struct ek_tpl_str **out,
                  const struct ek_tpl_val *v) EK_MUST_USE;
/* Python's repr of a double, NUL-terminated. */
void ek_tpl_float_text(char out[40], double f);

struct ek_tpl_json_style {
    const struct ek_tpl_str *item_sep, *key_sep; /* NULL: Python's defaults */
    const struct ek_tpl_str *indent;             /* NULL: one line */
    bool is_ascii, is_sorted;
};
int ek_tpl_put_json(struct ek_tpl_rt *rt, const struct ek_tpl_val *v,
                    const struct ek_tpl_json_style *style) EK_MUST_USE;

/* str.format and the % operator. */
int ek_tpl_format(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                  const struct ek_tpl_str *s,
                  const struct ek_tpl_args *args) EK_MUST_USE;
int ek_tpl_percent(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_str *s,
                   const struct ek_tpl_val *arg) EK_MUST_USE;
int ek_tpl_strftime(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                    const struct ek_tpl_str *format) EK_MUST_USE;

/* ---- operators ------------------------------------------------------------------- */

int ek_tpl_binary(struct ek_tpl_rt *rt, struct ek_tpl_val *out, char op,
                  const struct ek_tpl_val *a, const struct ek_tpl_val *b) EK_MUST_USE;
int ek_tpl_sign(struct ek_tpl_rt *rt, struct ek_tpl_val *out, char op,
                const struct ek_tpl_val *v) EK_MUST_USE;
int ek_tpl_compare(struct ek_tpl_rt *rt, bool *out, char op, const struct ek_tpl_val *a,
                   const struct ek_tpl_val *b) EK_MUST_USE;
/* x.name and x[key] as the sandboxed environment resolves them. */
int ek_tpl_attr(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_val *x, const struct ek_tpl_val *name) EK_MUST_USE;
int ek_tpl_item(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_val *x, const struct ek_tpl_val *key) EK_MUST_USE;
int ek_tpl_slice(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                 const struct ek_tpl_val *x,
                 const struct ek_tpl_val bounds[3]) EK_MUST_USE;
/* The method `name` of x as a value; *is_known false when x has none of that name. */
int ek_tpl_method(struct ek_tpl_rt *rt, struct ek_tpl_val *out, bool *is_known,
                  const struct ek_tpl_val *x,
                  const struct ek_tpl_str *name) EK_MUST_USE;
int ek_tpl_bind_method(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                       const struct ek_tpl_def *def,
                       const struct ek_tpl_val *self) EK_MUST_USE;

#endif
