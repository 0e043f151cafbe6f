#include "base/mem.h"
#include "base/utf8.h"
#include "data/template_int.h"

#include <string.h>
#include <utf8proc.h>

/* Text outside tags becomes DATA tokens, already stripped as `-`, `+`, trim_blocks and
 * lstrip_blocks say; tags become the tokens between their ends. */

#define NESTING_MAX 1000 /* open brackets inside one tag */

struct lexer {
    struct ek_tpl_tokens *out;
    const char *src;
    size_t n, at;
    int line;
    bool is_line_start; /* what was read last ended with a newline */
    struct ek_err *err;
    size_t n_open;
    char open[NESTING_MAX]; /* brackets waiting for their end */
};

static int fail(struct lexer *l, const char *what)
{
    return ek_err_set(l->err, EK_EFORMAT, "line %d: %s", l->line, what);
}

static int emit(struct lexer *l, int kind, char op, size_t from, size_t to)
{
    struct ek_tpl_tokens *o = l->out;
    if (o->n == o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 256;
        struct ek_tpl_token *v = ek_realloc_array(o->v, cap, sizeof *v);
        if (!v)
            return ek_err_set(l->err, EK_ENOMEM, "out of memory");
        o->v = v;
        o->cap = cap;
    }
    o->v[o->n++] =
        (struct ek_tpl_token){(uint8_t)kind, op, l->line, l->src + from, to - from};
    return 0;
}

static void advance(struct lexer *l, size_t to)
{
    for (; l->at < to; l->at++)
        l->line += l->src[l->at] == '\n';
}

static bool has(const struct lexer *l, size_t at, const char *text)
{
    size_t n = strlen(text);
    return l->n - at >= n && memcmp(l->src + at, text, n) == 0;
}

/* The end of the white space at `at`. */
static size_t skip_space(const struct lexer *l, size_t at)
{
    uint32_t c;
    size_t len;
    while ((len = ek_utf8_decode(&c, l->src + at, l->n - at)) && ek_tpl_is_space(c))
        at += len;
    return at;
}

static size_t trim_end(const struct lexer *l, size_t from, size_t to)
{
    struct ek_tpl_str s = {.p = l->src + from, .n = to - from};
    uint32_t c;
    size_t len;
    while (s.n && (len = ek_tpl_char_before(&s, s.n, &c)) && ek_tpl_is_space(c))
        s.n -= len;
    return from + s.n;
}

/* Where the text [from,to) before a tag really ends. */
static size_t strip_text(const struct lexer *l, size_t from, size_t to, char sign,
                         bool is_block)
{
    if (sign == '-')
        return trim_end(l, from, to);
    if (sign == '+' || !is_block)
        return to;
    size_t start = to;
    while (start > from && l->src[start - 1] != '\n')
        start--;
    if ((start > from || l->is_line_start) && skip_space(l, start) >= to)
        return start;
    return to;
}

static int emit_text(struct lexer *l, size_t from, size_t to)
{
    return to > from ? emit(l, EK_TPL_T_DATA, 0, from, to) : 0;
}

/* The sign behind "{%" at `at`, or 0. */
static char sign_at(const struct lexer *l, size_t at)
{
    char c = at < l->n ? l->src[at] : 0;
    return c == '-' || c == '+' ? c : 0;
}

/* Length of the end of a block or comment at `at` ("-%}" with the space behind it,
 * "+%}", "%}" with one newline), or 0. close is '%' or '#'. */
static size_t block_end(const struct lexer *l, size_t at, char close)
{
    size_t signs = sign_at(l, at) != 0;
    if (l->n - at < signs + 2 || l->src[at + signs] != close ||
        l->src[at + signs + 1] != '}')
        return 0;
    size_t end = at + signs + 2;
    if (signs && l->src[at] == '-')
        end = skip_space(l, end);
    else if (!signs && end < l->n && l->src[end] == '\n')
        end++;
    return end - at;
}

static size_t variable_end(const struct lexer *l, size_t at)
{
    if (has(l, at, "-}}"))
        return skip_space(l, at + 3) - at;
    return has(l, at, "}}") ? 2 : 0;
}

static void moved(struct lexer *l, size_t to)
{
    advance(l, to);
    l->is_line_start = to > 0 && l->src[to - 1] == '\n';
}

static int lex_comment(struct lexer *l, size_t at)
{
    if (at == l->n) { /* nothing behind "{#": jinja2 lets it pass */
        advance(l, at);
        return 0;
    }
    for (; at + 1 < l->n; at++) {
        size_t len = block_end(l, at, '#');
        if (len) {
            moved(l, at + len);
            return 0;
        }
    }
    return fail(l, "the comment that begins here has no end ('#}')");
}

