#include "data/tokenizer_regex.h"

#include "base/mem.h"
#include "base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

/* Unicode's White_Space: PCRE2's own \s counts U+180E, which lost that property. */
#define SPACE "\\x{9}-\\x{d}\\x{85}\\p{Z}"
#define WORD  "\\p{L}\\p{M}\\p{N}\\p{Pc}"

#define PATTERN_MAX (64 * 1024)

/* One match of a sane pattern backtracks a small multiple of the text; past this it is
 * an error rather than a hang. */
#define MATCH_LIMIT_BASE   100000u
#define MATCH_LIMIT_A_BYTE 10u
#define HEAP_LIMIT_KIB     (256u * 1024u)

struct ek_tok_regex {
    pcre2_code *code;
};

struct ek_tok_regex_work {
    pcre2_general_context *general;
    pcre2_match_context *context;
    pcre2_match_data *match;
};

static void *pcre_alloc(size_t n, void *arg)
{
    (void)arg;
    return ek_alloc(n);
}

static void pcre_free(void *p, void *arg)
{
    (void)arg;
    ek_free(p);
}

static const char general_categories[][3] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
    "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
    "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn",
};
#define N_CATEGORIES (sizeof general_categories / sizeof general_categories[0])

/* Bits of the categories that the name of 1 or 2 letters stands for; 0: not one. */
static uint32_t category_bits(const char *p, size_t n)
{
    uint32_t bits = 0;
    for (size_t i = 0; n <= 2 && i < N_CATEGORIES; i++)
        if (memcmp(general_categories[i], p, n) == 0)
            bits |= 1u << i;
    return bits;
}

struct source {
    const char *p;
    size_t n, at;
    struct ek_buf *out;
    struct ek_err *err;
};

static int refuse(const struct source *s, const char *what)
{
    return ek_err_set(s->err, EK_EUNSUP,
                      "regular expression: %s at offset %zu is not understood", what,
                      s->at);
}

/* At "\p{" or "\P{": the name inside the braces; at moves behind them. */
static int read_property(struct source *s, struct ek_buf *name, bool *is_negated)
{
    *is_negated = s->p[s->at + 1] == 'P';
    size_t i = s->at + 2;
    if (i >= s->n || s->p[i] != '{')
        return refuse(s, "a property without braces");
    i++;
    if (i < s->n && s->p[i] == '^') {
        *is_negated = !*is_negated;
        i++;
    }
    const char *end = memchr(s->p + i, '}', s->n - i);
    size_t len = end ? (size_t)(end - (s->p + i)) : 0;
    if (!len || len > 40)
        return refuse(s, "a property without a name");
    int rc = ek_buf_add(name, s->p + i, len);
    s->at = i + len + 1;
    return rc;
}

static int put_property(struct source *s)
{
    struct ek_buf name;
    bool is_negated;
    ek_buf_init(&name, 64);
    int rc = read_property(s, &name, &is_negated);
    /* A name that is no general category is a script; PCRE2 would match its
     * extensions, too. */
    bool is_script = !rc && !category_bits(name.data, name.len) &&
                     strcmp(name.data, "Any") != 0 && !strchr(name.data, ':') &&
                     strcmp(name.data, "L&") != 0;
    if (!rc)
        rc = ek_buf_addf(s->out, "\\%c{%s%s}", is_negated ? 'P' : 'p',
                         is_script ? "sc:" : "", name.data);
    ek_buf_release(&name);
    return rc;
}

/* \uHHHH is Oniguruma's, \x{HHHH} PCRE2's. */
static int put_code(struct source *s)
{
    if (s->n - s->at < 6)
        return refuse(s, "\\u without four digits");
    int rc = ek_buf_addf(s->out, "\\x{%.4s}", s->p + s->at + 2);
    s->at += 6;
    return rc;
}

