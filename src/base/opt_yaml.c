/* The file is one mapping from option names to scalars, or to lists of scalars where
 * the option is a list. A verb's keys have dots, and each dot may be a mapping in a
 * mapping: "model.dim: 64" and "model: {dim: 64}" are the same. Read as events: no
 * tree, no anchors; the depth is that of the longest known section. */
#include "base/file.h"
#include "base/opt_int.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define MAX_FILE_BYTES (1 << 20) /* hand-written; a larger file is some other file */
#define WHERE_CAP      512

struct reader {
    struct ek_opt_parse *p;
    const char *path;
    yaml_parser_t parser;
    yaml_event_t event; /* zeroed when there is none to delete */
    bool *is_seen;      /* an option: its key was in this file */
};

static void put_where(char out[WHERE_CAP], const struct reader *r, const char *key)
{
    snprintf(out, WHERE_CAP, "%.300s:%zu:%zu%s%.100s", r->path,
             r->event.start_mark.line + 1, r->event.start_mark.column + 1,
             key ? ": " : "", key ? key : "");
}

static int refuse(const struct reader *r, const char *what)
{
    char where[WHERE_CAP];
    put_where(where, r, NULL);
    return ek_err_set(r->p->err, EK_EINVAL, "%s: %s", where, what);
}

static int parser_error(const struct reader *r)
{
    const yaml_parser_t *y = &r->parser;
    if (y->error == YAML_MEMORY_ERROR)
        return ek_err_set(r->p->err, EK_ENOMEM, "%s: out of memory", r->path);
    if (y->error == YAML_READER_ERROR)
        return ek_err_set(r->p->err, EK_EINVAL, "%s: byte %zu: %s", r->path,
                          y->problem_offset, y->problem);
    return ek_err_set(r->p->err, EK_EINVAL, "%s:%zu:%zu: %s%s%s", r->path,
                      y->problem_mark.line + 1, y->problem_mark.column + 1,
                      y->problem ? y->problem : "malformed YAML", y->context ? " " : "",
                      y->context ? y->context : "");
}

static int next_event(struct reader *r)
{
    yaml_event_delete(&r->event);
    memset(&r->event, 0, sizeof r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        memset(&r->event, 0, sizeof r->event);
        return parser_error(r);
    }
    if (r->event.type == YAML_ALIAS_EVENT)
        return refuse(r, "aliases (*name) are not supported, write the value out");
    return 0;
}

/* *out = the event's scalar as text that outlives the event. */
static int take_scalar(const struct reader *r, const char **out, const char *where)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return ek_err_set(
            r->p->err, EK_EINVAL, "%s: found a %s, expected one value", where,
            r->event.type == YAML_MAPPING_START_EVENT ? "mapping" : "list");
    const char *text = (const char *)r->event.data.scalar.value;
    size_t n = r->event.data.scalar.length;
    bool is_plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (is_plain && (n == 0 || !strcmp(text, "~") || !strcmp(text, "null")))
        return ek_err_set(r->p->err, EK_EINVAL,
                          "%s: has no value (write \"\" for empty text)", where);
    if (memchr(text, 0, n))
        return ek_err_set(r->p->err, EK_EINVAL, "%s: holds a NUL character", where);
    *out = ek_arena_strndup(r->p->arena, text, n);
    return *out ? 0 : ek_err_set(r->p->err, EK_ENOMEM, "%s: out of memory", where);
}

static int apply_scalar(struct reader *r, const struct ek_opt *opt)
{
    char where[WHERE_CAP], place[WHERE_CAP];
    const char *text = NULL;
    put_where(where, r, opt->name);
    put_where(place, r, NULL);
    int rc = take_scalar(r, &text, where);
    if (!rc)
        rc = ek_opt_apply(r->p, opt, text, where);
    return rc ? rc : ek_opt_set_place(r->p, opt, place);
}

