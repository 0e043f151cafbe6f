/* modelfile_template.c - where the chat template of a model file lies. */
#include "base/mem.h"
#include "data/modelfile.h"

#include <string.h>

#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)

static int copy_source(char **source, size_t *n, const struct ek_modelfile *m,
                       const char *p, size_t len, struct ek_err *err)
{
    if (len > TEMPLATE_BYTES_MAX)
        return ek_err_set(err, EK_ELIMIT,
                          "%s: chat template of %zu bytes; expected at most %zu",
                          m->path, len, TEMPLATE_BYTES_MAX);
    char *copy = ek_strndup(p, len);
    if (!copy)
        return ek_err_set(err, EK_ENOMEM, "%s: out of memory", m->path);
    *source = copy;
    *n = len;
    return 0;
}

/* A list of {"name", "template"}: the entry named "default". */
static const json_t *find_default(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && !strcmp(name, "default"))
            return json_object_get(entry, "template");
    }
    return NULL;
}

static int from_config(char **source, size_t *n, const struct ek_modelfile *m,
                       struct ek_err *err)
{
    const json_t *t = json_object_get(m->tokenizer_config, "chat_template");
    if (!t || json_is_null(t))
        return EK_ENOENT;
    if (json_is_array(t))
        t = find_default(t);
    if (!json_is_string(t))
        return ek_err_set(err, EK_EFORMAT,
                          "%stokenizer_config.json: key 'chat_template': expected a "
                          "string, or a list with one named 'default'",
                          m->folder);
    return copy_source(source, n, m, json_string_value(t), json_string_length(t), err);
}

/* Appends chat_template.jinja; EK_ENOENT without a sentence when it is not there. */
static int read_jinja(struct ek_buf *text, const struct ek_modelfile *m,
                      struct ek_err *err)
{
    struct ek_buf path;
    struct ek_err e = EK_ERR_INIT;
    ek_buf_init(&path, strlen(m->folder) + 32);
    int rc = ek_buf_addf(&path, "%schat_template.jinja", m->folder);
    if (rc)
        ek_err_set(err, rc, "%s: %s", m->path, ek_status_text(rc));
    else
        rc = ek_file_read(text, path.data, &e);
    if (e.status && e.status != EK_ENOENT)
        ek_err_set(err, e.status, "%s", e.text);
    ek_buf_release(&path);
    return rc;
}

int ek_modelfile_template(char **source, size_t *n, const struct ek_modelfile *m,
                          struct ek_err *err)
{
    if (m->gguf) {
        struct ek_str s;
        int rc = ek_gguf_get_str(m->gguf, "tokenizer.chat_template", &s, err);
        return rc ? rc : copy_source(source, n, m, s.p, s.n, err);
    }
    struct ek_buf text;
    ek_buf_init(&text, TEMPLATE_BYTES_MAX);
    int rc = read_jinja(&text, m, err);
    if (!rc)
        rc = copy_source(source, n, m, text.len ? text.data : "", text.len, err);
    ek_buf_release(&text);
    return rc == EK_ENOENT ? from_config(source, n, m, err) : rc;
}
