/* probe_quant - converts stdin to stdout by num/quant.h, for check_quant_gguf.py:
 *   probe_quant read TYPE    blocks of TYPE -> f32
 *   probe_quant write TYPE   f32 -> blocks of TYPE
 * Exit 1: type not known, 2: usage or partial block. */
#include "num/quant.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static float values[1 << 18];
    static unsigned char bytes[1 << 20];
    int t = 0;
    if (argc != 3)
        return 2;
    while (t < EK_DTYPE_COUNT && strcmp(argv[2], ek_dtype_name((enum ek_dtype)t)))
        t++;
    enum ek_dtype type = (enum ek_dtype)t;
    if (!strcmp(argv[1], "read")) {
        if (!ek_quant_can_read(type))
            return 1;
        size_t n = fread(bytes, ek_dtype_block_bytes(type),
                         sizeof bytes / ek_dtype_block_bytes(type), stdin);
        n *= ek_dtype_block(type);
        if (n > sizeof values / sizeof *values)
            return 2;
        ek_quant_to_f32(values, type, bytes, n);
        return fwrite(values, sizeof *values, n, stdout) != n;
    }
    if (!ek_quant_can_write(type))
        return 1;
    size_t n = fread(values, sizeof *values, sizeof values / sizeof *values, stdin);
    size_t size;
    if (ek_dtype_bytes(&size, type, n) || size > sizeof bytes)
        return 2;
    ek_quant_from_f32(bytes, type, values, n);
    return fwrite(bytes, 1, size, stdout) != size;
}
