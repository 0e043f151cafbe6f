/* gguf_write.h - the header of a GGUF file made from another: its keys, other tensors.
 *
 * The file is header, then each tensor's bytes, each followed by zeros up to the
 * alignment (ek_gguf_padding), in the order of the list.
 */
#ifndef EVENKEEL_DATA_GGUF_WRITE_H
#define EVENKEEL_DATA_GGUF_WRITE_H

#include "base/buf.h"
#include "data/gguf.h"

/* A key that is a u32, whatever `from` had under it. */
struct ek_gguf_set {
    const char *key;
    uint32_t value;
};

/* Appends a version 3 header with the padding before the data: the keys of `from` in
 * their order and byte for byte, those of sets[0,n_sets) in their places or behind;
 * then the tensors (name, dtype, shape, bytes; data is not looked at). Errors:
 * EK_EUNSUP a dtype without a GGUF number; EK_EINVAL a name over 255 bytes; EK_ELIMIT,
 * EK_ENOMEM of the buffer; the sentence names `path`. */
int ek_gguf_header(struct ek_buf *out, const char *path, const struct ek_gguf *from,
                   const struct ek_gguf_set *sets, size_t n_sets,
                   const struct ek_tensors *tensors, struct ek_err *err) EK_MUST_USE;

/* Zeros behind a tensor of so many bytes. */
size_t ek_gguf_padding(const struct ek_gguf *from, uint64_t bytes);

#endif
