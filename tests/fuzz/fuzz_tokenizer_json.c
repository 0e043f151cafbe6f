/* Hostile tokenizer.json files, and text through those that load.
 *
 * Input: tokenizer.json, a NUL byte, text to encode. What loads must encode the text,
 * decode its own ids, and stream the same text in whole characters. */
#include "base/buf.h"
#include "base/utf8.h"
#include "data/tokenizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void stream(const struct ek_tokenizer *t, const struct ek_ids *ids)
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

static void use(const struct ek_tokenizer *t, const char *text, size_t n,
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *json = (const char *)data;
    const char *end = size ? memchr(json, 0, size) : NULL;
    size_t n = end ? (size_t)(end - json) : size;
    const char *text = end ? end + 1 : "";
    size_t n_text = end ? size - n - 1 : 0;
    struct ek_tokenizer *t = NULL;
    struct ek_err err = EK_ERR_INIT;
    if (ek_tokenizer_from_json(&t, json, n, NULL, 0, "fuzz.json", &err)) {
        if (!err.status || !err.text[0])
            abort();
        return 0;
    }
    use(t, text, n_text, EK_SPECIALS_PLAIN);
    use(t, text, n_text, EK_SPECIALS_PARSE);
    ek_tokenizer_free(t);
    return 0;
}
