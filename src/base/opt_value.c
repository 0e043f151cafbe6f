#include "base/file.h"
#include "base/opt_int.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name;
    int64_t factor;
};

/* "" stands for a bare number; the first unit is what messages count in. */
static const struct unit byte_units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", INT64_C(1) << 10},
    {"MiB", INT64_C(1) << 20},
    {"GiB", INT64_C(1) << 30},
    {"TiB", INT64_C(1) << 40},
    {"kB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", INT64_C(1000000000000)},
    {NULL, 0},
};

/* No bare number: "30" is as often meant in seconds as in milliseconds. */
static const struct unit time_units[] = {
    {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}, {NULL, 0},
};

static const char *format_ms(char out[32], double ms)
{
    size_t best = 0;
    for (size_t i = 1; time_units[i].name; i++) {
        if (ms > 0 && fmod(ms, (double)time_units[i].factor) == 0.0)
            best = i;
    }
    snprintf(out, 32, "%.0f%s", ms / (double)time_units[best].factor,
             time_units[best].name);
    return out;
}

static const char *format_bound(char out[32], const struct ek_opt *opt, double v)
{
    if (opt->type == EK_OPT_BYTES)
        return ek_format_bytes(out, (uint64_t)v);
    if (opt->type == EK_OPT_MS)
        return format_ms(out, v);
    snprintf(out, 32, opt->type == EK_OPT_INT ? "%.0f" : "%g", v);
    return out;
}

/* Bounds this large are "none" for a person. */
static bool is_huge(double v)
{
    return fabs(v) >= 0x1p62;
}

bool ek_opt_range(char out[128], const struct ek_opt *opt)
{
    bool is_number = opt->type == EK_OPT_INT || opt->type == EK_OPT_REAL ||
                     opt->type == EK_OPT_BYTES || opt->type == EK_OPT_MS;
    if (!is_number || (opt->min == 0.0 && opt->max == 0.0))
        return false;
    char lo[32], hi[32];
    if (is_huge(opt->min) && is_huge(opt->max))
        return false;
    if (is_huge(opt->max))
        snprintf(out, 128, "at least %s", format_bound(lo, opt, opt->min));
    else if (is_huge(opt->min))
        snprintf(out, 128, "at most %s", format_bound(hi, opt, opt->max));
    else
        snprintf(out, 128, "%s to %s", format_bound(lo, opt, opt->min),
                 format_bound(hi, opt, opt->max));
    return true;
}

/* "fp8|bf16|f32" -> "fp8, bf16 or f32" */
static void list_choices(char *out, size_t cap, const char *choices)
{
    size_t at = 0;
    const char *last = strrchr(choices, '|');
    for (const char *p = choices; *p && at + 5 < cap; p++) {
        if (*p != '|') {
            out[at++] = *p;
            continue;
        }
        const char *join = p == last ? " or " : ", ";
        memcpy(out + at, join, strlen(join));
        at += strlen(join);
    }
    out[at] = 0;
}

const char *ek_opt_expected(char out[256], const struct ek_opt *opt)
{
    const char *what = "text";
    char choices[250], range[128];
    switch (opt->type) {
    case EK_OPT_FLAG:
        what = "true or false";
        break;
    case EK_OPT_INT:
        what = "a whole number";
        break;
    case EK_OPT_REAL:
        what = "a number";
        break;
    case EK_OPT_BYTES:
        what = "a size such as 512MiB, 4GiB or 1000000";
        break;
    case EK_OPT_MS:
        what = "a duration such as 250ms, 30s or 5min";
        break;
    case EK_OPT_CHOICE:
        list_choices(choices, sizeof choices, opt->choices);
        what = choices;
        break;
    case EK_OPT_ITEMS:
        what = "a list of mappings (- key: value), in a file";
        break;
    case EK_OPT_STR:
    case EK_OPT_LIST:
        what = opt->value ? opt->value : what;
        break;
    }
    if (ek_opt_range(range, opt))
        snprintf(out, 256, "%.120s, %s", what, range);
    else
        snprintf(out, 256, "%s", what);
    return out;
}

static bool parse_int(int64_t *out, const char *text)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (!*digits || strspn(digits, "0123456789") != strlen(digits))
        return false;
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    if (errno)
        return false;
    *out = v;
    return true;
}

/* Decimal only: strtod would also take hexadecimal, "inf" and "nan". */
static bool parse_real(double *out, const char *text)
{
    if (!*text || strspn(text, "0123456789+-.eE") != strlen(text))
        return false;
    char *end;
    double v = strtod(text, &end);
    if (*end || !isfinite(v))
        return false;
    *out = v;
    return true;
}

/* A number and a unit, with a space between or none: exact for whole numbers, rounded
 * down for fractions ("1.5GiB"). */
