/* modelfile.h - a model as it lies on disk: a GGUF file, or a Hugging Face folder
 * (config.json, tokenizer.json, tokenizer_config.json, generation_config.json,
 * *.safetensors). Opening finds and checks the parts; lm/ gives them meaning. */
#ifndef EVENKEEL_DATA_MODELFILE_H
#define EVENKEEL_DATA_MODELFILE_H

#include "base/err.h"
#include "base/json.h"
#include "data/gguf.h"
#include "data/safetensors.h"
#include "data/template.h"
#include "data/tokenizer.h"

struct ek_modelfile {
    char *path;           /* as given, owned */
    struct ek_gguf *gguf; /* exactly one of gguf and shards, owned */
    struct ek_safetensors *shards;
    json_t *config;                   /* config.json, or NULL */
    json_t *generation;               /* generation_config.json, or NULL */
    json_t *tokenizer_config;         /* tokenizer_config.json, or NULL */
    const struct ek_tensors *tensors; /* borrowed from gguf or shards */
};

/* path: FILE.gguf, a folder, or FILE.safetensors inside such a folder. Errors: those of
 * the readers; EK_ENOENT names the missing part and what was looked for. */
int ek_modelfile_open(struct ek_modelfile *m, const char *path,
                      struct ek_err *err) EK_MUST_USE;
void ek_modelfile_close(struct ek_modelfile *m);

const struct ek_tensor *ek_modelfile_tensor(const struct ek_modelfile *m,
                                            const char *name); /* NULL: not there */

/* The tokenizer of either layout. Errors: EK_EUNSUP, EK_EFORMAT with the sentence. */
int ek_modelfile_tokenizer(struct ek_tokenizer **t, const struct ek_modelfile *m,
                           struct ek_err *err) EK_MUST_USE;

/* The chat template's source (ek_free), from GGUF metadata, chat_template.jinja or
 * tokenizer_config.json. EK_ENOENT without a sentence when the model has none. */
int ek_modelfile_template(char **source, size_t *n, const struct ek_modelfile *m,
                          struct ek_err *err) EK_MUST_USE;

#endif
