/* The steps around the model of tokenizer.json: normalizer, pre_tokenizer, decoder,
 * post_processor. A step that is not known is refused by its name. */
#include "data/tokenizer_json.h"

#include <string.h>

#define SPACE_ESCAPE "\xe2\x96\x81" /* U+2581 */

/* Steps nest by Sequence; nobody nests deeper than this. */
#define NEST_MAX 4

struct handler {
    const char *type;
    int (*fn)(struct ek_tok_json *j, const json_t *step);
};

/* One section of the file: what it is called, where its Sequence keeps the steps. */
struct section {
    const char *key, *list;
    const struct handler *handlers; /* ends with a NULL type */
};

static bool str_is(struct ek_str s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

static int run_step(struct ek_tok_json *j, const struct section *s, const json_t *step,
                    int depth)
{
    struct ek_str type = {"", 0};
    if (!json_is_object(step))
        return ek_tok_json_fail(j, EK_EFORMAT, s->key, "expected an object");
    int rc = ek_tok_json_str(j, &type, step, "type", s->key);
    if (rc)
        return rc;
    if (str_is(type, "Sequence")) {
        const json_t *list = ek_tok_json_get(step, s->list);
        if (!json_is_array(list) || depth == NEST_MAX)
            return ek_tok_json_fail(
                j, EK_EFORMAT, s->key,
                "expected a Sequence with its list, not nested deep");
        for (size_t i = 0; !rc && i < json_array_size(list); i++)
            rc = run_step(j, s, json_array_get(list, i), depth + 1);
        return rc;
    }
    for (const struct handler *h = s->handlers; h->type; h++)
        if (str_is(type, h->type))
            return h->fn(j, step);
    return ek_err_set(j->err, EK_EUNSUP, "%s: %s: step '%.*s' is not known", j->name,
                      s->key, (int)(type.n < 60 ? type.n : 60), type.p);
}

static int run_section(struct ek_tok_json *j, const struct section *s)
{
    const json_t *step = ek_tok_json_get(j->root, s->key);
    return step ? run_step(j, s, step, 0) : 0;
}

static int do_nothing(struct ek_tok_json *j, const json_t *step)
{
    (void)j, (void)step;
    return 0;
}

/* --- normalizer --- */

static int set_nfc(struct ek_tok_json *j, const json_t *step)
{
    (void)step;
    if (j->t->norm.escapes_space)
        return ek_tok_json_fail(j, EK_EUNSUP, "normalizer", "NFC after Replace");
    j->t->norm.is_nfc = true;
    return 0;
}

static int set_prepend(struct ek_tok_json *j, const json_t *step)
{
    struct ek_str s = {"", 0};
    int rc = ek_tok_json_str(j, &s, step, "prepend", "normalizer");
    if (!rc && !str_is(s, SPACE_ESCAPE))
        rc = ek_tok_json_fail(j, EK_EUNSUP, "normalizer",
                              "Prepend of other than U+2581");
    j->t->norm.prefix = EK_TOK_PREFIX_ALWAYS;
    return rc;
}

static int get_pattern(struct ek_tok_json *j, struct ek_str *out, bool *is_regex,
                       const json_t *step, const char *where)
{
    const json_t *pattern = ek_tok_json_get(step, "pattern");
    *out = (struct ek_str){"", 0};
    int rc = ek_tok_json_str(j, out, pattern, "String", where);
    *is_regex = !rc && out->n == 0;
    if (*is_regex)
        rc = ek_tok_json_str(j, out, pattern, "Regex", where);
    if (!rc && out->n == 0)
        rc = ek_tok_json_fail(j, EK_EFORMAT, where,
                              "expected a pattern, a String or a Regex");
    return rc;
}

static int set_replace(struct ek_tok_json *j, const json_t *step)
{
    struct ek_str from, to = {"", 0};
    bool is_regex;
    int rc = get_pattern(j, &from, &is_regex, step, "normalizer");
    if (!rc)
        rc = ek_tok_json_str(j, &to, step, "content", "normalizer");
    if (!rc && (is_regex || !str_is(from, " ") || !str_is(to, SPACE_ESCAPE) ||
                j->t->norm.is_nfc))
        rc = ek_tok_json_fail(j, EK_EUNSUP, "normalizer",
                              "Replace of other than spaces by U+2581");
    j->t->norm.escapes_space = true;
    return rc;
}

/* --- pre_tokenizer --- */

/* A step that cuts comes after all that rewrite; what follows ByteLevel would see the
 * byte alphabet. */
static int add_cut(struct ek_tok_json *j, const char *pattern, size_t n,
                   enum ek_tok_cut cut, bool is_inverted)
{
    if (j->is_mapped)
        return ek_tok_json_fail(j, EK_EUNSUP, "pre_tokenizer",
                                "a step after ByteLevel");
    int rc = ek_tok_pre_add(&j->t->pre, pattern, n, cut, is_inverted, j->err);
    if (rc)
        ek_err_prefix(j->err, "%s: pre_tokenizer", j->name);
    return rc;
}

static int get_cut(struct ek_tok_json *j, enum ek_tok_cut *out, const json_t *step)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    struct ek_str s = {"Isolated", 8};
    int rc = ek_tok_json_str(j, &s, step, "behavior", "pre_tokenizer");
    for (int i = 0; !rc && i < 5; i++)
        if (str_is(s, names[i])) {
            *out = (enum ek_tok_cut)i;
            return 0;
        }
    return rc ? rc
              : ek_err_set(j->err, EK_EFORMAT,
                           "%s: pre_tokenizer.behavior '%.*s'; expected Isolated, "
                           "Removed, MergedWithPrevious, MergedWithNext or Contiguous",
                           j->name, (int)(s.n < 60 ? s.n : 60), s.p);
}

