/* ggufkit.h - writes GGUF bytes for tests, lies included: nothing is checked here. */
#ifndef EVENKEEL_TESTS_GGUFKIT_H
#define EVENKEEL_TESTS_GGUFKIT_H

#include "testkit.h"
/* testkit.h comes first */
#include "base/buf.h"
#include "data/gguf.h"

static inline void put(struct ek_buf *b, const void *p, size_t n)
{
    assert_int_equal(ek_buf_add(b, p, n), 0);
}

static inline void put_u64(struct ek_buf *b, uint64_t v)
{
    for (int i = 0; i < 8; i++) {
        unsigned char c = (unsigned char)(v >> 8 * i);
        put(b, &c, 1);
    }
}

static inline void put_u32(struct ek_buf *b, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)(v >> 8 * i);
        put(b, &c, 1);
    }
}

static inline void put_strn(struct ek_buf *b, const char *s, size_t n)
{
    put_u64(b, n);
    put(b, s, n);
}

static inline void put_str(struct ek_buf *b, const char *s)
{
    put_strn(b, s, strlen(s));
}

static inline void put_head(struct ek_buf *b, uint64_t n_tensors, uint64_t n_kv)
{
    ek_buf_init(b, 1 << 24);
    put(b, "GGUF", 4);
    put_u32(b, 3);
    put_u64(b, n_tensors);
    put_u64(b, n_kv);
}

static inline void put_key(struct ek_buf *b, const char *key, uint32_t type)
{
    put_str(b, key);
    put_u32(b, type);
}

static inline void put_kv_u32(struct ek_buf *b, const char *key, uint32_t v)
{
    put_key(b, key, EK_GGUF_U32);
    put_u32(b, v);
}

static inline void put_kv_str(struct ek_buf *b, const char *key, const char *v)
{
    put_key(b, key, EK_GGUF_STR);
    put_str(b, v);
}

static inline void put_array(struct ek_buf *b, const char *key, uint32_t elem,
                             uint64_t n)
{
    put_key(b, key, EK_GGUF_ARRAY);
    put_u32(b, elem);
    put_u64(b, n);
}

/* dims: ggml's order, fastest first; ends with 0 or after 4. */
static inline void put_info(struct ek_buf *b, const char *name, const uint64_t *dims,
                            uint32_t n_dims, uint32_t type, uint64_t offset)
{
    put_str(b, name);
    put_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        put_u64(b, dims[i]);
    put_u32(b, type);
    put_u64(b, offset);
}

static inline void put_zeros(struct ek_buf *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(b, "", 1);
}

/* Up to the data section. */
static inline void put_padding(struct ek_buf *b, size_t alignment)
{
    while (b->len % alignment)
        put(b, "", 1);
}

#endif
