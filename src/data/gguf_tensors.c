/* gguf_tensors.c - the tensor list: names, types, shapes, and where the bytes lie.
 * Invariant after: every tensor inside the file, aligned, overlapping no other. */
#include "base/mem.h"
#include "base/utf8.h"
#include "data/gguf_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shortest info: length and one byte of name, n_dims, type, offset. */
#define INFO_BYTES_MIN 25

/* The largest published models have under 100,000 tensors. */
#define TENSORS_MAX (1 << 20)

/* ggml's numbers for its types; a NULL name was never or is no longer used. */
struct ggml_type {
    const char *name;
    int dtype; /* enum ek_dtype, or -1: known but not read here */
};

static const struct ggml_type ggml_types[] = {
    [0] = {"f32", EK_DTYPE_F32},
    [1] = {"f16", EK_DTYPE_F16},
    [2] = {"q4_0", EK_DTYPE_Q4_0},
    [3] = {"q4_1", EK_DTYPE_Q4_1},
    [4] = {"q4_2", -1},
    [5] = {"q4_3", -1},
    [6] = {"q5_0", EK_DTYPE_Q5_0},
    [7] = {"q5_1", EK_DTYPE_Q5_1},
    [8] = {"q8_0", EK_DTYPE_Q8_0},
    [9] = {"q8_1", -1},
    [10] = {"q2_k", EK_DTYPE_Q2_K},
    [11] = {"q3_k", EK_DTYPE_Q3_K},
    [12] = {"q4_k", EK_DTYPE_Q4_K},
    [13] = {"q5_k", EK_DTYPE_Q5_K},
    [14] = {"q6_k", EK_DTYPE_Q6_K},
    [15] = {"q8_k", -1},
    [16] = {"iq2_xxs", -1},
    [17] = {"iq2_xs", -1},
    [18] = {"iq3_xxs", -1},
    [19] = {"iq1_s", -1},
    [20] = {"iq4_nl", EK_DTYPE_IQ4_NL},
    [21] = {"iq3_s", -1},
    [22] = {"iq2_s", -1},
    [23] = {"iq4_xs", EK_DTYPE_IQ4_XS},
    [24] = {"i8", EK_DTYPE_I8},
    [25] = {"i16", EK_DTYPE_I16},
    [26] = {"i32", EK_DTYPE_I32},
    [27] = {"i64", EK_DTYPE_I64},
    [28] = {"f64", EK_DTYPE_F64},
    [29] = {"iq1_m", -1},
    [30] = {"bf16", EK_DTYPE_BF16},
    [31] = {"q4_0_4_4", -1},
    [32] = {"q4_0_4_8", -1},
    [33] = {"q4_0_8_8", -1},
    [34] = {"tq1_0", EK_DTYPE_TQ1_0},
    [35] = {"tq2_0", EK_DTYPE_TQ2_0},
    [39] = {"mxfp4", EK_DTYPE_MXFP4},
    [40] = {"nvfp4", EK_DTYPE_NVFP4},
    [41] = {"q1_0", -1},
};
#define N_GGML_TYPES (sizeof ggml_types / sizeof ggml_types[0])

int ek_gguf_number(enum ek_dtype t)
{
    for (size_t i = 0; i < N_GGML_TYPES; i++) {
        if (ggml_types[i].name && ggml_types[i].dtype == (int)t)
            return (int)i;
    }
    return -1;
}

static int refuse_type(struct ek_gguf_reader *r, uint32_t type)
{
    char known[256];
    size_t at = 0;
    known[0] = 0;
    for (size_t i = 0; i < N_GGML_TYPES && at < sizeof known; i++) {
        if (ggml_types[i].name && ggml_types[i].dtype >= 0)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s",
                                   at ? ", " : "", ggml_types[i].name);
    }
    const char *name = type < N_GGML_TYPES ? ggml_types[type].name : NULL;
    return ek_gguf_fail(r, name ? EK_EUNSUP : EK_EFORMAT,
                        "type %" PRIu32 " (%s) is not supported; known: %s", type,
                        name ? name : "unknown", known);
}