/* Every ASCII character that could mean something gets a backslash. */
static int quote(struct ek_buf *out, struct ek_str s)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        bool is_word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                       (c >= 'a' && c <= 'z') || c >= 0x80;
        if (!is_word)
            rc = ek_buf_addf(out, "\\x{%x}", c);
        else
            rc = ek_buf_add_char(out, (char)c);
    }
    return rc;
}

static int add_split(struct ek_tok_json *j, const json_t *step)
{
    struct ek_str pattern;
    enum ek_tok_cut cut = EK_TOK_CUT_ISOLATED;
    bool is_regex, is_inverted = false;
    struct ek_buf quoted;
    ek_buf_init(&quoted, 16 * 1024);
    int rc = get_pattern(j, &pattern, &is_regex, step, "pre_tokenizer");
    if (!rc)
        rc = get_cut(j, &cut, step);
    if (!rc)
        rc = ek_tok_json_bool(j, &is_inverted, step, "invert", "pre_tokenizer");
    if (!rc && !is_regex) {
        rc = quote(&quoted, pattern);
        pattern = (struct ek_str){quoted.data, quoted.len};
        if (rc)
            ek_tok_json_fail(j, rc, "pre_tokenizer", ek_status_text(rc));
    }
    if (!rc)
        rc = add_cut(j, pattern.p, pattern.n, cut, is_inverted);
    ek_buf_release(&quoted);
    return rc;
}

static int add_digits(struct ek_tok_json *j, const json_t *step)
{
    bool is_individual = false;
    int rc =
        ek_tok_json_bool(j, &is_individual, step, "individual_digits", "pre_tokenizer");
    if (rc)
        return rc;
    return add_cut(j, "\\p{N}", 5,
                   is_individual ? EK_TOK_CUT_ISOLATED : EK_TOK_CUT_CONTIGUOUS, false);
}

static int add_punctuation(struct ek_tok_json *j, const json_t *step)
{
    static const char pattern[] = "[\\p{P}!-/:-@\\x{5b}-`{-~]";
    enum ek_tok_cut cut = EK_TOK_CUT_ISOLATED;
    int rc = get_cut(j, &cut, step);
    return rc ? rc : add_cut(j, pattern, sizeof pattern - 1, cut, false);
}

