/* fuzz_safetensors.c - any bytes: refused with a sentence, or a file whose tensors tile
 * its data. The first byte's lowest bit asks for a length word that fits the header, so
 * that the fuzzer need not learn to count. */
#include "data/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void check(const struct ek_safetensors *s, const uint8_t *end)
{
    const struct ek_tensors *all = ek_safetensors_tensors(s);
    const char *key, *value;
    for (size_t i = 0; i < all->n; i++) {
        const struct ek_tensor *t = &all->items[i];
        const uint8_t *next = i + 1 < all->n ? all->items[i + 1].data : end;
        size_t bytes = 0;
        must(!ek_tensor_bytes(&bytes, t->dtype, t->shape, t->n_dims));
        must(bytes == t->bytes && (const uint8_t *)t->data + bytes == next);
        must(ek_tensors_find(all, t->name) == t);
    }
    for (size_t i = 0; ek_safetensors_meta_at(s, i, &key, &value); i++)
        must(ek_safetensors_meta(s, key) != NULL);
}

/* After the first byte: the header up to a 0xff byte, then the data. */
static uint8_t *frame(const uint8_t *data, size_t size, size_t *framed)
{
    const uint8_t *cut = size ? memchr(data, 0xff, size) : NULL;
    size_t header = cut ? (size_t)(cut - data) : size;
    size_t rest = cut ? size - header - 1 : 0;
    uint8_t *p = malloc(8 + header + rest);
    must(p != NULL);
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(header >> 8 * i);
    if (header)
        memcpy(p + 8, data, header);
    if (rest)
        memcpy(p + 8 + header, cut + 1, rest);
    *framed = 8 + header + rest;
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ek_safetensors *s = NULL;
    struct ek_err err = EK_ERR_INIT;
    uint8_t *framed = NULL;
    if (size && (data[0] & 1)) {
        framed = frame(data + 1, size - 1, &size);
        data = framed;
    } else if (size) {
        data++;
        size--;
    }
    if (ek_safetensors_parse(&s, data, size, "fuzz", &err))
        must(!s && !strncmp(err.text, "fuzz: ", 6));
    else
        check(s, data + size);
    ek_safetensors_free(s);
    free(framed);
    return 0;
}
