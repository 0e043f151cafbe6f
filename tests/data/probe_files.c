/* probe_files.c - shows a script what the file readers see:
 *   probe_files kv FILE.gguf        a JSON array a line: key, type, element type, values
 *   probe_files tensors MODEL       a JSON array a line: name, dtype, shape, bytes
 *   probe_files raw MODEL OUT       the tensors' bytes, one after the other
 *   probe_files f32 MODEL OUT       the same as f32, where the type is a real number's
 *   probe_files copy IN OUT         IN.safetensors written again
 */
#include "base/json.h"
#include "base/mem.h"
#include "data/modelfile.h"
#include "num/quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int add_value(struct ek_buf *b, const struct ek_gguf_kv *kv, uint64_t i)
{
    if (kv->elem == EK_GGUF_STR) {
        struct ek_str s = ek_gguf_str_at(kv, i);
        return ek_json_add_str(b, s.p, s.n);
    }
    if (kv->elem == EK_GGUF_F32 || kv->elem == EK_GGUF_F64)
        return ek_json_add_double(b, ek_gguf_num_at(kv, i));
    if (kv->elem == EK_GGUF_U64)
        return ek_buf_addf(b, "%" PRIu64, (uint64_t)ek_gguf_int_at(kv, i));
    return ek_buf_addf(b, "%" PRId64, ek_gguf_int_at(kv, i));
}

static int add_kv(struct ek_buf *b, const struct ek_gguf_kv *kv)
{
    int rc = ek_buf_add_char(b, '[');
    if (!rc)
        rc = ek_json_add_str(b, kv->key.p, kv->key.n);
    if (!rc)
        rc = ek_buf_addf(b, ",\"%s\",\"%s\"", ek_gguf_type_name(kv->type),
                         ek_gguf_type_name(kv->elem));
    for (uint64_t i = 0; i < kv->n && !rc; i++) {
        rc = ek_buf_add_char(b, ',');
        if (!rc)
            rc = add_value(b, kv, i);
    }
    return rc ? rc : ek_buf_add_str(b, "]\n");
}

static int show_kv(const struct ek_modelfile *m)
{
    struct ek_buf b;
    ek_buf_init(&b, 1 << 30);
    int rc = m->gguf ? 0 : EK_EINVAL;
    for (size_t i = 0; !rc && i < ek_gguf_n_kv(m->gguf); i++)
        rc = add_kv(&b, ek_gguf_kv_at(m->gguf, i));
    if (!rc)
        fwrite(b.data, 1, b.len, stdout);
    ek_buf_release(&b);
    return rc;
}

static int show_tensors(const struct ek_modelfile *m)
{
    struct ek_buf b;
    ek_buf_init(&b, 1 << 30);
    int rc = 0;
    for (size_t i = 0; !rc && i < m->tensors->n; i++) {
        const struct ek_tensor *t = &m->tensors->items[i];
        rc = ek_buf_add_char(&b, '[');
        if (!rc)
            rc = ek_json_add_str(&b, t->name, strlen(t->name));
        if (!rc)
            rc = ek_buf_addf(&b, ",\"%s\",[", ek_dtype_name(t->dtype));
        for (int d = 0; d < t->n_dims && !rc; d++)
            rc = ek_buf_addf(&b, "%s%" PRId64, d ? "," : "", t->shape[d]);
        if (!rc)
            rc = ek_buf_addf(&b, "],%zu]\n", t->bytes);
    }
    if (!rc && b.len)
        fwrite(b.data, 1, b.len, stdout);
    ek_buf_release(&b);
    return rc;
}

static int write_f32(const struct ek_tensor *t, FILE *out)
{
    size_t n = (size_t)ek_tensor_elems(t);
    if (!ek_quant_can_read(t->dtype))
        return 0;
    float *x = ek_alloc_array(n, sizeof *x);
    if (!x)
        return EK_ENOMEM;
    ek_quant_to_f32(x, t->dtype, t->data, n);
    int rc = fwrite(x, sizeof *x, n, out) == n ? 0 : EK_EIO;
    ek_free(x);
    return rc;
}

static int write_data(const struct ek_modelfile *m, const char *path, bool is_f32)
{
    FILE *out = fopen(path, "wb");
    int rc = out ? 0 : EK_EIO;
    for (size_t i = 0; !rc && i < m->tensors->n; i++) {
        const struct ek_tensor *t = &m->tensors->items[i];
        if (is_f32)
            rc = write_f32(t, out);
        else if (t->bytes)
            rc = fwrite(t->data, 1, t->bytes, out) == t->bytes ? 0 : EK_EIO;
    }
    if (out && fclose(out) && !rc)
        rc = EK_EIO;
    return rc;
}

int main(int argc, char **argv)
{
    struct ek_modelfile m;
    struct ek_err err = EK_ERR_INIT;
    if (argc < 3)
        return 2;
    int rc = ek_modelfile_open(&m, argv[2], &err);
    if (rc) {
        fprintf(stderr, "%s\n", err.text);
        return 3;
    }
    if (!strcmp(argv[1], "kv"))
        rc = show_kv(&m);
    else if (!strcmp(argv[1], "tensors"))
        rc = show_tensors(&m);
    else if (argc == 4 && !strcmp(argv[1], "raw"))
        rc = write_data(&m, argv[3], false);
    else if (argc == 4 && !strcmp(argv[1], "f32"))
        rc = write_data(&m, argv[3], true);
    else if (argc == 4 && !strcmp(argv[1], "copy"))
        rc = ek_safetensors_write(argv[3], m.tensors,
                                  (const char *const[][2]){{"format", "pt"}}, 1, &err);
    else
        rc = EK_EINVAL;
    if (rc)
        fprintf(stderr, "%s %s\n", ek_status_name(rc), err.text);
    ek_modelfile_close(&m);
    return rc ? 1 : 0;
}
