/* tokenizer_use.h - what a tokenizer that loaded must do with any text. */
#ifndef EVENKEEL_TESTS_FUZZ_TOKENIZER_USE_H
#define EVENKEEL_TESTS_FUZZ_TOKENIZER_USE_H

#include "base/buf.h"
#include "base/utf8.h"
#include "data/tokenizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline void stream(const struct ek_tokenizer *t, const struct ek_ids *ids)
{
    struct ek_detok d;
    struct ek_buf out;
    ek_buf_init(&out, 1 << 24);
    ek_detok_init(&d, t, true, true);
    for (size_t i = 0; i < ids->n; i++)
        if (ek_detok_feed(&d, &out, ids->ids[i]))
            abort();
    if (ek_detok_finish(&d, &out))
        abort();
    if (out.len && !ek_utf8_is_valid(out.data, out.len))
        abort();
    ek_buf_release(&out);
}

static inline void use(const struct ek_tokenizer *t, const char *text, size_t n,
                       enum ek_specials specials)
{
    struct ek_ids ids;
    struct ek_buf out;
    ek_ids_init(&ids, 1 << 20);
    ek_buf_init(&out, 1 << 24);
    if (ek_tokenizer_encode(t, &ids, text, n, NULL, specials, true) == 0) {
        for (size_t i = 0; i < ids.n; i++)
            if (ids.ids[i] < 0 || ids.ids[i] >= ek_tokenizer_size(t))
                abort();
        if (ek_tokenizer_decode(t, &out, ids.ids, ids.n, true))
            abort();
        stream(t, &ids);
    }
    ek_ids_release(&ids);
    ek_buf_release(&out);
}

#endif