/* "{% raw %}" at `at`: where its text begins, or 0. */
static size_t raw_begin(const struct lexer *l, size_t at)
{
    at += 2;
    at = skip_space(l, at + (sign_at(l, at) != 0));
    if (!has(l, at, "raw"))
        return 0;
    at = skip_space(l, at + 3);
    if (has(l, at, "-%}"))
        return skip_space(l, at + 3);
    return has(l, at, "%}") ? at + 2 : 0;
}

static int lex_raw(struct lexer *l, size_t from)
{
    moved(l, from);
    if (from == l->n) /* likewise */
        return 0;
    for (size_t at = from; at + 1 < l->n; at++) {
        if (!has(l, at, "{%"))
            continue;
        char sign = sign_at(l, at + 2);
        size_t word = skip_space(l, at + 2 + (sign != 0));
        if (!has(l, word, "endraw"))
            continue;
        size_t end = skip_space(l, word + 6);
        size_t len = block_end(l, end, '%');
        if (!len)
            continue;
        int rc = emit_text(l, from, strip_text(l, from, at, sign, true));
        moved(l, end + len);
        return rc;
    }
    return fail(l, "the raw block that begins here has no {% endraw %}");
}

static bool is_digit_of(char c, int base)
{
    if (base == 16)
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
               (c >= 'A' && c <= 'F');
    return c >= '0' && c < '0' + base;
}

/* Digits with single underscores between them: the end, or `at` when there are none. */
static size_t digits(const struct lexer *l, size_t at, int base)
{
    size_t end = at;
    while (end < l->n && is_digit_of(l->src[end], base)) {
        end++;
        if (end + 1 < l->n && l->src[end] == '_' && is_digit_of(l->src[end + 1], base))
            end++;
    }
    return end;
}

static size_t float_end(const struct lexer *l, size_t at)
{
    size_t end = digits(l, at, 10), more;
    if (at > 0 && l->src[at - 1] == '.')
        return at;
    bool is_float = false;
    if (end < l->n && l->src[end] == '.' && (more = digits(l, end + 1, 10)) > end + 1) {
        is_float = true;
        end = more;
    }
    if (end < l->n && (l->src[end] == 'e' || l->src[end] == 'E')) {
        size_t exp = end + 1;
        if (exp < l->n && (l->src[exp] == '-' || l->src[exp] == '+'))
            exp++;
        if ((more = digits(l, exp, 10)) > exp) {
            is_float = true;
            end = more;
        }
    }
    return is_float ? end : at;
}

static size_t int_end(const struct lexer *l, size_t at)
{
    if (l->src[at] != '0')
        return digits(l, at, 10);
    char c = at + 1 < l->n ? l->src[at + 1] | 0x20 : 0;
    int base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
    if (base) {
        size_t from = at + 2 + (at + 2 < l->n && l->src[at + 2] == '_');
        size_t end = digits(l, from, base);
        if (end > from)
            return end;
    }
    return digits(l, at, 1);
}

static int lex_number(struct lexer *l)
{
    size_t end = float_end(l, l->at);
    int kind = EK_TPL_T_FLOAT;
    if (end == l->at) {
        end = int_end(l, l->at);
        kind = EK_TPL_T_INT;
    }
    int rc = emit(l, kind, 0, l->at, end);
    advance(l, end);
    return rc;
}

static bool is_word(uint32_t c, bool is_first)
{
    if (c < 0x80)
        return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (!is_first && c >= '0' && c <= '9');
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO)
        return true;
    if (k == UTF8PROC_CATEGORY_NL)
        return true;
    return !is_first && (k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
                         k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_PC);
}

static size_t word_end(const struct lexer *l, size_t at)
{
    uint32_t c;
    size_t len, from = at;
    while ((len = ek_utf8_decode(&c, l->src + at, l->n - at)) && is_word(c, at == from))
        at += len;
    return at;
}

static int lex_string(struct lexer *l)
{
    char quote = l->src[l->at];
    for (size_t i = l->at + 1; i < l->n; i++) {
        if (l->src[i] == '\\') {
            i++;
        } else if (l->src[i] == quote) {
            int rc = emit(l, EK_TPL_T_STRING, 0, l->at, i + 1);
            advance(l, i + 1);
            return rc;
        }
    }
    return fail(l, "the string that begins here has no closing quote");
}

