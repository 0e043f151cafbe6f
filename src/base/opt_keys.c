/* Nested keys without a command line: a configuration that is kept beside what was made
 * with it, as JSON, which YAML's reader reads too. */
#include "base/json.h"
#include "base/opt_int.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

int ek_opt_keys_read(const struct ek_opt *keys, void *settings, const char *name,
                     const char *text, size_t n, struct ek_arena *arena,
                     struct ek_err *err)
{
    static const struct ek_opt none = {0};
    const struct ek_opt_verb verb = {.name = "train", .opts = &none, .keys = keys};
    struct ek_opt_parse p = {
        .verb = &verb,
        .settings = settings,
        .arena = arena,
        .err = err,
        .layer_of = ek_arena_calloc(arena, ek_opt_count(keys) + 1, sizeof(unsigned))};
    if (!p.layer_of)
        return ek_err_set(err, EK_ENOMEM, "%s: out of memory", name);
    ek_opt_apply_defaults(&p);
    p.layer++;
    return ek_opt_load_text(&p, name, text, n);
}

static int add_text(struct ek_buf *out, const char *s)
{
    return ek_json_add_str(out, s ? s : "", s ? strlen(s) : 0);
}

static int add_choice(struct ek_buf *out, const char *choices, int index)
{
    const char *p = choices;
    for (int i = 0; i < index; i++)
        p = strchr(p, '|') + 1;
    return ek_json_add_str(out, p, strcspn(p, "|"));
}

static int add_list(struct ek_buf *out, const struct ek_opt_list *list)
{
    int rc = ek_buf_add_char(out, '[');
    for (size_t i = 0; i < list->n && !rc; i++) {
        if (i)
            rc = ek_buf_add_str(out, ", ");
        if (!rc)
            rc = add_text(out, list->items[i]);
    }
    return rc ? rc : ek_buf_add_char(out, ']');
}

/* Milliseconds need their unit to be read back. */
static int add_whole(struct ek_buf *out, const struct ek_opt *opt, int64_t whole)
{
    if (opt->type == EK_OPT_MS)
        return ek_buf_addf(out, "\"%" PRId64 "ms\"", whole);
    return ek_buf_addf(out, "%" PRId64, whole);
}

static int add_items(struct ek_buf *out, const struct ek_opt *opt,
                     const struct ek_opt_items *list)
{
    int rc = ek_buf_add_char(out, '[');
    for (size_t i = 0; !rc && i < list->n; i++) {
        const char *item = (const char *)list->items + i * opt->item_size;
        rc = ek_buf_add_str(out, i ? ", {" : "{");
        for (const struct ek_opt *o = opt->item_keys; !rc && o->name; o++) {
            rc = ek_buf_addf(out, "%s\"%s\": ", o == opt->item_keys ? "" : ", ",
                             o->name);
            if (!rc)
                rc = ek_opt_value_json(out, o, item);
        }
        if (!rc)
            rc = ek_buf_add_char(out, '}');
    }
    return rc ? rc : ek_buf_add_char(out, ']');
}

int ek_opt_value_json(struct ek_buf *out, const struct ek_opt *opt,
                      const void *settings)
{
    const char *member = (const char *)settings + opt->offset;
    int64_t whole;
    double real;
    bool is_on;
    int index;
    const char *text;
    struct ek_opt_list list;
    struct ek_opt_items items;
    switch (opt->type) {
    case EK_OPT_INT:
    case EK_OPT_BYTES:
    case EK_OPT_MS:
        memcpy(&whole, member, sizeof whole);
        return add_whole(out, opt, whole);
    case EK_OPT_REAL:
        memcpy(&real, member, sizeof real);
        return ek_json_add_double(out, real);
    case EK_OPT_FLAG:
        memcpy(&is_on, member, sizeof is_on);
        return ek_buf_add_str(out, is_on ? "true" : "false");
    case EK_OPT_CHOICE:
        memcpy(&index, member, sizeof index);
        return add_choice(out, opt->choices, index);
    case EK_OPT_STR:
        memcpy(&text, member, sizeof text);
        return add_text(out, text);
    case EK_OPT_LIST:
        memcpy(&list, member, sizeof list);
        return add_list(out, &list);
    case EK_OPT_ITEMS:
        memcpy(&items, member, sizeof items);
        return add_items(out, opt, &items);
    }
    assert(!"an option type that is not in the table");
    return EK_EINVAL;
}

