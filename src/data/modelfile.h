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
    char *folder;         /* "dir/" that holds the JSON files, "" for GGUF; owned */
    struct ek_gguf *gguf; /* exactly one of gguf and shards, owned */
    struct ek_safetensors *shards;
    json_t *config;                   /* config.json, or NULL */
    json_t *generation;               /* generation_config.json, or NULL */
    json_t *tokenizer_config;         /* tokenizer_config.json, or NULL */
    const struct ek_tensors *tensors; /* borrowed from gguf or shards */
};

/* path: FILE.gguf, a folder, or FILE.safetensors (or its index) inside such a folder. A
 * folder must hold config.json; beside a single FILE.safetensors every JSON file is
 * optional. JSON files are at most 16 MiB and 64 levels deep. Errors: those of the
 * readers; EK_ENOENT names the missing part and what was looked for; *m is zeroed.
 * Threads: any, and the result is immutable. */
int ek_modelfile_open(struct ek_modelfile *m, const char *path,
                      struct ek_err *err) EK_MUST_USE;
void ek_modelfile_close(struct ek_modelfile *m); /* m may be zeroed; zeroes it */

/* Gives back the memory of the mapped pages that were read (ek_file_forget). */
void ek_modelfile_forget(const struct ek_modelfile *m);

const struct ek_tensor *ek_modelfile_tensor(const struct ek_modelfile *m,
                                            const char *name); /* NULL: not there */

/* The tokenizer of either layout. Errors: EK_EUNSUP, EK_EFORMAT, EK_ENOENT (a folder
 * without tokenizer.json), EK_ELIMIT (tokenizer.json over 128 MiB), with a sentence. */
int ek_modelfile_tokenizer(struct ek_tokenizer **t, const struct ek_modelfile *m,
                           struct ek_err *err) EK_MUST_USE;

/* The chat template's source (ek_free, NUL-terminated), from GGUF metadata,
 * chat_template.jinja or tokenizer_config.json (of a list, the one named "default").
 * EK_ENOENT without a sentence when the model has none; EK_EFORMAT, EK_ELIMIT over
 * 1 MiB. */
int ek_modelfile_template(char **source, size_t *n, const struct ek_modelfile *m,
                          struct ek_err *err) EK_MUST_USE;

#endif