static int put_escape(struct source *s, bool in_class)
{
    if (s->at + 1 >= s->n)
        return refuse(s, "a backslash at the end");
    char c = s->p[s->at + 1];
    const char *set = c == 's' || c == 'S' ? SPACE : c == 'w' || c == 'W' ? WORD : NULL;
    if (c == 'p' || c == 'P')
        return put_property(s);
    if (c == 'u')
        return put_code(s);
    if (set) {
        bool is_negated = c == 'S' || c == 'W';
        if (in_class && is_negated)
            return refuse(s, "\\S or \\W in a set");
        s->at += 2;
        if (in_class)
            return ek_buf_add_str(s->out, set);
        return ek_buf_addf(s->out, "[%s%s]", is_negated ? "^" : "", set);
    }
    if (c == 'h' || c == 'H' || c == 'X' || c == 'R' || c == 'K' || c == 'g' ||
        c == 'k')
        return refuse(s, "this escape");
    s->at += 2;
    return ek_buf_add(s->out, s->p + s->at - 2, 2);
}

/* [X&&[^Y]] where X lists general categories: [^ the other categories, Y]. Written this
 * way it stays one set, and a run of it needs no stack. at stands behind "[". */
static int put_intersection(struct source *s)
{
    uint32_t bits = 0;
    struct ek_buf name;
    ek_buf_init(&name, 64);
    int rc = 0;
    while (!rc && s->n - s->at > 2 && memcmp(s->p + s->at, "&&", 2) != 0) {
        bool is_negated = true;
        ek_buf_reset(&name);
        if (memcmp(s->p + s->at, "\\p", 2) == 0)
            rc = read_property(s, &name, &is_negated);
        uint32_t more = !rc && name.len ? category_bits(name.data, name.len) : 0;
        if (!rc && (is_negated || !more))
            rc = refuse(s, "an intersection of other than general categories");
        bits |= more;
    }
    ek_buf_release(&name);
    if (!rc && (s->n - s->at < 4 || memcmp(s->p + s->at, "&&[^", 4) != 0))
        rc = refuse(s, "an intersection with other than [^...]");
    if (rc)
        return rc;
    s->at += 4;
    rc = ek_buf_add_str(s->out, "[^");
    for (size_t i = 0; !rc && i < N_CATEGORIES; i++)
        if (!(bits & 1u << i))
            rc = ek_buf_addf(s->out, "\\p{%s}", general_categories[i]);
    return rc;
}

static bool has_intersection(const struct source *s)
{
    for (size_t i = s->at; i + 1 < s->n && s->p[i] != ']'; i++) {
        if (s->p[i] == '\\')
            i++;
        else if (s->p[i] == '&' && s->p[i + 1] == '&')
            return true;
    }
    return false;
}

/* at stands on "[". */
static int put_class(struct source *s)
{
    s->at++;
    bool is_crossed = has_intersection(s);
    int rc = is_crossed ? put_intersection(s) : ek_buf_add_char(s->out, '[');
    if (!rc && !is_crossed && s->at < s->n && s->p[s->at] == '^') {
        rc = ek_buf_add_char(s->out, '^');
        s->at++;
    }
    while (!rc && s->at < s->n && s->p[s->at] != ']') {
        if (s->p[s->at] == '\\')
            rc = put_escape(s, true);
        else if (s->p[s->at] == '[')
            rc = refuse(s, "a set inside a set");
        else
            rc = ek_buf_add_char(s->out, s->p[s->at++]);
    }
    size_t n_close = is_crossed ? 2 : 1;
    if (!rc && (s->n - s->at < n_close || memcmp(s->p + s->at, "]]", n_close) != 0))
        rc = refuse(s, "a set without its end");
    s->at += n_close;
    return rc ? rc : ek_buf_add_char(s->out, ']');
}

int ek_tok_regex_translate(struct ek_buf *out, const char *pattern, size_t n,
                           struct ek_err *err)
{
    struct source s = {pattern, n, 0, out, err};
    int rc = 0;
    while (!rc && s.at < s.n) {
        if (s.p[s.at] == '\\')
            rc = put_escape(&s, false);
        else if (s.p[s.at] == '[')
            rc = put_class(&s);
        else
            rc = ek_buf_add_char(out, s.p[s.at++]);
    }
    if (rc == EK_ELIMIT)
        return ek_err_set(err, rc, "regular expression is over %d bytes", PATTERN_MAX);
    return rc;
}

