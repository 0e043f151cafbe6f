/* matmul.c - the size of prepared activations. */
#include "kernel/matmul.h"

#include "kernel/matmul_int.h"

size_t ek_matmul_act_bytes(enum ek_weight_format f, int64_t T, int64_t K)
{
    const int64_t max = (int64_t)1 << 40;
    int64_t bytes;
    if (T < 0 || K < 1 || T > max || K > max ||
        __builtin_mul_overflow(T, ek_act_stride(f, K), &bytes))
        return 0;
    return (size_t)bytes;
}
