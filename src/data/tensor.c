#include "data/tensor.h"

#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t ek_tensor_elems(const struct ek_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

const char *ek_tensor_shape_text(char out[96], const struct ek_tensor *t)
{
    size_t at = 0;
    out[at++] = '(';
    for (int i = 0; i < t->n_dims; i++) {
        int n = snprintf(out + at, 96 - at, "%s%" PRId64, i ? ", " : "", t->shape[i]);
        assert(n > 0 && at + (size_t)n < 95);
        at += (size_t)n;
    }
    out[at++] = ')';
    out[at] = 0;
    return out;
}

int ek_tensor_bytes(size_t *out, enum ek_dtype dtype, const int64_t *shape, int n_dims)
{
    assert(n_dims >= 0 && n_dims <= EK_TENSOR_DIMS);
    int64_t room = 1;
    bool is_empty = false;
    for (int i = 0; i < n_dims; i++) {
        if (shape[i] < 0)
            return EK_EINVAL;
        is_empty |= shape[i] == 0;
        if (__builtin_mul_overflow(room, shape[i] ? shape[i] : 1, &room))
            return EK_ELIMIT;
    }
    uint64_t row = n_dims ? (uint64_t)shape[n_dims - 1] : 1;
    if (row % ek_dtype_block(dtype))
        return EK_EINVAL;
    return ek_dtype_bytes(out, dtype, is_empty ? 0 : (uint64_t)room);
}

static int by_name(const void *a, const void *b, void *items)
{
    const struct ek_tensor *t = items;
    const uint32_t *i = a, *j = b;
    int order = strcmp(t[*i].name, t[*j].name);
    return order ? order : (*i > *j) - (*i < *j);
}

int ek_tensors_index(struct ek_tensors *t, size_t *twin)
{
    if (t->n >= UINT32_MAX)
        return EK_ELIMIT;
    uint32_t *order = ek_alloc_array(t->n, sizeof *order);
    if (!order)
        return EK_ENOMEM;
    for (size_t i = 0; i < t->n; i++)
        order[i] = (uint32_t)i;
    if (t->n)
        qsort_r(order, t->n, sizeof *order, by_name, t->items);
    size_t found = t->n;
    for (size_t i = 1; i < t->n && found == t->n; i++) {
        if (!strcmp(t->items[order[i - 1]].name, t->items[order[i]].name))
            found = order[i];
    }
    ek_free(t->by_name);
    t->by_name = order;
    if (twin)
        *twin = found;
    return 0;
}

const struct ek_tensor *ek_tensors_find(const struct ek_tensors *t, const char *name)
{
    if (!t->by_name) {
        for (size_t i = 0; i < t->n; i++) {
            if (!strcmp(t->items[i].name, name))
                return &t->items[i];
        }
        return NULL;
    }
    size_t lo = 0, hi = t->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = strcmp(t->items[t->by_name[mid]].name, name);
        if (order == 0)
            return &t->items[t->by_name[mid]];
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
