/* dtype.c - the table of number formats, from the X-macro of its header. */
#include "num/dtype.h"

static const struct {
    const char *name;
    unsigned short block, bytes;
} table[EK_DTYPE_COUNT] = {
#define X(suffix, name, elems, bytes) {name, elems, bytes},
    EK_DTYPE_TABLE(X)
#undef X
};

const char *ek_dtype_name(enum ek_dtype t)
{
    return (unsigned)t < EK_DTYPE_COUNT ? table[t].name : "?";
}

size_t ek_dtype_block(enum ek_dtype t)
{
    return table[t].block;
}

size_t ek_dtype_block_bytes(enum ek_dtype t)
{
    return table[t].bytes;
}

int ek_dtype_bytes(size_t *out, enum ek_dtype t, uint64_t n)
{
    if (n % table[t].block)
        return EK_EINVAL;
    size_t bytes;
    if (__builtin_mul_overflow(n / table[t].block, (uint64_t)table[t].bytes, &bytes))
        return EK_ELIMIT;
    *out = bytes;
    return 0;
}
