/* safetensors.h - reader of one file or of a sharded set, and a writer.
 *
 * Invariant after open: offsets tile the data section in order without overlap or gap,
 * every tensor's size equals dtype x shape, names are unique across shards.
 * Source: the safetensors repository's README, "Format".
 */
#ifndef EVENKEEL_DATA_SAFETENSORS_H
#define EVENKEEL_DATA_SAFETENSORS_H

#include "base/err.h"
#include "data/tensor.h"

struct ek_safetensors; /* owns the mappings and the tensor list */

/* path: a .safetensors file or a model.safetensors.index.json; shards are looked for
 * beside the index and may not leave its folder. */
int ek_safetensors_open(struct ek_safetensors **s, const char *path,
                        struct ek_err *err) EK_MUST_USE;
int ek_safetensors_parse(struct ek_safetensors **s, const void *p, size_t n,
                         const char *name, struct ek_err *err) EK_MUST_USE;
void ek_safetensors_free(struct ek_safetensors *s);

const struct ek_tensors *ek_safetensors_tensors(const struct ek_safetensors *s);

/* Value of __metadata__[key], or NULL. */
const char *ek_safetensors_meta(const struct ek_safetensors *s, const char *key);

/* Writes one file whole (written aside, then renamed): header padded to 8 bytes, tensors
 * in the order given. meta: n_meta pairs key, value. Errors: EK_EUNSUP a dtype without a
 * safetensors name, EK_EINVAL duplicate names, EK_EIO, EK_ENOMEM. */
int ek_safetensors_write(const char *path, const struct ek_tensors *tensors,
                         const char *const (*meta)[2], size_t n_meta,
                         struct ek_err *err) EK_MUST_USE;

#endif