static int compile(struct ek_tok_regex *re, const struct ek_buf *pattern,
                   struct ek_err *err)
{
    pcre2_general_context *general =
        pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *context =
        general ? pcre2_compile_context_create(general) : NULL;
    int rc = EK_ENOMEM, code = 0;
    PCRE2_SIZE at = 0;
    if (!context)
        goto out;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    re->code =
        pcre2_compile((PCRE2_SPTR)pattern->data, pattern->len,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                      &code, &at, context);
    if (re->code) {
        /* Without a just-in-time compiler on this machine the interpreter serves. */
        (void)pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE);
        rc = 0;
    } else if (code != PCRE2_ERROR_HEAP_FAILED) {
        PCRE2_UCHAR text[128] = "";
        pcre2_get_error_message(code, text, sizeof text);
        rc = ek_err_set(err, EK_EFORMAT, "regular expression: %s near '%.40s'",
                        (char *)text, pattern->data + (at > 10 ? at - 10 : 0));
    }
out:
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    return rc;
}

int ek_tok_regex_new(struct ek_tok_regex **out, const char *pattern, size_t n,
                     struct ek_err *err)
{
    struct ek_buf text;
    ek_buf_init(&text, PATTERN_MAX);
    struct ek_tok_regex *re = ek_calloc(1, sizeof *re);
    int rc = re ? 0 : EK_ENOMEM;
    if (!rc && (n == 0 || !ek_utf8_is_valid(pattern, n)))
        rc = ek_err_set(err, EK_EFORMAT, "regular expression is %s",
                        n ? "not UTF-8" : "empty");
    if (!rc)
        rc = ek_tok_regex_translate(&text, pattern, n, err);
    if (!rc)
        rc = compile(re, &text, err);
    ek_buf_release(&text);
    if (rc) {
        ek_tok_regex_free(re);
        return rc == EK_ENOMEM ? ek_err_set(err, rc, "out of memory") : rc;
    }
    *out = re;
    return 0;
}

void ek_tok_regex_free(struct ek_tok_regex *re)
{
    if (!re)
        return;
    pcre2_code_free(re->code);
    ek_free(re);
}

int ek_tok_regex_work_new(struct ek_tok_regex_work **out)
{
    struct ek_tok_regex_work *w = ek_calloc(1, sizeof *w);
    if (!w)
        return EK_ENOMEM;
    w->general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (w->general) {
        w->context = pcre2_match_context_create(w->general);
        w->match = pcre2_match_data_create(1, w->general);
    }
    if (!w->context || !w->match) {
        ek_tok_regex_work_free(w);
        return EK_ENOMEM;
    }
    pcre2_set_heap_limit(w->context, HEAP_LIMIT_KIB);
    *out = w;
    return 0;
}

void ek_tok_regex_work_free(struct ek_tok_regex_work *w)
{
    if (!w)
        return;
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    pcre2_general_context_free(w->general);
    ek_free(w);
}

int ek_tok_regex_find(const struct ek_tok_regex *re, struct ek_tok_regex_work *w,
                      size_t *lo, size_t *hi, const char *s, size_t n, size_t from)
{
    uint64_t limit = MATCH_LIMIT_BASE + (uint64_t)n * MATCH_LIMIT_A_BYTE;
    pcre2_set_match_limit(w->context,
                          limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    while (from < n) {
        int rc = pcre2_match(re->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK,
                             w->match, w->context);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(re->code, (PCRE2_SPTR)s, n, from,
                             PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->match, w->context);
        if (rc == PCRE2_ERROR_NOMATCH)
            return 0;
        if (rc == PCRE2_ERROR_NOMEMORY)
            return EK_ENOMEM;
        if (rc < 0)
            return EK_ELIMIT;
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(w->match);
        if (at[1] > at[0] && at[0] >= from) {
            *lo = at[0];
            *hi = at[1];
            return 1;
        }
        /* An empty match cuts nothing: on by one character. */
        from = (at[0] > from ? at[0] : from) + 1;
        while (from < n && ((unsigned char)s[from] & 0xc0) == 0x80)
            from++;
    }
    return 0;
}
