/* probe_template.c - renders what Python asks for: one JSON object a line,
 *   {"source": "...", "vars": {...}, "trusted": [...], "now_us": n}
 * answered by {"text": ..., "plain": "0110..."} or {"status": ..., "error": ...}. */
#include "base/err.h"
#include "data/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRUSTED_MAX 16

static void list_trusted(const char *out[TRUSTED_MAX + 1], const json_t *names)
{
    size_t n = json_array_size(names);
    for (size_t i = 0; i < TRUSTED_MAX + 1; i++)
        out[i] = i < n && i < TRUSTED_MAX ? json_string_value(json_array_get(names, i))
                                          : NULL;
}

static json_t *answer(const json_t *ask)
{
    const json_t *source = json_object_get(ask, "source");
    const char *trusted[TRUSTED_MAX + 1];
    struct ek_template *t = NULL;
    struct ek_err err = EK_ERR_INIT;
    struct ek_buf text, plain;
    ek_buf_init(&text, 1u << 26);
    ek_buf_init(&plain, 1u << 26);
    list_trusted(trusted, json_object_get(ask, "trusted"));
    int rc = ek_template_parse(&t, json_string_value(source),
                               json_string_length(source), &err);
    if (!rc)
        rc = ek_template_render(t, &text, &plain, json_object_get(ask, "vars"), trusted,
                                json_integer_value(json_object_get(ask, "now_us")),
                                NULL, &err);
    json_t *out;
    if (rc) {
        out = json_pack("{s:s, s:s, s:b}", "status", ek_status_name(rc), "error",
                        err.text, "parsed", t != NULL);
    } else {
        for (size_t i = 0; i < plain.len; i++)
            plain.data[i] = (char)(plain.data[i] + '0');
        out = json_pack("{s:o, s:s%}", "text",
                        json_stringn(text.len ? text.data : "", text.len), "plain",
                        plain.len ? plain.data : "", plain.len);
    }
    ek_template_free(t);
    ek_buf_release(&text);
    ek_buf_release(&plain);
    return out;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        json_error_t error;
        json_t *ask = json_loadb(line, (size_t)n,
                                 JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
        json_t *out = ask ? answer(ask) : NULL;
        if (!out) {
            fprintf(stderr, "probe_template: %s\n", error.text);
            return 1;
        }
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(out);
        json_decref(ask);
    }
    free(line);
    return 0;
}
