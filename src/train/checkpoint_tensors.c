/* checkpoint_tensors.c - the numbers of a checkpoint: which tensors there are, written
 * without a copy and digested on the way, and taken only when all of them fit. */
#include "base/mem.h"
#include "train/checkpoint_int.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define CHUNK (1 << 20) /* digested and written while it is in the cache */

static void add(struct ek_state *s, const char *prefix, const struct ek_param *p,
                bool is_row_state, float *value)
{
    size_t i = s->tensors.n++;
    struct ek_tensor *t = &s->tensors.items[i];
    snprintf(s->names[i], sizeof s->names[i], "%s%s", prefix, p->name);
    int64_t n = is_row_state ? p->rows : p->rows * p->cols;
    *t = (struct ek_tensor){.name = s->names[i],
                            .dtype = EK_DTYPE_F32,
                            .n_dims = is_row_state ? 1 : 2,
                            .shape = {p->rows, is_row_state ? 0 : p->cols},
                            .data = value,
                            .bytes = (size_t)n * sizeof *value};
    s->values[i] = value;
}

static void add_optimizer(struct ek_state *s, const struct ek_checkpoint *c, int id)
{
    const struct ek_param *p = ek_params_get(c->params, id);
    float *m = c->adamw ? ek_adamw_moment(c->adamw, id, 1) : NULL;
    float *v = c->adamw ? ek_adamw_moment(c->adamw, id, 2) : NULL;
    float *sums = c->adagrad ? ek_adagrad_sums(c->adagrad, id) : NULL;
    if (m)
        add(s, "adamw.m.", p, false, m);
    if (v)
        add(s, "adamw.v.", p, false, v);
    if (sums)
        add(s, "adagrad.", p, true, sums);
}

int ek_state_init(struct ek_state *s, const struct ek_checkpoint *c, bool is_model,
                  struct ek_err *err)
{
    int n = ek_params_count(c->params);
    size_t cap = 2 * (size_t)n; /* two moments, or one sum */
    *s = (struct ek_state){0};
    s->tensors.items = ek_alloc_array(cap, sizeof *s->tensors.items);
    s->values = ek_alloc_array(cap, sizeof *s->values);
    s->names = ek_alloc_array(cap, sizeof *s->names);
    if (!s->tensors.items || !s->values || !s->names) {
        ek_state_release(s);
        return ek_err_set(err, EK_ENOMEM, "checkpoint: %s", ek_status_text(EK_ENOMEM));
    }
    for (int i = 0; i < n; i++) {
        struct ek_param *p = ek_params_get(c->params, i);
        if (is_model)
            add(s, "", p, false, p->value);
        else
            add_optimizer(s, c, i);
    }
    return 0;
}

void ek_state_release(struct ek_state *s)
{
    ek_free(s->tensors.items);
    ek_free(s->values);
    ek_free(s->names);
    *s = (struct ek_state){0};
}

static int add_digested(struct ek_file_out *f, uint32_t *crc, const void *data,
                        size_t n, struct ek_err *err)
{
    int rc = 0;
    for (const unsigned char *p = data; n && !rc;) {
        size_t k = n < CHUNK ? n : CHUNK;
        *crc = (uint32_t)crc32_z(*crc, p, k);
        rc = ek_file_out_add(f, p, k, err);
        p += k;
        n -= k;
    }
    return rc;
}

int ek_state_write(const struct ek_state *s, const char *folder,
                   struct ek_checkpoint_file *file, struct ek_err *err)
{
    char path[EK_CHECKPOINT_PATH];
    struct ek_file_out out = {.fd = -1};
    struct ek_buf header;
    uint32_t crc = 0;
    ek_buf_init(&header, EK_CHECKPOINT_TEXT_MAX);
    ek_checkpoint_path(path, folder, file->name);
    int rc = ek_safetensors_header(&header, path, &s->tensors, NULL, 0, err);
    if (!rc)
        rc = ek_file_out_begin(&out, path, err);
    if (!rc)
        rc = add_digested(&out, &crc, header.data, header.len, err);
    for (size_t i = 0; i < s->tensors.n && !rc; i++)
        rc = add_digested(&out, &crc, s->values[i], s->tensors.items[i].bytes, err);
    if (!rc)
        rc = ek_file_out_end(&out, err);
    if (rc)
        goto out;
    file->bytes = out.bytes;
    file->crc = crc;
out:
    ek_file_out_cancel(&out);
    ek_buf_release(&header);
    return rc;
}

