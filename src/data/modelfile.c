#include "data/modelfile.h"

#include "base/mem.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#define JSON_BYTES_MAX (16 << 20)

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static bool is_there(const char *path)
{
    struct stat st;
    return !stat(path, &st);
}

/* a and b joined (ek_free), or NULL. */
static char *join(const char *a, size_t n, const char *b)
{
    struct ek_buf text;
    ek_buf_init(&text, n + strlen(b) + 1);
    if (ek_buf_add(&text, a, n) || ek_buf_add_str(&text, b)) {
        ek_buf_release(&text);
        return NULL;
    }
    return ek_buf_take(&text, NULL);
}

static int out_of_memory(const struct ek_modelfile *m, struct ek_err *err)
{
    return ek_err_set(err, EK_ENOMEM, "%s: out of memory", m->path);
}

/* A missing file leaves *out NULL. The root must be an object. */
static int read_json(json_t **out, const struct ek_modelfile *m, const char *name,
                     struct ek_err *err)
{
    static const struct ek_json_limits limits = {JSON_BYTES_MAX, 0, 0};
    struct ek_buf text;
    ek_buf_init(&text, JSON_BYTES_MAX);
    char *path = join(m->folder, strlen(m->folder), name);
    json_t *root = NULL;
    int rc = path ? 0 : out_of_memory(m, err);
    if (rc || !is_there(path))
        goto out;
    rc = ek_file_read(&text, path, err);
    if (rc)
        goto out;
    rc = ek_json_parse(&root, text.len ? text.data : "", text.len, &limits, err);
    if (rc) {
        ek_err_prefix(err, "%s", path);
        goto out;
    }
    if (!json_is_object(root)) {
        json_decref(root);
        rc = ek_err_set(err, EK_EFORMAT, "%s: expected a JSON object", path);
        goto out;
    }
    *out = root;
out:
    ek_buf_release(&text);
    ek_free(path);
    return rc;
}

static int read_configs(struct ek_modelfile *m, struct ek_err *err)
{
    int rc = read_json(&m->config, m, "config.json", err);
    if (!rc)
        rc = read_json(&m->generation, m, "generation_config.json", err);
    if (!rc)
        rc = read_json(&m->tokenizer_config, m, "tokenizer_config.json", err);
    return rc;
}

static int open_shards(struct ek_modelfile *m, const char *path, struct ek_err *err)
{
    int rc = ek_safetensors_open(&m->shards, path, err);
    if (!rc)
        m->tensors = ek_safetensors_tensors(m->shards);
    return rc;
}

static int open_folder(struct ek_modelfile *m, struct ek_err *err)
{
    static const char *const names[] = {"model.safetensors.index.json",
                                        "model.safetensors"};
    size_t n = strlen(m->path);
    m->folder = join(m->path, n, ends_with(m->path, "/") ? "" : "/");
    if (!m->folder)
        return out_of_memory(m, err);
    int rc = read_configs(m, err);
    if (rc)
        return rc;
    if (!m->config)
        return ek_err_set(err, EK_ENOENT,
                          "%s: no config.json in this folder; expected a Hugging Face "
                          "model folder or a GGUF file",
                          m->path);
    for (size_t i = 0; i < 2; i++) {
        char *path = join(m->folder, strlen(m->folder), names[i]);
        if (!path)
            return out_of_memory(m, err);
        bool is_found = is_there(path);
        rc = is_found ? open_shards(m, path, err) : 0;
        ek_free(path);
        if (is_found)
            return rc;
    }
    return ek_err_set(err, EK_ENOENT,
                      "%s: no weights in this folder; expected %s or %s", m->path,
                      names[0], names[1]);
}

static int open_safetensors(struct ek_modelfile *m, struct ek_err *err)
{
    const char *slash = strrchr(m->path, '/');
    m->folder = ek_strndup(m->path, slash ? (size_t)(slash + 1 - m->path) : 0);
    if (!m->folder)
        return out_of_memory(m, err);
    int rc = read_configs(m, err);
    return rc ? rc : open_shards(m, m->path, err);
}

static int open_gguf(struct ek_modelfile *m, struct ek_err *err)
{
    m->folder = ek_strndup("", 0);
    if (!m->folder)
        return out_of_memory(m, err);
    int rc = ek_gguf_open(&m->gguf, m->path, err);
    if (!rc)
        m->tensors = ek_gguf_tensors(m->gguf);
    return rc;
}

int ek_modelfile_open(struct ek_modelfile *m, const char *path, struct ek_err *err)
{
    *m = (struct ek_modelfile){0};
    m->path = ek_strndup(path, strlen(path));
    if (!m->path)
        return ek_err_set(err, EK_ENOMEM, "%s: out of memory", path);
    int rc;
    if (is_folder(path))
        rc = open_folder(m, err);
    else if (ends_with(path, ".safetensors") || ends_with(path, ".index.json"))
        rc = open_safetensors(m, err);
    else
        rc = open_gguf(m, err);
    if (rc)
        ek_modelfile_close(m);
    return rc;
}

void ek_modelfile_close(struct ek_modelfile *m)
{
    ek_gguf_free(m->gguf);
    ek_safetensors_free(m->shards);
    json_decref(m->config);
    json_decref(m->generation);
    json_decref(m->tokenizer_config);
    ek_free(m->folder);
    ek_free(m->path);
    *m = (struct ek_modelfile){0};
}

void ek_modelfile_forget(const struct ek_modelfile *m)
{
    if (m->gguf)
        ek_gguf_forget(m->gguf);
    if (m->shards)
        ek_safetensors_forget(m->shards);
}

const struct ek_tensor *ek_modelfile_tensor(const struct ek_modelfile *m,
                                            const char *name)
{
    return ek_tensors_find(m->tensors, name);
}
