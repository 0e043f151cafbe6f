/* kv.c - one allocation for the pages of all layers; layer l's K pool, then its V pool.
 *
 * Of each pool only the beginning is touched here, so a large one costs little until
 * its pages are used. Memory is asked for in pages of 2 MiB: with those of 4 KiB
 * attention at depth takes a third longer, for it reads a KiB here and a KiB there.
 */
#include "lm/kv.h"

#include "base/file.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

static bool page_bytes(size_t *out, const struct ek_lm_params *p, enum ek_dtype dtype)
{
    size_t elems, bytes;
    if (!ek_mul_size(&elems, (size_t)p->K * (size_t)p->D, EK_PAGE_TOKENS) ||
        !ek_mul_size(&bytes, elems, ek_dtype_block_bytes(dtype)))
        return false;
    *out = bytes;
    return true;
}

size_t ek_kv_page_bytes(const struct ek_lm_params *p, enum ek_dtype dtype)
{
    size_t one = 0;
    /* K*D is bounded by params.c, so this product cannot overflow. */
    return page_bytes(&one, p, dtype) ? one * 2 * (size_t)p->n_layers : 0;
}

int ek_kv_init(struct ek_kv *kv, const struct ek_lm_params *p, enum ek_dtype dtype,
               int32_t n_pages, struct ek_err *err)
{
    size_t one = 0, pool, total;
    char text[32];
    assert(dtype == EK_DTYPE_F32 || dtype == EK_DTYPE_BF16 || dtype == EK_DTYPE_E4M3);
    memset(kv, 0, sizeof *kv);
    if (n_pages < 1 || !page_bytes(&one, p, dtype) ||
        !ek_mul_size(&pool, one, (size_t)n_pages) ||
        !ek_mul_size(&total, pool, 2 * (size_t)p->n_layers))
        return ek_err_set(err, EK_ELIMIT,
                          "KV memory of %d pages of %zu bytes in each of %d layers is "
                          "out of range",
                          n_pages, 2 * one, p->n_layers);
    unsigned char *data = ek_alloc_huge(total);
    if (!data)
        return ek_err_set(err, EK_ENOMEM,
                          "no memory for %d pages of %d tokens of keys and values "
                          "(%s); fewer or smaller sequences need less",
                          n_pages, EK_PAGE_TOKENS, ek_format_bytes(text, total));
    /* The first pages are sure to be used: the system clears them now, and not one
     * after the other while the first answer waits. */
    for (size_t i = 0; i < 2 * (size_t)p->n_layers; i++)
        data[i * pool] = 0;
    *kv = (struct ek_kv){.dtype = dtype,
                         .n_pages = n_pages,
                         .n_layers = p->n_layers,
                         .K = p->K,
                         .D = p->D,
                         .page_bytes = one,
                         .data = data};
    return 0;
}

void ek_kv_release(struct ek_kv *kv)
{
    ek_free(kv->data);
    memset(kv, 0, sizeof *kv);
}

void *ek_kv_k(const struct ek_kv *kv, int32_t layer)
{
    assert(layer >= 0 && layer < kv->n_layers);
    return kv->data + (size_t)layer * 2 * (size_t)kv->n_pages * kv->page_bytes;
}

void *ek_kv_v(const struct ek_kv *kv, int32_t layer)
{
    return (unsigned char *)ek_kv_k(kv, layer) + (size_t)kv->n_pages * kv->page_bytes;
}

/* Pool i of the 2 * n_layers, from the page on. */
static unsigned char *page_of(const struct ek_kv *kv, int32_t i, int32_t page)
{
    assert(page >= 0 && page < kv->n_pages);
    return kv->data + ((size_t)i * (size_t)kv->n_pages + (size_t)page) * kv->page_bytes;
}

void ek_kv_copy_page(struct ek_kv *kv, int32_t to, int32_t from)
{
    assert(to != from);
    for (int32_t i = 0; i < 2 * kv->n_layers; i++)
        memcpy(page_of(kv, i, to), page_of(kv, i, from), kv->page_bytes);
}

void ek_kv_poison(struct ek_kv *kv, int32_t page)
{
    for (int32_t i = 0; i < 2 * kv->n_layers; i++)
        memset(page_of(kv, i, page), 0xff, kv->page_bytes);
}