static int apply_list(struct reader *r, const struct ek_opt *opt)
{
    ek_opt_empty_list(r->p, opt);
    for (;;) {
        int rc = next_event(r);
        if (rc || r->event.type == YAML_SEQUENCE_END_EVENT)
            return rc;
        rc = apply_scalar(r, opt);
        if (rc)
            return rc;
    }
}

static int read_mapping(struct reader *r, const char *section);

/* Room for one more: memory doubles, what was there is copied. *item is zeroed. */
static int grow(struct reader *r, const struct ek_opt *opt, struct ek_opt_items *list,
                char **item)
{
    size_t n = list->n;
    if ((n & (n - 1)) == 0) { /* 0, 1, 2, 4 ...: full */
        size_t cap = n ? 2 * n : 1;
        char *items = ek_arena_calloc(r->p->arena, cap, opt->item_size);
        const char **places = ek_arena_calloc(r->p->arena, cap, sizeof *places);
        if (!items || !places)
            return ek_err_set(r->p->err, EK_ENOMEM, "%s: out of memory", r->path);
        if (n) {
            memcpy(items, list->items, n * opt->item_size);
            memcpy(places, list->places, n * sizeof *places);
        }
        list->items = items;
        list->places = places;
    }
    *item = (char *)list->items + n * opt->item_size;
    return 0;
}

/* One mapping of a list: a parse of its own, by its own keys. */
static int apply_item(struct reader *r, const struct ek_opt *opt,
                      struct ek_opt_items *list)
{
    static const struct ek_opt none = {.name = NULL};
    struct ek_opt_parse *outer = r->p;
    bool *outer_seen = r->is_seen;
    size_t n_keys = ek_opt_count(opt->item_keys);
    char where[WHERE_CAP], *item;
    put_where(where, r, NULL);
    if (r->event.type != YAML_MAPPING_START_EVENT || list->n == EK_OPT_ITEMS_MAX)
        return ek_err_set(r->p->err, EK_EINVAL, "%s: %s: %s", where, opt->name,
                          list->n == EK_OPT_ITEMS_MAX ? "too many items"
                                                      : "expected `key: value` lines");
    int rc = grow(r, opt, list, &item);
    if (rc)
        return rc;
    const struct ek_opt_verb verb = {
        .name = outer->verb->name, .opts = &none, .keys = opt->item_keys};
    struct ek_opt_parse inner = {
        .verb = &verb,
        .settings = item,
        .arena = outer->arena,
        .err = outer->err,
        .layer = 1,
        .layer_of = ek_arena_calloc(outer->arena, n_keys + 1, sizeof(unsigned))};
    bool *seen = ek_arena_calloc(outer->arena, n_keys + 1, sizeof *seen);
    const char *place = ek_arena_strndup(outer->arena, where, strlen(where));
    if (!inner.layer_of || !seen || !place)
        return ek_err_set(outer->err, EK_ENOMEM, "%s: out of memory", where);
    list->places[list->n++] = place;
    ek_opt_apply_defaults(&inner);
    r->p = &inner;
    r->is_seen = seen;
    rc = read_mapping(r, "");
    r->p = outer;
    r->is_seen = outer_seen;
    return rc;
}