static bool parse_scaled(int64_t *out, const char *text, const struct unit *units)
{
    size_t n = strspn(text, "0123456789."), n_digits = strspn(text, "0123456789");
    char number[32];
    if (n == 0 || n >= sizeof number)
        return false;
    memcpy(number, text, n);
    number[n] = 0;
    const char *name = text + n + (text[n] == ' ');
    while (units->name && strcasecmp(units->name, name) != 0)
        units++;
    int64_t whole = 0;
    double v = 0.0;
    bool is_whole = n == n_digits;
    if (is_whole ? !parse_int(&whole, number) : !parse_real(&v, number))
        return false;
    if (is_whole && whole == 0 && !*name) /* nothing needs no unit */
        return *out = 0, true;
    if (!units->name)
        return false;
    if (is_whole)
        return !__builtin_mul_overflow(whole, units->factor, out);
    v *= (double)units->factor;
    if (v >= 0x1p63)
        return false;
    *out = (int64_t)v;
    return true;
}

bool ek_opt_read_ms(int64_t *ms, const char *text)
{
    return parse_scaled(ms, text, time_units);
}

static bool parse_flag(bool *out, const char *text)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!strcasecmp(words[i], text)) {
            *out = i % 2;
            return true;
        }
    }
    return false;
}

static bool parse_choice(int *out, const char *text, const char *choices)
{
    size_t n = strlen(text);
    int index = 0;
    for (const char *p = choices;; index++) {
        size_t len = strcspn(p, "|");
        if (len == n && !memcmp(p, text, n)) {
            *out = index;
            return true;
        }
        if (!p[len])
            return false;
        p += len + 1;
    }
}

/* Room for one item more is made when n is 0 or a power of two. */
static int add_item(struct ek_opt_list *list, const char *text, struct ek_arena *arena)
{
    size_t n = list->n;
    if ((n & (n - 1)) == 0) {
        const char **items = ek_arena_calloc(arena, n ? 2 * n : 1, sizeof *items);
        if (!items)
            return EK_ENOMEM;
        if (n)
            memcpy(items, list->items, n * sizeof *items);
        list->items = items;
    }
    list->items[list->n++] = text;
    return 0;
}

static int refuse(const struct ek_opt_parse *p, const struct ek_opt *opt,
                  const char *text, const char *where, const char *what)
{
    char expected[256];
    return ek_err_set(p->err, EK_EINVAL, "%s: '%.200s' is %s, expected %s", where, text,
                      what, ek_opt_expected(expected, opt));
}

static bool is_within(const struct ek_opt *opt, double v)
{
    return (opt->min == 0.0 && opt->max == 0.0) || (v >= opt->min && v <= opt->max);
}

static int store_number(const struct ek_opt_parse *p, const struct ek_opt *opt,
                        const char *text, const char *where)
{
    int64_t whole = 0;
    double real = 0.0;
    bool is_good = opt->type == EK_OPT_INT     ? parse_int(&whole, text)
                   : opt->type == EK_OPT_REAL  ? parse_real(&real, text)
                   : opt->type == EK_OPT_BYTES ? parse_scaled(&whole, text, byte_units)
                                               : parse_scaled(&whole, text, time_units);
    if (!is_good)
        return refuse(p, opt, text, where, "not understood");
    if (!is_within(opt, opt->type == EK_OPT_REAL ? real : (double)whole))
        return refuse(p, opt, text, where, "out of range");
    if (opt->type == EK_OPT_REAL)
        memcpy(p->settings + opt->offset, &real, sizeof real);
    else
        memcpy(p->settings + opt->offset, &whole, sizeof whole);
    return 0;
}

int ek_opt_store(const struct ek_opt_parse *p, const struct ek_opt *opt,
                 const char *text, const char *where)
{
    char *member = p->settings + opt->offset;
    bool is_on;
    int index;
    struct ek_opt_list list;
    switch (opt->type) {
    case EK_OPT_INT:
    case EK_OPT_REAL:
    case EK_OPT_BYTES:
    case EK_OPT_MS:
        return store_number(p, opt, text, where);
    case EK_OPT_FLAG:
        if (!parse_flag(&is_on, text))
            return refuse(p, opt, text, where, "not understood");
        memcpy(member, &is_on, sizeof is_on);
        return 0;
    case EK_OPT_CHOICE:
        if (!parse_choice(&index, text, opt->choices))
            return refuse(p, opt, text, where, "not known");
        memcpy(member, &index, sizeof index);
        return 0;
    case EK_OPT_STR:
        memcpy(member, &text, sizeof text);
        return 0;
    case EK_OPT_LIST:
        memcpy(&list, member, sizeof list);
        if (add_item(&list, text, p->arena))
            return ek_err_set(p->err, EK_ENOMEM, "%s: out of memory", where);
        memcpy(member, &list, sizeof list);
        return 0;
    case EK_OPT_ITEMS:
        return refuse(p, opt, text, where, "not understood");
    }
    assert(!"an option type that is not in the table");
    return EK_EINVAL;
}
