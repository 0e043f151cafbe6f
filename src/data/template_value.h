/* template_value.h - the values of the template interpreter: making and reading them.
 *
 * Values are immutable but for namespaces, live in the arena of one rendering and are
 * passed by value. Every string knows byte by byte whether it came from a variable.
 * Functions that can fail return 0 or a status after the sentence was written to
 * rt->err.
 * Owns: nothing; what they make belongs to the arena of rt. Threads: the rendering's.
 */
#ifndef EVENKEEL_DATA_TEMPLATE_VALUE_H
#define EVENKEEL_DATA_TEMPLATE_VALUE_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EK_TPL_PARAMS_MAX 8 /* parameters of a filter, test or method */

struct ek_tpl_node;
struct ek_tpl_scope;

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
    char view;     /* VIEW: 'k' 'v' 'i', what of the dict it shows */
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
    struct ek_tpl_iter *it;     /* what is read: a generator, or own */
    struct ek_tpl_iter own;
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

/* self: the operand of a filter or test, the object of a method, MISSING for a
 * function */
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

#endif
