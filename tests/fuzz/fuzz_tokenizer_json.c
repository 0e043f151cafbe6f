/* Hostile tokenizer.json files, and text through those that load.
 *
 * Input: tokenizer.json, a NUL byte, text to encode. What loads must encode the text,
 * decode its own ids, and stream the same text in whole characters. */
#include "tokenizer_use.h"

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
