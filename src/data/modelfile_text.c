/* modelfile_text.c - the parts of a model file that are about text: its tokenizer and
 * its chat template, from either layout. */
#include "base/mem.h"
#include "data/modelfile.h"

#include <string.h>

#define TOKENIZER_BYTES_MAX ((size_t)128 << 20)

/* Appends folder/name. A missing file is EK_ENOENT without a sentence. */
static int read_text(struct ek_buf *out, const struct ek_modelfile *m, const char *name,
                     struct ek_err *err)
{
    struct ek_buf path;
    ek_buf_init(&path, strlen(m->folder) + strlen(name));
    int rc = ek_buf_addf(&path, "%s%s", m->folder, name);
    if (rc) {
        rc = ek_err_set(err, rc, "%s: %s", m->path, ek_status_text(rc));
        goto out;
    }
    struct ek_err e = EK_ERR_INIT;
    rc = ek_file_read(out, path.data, &e);
    if (rc && rc != EK_ENOENT)
        ek_err_set(err, rc, "%s", e.text);
out:
    ek_buf_release(&path);
    return rc;
}

static int tokenizer_from_folder(struct ek_tokenizer **t, const struct ek_modelfile *m,
                                 struct ek_err *err)
{
    struct ek_buf json, config;
    ek_buf_init(&json, TOKENIZER_BYTES_MAX);
    ek_buf_init(&config, TOKENIZER_BYTES_MAX);
    int rc = read_text(&json, m, "tokenizer.json", err);
    if (rc == EK_ENOENT)
        rc = ek_err_set(err, rc, "%stokenizer.json: not found; expected the tokenizer",
                        m->folder);
    if (rc)
        goto out;
    rc = read_text(&config, m, "tokenizer_config.json", err);
    if (rc && rc != EK_ENOENT)
        goto out;
    struct ek_buf name;
    ek_buf_init(&name, strlen(m->folder) + 32);
    rc = ek_buf_addf(&name, "%stokenizer.json", m->folder);
    if (rc)
        ek_err_set(err, rc, "%s: %s", m->path, ek_status_text(rc));
    else
        rc = ek_tokenizer_from_json(t, json.data ? json.data : "", json.len,
                                    config.len ? config.data : NULL, config.len,
                                    name.data, err);
    ek_buf_release(&name);
out:
    ek_buf_release(&json);
    ek_buf_release(&config);
    return rc;
}

int ek_modelfile_tokenizer(struct ek_tokenizer **t, const struct ek_modelfile *m,
                           struct ek_err *err)
{
    if (m->gguf)
        return ek_tokenizer_from_gguf(t, m->gguf, err);
    return tokenizer_from_folder(t, m, err);
}