static int add_byte_level(struct ek_tok_json *j, const json_t *step)
{
    bool adds_prefix = true, uses_regex = true;
    int rc =
        ek_tok_json_bool(j, &adds_prefix, step, "add_prefix_space", "pre_tokenizer");
    if (!rc)
        rc = ek_tok_json_bool(j, &uses_regex, step, "use_regex", "pre_tokenizer");
    if (!rc && adds_prefix && j->t->pre.n_steps)
        rc = ek_tok_json_fail(j, EK_EUNSUP, "pre_tokenizer",
                              "ByteLevel with add_prefix_space after another step");
    if (!rc && adds_prefix) {
        j->t->norm.prefix = EK_TOK_PREFIX_ALWAYS;
        j->t->norm.prefix_unless_there = true;
    }
    if (!rc && uses_regex) {
        const char *gpt2 = ek_tok_pre_gpt2();
        rc = add_cut(j, gpt2, strlen(gpt2), EK_TOK_CUT_ISOLATED, false);
    }
    j->is_mapped = true;
    return rc;
}

static int get_prepend_scheme(struct ek_tok_json *j, enum ek_tok_prefix *out,
                              const json_t *step, const char *where)
{
    bool adds_prefix = true;
    struct ek_str s = {"", 0};
    int rc = ek_tok_json_bool(j, &adds_prefix, step, "add_prefix_space", where);
    if (!rc)
        rc = ek_tok_json_str(j, &s, step, "prepend_scheme", where);
    if (rc)
        return rc;
    if (s.n == 0)
        *out = adds_prefix ? EK_TOK_PREFIX_ALWAYS : EK_TOK_PREFIX_NONE;
    else if (str_is(s, "always"))
        *out = EK_TOK_PREFIX_ALWAYS;
    else if (str_is(s, "first"))
        *out = EK_TOK_PREFIX_FIRST;
    else if (str_is(s, "never"))
        *out = EK_TOK_PREFIX_NONE;
    else
        return ek_err_set(j->err, EK_EFORMAT,
                          "%s: %s.prepend_scheme '%.*s'; expected always, first or "
                          "never",
                          j->name, where, (int)(s.n < 60 ? s.n : 60), s.p);
    return 0;
}

static int check_replacement(struct ek_tok_json *j, const json_t *step,
                             const char *where)
{
    struct ek_str s = {SPACE_ESCAPE, 3};
    int rc = ek_tok_json_str(j, &s, step, "replacement", where);
    if (!rc && !str_is(s, SPACE_ESCAPE))
        rc = ek_tok_json_fail(j, EK_EUNSUP, where,
                              "Metaspace with a replacement other than U+2581");
    return rc;
}

static int add_metaspace(struct ek_tok_json *j, const json_t *step)
{
    bool splits = true;
    if (j->t->pre.n_steps || j->t->norm.is_nfc || j->t->norm.prefix)
        return ek_tok_json_fail(j, EK_EUNSUP, "pre_tokenizer",
                                "Metaspace after another step");
    int rc = check_replacement(j, step, "pre_tokenizer");
    if (!rc)
        rc = get_prepend_scheme(j, &j->t->norm.prefix, step, "pre_tokenizer");
    if (!rc)
        rc = ek_tok_json_bool(j, &splits, step, "split", "pre_tokenizer");
    j->t->norm.prefix_unless_there = true;
    j->t->norm.escapes_space = true;
    if (!rc && splits)
        rc = add_cut(j, SPACE_ESCAPE, 3, EK_TOK_CUT_TO_NEXT, false);
    return rc;
}

/* --- decoder --- */

static int set_strip(struct ek_tok_json *j, const json_t *step)
{
    struct ek_str s = {"", 0};
    int rc = ek_tok_json_str(j, &s, step, "content", "decoder");
    const json_t *start = ek_tok_json_get(step, "start");
    const json_t *stop = ek_tok_json_get(step, "stop");
    if (!rc && (!str_is(s, " ") || json_integer_value(start) > 1 ||
                json_integer_value(stop) != 0))
        rc = ek_tok_json_fail(j, EK_EUNSUP, "decoder",
                              "Strip of other than one space at the start");
    j->t->strips_first_space = json_integer_value(start) == 1;
    return rc;
}