static int read_name(struct ek_gguf *g, struct ek_gguf_reader *r, size_t *names_at,
                     struct ek_tensor *t)
{
    struct ek_str name;
    int rc = ek_gguf_str(r, &name, "the name");
    if (rc)
        return rc;
    if (name.n == 0 || name.n > EK_GGUF_NAME_MAX)
        return ek_gguf_fail(r, EK_EFORMAT, "name of %zu bytes; expected 1 to %d",
                            name.n, EK_GGUF_NAME_MAX);
    if (!ek_utf8_is_valid(name.p, name.n) || memchr(name.p, 0, name.n))
        return ek_gguf_fail(r, EK_EFORMAT,
                            "name '%.*s' is not text; expected UTF-8 without NUL",
                            ek_gguf_shown(name), name.p);
    char *copy = g->tensor_names + *names_at;
    memcpy(copy, name.p, name.n);
    copy[name.n] = 0;
    *names_at += name.n + 1;
    t->name = copy;
    snprintf(r->where, sizeof r->where, "tensor '%.*s'", ek_gguf_shown(name), name.p);
    return 0;
}

static int read_shape(struct ek_gguf_reader *r, struct ek_tensor *t)
{
    uint32_t n_dims = 0;
    int rc = ek_gguf_u32(r, &n_dims, "n_dims");
    if (rc)
        return rc;
    if (n_dims > EK_TENSOR_DIMS)
        return ek_gguf_fail(r, EK_EFORMAT, "n_dims %" PRIu32 "; expected 0 to %d",
                            n_dims, EK_TENSOR_DIMS);
    t->n_dims = (int)n_dims;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t dim = 0;
        rc = ek_gguf_u64(r, &dim, "a dimension");
        if (rc)
            return rc;
        if (dim > INT64_MAX)
            return ek_gguf_fail(r, EK_EFORMAT,
                                "dimension %" PRIu32 " is %" PRIu64
                                "; expected less than 2^63",
                                i, dim);
        t->shape[n_dims - 1 - i] = (int64_t)dim;
    }
    return 0;
}

static int size_tensor(struct ek_gguf_reader *r, struct ek_tensor *t)
{
    char shape[96];
    int rc = ek_tensor_bytes(&t->bytes, t->dtype, t->shape, t->n_dims);
    if (rc == EK_EINVAL)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "shape %s in %s: a row is no whole number of blocks; "
                            "expected a multiple of %zu",
                            ek_tensor_shape_text(shape, t), ek_dtype_name(t->dtype),
                            ek_dtype_block(t->dtype));
    if (rc)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "shape %s has more than 2^63 elements or bytes; expected "
                            "a tensor that fits the file",
                            ek_tensor_shape_text(shape, t));
    return 0;
}

/* The offset stays in *offset until the data section's start is known. */
static int read_info(struct ek_gguf *g, struct ek_gguf_reader *r, size_t *names_at,
                     struct ek_tensor *t, uint64_t *offset)
{
    uint32_t type = 0;
    int rc = read_name(g, r, names_at, t);
    if (!rc)
        rc = read_shape(r, t);
    if (!rc)
        rc = ek_gguf_u32(r, &type, "the type");
    if (rc)
        return rc;
    if (type >= N_GGML_TYPES || !ggml_types[type].name || ggml_types[type].dtype < 0)
        return refuse_type(r, type);
    t->dtype = (enum ek_dtype)ggml_types[type].dtype;
    rc = size_tensor(r, t);
    return rc ? rc : ek_gguf_u64(r, offset, "the offset");
}

static int place(struct ek_gguf_reader *r, struct ek_tensor *t, uint64_t offset,
                 size_t base, uint32_t alignment)
{
    char size[32], whole[32];
    snprintf(r->where, sizeof r->where, "tensor '%.100s'", t->name);
    if (offset % alignment)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "offset 0x%" PRIx64 "; expected a multiple of %" PRIu32,
                            offset, alignment);
    if (base > r->n || offset > r->n - base || t->bytes > r->n - base - offset)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "offset 0x%" PRIx64 " + %s is past the end of the file "
                            "(%s, data from 0x%zx; truncated?)",
                            offset, ek_format_bytes(size, t->bytes),
                            ek_format_bytes(whole, r->n), base);
    t->data = r->p + base + offset;
    return 0;
}

static int by_place(const void *a, const void *b, void *items)
{
    const uint32_t *i = a, *j = b;
    const struct ek_tensor *s = (struct ek_tensor *)items + *i;
    const struct ek_tensor *t = (struct ek_tensor *)items + *j;
    uintptr_t p = (uintptr_t)s->data, q = (uintptr_t)t->data;
    if (p != q)
        return p < q ? -1 : 1;
    return (s->bytes > t->bytes) - (s->bytes < t->bytes);
}

