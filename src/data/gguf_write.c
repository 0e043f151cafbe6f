#include "data/gguf_write.h"

#include "data/gguf_int.h"

#include <string.h>

static int add_int(struct ek_buf *b, uint64_t v, int n_bytes)
{
    char bytes[8];
    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (char)(v >> 8 * i & 0xff);
    return ek_buf_add(b, bytes, (size_t)n_bytes);
}

static int add_str(struct ek_buf *b, const char *p, size_t n)
{
    int rc = add_int(b, n, 8);
    return rc ? rc : ek_buf_add(b, p, n);
}

/* Bytes of a value from its first element on. */
static size_t value_bytes(const struct ek_gguf_kv *kv)
{
    static const uint8_t width[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (kv->elem != EK_GGUF_STR)
        return (size_t)kv->n * width[kv->elem];
    if (kv->n == 0)
        return 0;
    size_t last = kv->str_offsets ? (size_t)kv->str_offsets[kv->n - 1] : 0;
    return last + 8 + (size_t)ek_gguf_load_u64(kv->data + last);
}

static int add_kv(struct ek_buf *b, const struct ek_gguf_kv *kv)
{
    int rc = add_str(b, kv->key.p, kv->key.n);
    if (!rc)
        rc = add_int(b, kv->type, 4);
    if (!rc && kv->type == EK_GGUF_ARRAY) {
        rc = add_int(b, kv->elem, 4);
        if (!rc)
            rc = add_int(b, kv->n, 8);
    }
    return rc ? rc : ek_buf_add(b, kv->data, value_bytes(kv));
}

static int add_u32(struct ek_buf *b, const struct ek_gguf_set *s)
{
    int rc = add_str(b, s->key, strlen(s->key));
    if (!rc)
        rc = add_int(b, EK_GGUF_U32, 4);
    return rc ? rc : add_int(b, s->value, 4);
}

/* The entry of sets for this key, or NULL. */
static const struct ek_gguf_set *find_set(const struct ek_gguf_set *sets, size_t n_sets,
                                          struct ek_str key)
{
    for (size_t i = 0; i < n_sets; i++) {
        if (strlen(sets[i].key) == key.n && !memcmp(sets[i].key, key.p, key.n))
            return &sets[i];
    }
    return NULL;
}

static int add_keys(struct ek_buf *b, const struct ek_gguf *from,
                    const struct ek_gguf_set *sets, size_t n_sets)
{
    int rc = 0;
    for (size_t i = 0; i < ek_gguf_n_kv(from) && !rc; i++) {
        const struct ek_gguf_kv *kv = ek_gguf_kv_at(from, i);
        const struct ek_gguf_set *set = find_set(sets, n_sets, kv->key);
        rc = set ? add_u32(b, set) : add_kv(b, kv);
    }
    for (size_t i = 0; i < n_sets && !rc; i++) {
        if (!ek_gguf_find(from, sets[i].key))
            rc = add_u32(b, &sets[i]);
    }
    return rc;
}

static int add_info(struct ek_buf *b, const struct ek_tensor *t, uint64_t offset)
{
    int rc = add_str(b, t->name, strlen(t->name));
    if (!rc)
        rc = add_int(b, (uint64_t)t->n_dims, 4);
    for (int i = t->n_dims - 1; i >= 0 && !rc; i--)
        rc = add_int(b, (uint64_t)t->shape[i], 8);
    if (!rc)
        rc = add_int(b, (uint64_t)ek_gguf_number(t->dtype), 4);
    return rc ? rc : add_int(b, offset, 8);
}

static uint32_t alignment_of(const struct ek_gguf *from)
{
    uint32_t a = EK_GGUF_ALIGNMENT;
    return ek_gguf_get_u32(from, "general.alignment", &a, NULL) ? EK_GGUF_ALIGNMENT : a;
}

size_t ek_gguf_padding(const struct ek_gguf *from, uint64_t bytes)
{
    uint32_t a = alignment_of(from);
    return (size_t)((a - bytes % a) % a);
}

static int add_all(struct ek_buf *b, const struct ek_gguf *from,
                   const struct ek_gguf_set *sets, size_t n_sets,
                   const struct ek_tensors *tensors)
{
    size_t n_kv = ek_gguf_n_kv(from), start = b->len;
    uint64_t offset = 0;
    for (size_t i = 0; i < n_sets; i++)
        n_kv += !ek_gguf_find(from, sets[i].key);
    int rc = ek_buf_add(b, "GGUF", 4);
    if (!rc)
        rc = add_int(b, 3, 4);
    if (!rc)
        rc = add_int(b, tensors->n, 8);
    if (!rc)
        rc = add_int(b, n_kv, 8);
    if (!rc)
        rc = add_keys(b, from, sets, n_sets);
    for (size_t i = 0; i < tensors->n && !rc; i++) {
        const struct ek_tensor *t = &tensors->items[i];
        rc = add_info(b, t, offset);
        offset += t->bytes + ek_gguf_padding(from, t->bytes);
    }
    size_t pad = ek_gguf_padding(from, b->len - start);
    for (size_t i = 0; i < pad && !rc; i++)
        rc = ek_buf_add_char(b, 0);
    return rc;
}

int ek_gguf_header(struct ek_buf *out, const char *path, const struct ek_gguf *from,
                   const struct ek_gguf_set *sets, size_t n_sets,
                   const struct ek_tensors *tensors, struct ek_err *err)
{
    for (size_t i = 0; i < tensors->n; i++) {
        const struct ek_tensor *t = &tensors->items[i];
        if (ek_gguf_number(t->dtype) < 0)
            return ek_err_set(err, EK_EUNSUP,
                              "%s: tensor '%.100s': GGUF has no type for %s", path,
                              t->name, ek_dtype_name(t->dtype));
        if (strlen(t->name) > EK_GGUF_NAME_MAX)
            return ek_err_set(err, EK_EINVAL,
                              "%s: tensor '%.100s...': expected a name of at most %d "
                              "bytes",
                              path, t->name, EK_GGUF_NAME_MAX);
    }
    int rc = add_all(out, from, sets, n_sets, tensors);
    return rc ? ek_err_set(err, rc, "%s: %s", path, ek_status_text(rc)) : 0;
}
