#include "data/safetensors.h"

#include "base/mem.h"
#include "data/safetensors_int.h"

#include <string.h>

static const struct {
    const char *word;
    enum ek_dtype dtype;
} words[] = {
    {"F64", EK_DTYPE_F64},      {"F32", EK_DTYPE_F32},      {"F16", EK_DTYPE_F16},
    {"BF16", EK_DTYPE_BF16},    {"F8_E4M3", EK_DTYPE_E4M3}, {"F8_E5M2", EK_DTYPE_E5M2},
    {"F8_E8M0", EK_DTYPE_E8M0}, {"I64", EK_DTYPE_I64},      {"I32", EK_DTYPE_I32},
    {"I16", EK_DTYPE_I16},      {"I8", EK_DTYPE_I8},        {"U8", EK_DTYPE_U8},
    {"BOOL", EK_DTYPE_BOOL},
};
#define N_WORDS (sizeof words / sizeof words[0])

bool ek_safetensors_dtype(enum ek_dtype *t, const char *word)
{
    for (size_t i = 0; i < N_WORDS; i++) {
        if (!strcmp(words[i].word, word)) {
            *t = words[i].dtype;
            return true;
        }
    }
    return false;
}

const char *ek_safetensors_word(enum ek_dtype t)
{
    for (size_t i = 0; i < N_WORDS; i++) {
        if (words[i].dtype == t)
            return words[i].word;
    }
    return NULL;
}

int ek_safetensors_index_names(struct ek_safetensors *s, const char *name,
                               struct ek_err *err)
{
    size_t twin = 0;
    int rc = ek_tensors_index(&s->tensors, &twin);
    if (rc)
        return ek_err_set(err, rc, "%s: %s", name, ek_status_text(rc));
    if (twin < s->tensors.n)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: tensor '%.100s' is there twice; expected once", name,
                          s->tensors.items[twin].name);
    return 0;
}

static int create(struct ek_safetensors **s, size_t n_shards, const char *name,
                  struct ek_err *err)
{
    struct ek_safetensors *made = ek_calloc(1, sizeof *made);
    if (made && n_shards) {
        made->shards = ek_calloc(n_shards, sizeof *made->shards);
        made->n_shards = n_shards;
    }
    if (!made || (n_shards && !made->shards)) {
        ek_free(made);
        return ek_err_set(err, EK_ENOMEM, "%s: out of memory", name);
    }
    ek_arena_init(&made->arena, 0);
    *s = made;
    return 0;
}

int ek_safetensors_parse(struct ek_safetensors **s, const void *p, size_t n,
                         const char *name, struct ek_err *err)
{
    struct ek_safetensors *made = NULL;
    int rc = create(&made, 1, name, err);
    if (!rc)
        rc = ek_safetensors_read(made, p, n, name, err);
    if (!rc)
        made->shards[0].n = made->tensors.n;
    if (!rc)
        rc = ek_safetensors_index_names(made, name, err);
    if (rc)
        ek_safetensors_free(made);
    else
        *s = made;
    return rc;
}

static int open_index(struct ek_safetensors **s, const char *path, struct ek_err *err)
{
    struct ek_safetensors *made = NULL;
    int rc = create(&made, 0, path, err);
    if (!rc)
        rc = ek_safetensors_read_index(made, path, err);
    if (rc)
        ek_safetensors_free(made);
    else
        *s = made;
    return rc;
}

static int open_file(struct ek_safetensors **s, const char *path, struct ek_err *err)
{
    struct ek_file file = {0};
    int rc = ek_file_open(&file, path, err);
    if (rc)
        return rc;
    struct ek_safetensors *made = NULL;
    rc = ek_safetensors_parse(&made, file.data, file.size, path, err);
    if (rc) {
        ek_file_close(&file);
        return rc;
    }
    made->shards[0].map = file;
    *s = made;
    return 0;
}

int ek_safetensors_open(struct ek_safetensors **s, const char *path, struct ek_err *err)
{
    size_t n = strlen(path);
    bool is_index = n >= 5 && !strcmp(path + n - 5, ".json");
    return is_index ? open_index(s, path, err) : open_file(s, path, err);
}

void ek_safetensors_forget(const struct ek_safetensors *s)
{
    for (size_t i = 0; i < s->n_shards; i++)
        ek_file_forget(&s->shards[i].map);
}

void ek_safetensors_free(struct ek_safetensors *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_shards; i++)
        ek_file_close(&s->shards[i].map);
    ek_free(s->shards);
    ek_free(s->tensors.items);
    ek_free(s->tensors.by_name);
    ek_arena_release(&s->arena);
    ek_free(s);
}

const struct ek_tensors *ek_safetensors_tensors(const struct ek_safetensors *s)
{
    return &s->tensors;
}

const char *ek_safetensors_meta(const struct ek_safetensors *s, const char *key)
{
    for (const struct ek_safetensors_meta *m = s->metas; m; m = m->next) {
        if (!strcmp(m->key, key))
            return m->value;
    }
    return NULL;
}

bool ek_safetensors_meta_at(const struct ek_safetensors *s, size_t i, const char **key,
                            const char **value)
{
    const struct ek_safetensors_meta *m = s->metas;
    while (m && i--)
        m = m->next;
    if (!m)
        return false;
    *key = m->key;
    *value = m->value;
    return true;
}