static int check_overlap(struct ek_gguf *g, struct ek_gguf_reader *r)
{
    size_t n = g->tensors.n;
    uint32_t *order = ek_alloc_array(n, sizeof *order);
    if (!order)
        return ek_gguf_fail(r, EK_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    if (n)
        qsort_r(order, n, sizeof *order, by_place, g->tensors.items);
    int rc = 0;
    const struct ek_tensor *last = NULL; /* the one before that has bytes */
    for (size_t i = 0; i < n && !rc; i++) {
        const struct ek_tensor *t = &g->tensors.items[order[i]];
        if (t->bytes == 0)
            continue;
        if (last && (uintptr_t)last->data + last->bytes > (uintptr_t)t->data) {
            snprintf(r->where, sizeof r->where, "tensor '%.100s'", t->name);
            rc = ek_gguf_fail(r, EK_EFORMAT,
                              "its bytes overlap those of tensor '%.100s'; expected "
                              "a place of its own",
                              last->name);
        }
        last = t;
    }
    ek_free(order);
    return rc;
}

static int check_names(struct ek_gguf *g, struct ek_gguf_reader *r)
{
    size_t twin = 0;
    int rc = ek_tensors_index(&g->tensors, &twin);
    if (rc)
        return ek_gguf_fail(r, rc, "%s", ek_status_text(rc));
    if (twin < g->tensors.n)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "tensor '%.100s' is there twice; expected once",
                            g->tensors.items[twin].name);
    return 0;
}

/* Bytes of all names with their NULs, found by walking the list once without trust;
 * stops where the list ends early, which the real walk then reports. */
static size_t measure_names(const struct ek_gguf_reader *r, uint64_t n)
{
    struct ek_gguf_reader walk = {.p = r->p, .n = r->n, .at = r->at, .file = r->file};
    size_t total = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct ek_str name;
        uint32_t n_dims = 0;
        const unsigned char *p;
        if (ek_gguf_str(&walk, &name, "") || ek_gguf_u32(&walk, &n_dims, "") ||
            ek_gguf_take(&walk, &p, (uint64_t)n_dims * 8 + 12, ""))
            return total + EK_GGUF_NAME_MAX + 1;
        total += name.n + 1;
    }
    return total;
}

static int read_infos(struct ek_gguf *g, struct ek_gguf_reader *r, uint64_t *offsets,
                      uint64_t n)
{
    size_t names_at = 0;
    for (uint64_t i = 0; i < n; i++) {
        snprintf(r->where, sizeof r->where, "tensor %" PRIu64 " of %" PRIu64, i + 1, n);
        int rc = read_info(g, r, &names_at, &g->tensors.items[i], &offsets[i]);
        if (rc)
            return rc;
        g->tensors.n = (size_t)i + 1;
    }
    r->where[0] = 0;
    return 0;
}

int ek_gguf_read_tensors(struct ek_gguf *g, struct ek_gguf_reader *r, uint64_t n,
                         uint32_t alignment)
{
    size_t left = r->n - r->at;
    r->where[0] = 0;
    if (n > left / INFO_BYTES_MIN)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "n_tensors %" PRIu64 " is a lie: the file ends after %zu "
                            "bytes and each takes %d or more (truncated?)",
                            n, left, INFO_BYTES_MIN);
    if (n > TENSORS_MAX)
        return ek_gguf_fail(r, EK_ELIMIT, "n_tensors %" PRIu64 "; expected at most %d",
                            n, TENSORS_MAX);
    uint64_t *offsets = ek_alloc_array((size_t)n, sizeof *offsets);
    g->tensors.items = ek_calloc((size_t)n, sizeof *g->tensors.items);
    g->tensor_names = ek_alloc(measure_names(r, n));
    int rc = 0;
    if (!offsets || !g->tensors.items || !g->tensor_names)
        rc = ek_gguf_fail(r, EK_ENOMEM, "out of memory");
    if (!rc)
        rc = read_infos(g, r, offsets, n);
    size_t base = (r->at + alignment - 1) & ~((size_t)alignment - 1);
    for (size_t i = 0; !rc && i < g->tensors.n; i++)
        rc = place(r, &g->tensors.items[i], offsets[i], base, alignment);
    r->where[0] = 0;
    if (!rc)
        rc = check_names(g, r);
    if (!rc)
        rc = check_overlap(g, r);
    ek_free(offsets);
    return rc;
}
