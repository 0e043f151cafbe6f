/* safetensors.h - reader of one file or of a sharded set, and a writer.
 *
 * Invariant after open: offsets tile the data section in order without overlap or gap,
 * every tensor's size equals dtype x shape, names are unique across shards.
 * Source: the safetensors repository's README, "Format".
 */
#ifndef EVENKEEL_DATA_SAFETENSORS_H
#define EVENKEEL_DATA_SAFETENSORS_H

#include "base/buf.h"
#include "base/err.h"
#include "data/tensor.h"

#include <stdbool.h>

struct ek_safetensors; /* owns the mappings and the tensor list */

/* path: a .safetensors file or a model.safetensors.index.json; shards are looked for
 * beside the index and may not leave its folder. An index is believed in nothing: it
 * and its shards must name the same tensors in the same places. Errors: those of
 * ek_file_open; EK_EFORMAT a lie or a truncated file; EK_EUNSUP a dtype or more than 4
 * dimensions; EK_ELIMIT a header or index over 100 MB, over 4096 shards, over 1024
 * entries of metadata; EK_ENOMEM. The sentence names file, tensor, value and
 * expectation. Memory: tables, at most 16 bytes for each byte of header and index.
 * Threads: any, and the result is immutable. */
int ek_safetensors_open(struct ek_safetensors **s, const char *path,
                        struct ek_err *err) EK_MUST_USE;
int ek_safetensors_parse(struct ek_safetensors **s, const void *p, size_t n,
                         const char *name, struct ek_err *err) EK_MUST_USE;
void ek_safetensors_free(struct ek_safetensors *s);
void ek_safetensors_forget(const struct ek_safetensors *s); /* ek_file_forget of each */

const struct ek_tensors *ek_safetensors_tensors(const struct ek_safetensors *s);

/* Value of __metadata__[key], or NULL. */
const char *ek_safetensors_meta(const struct ek_safetensors *s, const char *key);

/* Entry i of __metadata__, in the files' order; false past the last. */
bool ek_safetensors_meta_at(const struct ek_safetensors *s, size_t i, const char **key,
                            const char **value);

/* What stands before the data of a file of these tensors, in the order given; their
 * data is not looked at. Appends to `out`. path: for messages. Errors as below. */
int ek_safetensors_header(struct ek_buf *out, const char *path,
                          const struct ek_tensors *tensors,
                          const char *const (*meta)[2], size_t n_meta,
                          struct ek_err *err) EK_MUST_USE;

/* Writes one file whole (written aside, then renamed): header padded to 8 bytes,
 * tensors in the order given. meta: n_meta pairs key, value. Errors: EK_EUNSUP a dtype
 * without a safetensors name, EK_EINVAL duplicate names, EK_EIO, EK_ENOMEM. */
int ek_safetensors_write(const char *path, const struct ek_tensors *tensors,
                         const char *const (*meta)[2], size_t n_meta,
                         struct ek_err *err) EK_MUST_USE;

#endif
