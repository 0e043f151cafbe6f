/* safetensors_int.h - what the reader's files share: safetensors.c owns and opens,
 * safetensors_header.c reads one file's header, safetensors_index.c a sharded set's
 * index; safetensors_write.c uses the names of the types. */
#ifndef EVENKEEL_DATA_SAFETENSORS_INT_H
#define EVENKEEL_DATA_SAFETENSORS_INT_H

#include "base/arena.h"
#include "base/file.h"
#include "data/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

/* The ceiling of the reference implementation, for headers and (ours) for indices. */
#define EK_SAFETENSORS_HEADER_MAX 100000000

#define EK_SAFETENSORS_META "__metadata__"

struct ek_safetensors_meta {
    struct ek_safetensors_meta *next;
    const char *key, *value;
};

struct ek_safetensors_shard {
    struct ek_file map; /* owned; empty when parsed from the caller's bytes */
    size_t first, n;    /* its tensors are items[first, first + n) */
};

struct ek_safetensors {
    struct ek_safetensors_shard *shards; /* (n_shards) owned */
    size_t n_shards;
    struct ek_tensors tensors;         /* owned; by place within each shard */
    size_t cap;                        /* of tensors.items */
    struct ek_safetensors_meta *metas; /* of all shards, first ones first */
    struct ek_arena arena;             /* names and metadata */
};

/* Appends the tensors and metadata of one file's bytes; `name` is for messages. On
 * failure s is only freeable. */
int ek_safetensors_read(struct ek_safetensors *s, const unsigned char *p, size_t n,
                        const char *name, struct ek_err *err) EK_MUST_USE;

/* Opens every shard an index names. On failure s is only freeable. */
int ek_safetensors_read_index(struct ek_safetensors *s, const char *path,
                              struct ek_err *err) EK_MUST_USE;

/* Indexes the names; refuses twins, naming `name`. */
int ek_safetensors_index_names(struct ek_safetensors *s, const char *name,
                               struct ek_err *err) EK_MUST_USE;

/* "BF16" -> EK_DTYPE_BF16; false when it has no such name here. */
bool ek_safetensors_dtype(enum ek_dtype *t, const char *word);

/* EK_DTYPE_BF16 -> "BF16", or NULL. */
const char *ek_safetensors_word(enum ek_dtype t);

#endif
