/* inspect_facts.c - gathers what keel inspect says. Nothing here refuses a model that
 * the file readers accept: what is not understood becomes a note. */
#include "base/mem.h"
#include "cli/inspect.h"
#include "lm/params.h"

#include <stdio.h>
#include <string.h>

static void note(struct ek_inspect *f, const struct ek_err *err)
{
    if (f->n_notes < EK_INSPECT_NOTES)
        f->notes[f->n_notes++] = *err;
}

static void count_types(struct ek_inspect *f)
{
    for (size_t i = 0; i < f->m.tensors->n; i++) {
        const struct ek_tensor *t = &f->m.tensors->items[i];
        uint64_t n = (uint64_t)ek_tensor_elems(t);
        f->types[t->dtype].n++;
        f->types[t->dtype].n_params += n;
        f->types[t->dtype].bytes += t->bytes;
        f->n_params += n;
        f->bytes += t->bytes;
    }
}

static void set_text(char *out, size_t cap, const char *p, size_t n)
{
    snprintf(out, cap, "%.*s", (int)(n < cap ? n : cap), p);
}

static void read_gguf(struct ek_inspect *f)
{
    const struct ek_gguf *g = f->m.gguf;
    struct ek_err err = EK_ERR_INIT;
    struct ek_str s;
    char key[128];
    uint32_t context = 0;
    int rc = ek_gguf_get_str(g, "general.architecture", &s, &err);
    if (!rc)
        set_text(f->arch, sizeof f->arch, s.p, s.n);
    snprintf(key, sizeof key, "%s.context_length", f->arch);
    if (!rc || rc == EK_ENOENT)
        rc = ek_gguf_get_u32(g, key, &context, &err);
    if (!rc)
        f->context = context;
    if (rc && rc != EK_ENOENT)
        note(f, &err);
    /* The file's own words, for a tokenizer that is not known here. */
    const struct ek_gguf_kv *tokens = ek_gguf_find(g, "tokenizer.ggml.tokens");
    if (tokens && tokens->type == EK_GGUF_ARRAY)
        f->n_tokens = (int64_t)tokens->n;
    f->has_tokenizer = ek_gguf_find(g, "tokenizer.ggml.model") != NULL;
    if (!ek_gguf_get_str(g, "tokenizer.ggml.model", &s, NULL))
        set_text(f->tokenizer, sizeof f->tokenizer, s.p, s.n);
}

static void read_config(struct ek_inspect *f)
{
    const json_t *type = json_object_get(f->m.config, "model_type");
    const json_t *context = json_object_get(f->m.config, "max_position_embeddings");
    if (json_is_string(type))
        set_text(f->arch, sizeof f->arch, json_string_value(type),
                 json_string_length(type));
    if (json_is_integer(context) && json_integer_value(context) > 0)
        f->context = json_integer_value(context);
}

static void read_tokenizer(struct ek_inspect *f)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_tokenizer *t = NULL;
    if (f->m.gguf && !f->has_tokenizer)
        return;
    int rc = ek_modelfile_tokenizer(&t, &f->m, &err);
    if (rc == EK_ENOENT)
        return;
    f->has_tokenizer = true;
    if (rc) {
        note(f, &err);
        if (!f->tokenizer[0])
            set_text(f->tokenizer, sizeof f->tokenizer, "unknown", 7);
        return;
    }
    const char *kind = ek_tokenizer_kind(t);
    set_text(f->tokenizer, sizeof f->tokenizer, kind, strlen(kind));
    f->n_tokens = ek_tokenizer_size(t);
    ek_tokenizer_free(t);
}

static void read_template(struct ek_inspect *f)
{
    struct ek_err err = EK_ERR_INIT;
    char *source = NULL;
    int rc = ek_modelfile_template(&source, &f->template_bytes, &f->m, &err);
    f->has_template = rc == 0;
    if (rc && rc != EK_ENOENT)
        note(f, &err);
    ek_free(source);
}

static void read_params(struct ek_inspect *f)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_lm_params p;
    if (!f->arch[0])
        return;
    int rc = ek_lm_params_read(&p, &f->m, &err);
    if (rc)
        note(f, &err);
    else
        f->kv_elems = ek_lm_kv_elems(&p);
}

int ek_inspect_open(struct ek_inspect *f, const char *path, struct ek_err *err)
{
    *f = (struct ek_inspect){0};
    int rc = ek_modelfile_open(&f->m, path, err);
    if (rc)
        return rc;
    count_types(f);
    if (f->m.gguf)
        read_gguf(f);
    else
        read_config(f);
    read_tokenizer(f);
    read_template(f);
    read_params(f);
    return 0;
}

void ek_inspect_release(struct ek_inspect *f)
{
    ek_modelfile_close(&f->m);
}
