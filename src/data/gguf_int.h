/* gguf_int.h - what the files of the GGUF reader share: gguf.c walks the header,
 * gguf_tensors.c the tensor list, gguf_get.c answers questions about the result. */
#ifndef EVENKEEL_DATA_GGUF_INT_H
#define EVENKEEL_DATA_GGUF_INT_H

#include "data/gguf.h"

struct ek_gguf {
    struct ek_file file;       /* owned; empty when parsed from the caller's bytes */
    char *name;                /* owned; for messages */
    struct ek_gguf_kv *kv;     /* (n_kv) in file order, owned with their str_offsets */
    size_t n_kv;               /* entries read so far */
    uint32_t *by_key;          /* (n_kv) indices in the order of keys, owned */
    struct ek_tensors tensors; /* owned */
    char *tensor_names;        /* owned: the names, each with its NUL */
};

/* A cursor over the file. Invariant: at <= n. */
struct ek_gguf_reader {
    const unsigned char *p;
    size_t n, at;
    const char *file;   /* for messages */
    char where[192];    /* "key 'general.name'": what is being read, for messages */
    struct ek_err *err; /* may be NULL */
};

/* Sets "<file>: <where>: <sentence>" and returns status. */
#define ek_gguf_fail(r, status, ...)                                                   \
    ek_err_as(status, ek_gguf_say(r, status, __VA_ARGS__))
int ek_gguf_say(struct ek_gguf_reader *r, int status, const char *fmt, ...)
    EK_PRINTF(3, 4);

/* Each takes bytes at the cursor. Errors: EK_EFORMAT the file ends first. */
int ek_gguf_take(struct ek_gguf_reader *r, const unsigned char **p, uint64_t n,
                 const char *what) EK_MUST_USE;
int ek_gguf_u32(struct ek_gguf_reader *r, uint32_t *v, const char *what) EK_MUST_USE;
int ek_gguf_u64(struct ek_gguf_reader *r, uint64_t *v, const char *what) EK_MUST_USE;
int ek_gguf_str(struct ek_gguf_reader *r, struct ek_str *s,
                const char *what) EK_MUST_USE;

#define EK_GGUF_ALIGNMENT 32 /* where a file does not tell */

/* ggml's own limit is 63; the longest names of other writers stay well below this. */
#define EK_GGUF_NAME_MAX 255

/* ggml's number of a type, or -1. */
int ek_gguf_number(enum ek_dtype t);

uint32_t ek_gguf_load_u32(const unsigned char *p);
uint64_t ek_gguf_load_u64(const unsigned char *p);

/* Length for "%.*s": long names are cut in messages, not the sentence around them. */
int ek_gguf_shown(struct ek_str s);

/* Reads n tensor infos at the cursor into g->tensors and checks their places in the
 * data section. On failure g is only freeable. */
int ek_gguf_read_tensors(struct ek_gguf *g, struct ek_gguf_reader *r, uint64_t n,
                         uint32_t alignment) EK_MUST_USE;

#endif