static int balance(struct lexer *l, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_open == NESTING_MAX)
            return ek_err_set(l->err, EK_ELIMIT,
                              "line %d: more than %d brackets are open", l->line,
                              NESTING_MAX);
        l->open[l->n_open++] = (char)(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
        if (l->n_open == 0)
            return ek_err_set(l->err, EK_EFORMAT, "line %d: unexpected '%c'", l->line,
                              c);
        char wanted = l->open[--l->n_open];
        if (wanted != c)
            return ek_err_set(l->err, EK_EFORMAT,
                              "line %d: unexpected '%c', expected '%c'", l->line, c,
                              wanted);
    }
    return 0;
}

static int lex_operator(struct lexer *l)
{
    static const struct {
        char text[3], op;
    } pairs[] = {{"==", EK_TPL_OP_EQ},       {"!=", EK_TPL_OP_NE},
                 {">=", EK_TPL_OP_GE},       {"<=", EK_TPL_OP_LE},
                 {"//", EK_TPL_OP_FLOORDIV}, {"**", EK_TPL_OP_POW}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!has(l, l->at, pairs[i].text))
            continue;
        int rc = emit(l, EK_TPL_T_OP, pairs[i].op, l->at, l->at + 2);
        l->at += 2;
        return rc;
    }
    char c = l->src[l->at];
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c))
        return ek_err_set(l->err, EK_EFORMAT,
                          "line %d: unexpected character '%.*s' in a tag", l->line,
                          (int)(l->n - l->at < 4 ? l->n - l->at : 4), l->src + l->at);
    int rc = balance(l, c);
    if (!rc)
        rc = emit(l, EK_TPL_T_OP, c, l->at, l->at + 1);
    l->at++;
    return rc;
}

static int lex_token(struct lexer *l)
{
    char c = l->src[l->at];
    if (c >= '0' && c <= '9')
        return lex_number(l);
    if (c == '"' || c == '\'')
        return lex_string(l);
    size_t end = word_end(l, l->at);
    if (end == l->at)
        return lex_operator(l);
    int rc = emit(l, EK_TPL_T_NAME, 0, l->at, end);
    advance(l, end);
    return rc;
}

/* The inside of a tag whose begin was read. */
static int lex_tag(struct lexer *l, bool is_block)
{
    int line = l->line;
    l->n_open = 0;
    for (;;) {
        advance(l, skip_space(l, l->at));
        if (l->at >= l->n) {
            l->line = line;
            return fail(l, is_block ? "the tag that begins here has no end ('%}')"
                                    : "the tag that begins here has no end ('}}')");
        }
        size_t len = 0;
        if (l->n_open == 0)
            len = is_block ? block_end(l, l->at, '%') : variable_end(l, l->at);
        if (len) {
            int rc = emit(l, is_block ? EK_TPL_T_BLOCK_END : EK_TPL_T_VAR_END, 0, l->at,
                          l->at + 2);
            moved(l, l->at + len);
            return rc;
        }
        int rc = lex_token(l);
        if (rc)
            return rc;
    }
}

/* The next "{{", "{%" or "{#" from l->at on, or l->n. */
static size_t next_tag(const struct lexer *l)
{
    for (size_t i = l->at; i + 1 < l->n; i++)
        if (l->src[i] == '{' && l->src[i + 1] && strchr("{%#", l->src[i + 1]))
            return i;
    return l->n;
}

static int lex_text_and_tag(struct lexer *l)
{
    size_t tag = next_tag(l);
    if (tag == l->n) {
        int rc = emit_text(l, l->at, l->n);
        advance(l, l->n);
        return rc;
    }
    char kind = l->src[tag + 1];
    char sign = sign_at(l, tag + 2);
    int rc = emit_text(l, l->at, strip_text(l, l->at, tag, sign, kind != '{'));
    if (rc)
        return rc;
    advance(l, tag);
    size_t raw = kind == '%' ? raw_begin(l, tag) : 0;
    if (raw)
        return lex_raw(l, raw);
    size_t inside = tag + 2 + (sign != 0);
    if (kind == '#')
        return lex_comment(l, inside);
    rc = emit(l, kind == '%' ? EK_TPL_T_BLOCK_BEGIN : EK_TPL_T_VAR_BEGIN, 0, tag,
              tag + 2);
    advance(l, inside);
    return rc ? rc : lex_tag(l, kind == '%');
}

int ek_tpl_lex(struct ek_tpl_tokens *tokens, const char *src, size_t n,
               struct ek_err *err)
{
    struct lexer l = {.out = tokens, .src = src, .n = n, .line = 1, .err = err};
    l.is_line_start = true;
    while (l.at < n) {
        int rc = lex_text_and_tag(&l);
        if (rc)
            return rc;
    }
    return emit(&l, EK_TPL_T_EOF, 0, n, n);
}
