#include "data/template_int.h"

#include <string.h>
#include <utf8proc.h>

/* Letter case as Python's str has it: the full mappings, so "\u00df" has two capitals.
 * They follow from the simple mappings and the full case folding of utf8proc. */

static bool is_cased(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL ||
           k == UTF8PROC_CATEGORY_LT;
}

static bool is_lower(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LL;
}

static bool is_upper(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU;
}

/* Characters a word's case looks through: marks, modifiers, some punctuation. */
static bool is_case_ignorable(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x2019 ||
               c == 0x2018 || c == 0x2024 || c == 0x2027;
    }
}

/* The sigma at byte i ends its word: a letter before it and none after. */
static bool is_final_sigma(const struct ek_tpl_str *s, size_t i)
{
    uint32_t c = 0;
    size_t at = i;
    do {
        if (at == 0)
            return false;
        at -= ek_tpl_char_before(s, at, &c);
    } while (is_case_ignorable(c));
    if (!is_cased(c))
        return false;
    at = i + 2;
    do {
        if (at >= s->n)
            return true;
        at += ek_tpl_char(s, at, &c);
    } while (is_case_ignorable(c));
    return !is_cased(c);
}

/* The full case folding of c, when it is more than one character; else 0. */
static int fold(uint32_t c, utf8proc_int32_t out[8])
{
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, out, 8,
                                                 UTF8PROC_CASEFOLD, &boundary);
    return n > 1 && n <= 8 ? (int)n : 0;
}

static int put_upper(struct ek_tpl_rt *rt, uint32_t c, bool is_plain)
{
    utf8proc_int32_t all[8];
    int n = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU
                ? 0
                : fold(c, all);
    if (n == 0)
        return ek_tpl_put_char(rt, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c),
                               is_plain);
    int rc = 0;
    for (int i = 0; !rc && i < n; i++)
        rc = ek_tpl_put_char(rt, (uint32_t)utf8proc_toupper(all[i]), is_plain);
    return rc;
}

static int put_title(struct ek_tpl_rt *rt, uint32_t c, bool is_plain)
{
    utf8proc_int32_t all[8], title = utf8proc_totitle((utf8proc_int32_t)c);
    bool is_whole = title != (utf8proc_int32_t)c && c != 0xdf;
    int n = is_whole || !is_lower(c) ? 0 : fold(c, all);
    int rc =
        ek_tpl_put_char(rt, (uint32_t)(n ? utf8proc_totitle(all[0]) : title), is_plain);
    for (int i = 1; !rc && i < n; i++)
        rc = ek_tpl_put_char(rt, (uint32_t)all[i], is_plain);
    return rc;
}

static int put_lower(struct ek_tpl_rt *rt, const struct ek_tpl_str *s, size_t i,
                     uint32_t c)
{
    bool is_plain = ek_tpl_plain_at(s, i);
    if (c == 0x3a3)
        return ek_tpl_put_char(rt, is_final_sigma(s, i) ? 0x3c2 : 0x3c3, is_plain);
    if (c == 0x130)
        return ek_tpl_put_text(rt, "i\xcc\x87", is_plain);
    return ek_tpl_put_char(rt, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c),
                           is_plain);
}

int ek_tpl_case(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                const struct ek_tpl_str *s, enum ek_tpl_case how)
{
    size_t at = ek_tpl_begin(rt);
    bool in_word = false;
    int rc = ek_tpl_step(rt, s->n / 8);
    for (size_t i = 0; !rc && i < s->n;) {
        uint32_t c;
        size_t len = ek_tpl_char(s, i, &c);
        bool is_plain = ek_tpl_plain_at(s, i);
        if (how == EK_TPL_UPPER || (how == EK_TPL_SWAPCASE && is_lower(c)))
            rc = put_upper(rt, c, is_plain);
        else if (how == EK_TPL_SWAPCASE && !is_upper(c))
            rc = ek_tpl_put_sub(rt, s, i, i + len);
        else if ((how == EK_TPL_TITLE && !in_word) ||
                 (how == EK_TPL_CAPITALIZE && i == 0))
            rc = put_title(rt, c, is_plain);
        else
            rc = put_lower(rt, s, i, c);
        in_word = is_cased(c);
        i += len;
    }
    if (!rc)
        rc = ek_tpl_end(rt, out, at);
    if (!rc)
        out->new_s->is_markup = s->is_markup;
    return rc;
}

/* True when there is a character and all are of the class. */
static int all_are(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                   bool (*is)(uint32_t))
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    int rc = ek_tpl_bind(rt, v, args, "");
    bool all = self->s->n > 0;
    for (size_t i = 0; all && i < self->s->n;) {
        uint32_t c;
        i += ek_tpl_char(self->s, i, &c);
        all = is(c);
    }
    *out = ek_tpl_bool(all);
    return rc ? rc : ek_tpl_step(rt, self->s->n / 8);
}

static bool is_decimal(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND;
}

/* Superscripts and subscripts are digits that are not decimal. */
static bool is_digit(uint32_t c)
{
    return is_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
           (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

static bool is_alpha(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static bool is_alnum(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return is_alpha(c) || (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

bool ek_tpl_is_word(uint32_t c)
{
    return c == '_' || is_alnum(c);
}

#define CLASS_METHOD(name, is)                                                         \
    int name(struct ek_tpl_rt *rt, struct ek_tpl_val *out,                             \
             const struct ek_tpl_val *self, const struct ek_tpl_args *args)            \
    {                                                                                  \
        return all_are(rt, out, self, args, is);                                       \
    }

CLASS_METHOD(ek_tpl_isdigit, is_digit)
CLASS_METHOD(ek_tpl_isdecimal, is_decimal)
CLASS_METHOD(ek_tpl_isalpha, is_alpha)
CLASS_METHOD(ek_tpl_isalnum, is_alnum)
CLASS_METHOD(ek_tpl_isspace, ek_tpl_is_space)

/* True when some character has case and all that do have the wanted one. */
static int one_case(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                    const struct ek_tpl_val *self, const struct ek_tpl_args *args,
                    utf8proc_category_t wanted)
{
    struct ek_tpl_val v[EK_TPL_PARAMS_MAX];
    int rc = ek_tpl_bind(rt, v, args, "");
    bool is_all = true, has_one = false;
    for (size_t i = 0; is_all && i < self->s->n;) {
        uint32_t c;
        i += ek_tpl_char(self->s, i, &c);
        if (is_cased(c)) {
            has_one = true;
            is_all = utf8proc_category((utf8proc_int32_t)c) == wanted;
        }
    }
    *out = ek_tpl_bool(is_all && has_one);
    return rc ? rc : ek_tpl_step(rt, self->s->n / 8);
}

int ek_tpl_isupper(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_val *self, const struct ek_tpl_args *args)
{
    return one_case(rt, out, self, args, UTF8PROC_CATEGORY_LU);
}

int ek_tpl_islower(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_val *self, const struct ek_tpl_args *args)
{
    return one_case(rt, out, self, args, UTF8PROC_CATEGORY_LL);
}
