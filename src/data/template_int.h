/* template_int.h - how a template runs; what the files of the interpreter share.
 *
 *   template_lex.c      text -> tokens          template_value.c   values, truth, order
 *   template_parse.c    tokens -> statements    template_string.c  strings, provenance
 *   template_expr.c     tokens -> expressions   template_case.c    letter case
 *   template_postfix.c  calls, filters, escapes template_seq.c     lists, tuples, dicts
 *   template_scope.c    which names are local   template_text.c    str() and repr()
 *   template_exec.c     runs statements         template_json.c    tojson
 *   template_eval.c     runs expressions        template_format.c  format, %, strftime
 *   template_loop.c     the variable loop       template_method.c, template_split.c
 *   template_call.c     calls, macros, globals  template_filter.c, .._filter_seq.c
 *   template_ops.c      operators, subscripts   template_test.c    `is` tests
 *
 * Functions that can fail return 0 or a status after the sentence was written to
 * rt->err.
 */
#ifndef EVENKEEL_DATA_TEMPLATE_INT_H
#define EVENKEEL_DATA_TEMPLATE_INT_H

#include "base/buf.h"
#include "data/template.h"
#include "data/template_ast.h"
#include "data/template_value.h"

#define EK_TPL_RANGE_MAX 100000 /* longest range(), as in jinja2's sandbox */

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

/* Writes the sentence and is `status`; see ek_err_as. */
#define ek_tpl_fail(rt, status, ...)                                                   \
    ek_err_as(status, ek_tpl_fail_write(rt, status, __VA_ARGS__))
int ek_tpl_fail_write(struct ek_tpl_rt *rt, int status, const char *fmt, ...)
    EK_PRINTF(3, 4);

/* After ek_tpl_alloc gave NULL. */
static inline int ek_tpl_no_memory(struct ek_tpl_rt *rt)
{
    if (rt->is_over_memory)
        return ek_tpl_fail(rt, EK_ELIMIT,
                           "rendering takes more than max_memory_bytes (%zu)",
                           rt->arena->max_bytes);
    return ek_tpl_fail(rt, EK_ENOMEM, "out of memory");
}

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
 * must be there, others become MISSING; "/" first: none by name. out has EK_TPL_PARAMS_MAX places. */
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
