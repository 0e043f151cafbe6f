/* tensor.h - the tensors of a model file, whatever the container. */
#ifndef EVENKEEL_DATA_TENSOR_H
#define EVENKEEL_DATA_TENSOR_H

#include "num/dtype.h"

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
};

int64_t ek_tensor_elems(const struct ek_tensor *t);

/* "(49152, 576)" into out. Returns out. */
const char *ek_tensor_shape_text(char out[96], const struct ek_tensor *t);

#endif
