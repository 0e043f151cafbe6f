/* gguf.h - GGUF version 3 (and 2, its little-endian equal), read-only, mapped and
 * borrowed.
 *
 * Every count, length and offset is checked against the bytes that are left before it
 * is believed or allocated for: what is allocated is tables, at most 4 bytes for each
 * byte of metadata and tensor list, never the tensors. Invariant after open: each
 * tensor's bytes lie inside the file, aligned, overlapping no other; keys and names
 * are unique, and all text is UTF-8.
 * Source: the ggml repository's docs/gguf.md.
 */
#ifndef EVENKEEL_DATA_GGUF_H
#define EVENKEEL_DATA_GGUF_H

#include "base/err.h"
#include "base/file.h"
#include "data/tensor.h"

#include <stdbool.h>

enum ek_gguf_type {
    EK_GGUF_U8,
    EK_GGUF_I8,
    EK_GGUF_U16,
    EK_GGUF_I16,
    EK_GGUF_U32,
    EK_GGUF_I32,
    EK_GGUF_F32,
    EK_GGUF_BOOL,
    EK_GGUF_STR,
    EK_GGUF_ARRAY,
    EK_GGUF_U64,
    EK_GGUF_I64,
    EK_GGUF_F64,
};

/* A piece of the file; not NUL-terminated. */
struct ek_str {
    const char *p;
    size_t n;
};

struct ek_gguf_kv {
    struct ek_str key;
    enum ek_gguf_type type; /* EK_GGUF_ARRAY: elements are `elem` */
    enum ek_gguf_type elem;
    uint64_t n;                  /* elements; 1 for scalars */
    const unsigned char *data;   /* first element, little-endian, unaligned */
    const uint64_t *str_offsets; /* array of strings: offset of each length word from
                                    `data`, so that access is O(1); owned by the file */
};

struct ek_gguf; /* owns the mapping, the key table and the tensor list */

/* Errors: those of ek_file_open; EK_EFORMAT a lie or a truncated file; EK_EUNSUP
 * another version, big-endian, an unread tensor type, nested arrays; EK_ELIMIT over
 * 65,536 keys or 2^20 tensors; EK_ENOMEM. The sentence names file, key or tensor,
 * value and expectation.
 * Cost: O(n log n) in keys and tensors; tensors are not touched.
 * Threads: any, and the result is immutable. */
int ek_gguf_open(struct ek_gguf **g, const char *path, struct ek_err *err) EK_MUST_USE;

/* The same over bytes the caller keeps alive; `name` is for messages. */
int ek_gguf_parse(struct ek_gguf **g, const void *p, size_t n, const char *name,
                  struct ek_err *err) EK_MUST_USE;
void ek_gguf_free(struct ek_gguf *g);
void ek_gguf_forget(
    const struct ek_gguf *g); /* ek_file_forget; parsed bytes: nothing */

const char *ek_gguf_name(const struct ek_gguf *g); /* the path given at open */
size_t ek_gguf_n_kv(const struct ek_gguf *g);
const struct ek_gguf_kv *ek_gguf_kv_at(const struct ek_gguf *g, size_t i);
const struct ek_gguf_kv *ek_gguf_find(const struct ek_gguf *g, const char *key);
const struct ek_tensors *ek_gguf_tensors(const struct ek_gguf *g);

/* Typed access. A missing key leaves *out (so callers preset the default) and returns
 * EK_ENOENT without a sentence; a wrong type or range is EK_EFORMAT with a sentence
 * that names file, key, value and what was expected. Integers of any width convert. */
int ek_gguf_get_u32(const struct ek_gguf *g, const char *key, uint32_t *out,
                    struct ek_err *err) EK_MUST_USE;
int ek_gguf_get_f32(const struct ek_gguf *g, const char *key, float *out,
                    struct ek_err *err) EK_MUST_USE;
int ek_gguf_get_bool(const struct ek_gguf *g, const char *key, bool *out,
                     struct ek_err *err) EK_MUST_USE;
int ek_gguf_get_str(const struct ek_gguf *g, const char *key, struct ek_str *out,
                    struct ek_err *err) EK_MUST_USE;

/* Element i of an array of strings, floats or integers (or the scalar itself, i = 0);
 * the caller checked type and i. */
struct ek_str ek_gguf_str_at(const struct ek_gguf_kv *kv, uint64_t i);
double ek_gguf_num_at(const struct ek_gguf_kv *kv, uint64_t i);
int64_t ek_gguf_int_at(const struct ek_gguf_kv *kv,
                       uint64_t i); /* u64 wraps; bool 0/1 */

const char *ek_gguf_type_name(enum ek_gguf_type t); /* "u32", "string", "array" */

#endif