static int set_metaspace_decoder(struct ek_tok_json *j, const json_t *step)
{
    enum ek_tok_prefix prefix = EK_TOK_PREFIX_NONE;
    int rc = check_replacement(j, step, "decoder");
    if (!rc)
        rc = get_prepend_scheme(j, &prefix, step, "decoder");
    j->t->strips_first_space = prefix != EK_TOK_PREFIX_NONE;
    return rc;
}

/* --- post_processor --- */

/* The special tokens with which a template begins: BOS, or several. What it puts behind
 * the text is for classifiers, not for text that goes on. */
static int set_template(struct ek_tok_json *j, const json_t *step)
{
    struct ek_tokenizer *t = j->t;
    const json_t *single = ek_tok_json_get(step, "single");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *special =
            ek_tok_json_get(json_array_get(single, i), "SpecialToken");
        struct ek_str s = {"", 0};
        uint64_t id;
        if (!special)
            break;
        int rc = ek_tok_json_str(j, &s, special, "id", "post_processor");
        if (rc)
            return rc;
        if (!ek_map_get(&j->by_text, s.p, s.n, &id))
            return ek_err_set(j->err, EK_EFORMAT,
                              "%s: post_processor: '%.*s' is not a token", j->name,
                              (int)(s.n < 200 ? s.n : 200), s.p);
        if (t->n_head == EK_TOK_HEAD_MAX)
            return ek_tok_json_fail(j, EK_EUNSUP, "post_processor",
                                    "more than 4 tokens before the text");
        t->head[t->n_head++] = (int32_t)id;
    }
    if (t->n_head) {
        t->bos = t->head[0];
        t->adds_bos = true;
    }
    return 0;
}

static bool holds_byte_level(const json_t *step, int depth)
{
    static const char *const lists[] = {"pretokenizers", "decoders"};
    const char *type = json_string_value(json_object_get(step, "type"));
    if (type && strcmp(type, "ByteLevel") == 0)
        return true;
    for (int k = 0; k < 2 && depth < NEST_MAX; k++) {
        const json_t *list = json_object_get(step, lists[k]);
        for (size_t i = 0; i < json_array_size(list); i++)
            if (holds_byte_level(json_array_get(list, i), depth + 1))
                return true;
    }
    return false;
}

bool ek_tok_json_is_byte_level(const json_t *root)
{
    return holds_byte_level(json_object_get(root, "pre_tokenizer"), 0) ||
           holds_byte_level(json_object_get(root, "decoder"), 0);
}

int ek_tok_json_steps(struct ek_tok_json *j)
{
    static const struct handler normalizers[] = {
        {"NFC", set_nfc}, {"Prepend", set_prepend}, {"Replace", set_replace}, {0}};
    static const struct handler pre_tokenizers[] = {
        {"Split", add_split},         {"ByteLevel", add_byte_level},
        {"Digits", add_digits},       {"Punctuation", add_punctuation},
        {"Metaspace", add_metaspace}, {0}};
    static const struct handler decoders[] = {{"ByteLevel", do_nothing},
                                              {"ByteFallback", do_nothing},
                                              {"Fuse", do_nothing},
                                              {"Replace", do_nothing},
                                              {"Strip", set_strip},
                                              {"Metaspace", set_metaspace_decoder},
                                              {0}};
    static const struct handler post_processors[] = {
        {"ByteLevel", do_nothing}, {"TemplateProcessing", set_template}, {0}};
    static const struct section sections[] = {
        {"normalizer", "normalizers", normalizers},
        {"pre_tokenizer", "pretokenizers", pre_tokenizers},
        {"decoder", "decoders", decoders},
        {"post_processor", "processors", post_processors},
    };
    int rc = 0;
    for (int i = 0; !rc && i < 4; i++)
        rc = run_section(j, &sections[i]);
    if (!rc && j->t->norm.prefix && j->t->kind != EK_TOK_BYTE_LEVEL &&
        !j->t->norm.escapes_space)
        rc = ek_tok_json_fail(j, EK_EUNSUP, "normalizer", "Prepend without Replace");
    return rc;
}
