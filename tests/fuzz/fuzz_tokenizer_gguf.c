/* Hostile vocabularies in GGUF, and text through those that load.
 *
 * Input: one byte n, n bytes of text, a GGUF file. */
#include "tokenizer_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size - 1 < data[0])
        return 0;
    size_t n_text = data[0];
    const char *text = (const char *)data + 1;
    struct ek_gguf *g = NULL;
    struct ek_tokenizer *t = NULL;
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_gguf_parse(&g, text + n_text, size - 1 - n_text, "fuzz.gguf", &err);
    if (!rc)
        rc = ek_tokenizer_from_gguf(&t, g, &err);
    if (rc && (err.status != rc || !err.text[0]))
        abort();
    if (!rc) {
        use(t, text, n_text, EK_SPECIALS_PLAIN);
        use(t, text, n_text, EK_SPECIALS_PARSE);
    }
    ek_tokenizer_free(t);
    ek_gguf_free(g);
    return 0;
}
