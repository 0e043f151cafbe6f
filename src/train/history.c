#include "train/history.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES (1 << 20)
#define DEPTH      4 /* of objects in a line */

/* Doubles *items when all cap of them are in use. */
static int grow(void **items, size_t *cap, size_t n, size_t size)
{
    if (n < *cap)
        return 0;
    size_t more = *cap ? 2 * *cap : 8;
    void *p = ek_realloc_array(*items, more, size);
    if (!p)
        return EK_ENOMEM;
    *items = p;
    *cap = more;
    return 0;
}

static int find_or_add(struct ek_history_curve **out, struct ek_history *h,
                       const char *name)
{
    *out = NULL;
    for (size_t i = 0; i < h->n_curves && !*out; i++) {
        if (!strcmp(h->curves[i].name, name))
            *out = &h->curves[i];
    }
    if (*out || h->n_curves == EK_HISTORY_CURVES)
        return 0;
    void *items = h->curves;
    int rc = grow(&items, &h->cap_curves, h->n_curves, sizeof *h->curves);
    h->curves = items;
    if (rc)
        return rc;
    *out = &h->curves[h->n_curves++];
    **out = (struct ek_history_curve){.points = NULL};
    snprintf((*out)->name, sizeof(*out)->name, "%s", name);
    return 0;
}

static int add_point(struct ek_history *h, const char *name, int64_t step, double value)
{
    struct ek_history_curve *c;
    int rc = find_or_add(&c, h, name);
    if (rc || !c)
        return rc;
    while (c->n && c->points[c->n - 1].step >= step)
        c->n--;
    void *items = c->points;
    rc = grow(&items, &c->cap, c->n, sizeof *c->points);
    c->points = items;
    if (!rc)
        c->points[c->n++] = (struct ek_history_point){step, value};
    return rc;
}

/* The last line of its kind stands. */
static int add_final(struct ek_history *h, const char *name, double value)
{
    size_t i = 0;
    while (i < h->n_finals && strcmp(h->finals[i].name, name) != 0)
        i++;
    if (i == EK_HISTORY_CURVES)
        return 0;
    void *items = h->finals;
    int rc = grow(&items, &h->cap_finals, i, sizeof *h->finals);
    h->finals = items;
    if (rc)
        return rc;
    snprintf(h->finals[i].name, sizeof h->finals[i].name, "%s", name);
    h->finals[i].value = value;
    h->n_finals += i == h->n_finals;
    return 0;
}

/* prefix: of their names. Objects nest at most DEPTH deep: the parser saw to that. */
static int add_numbers(struct ek_history *h, json_t *o, const char *prefix,
                       int64_t step)
{
    const char *key;
    json_t *v;
    int rc = 0;
    json_object_foreach(o, key, v)
    {
        char name[EK_HISTORY_NAME];
        bool is_rule = !strcmp(key, "filtered") && json_is_object(v);
        int n = snprintf(name, sizeof name, "%s%s%s", prefix, is_rule ? "" : key,
                         json_is_object(v) && !is_rule ? "/" : "");
        if (rc || !strcmp(key, "step") || n < 0 || (size_t)n >= sizeof name)
            continue;
        if (json_is_number(v))
            rc = add_point(h, name, step, json_number_value(v));
        if (json_is_object(v))
            rc = add_numbers(h, v, name, step);
    }
    return rc;
}

static int add_tests(struct ek_history *h, json_t *o)
{
    const char *key;
    json_t *v;
    int rc = 0;
    json_object_foreach(o, key, v)
    {
        if (!rc && json_is_number(v))
            rc = add_final(h, key, json_number_value(v));
    }
    return rc;
}

static int add_line(struct ek_history *h, const char *text, size_t n, const char *name,
                    int64_t number, struct ek_err *err)
{
    const struct ek_json_limits limits = {LINE_BYTES, 10000, DEPTH + 1};
    json_t *o = NULL;
    int rc = ek_json_parse(&o, text, n, &limits, err);
    if (!rc && !json_is_object(o))
        rc = ek_err_set(err, EK_EFORMAT, "is no JSON object");
    if (rc) {
        ek_err_prefix(err, "%s:%" PRId64, name, number);
        goto out;
    }
    const json_t *step = json_object_get(o, "step");
    const char *kind = json_string_value(json_object_get(o, "kind"));
    bool is_valid = kind && !strcmp(kind, "valid");
    bool is_end = (kind && !strcmp(kind, "end")) || json_object_get(o, "test");
    if (is_end)
        rc = add_tests(h, json_object_get(o, "test"));
    else if (json_is_integer(step) && json_integer_value(step) >= 0)
        rc = add_numbers(h, o, is_valid ? "valid/" : "", json_integer_value(step));
    if (rc)
        ek_err_set(err, rc, "%s:%" PRId64 ": %s", name, number, ek_status_text(rc));
out:
    json_decref(o);
    return rc;
}

int ek_history_parse(struct ek_history *h, const char *text, size_t n, const char *name,
                     struct ek_err *err)
{
    int rc = 0;
    int64_t number = 0;
    *h = (struct ek_history){0};
    while (n && !rc) {
        const char *end = memchr(text, '\n', n);
        if (!end)
            break;
        size_t length = (size_t)(end - text);
        number++;
        if (length)
            rc = add_line(h, text, length, name, number, err);
        text += length + 1;
        n -= length + 1;
    }
    if (rc)
        ek_history_release(h);
    return rc;
}

int ek_history_read(struct ek_history *h, const char *path, struct ek_err *err)
{
    struct ek_file file = {0};
    int rc = ek_file_open(&file, path, err);
    if (rc)
        return rc;
    rc = ek_history_parse(h, (const char *)file.data, file.size, path, err);
    ek_file_close(&file);
    return rc;
}

void ek_history_release(struct ek_history *h)
{
    for (size_t i = 0; i < h->n_curves; i++)
        ek_free(h->curves[i].points);
    ek_free(h->curves);
    ek_free(h->finals);
    *h = (struct ek_history){0};
}

const struct ek_history_curve *ek_history_find(const struct ek_history *h,
                                               const char *name)
{
    for (size_t i = 0; i < h->n_curves; i++) {
        if (!strcmp(h->curves[i].name, name))
            return &h->curves[i];
    }
    return NULL;
}
