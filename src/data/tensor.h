/* tensor.h - the tensors of a model file, whatever the container. */
#ifndef EVENKEEL_DATA_TENSOR_H
#define EVENKEEL_DATA_TENSOR_H

#include "num/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EK_TENSOR_DIMS 4

struct ek_tensor {
    const char *name; /* NUL-terminated, owned by the container */
    enum ek_dtype dtype;
    int n_dims;                    /* 0..4 */
    int64_t shape[EK_TENSOR_DIMS]; /* outermost first, as in PyTorch: (N,K) is N rows of
                                      K; GGUF's order is reversed when read */
    const void *data;              /* mapped; alignment is the file's */
    size_t bytes;
};

struct ek_tensors {
    struct ek_tensor *items;
    size_t n;
    uint32_t *by_name; /* (n) indices in the order of names, owned by the container;
                          NULL: not indexed, and find is linear */
};

/* Product of the shape; 1 for a scalar. The readers checked that it fits. */
int64_t ek_tensor_elems(const struct ek_tensor *t);

/* "(49152, 576)" into out. Returns out. */
const char *ek_tensor_shape_text(char out[96], const struct ek_tensor *t);

/* Bytes that a dtype and a shape of n_dims <= 4 take. A dimension of 0 is allowed; the
 * product of the others must fit int64 all the same, so that strides always do. Blocks
 * run along the last dimension. Errors: EK_EINVAL a negative dimension, or a row that
 * is no whole number of blocks; EK_ELIMIT overflow. */
int ek_tensor_bytes(size_t *out, enum ek_dtype dtype, const int64_t *shape,
                    int n_dims) EK_MUST_USE;

/* Sorts by_name. *twin (may be NULL) gets the index of a tensor whose name another has
 * too, or n when all differ. Errors: EK_ENOMEM, EK_ELIMIT n over 2^32-2; unchanged. */
int ek_tensors_index(struct ek_tensors *t, size_t *twin) EK_MUST_USE;

/* NULL when there is none of that name. Cost: O(log n) when indexed. Threads: any. */
const struct ek_tensor *ek_tensors_find(const struct ek_tensors *t, const char *name);

#endif
