/* fuzz_source.c - any safetensors file as the matrices of a quantised folder: refused with
 * a sentence, or rows that can be read within the file's bytes. The first byte's lowest
 * bit: config.json says that the folder is quantised. Then the header up to a 0xff byte,
 * then the data, as in fuzz_safetensors.c. */
#include "lm/source.h"
#include "num/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST_ELEMENTS (1 << 16)

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void read_all(const struct ek_source *s)
{
    const struct ek_tensor *which = NULL;
    size_t at = 0, n = (size_t)s->rows * (size_t)(s->cols ? s->cols : 1);
    if (s->rows < 1 || n > MOST_ELEMENTS)
        return;
    bool is_fine = ek_source_check(s, 0, s->rows, &which, &at);
    must(is_fine || (which && at < (size_t)ek_tensor_elems(which)));
    float *x = malloc((n ? n : 1) * sizeof *x);
    must(x != NULL);
    ek_source_read(x, s, 0, s->rows);
    for (size_t i = 0; i < n && is_fine && s->kind == EK_SOURCE_INT4; i++)
        must(isfinite(x[i]));
    if (s->kind == EK_SOURCE_INT4) /* 20 bytes a block of 32 fit 128 */
        ek_source_q4(x, EK_DTYPE_Q4_1, s, 0, s->rows);
    free(x);
}

static void check(const struct ek_modelfile *m)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_source s;
    for (size_t i = 0; i < m->tensors->n && i < 64; i++) {
        const struct ek_tensor *t = &m->tensors->items[i];
        char name[512];
        size_t n = strlen(t->name), cut = strlen("_packed");
        if (n >= sizeof name)
            continue;
        memcpy(name, t->name, n + 1);
        if (n > cut && !strcmp(name + n - cut, "_packed"))
            name[n - cut] = 0;
        if (t->n_dims < 1 || t->n_dims > 2 || !t->shape[0] || !ek_tensor_elems(t))
            continue;
        int rc = ek_source_find(&s, m, name, &err);
        must(!rc || rc == EK_ENOENT || err.text[0]);
        if (!rc && (s.kind == EK_SOURCE_INT4 || ek_quant_can_read(t->dtype)))
            read_all(&s);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[] = "fuzz", folder[] = "";
    struct ek_modelfile m = {.path = path, .folder = folder};
    struct ek_err err = EK_ERR_INIT;
    const uint8_t *cut = size ? memchr(data + 1, 0xff, size - 1) : NULL;
    if (!cut)
        return 0;
    size_t header = (size_t)(cut - data) - 1, rest = size - header - 2;
    uint8_t *p = malloc(8 + header + rest);
    must(p != NULL);
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(header >> 8 * i);
    memcpy(p + 8, data + 1, header);
    memcpy(p + 8 + header, cut + 1, rest);
    if (!ek_safetensors_parse(&m.shards, p, 8 + header + rest, "fuzz", &err)) {
        m.tensors = ek_safetensors_tensors(m.shards);
        m.config = data[0] & 1 ? json_pack("{s:{}}", "quantization_config") : NULL;
        check(&m);
        json_decref(m.config);
    }
    ek_safetensors_free(m.shards);
    free(p);
    return 0;
}