static int apply_items(struct reader *r, const struct ek_opt *opt)
{
    struct ek_opt_items list = {NULL, NULL, 0};
    char where[WHERE_CAP];
    put_where(where, r, NULL);
    if (r->event.type != YAML_SEQUENCE_START_EVENT)
        return ek_err_set(r->p->err, EK_EINVAL,
                          "%s: %s: expected a list (- key: value)", where, opt->name);
    int rc = ek_opt_set_place(r->p, opt, where);
    while (!rc) {
        rc = next_event(r);
        if (rc || r->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        rc = apply_item(r, opt, &list);
    }
    memcpy(r->p->settings + opt->offset, &list, sizeof list);
    return rc;
}

/* A section's mapping, or the error that there is none. */
static int apply_section(struct reader *r, const char *section)
{
    char where[WHERE_CAP];
    int rc = next_event(r);
    if (rc)
        return rc;
    if (r->event.type == YAML_MAPPING_START_EVENT)
        return read_mapping(r, section);
    put_where(where, r, NULL);
    return ek_err_set(r->p->err, EK_EINVAL,
                      "%s: %s is a section, expected `key: value` lines below it",
                      where, section);
}

static int apply_key(struct reader *r, const char *section)
{
    char where[WHERE_CAP], key[2 * EK_OPT_NAME_CAP + 2];
    const char *word = NULL;
    put_where(where, r, NULL);
    int rc = take_scalar(r, &word, where);
    if (rc)
        return rc;
    snprintf(key, sizeof key, "%s%s%.100s", section, *section ? "." : "", word);
    if (!ek_opt_find_in(r->p->verb->keys, key) && ek_opt_is_section(r->p->verb, key))
        return apply_section(r, key);
    const struct ek_opt *opt = ek_opt_key(r->p, key, where);
    if (!opt)
        return EK_EINVAL;
    bool *is_seen = &r->is_seen[ek_opt_index(r->p->verb, opt)];
    if (*is_seen)
        return ek_err_set(r->p->err, EK_EINVAL, "%s: key '%s' is there twice", where,
                          key);
    *is_seen = true;
    rc = next_event(r);
    if (rc)
        return rc;
    if (opt->type == EK_OPT_ITEMS)
        return apply_items(r, opt);
    if (opt->type == EK_OPT_LIST && r->event.type == YAML_SEQUENCE_START_EVENT)
        return apply_list(r, opt);
    return apply_scalar(r, opt);
}

/* Behind a mapping's start, to its end. */
static int read_mapping(struct reader *r, const char *section)
{
    for (;;) {
        int rc = next_event(r);
        if (rc || r->event.type == YAML_MAPPING_END_EVENT)
            return rc;
        rc = apply_key(r, section);
        if (rc)
            return rc;
    }
}

/* Between the start and the end of the one document. */
static int read_document(struct reader *r)
{
    int rc = next_event(r);
    if (rc)
        return rc;
    bool is_empty = r->event.type == YAML_SCALAR_EVENT &&
                    r->event.data.scalar.length == 0; /* comments only after "---" */
    if (is_empty)
        return next_event(r);
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return refuse(r, "expected `key: value` lines");
    rc = read_mapping(r, "");
    return rc ? rc : next_event(r); /* the document's end */
}

static int read_stream(struct reader *r)
{
    int rc = next_event(r); /* the stream's start */
    if (!rc)
        rc = next_event(r);
    if (rc || r->event.type == YAML_STREAM_END_EVENT)
        return rc;
    rc = read_document(r);
    if (!rc)
        rc = next_event(r);
    if (!rc && r->event.type != YAML_STREAM_END_EVENT)
        rc = refuse(r, "a second document, expected one");
    return rc;
}

int ek_opt_load_text(struct ek_opt_parse *p, const char *name, const char *text,
                     size_t n)
{
    struct reader r = {.p = p, .path = name};
    size_t n_opts = ek_opt_count(p->verb->opts) + ek_opt_count(p->verb->keys);
    r.is_seen = ek_arena_calloc(p->arena, n_opts + 1, sizeof *r.is_seen);
    if (!r.is_seen || !yaml_parser_initialize(&r.parser))
        return ek_err_set(p->err, EK_ENOMEM, "%s: out of memory", name);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
    int rc = read_stream(&r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return rc;
}

int ek_opt_load_yaml(struct ek_opt_parse *p, const char *path, const char *flag)
{
    struct ek_buf text;
    ek_buf_init(&text, MAX_FILE_BYTES);
    int rc = ek_file_read(&text, path, p->err);
    if (rc && flag)
        ek_err_prefix(p->err, "%s", flag);
    if (!rc)
        rc = ek_opt_load_text(p, path, text.data ? text.data : "", text.len);
    ek_buf_release(&text);
    return rc;
}