/* Bytes of the name before its first dot; sections are one deep here. */
static size_t section_of(const char *name)
{
    return strcspn(name, ".");
}

static bool is_same_section(const struct ek_opt *a, const struct ek_opt *b)
{
    size_t n = section_of(a->name);
    return n == section_of(b->name) && !memcmp(a->name, b->name, n);
}

int ek_opt_keys_json(struct ek_buf *out, const struct ek_opt *keys,
                     const void *settings)
{
    int rc = ek_buf_add_char(out, '{');
    for (const struct ek_opt *o = keys; o->name && !rc; o++) {
        size_t n = section_of(o->name);
        bool is_first = o == keys || !is_same_section(o - 1, o);
        assert(o->name[n] == '.'); /* every key is in a section */
        if (is_first)
            rc = ek_buf_addf(out, "%s\"%.*s\": {", o == keys ? "" : "}, ", (int)n,
                             o->name);
        if (!rc)
            rc = ek_buf_addf(out, "%s\"%s\": ", is_first ? "" : ", ", o->name + n + 1);
        if (!rc)
            rc = ek_opt_value_json(out, o, settings);
    }
    return rc ? rc : ek_buf_add_str(out, keys->name ? "}}" : "}");
}

static bool is_same_text(const char *a, const char *b)
{
    return !strcmp(a ? a : "", b ? b : "");
}

static bool is_same_list(const struct ek_opt_list *a, const struct ek_opt_list *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        if (!is_same_text(a->items[i], b->items[i]))
            return false;
    }
    return true;
}

static bool are_same_items(const struct ek_opt *o, const struct ek_opt_items *a,
                           const struct ek_opt_items *b)
{
    const char *x = a->items, *y = b->items;
    for (size_t i = 0; a->n == b->n && i < a->n; i++) {
        if (ek_opt_keys_differ(o->item_keys, x + i * o->item_size, y + i * o->item_size,
                               NULL, 0))
            return false;
    }
    return a->n == b->n;
}

static bool is_same(const struct ek_opt *o, const char *a, const char *b)
{
    struct ek_opt_list la, lb;
    struct ek_opt_items ia, ib;
    const char *ta, *tb;
    a += o->offset;
    b += o->offset;
    switch (o->type) {
    case EK_OPT_FLAG:
        return !memcmp(a, b, sizeof(bool));
    case EK_OPT_CHOICE:
        return !memcmp(a, b, sizeof(int));
    case EK_OPT_STR:
        memcpy(&ta, a, sizeof ta);
        memcpy(&tb, b, sizeof tb);
        return is_same_text(ta, tb);
    case EK_OPT_LIST:
        memcpy(&la, a, sizeof la);
        memcpy(&lb, b, sizeof lb);
        return is_same_list(&la, &lb);
    case EK_OPT_ITEMS:
        memcpy(&ia, a, sizeof ia);
        memcpy(&ib, b, sizeof ib);
        return are_same_items(o, &ia, &ib);
    default: /* int64_t or double */
        return !memcmp(a, b, sizeof(int64_t));
    }
}

const struct ek_opt *ek_opt_keys_differ(const struct ek_opt *keys, const void *a,
                                        const void *b, const char *const *but,
                                        size_t n_but)
{
    for (const struct ek_opt *o = keys; o->name; o++) {
        bool is_free = false;
        for (size_t i = 0; i < n_but; i++)
            is_free |= !strcmp(but[i], o->name);
        if (!is_free && !is_same(o, a, b))
            return o;
    }
    return NULL;
}
