/* kv.h - storage of keys and values in pages; who owns a page is serve/pages' matter.
 *
 *   layer l:  K [page][kv head][token][D]   V [page][kv head][token][D]
 * Owner thread: the one that runs forward.
 */
#ifndef EVENKEEL_LM_KV_H
#define EVENKEEL_LM_KV_H

#include "base/err.h"
#include "lm/params.h"
#include "num/dtype.h"

#define EK_PAGE_TOKENS 16

struct ek_kv {
    enum ek_dtype dtype; /* F32, BF16 or E4M3 (scale 1: see n_saturated) */
    int32_t n_pages;
    int32_t n_layers, K, D;
    size_t page_bytes;   /* of K, or of V, in one layer */
    int64_t n_saturated; /* values so far that e4m3 cut to +-448; 0 for others */
    unsigned char *data; /* heap, 64-byte aligned, owned */
};

/* Bytes one page takes over all layers, K and V: what a memory budget is divided by. */
size_t ek_kv_page_bytes(const struct ek_lm_params *p, enum ek_dtype dtype);

/* Errors: EK_ENOMEM, EK_ELIMIT; the sentence gives pages and bytes. */
int ek_kv_init(struct ek_kv *kv, const struct ek_lm_params *p, enum ek_dtype dtype,
               int32_t n_pages, struct ek_err *err) EK_MUST_USE;
void ek_kv_release(struct ek_kv *kv);

void *ek_kv_k(const struct ek_kv *kv, int32_t layer); /* pool of one layer */
void *ek_kv_v(const struct ek_kv *kv, int32_t layer);

/* A whole page in all layers, K and V: copied bit for bit, or filled with bytes 0xff,
 * which are NaN in every dtype here, so that a read of it cannot go unseen. */
void ek_kv_copy_page(struct ek_kv *kv, int32_t to, int32_t from);
void ek_kv_poison(struct ek_kv *kv, int32_t page);

#endif
