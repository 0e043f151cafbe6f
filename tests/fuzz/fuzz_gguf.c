/* fuzz_gguf.c - any bytes: refused with a sentence, or a file whose every claim holds. */
#include "data/gguf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void touch_kv(const struct ek_gguf *g, const struct ek_gguf_kv *kv,
                     const uint8_t *data, size_t size)
{
    for (uint64_t i = 0; i < kv->n; i++) {
        if (kv->elem != EK_GGUF_STR) {
            (void)ek_gguf_num_at(kv, i);
            (void)ek_gguf_int_at(kv, i);
            continue;
        }
        struct ek_str s = ek_gguf_str_at(kv, i);
        const uint8_t *p = (const uint8_t *)s.p;
        must(p >= data && s.n <= size - (size_t)(p - data));
    }
    char key[256];
    if (kv->key.n >= sizeof key)
        return;
    memcpy(key, kv->key.p, kv->key.n);
    key[kv->key.n] = 0;
    must(ek_gguf_find(g, key) == kv);
    struct ek_err err = EK_ERR_INIT;
    uint32_t u;
    float f;
    bool b;
    struct ek_str s;
    must(!ek_gguf_get_u32(g, key, &u, &err) || err.text[0]);
    must(!ek_gguf_get_f32(g, key, &f, &err) || err.text[0]);
    must(!ek_gguf_get_bool(g, key, &b, &err) || err.text[0]);
    must(!ek_gguf_get_str(g, key, &s, &err) || err.text[0]);
}

static void check_tensors(const struct ek_tensors *all, const uint8_t *data,
                          size_t size)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < all->n; i++) {
        const struct ek_tensor *t = &all->items[i];
        const uint8_t *p = t->data;
        size_t bytes = 0;
        must(p >= data && p <= data + size && t->bytes <= size - (size_t)(p - data));
        must(!ek_tensor_bytes(&bytes, t->dtype, t->shape, t->n_dims));
        must(bytes == t->bytes && ek_tensors_find(all, t->name) == t);
        for (size_t k = 0; k < t->bytes; k++)
            sum = (uint8_t)(sum + p[k]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ek_gguf *g = NULL;
    struct ek_err err = EK_ERR_INIT;
    if (ek_gguf_parse(&g, data, size, "fuzz.gguf", &err)) {
        must(!g && !strncmp(err.text, "fuzz.gguf: ", 11));
        return 0;
    }
    for (size_t i = 0; i < ek_gguf_n_kv(g); i++)
        touch_kv(g, ek_gguf_kv_at(g, i), data, size);
    check_tensors(ek_gguf_tensors(g), data, size);
    ek_gguf_free(g);
    return 0;
}