int ek_state_open(struct ek_state_in *in, const char *folder,
                  const struct ek_checkpoint_file *file, struct ek_err *err)
{
    *in = (struct ek_state_in){0};
    ek_checkpoint_path(in->path, folder, file->name);
    int rc = ek_file_open(&in->map, in->path, err);
    if (rc)
        return rc;
    if (in->map.size != file->bytes) {
        rc = ek_err_set(err, EK_EFORMAT,
                        "%s: has %zu bytes; the manifest says %llu: truncated, or of "
                        "another checkpoint",
                        in->path, in->map.size, (unsigned long long)file->bytes);
        goto out;
    }
    uint32_t crc = (uint32_t)crc32_z(0, in->map.data, in->map.size);
    if (crc != file->crc) {
        rc = ek_err_set(err, EK_EFORMAT,
                        "%s: CRC32 is %08x; the manifest says %08x: damaged", in->path,
                        (unsigned)crc, (unsigned)file->crc);
        goto out;
    }
    rc = ek_safetensors_parse(&in->read, in->map.data, in->map.size, in->path, err);
out:
    if (rc)
        ek_state_close(in);
    return rc;
}

void ek_state_close(struct ek_state_in *in)
{
    ek_safetensors_free(in->read);
    ek_file_close(&in->map);
    in->read = NULL;
}

/* The first tensor of the file that s lacks, or NULL. */
static const char *find_other(const struct ek_state *s, const struct ek_tensors *have)
{
    for (size_t i = 0; i < have->n; i++) {
        if (!ek_tensors_find(&s->tensors, have->items[i].name))
            return have->items[i].name;
    }
    return NULL;
}

int ek_state_check(const struct ek_state *s, const struct ek_state_in *in,
                   bool is_exact, struct ek_err *err)
{
    const struct ek_tensors *have = ek_safetensors_tensors(in->read);
    char is[96], want[96];
    for (size_t i = 0; i < s->tensors.n; i++) {
        const struct ek_tensor *w = &s->tensors.items[i];
        const struct ek_tensor *t = ek_tensors_find(have, w->name);
        if (!t)
            return ek_err_set(err, EK_EFORMAT,
                              "%s: has no '%s' %s: a checkpoint of another model",
                              in->path, w->name, ek_tensor_shape_text(want, w));
        if (t->dtype != w->dtype || t->n_dims != w->n_dims || t->bytes != w->bytes ||
            memcmp(t->shape, w->shape, (size_t)w->n_dims * sizeof *w->shape) != 0)
            return ek_err_set(err, EK_EFORMAT,
                              "%s: '%s' is %s %s in the checkpoint and %s %s in the "
                              "model: a checkpoint of another model",
                              in->path, w->name, ek_dtype_name(t->dtype),
                              ek_tensor_shape_text(is, t), ek_dtype_name(w->dtype),
                              ek_tensor_shape_text(want, w));
    }
    const char *other = is_exact ? find_other(s, have) : NULL;
    if (other)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: has '%.100s', which the model lacks: a checkpoint of "
                          "another model",
                          in->path, other);
    return 0;
}

void ek_state_take(const struct ek_state *s, const struct ek_state_in *in)
{
    const struct ek_tensors *have = ek_safetensors_tensors(in->read);
    for (size_t i = 0; i < s->tensors.n; i++) {
        const struct ek_tensor *t = ek_tensors_find(have, s->tensors.items[i].name);
        memcpy(s->values[i], t->data, t->bytes);
    }
}
