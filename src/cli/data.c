#include "cli/data.h"

#include "base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int add_columns(struct ek_buf *out, const struct ek_events *e, bool is_json)
{
    int rc = is_json ? ek_buf_add_str(out, ", \"columns\": [") : 0;
    for (int i = 0; i < e->n_columns && !rc; i++) {
        const struct ek_column *c = &e->columns[i];
        const char *of = c->of == EK_COLUMN_USER ? "user" : "event";
        const char *kind = c->kind == EK_COLUMN_NUMERIC ? "numeric" : "category";
        if (!is_json) {
            rc =
                ek_buf_addf(out, "column        %s: %s of the %s\n", c->name, kind, of);
            continue;
        }
        rc = ek_buf_add_str(out, i ? ", {\"name\": " : "{\"name\": ");
        if (!rc)
            rc = ek_json_add_str(out, c->name, strlen(c->name));
        if (!rc)
            rc = ek_buf_addf(
                out, ", \"of\": \"%s\", \"kind\": \"%s\", \"levels\": %" PRId64 "}", of,
                kind, c->names.n);
    }
    return rc || !is_json ? rc : ek_buf_add_char(out, ']');
}

int ek_data_add_counts(struct ek_buf *out, const struct ek_events *e, bool is_json)
{
    int rc;
    if (is_json) {
        rc = ek_buf_add_str(out, "\"source\": ");
        if (!rc)
            rc = ek_json_add_str(out, e->source, strlen(e->source));
        if (!rc)
            rc = ek_buf_addf(out,
                             ", \"users\": %" PRId64 ", \"items\": %" PRId64
                             ", \"events\": %" PRId64 ", \"has_times\": %s",
                             e->n_users, e->n_items, e->n, e->times ? "true" : "false");
    } else {
        rc = ek_buf_addf(out,
                         "source        %s\nusers         %" PRId64
                         "\nitems         %" PRId64 "\nevents        %" PRId64
                         "\ntimes         %s\n",
                         e->source, e->n_users, e->n_items, e->n,
                         e->times ? "yes" : "none: the order of the file");
    }
    return rc ? rc : add_columns(out, e, is_json);
}

int ek_data_print(const struct ek_verb *verb, const struct ek_buf *text, int rc)
{
    struct ek_err err = EK_ERR_INIT;
    if (!rc &&
        (fwrite(text->data, 1, text->len, stdout) != text->len || fflush(stdout)))
        rc = EK_EIO;
    if (!rc)
        return EK_EXIT_OK;
    ek_err_set(&err, rc, "standard output: %s", ek_status_text(rc));
    return ek_verb_fail(verb, &err, false);
}
