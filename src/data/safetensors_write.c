/* safetensors_write.c - one file from tensors that lie anywhere; no copy is made. */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/safetensors_int.h"

#include <inttypes.h>
#include <string.h>

static int add_metas(struct ek_buf *b, const char *const (*meta)[2], size_t n_meta)
{
    int rc = ek_buf_add_str(b, "\"" EK_SAFETENSORS_META "\":{");
    for (size_t i = 0; i < n_meta && !rc; i++) {
        if (i)
            rc = ek_buf_add_char(b, ',');
        if (!rc)
            rc = ek_json_add_str(b, meta[i][0], strlen(meta[i][0]));
        if (!rc)
            rc = ek_buf_add_char(b, ':');
        if (!rc)
            rc = ek_json_add_str(b, meta[i][1], strlen(meta[i][1]));
    }
    return rc ? rc : ek_buf_add_char(b, '}');
}

static int add_tensor(struct ek_buf *b, const struct ek_tensor *t, size_t begin)
{
    int rc = ek_json_add_str(b, t->name, strlen(t->name));
    if (!rc)
        rc = ek_buf_addf(b, ":{\"dtype\":\"%s\",\"shape\":[",
                         ek_safetensors_word(t->dtype));
    for (int i = 0; i < t->n_dims && !rc; i++)
        rc = ek_buf_addf(b, "%s%" PRId64, i ? "," : "", t->shape[i]);
    if (!rc)
        rc = ek_buf_addf(b, "],\"data_offsets\":[%zu,%zu]}", begin, begin + t->bytes);
    return rc;
}

/* Length word, JSON, spaces up to a multiple of 8. */
static int add_header(struct ek_buf *b, const struct ek_tensors *tensors,
                      const char *const (*meta)[2], size_t n_meta)
{
    size_t begin = 0, start = b->len;
    int rc = ek_buf_add(b, "\0\0\0\0\0\0\0\0{", 9);
    if (!rc && n_meta)
        rc = add_metas(b, meta, n_meta);
    for (size_t i = 0; i < tensors->n && !rc; i++) {
        if (i || n_meta)
            rc = ek_buf_add_char(b, ',');
        if (!rc)
            rc = add_tensor(b, &tensors->items[i], begin);
        begin += tensors->items[i].bytes;
    }
    if (!rc)
        rc = ek_buf_add_char(b, '}');
    while (!rc && (b->len - start) % 8)
        rc = ek_buf_add_char(b, ' ');
    for (int i = 0; i < 8 && !rc; i++)
        b->data[start + (size_t)i] = (char)((b->len - start - 8) >> 8 * i & 0xff);
    return rc;
}

static int check_tensors(const struct ek_tensors *tensors, const char *path,
                         struct ek_err *err)
{
    struct ek_tensors named = {tensors->items, tensors->n, NULL};
    size_t twin = 0, total = 0;
    for (size_t i = 0; i < tensors->n; i++) {
        const struct ek_tensor *t = &tensors->items[i];
        size_t bytes = 0;
        if (!ek_safetensors_word(t->dtype))
            return ek_err_set(err, EK_EUNSUP,
                              "%s: tensor '%.100s': safetensors has no name for %s",
                              path, t->name, ek_dtype_name(t->dtype));
        if (!ek_utf8_is_valid(t->name, strlen(t->name)))
            return ek_err_set(err, EK_EINVAL,
                              "%s: tensor '%.100s': name is not UTF-8; expected UTF-8",
                              path, t->name);
        if (ek_tensor_bytes(&bytes, t->dtype, t->shape, t->n_dims) ||
            bytes != t->bytes || !ek_add_size(&total, total, bytes) ||
            !strcmp(t->name, EK_SAFETENSORS_META))
            return ek_err_set(err, EK_EINVAL,
                              "%s: tensor '%.100s': %zu bytes do not fit its name, "
                              "shape and type",
                              path, t->name, t->bytes);
    }
    int rc = ek_tensors_index(&named, &twin);
    ek_free(named.by_name);
    if (rc)
        return ek_err_set(err, rc, "%s: %s", path, ek_status_text(rc));
    if (twin < tensors->n)
        return ek_err_set(err, EK_EINVAL,
                          "%s: tensor '%.100s' is there twice; expected once", path,
                          tensors->items[twin].name);
    return 0;
}

int ek_safetensors_header(struct ek_buf *out, const char *path,
                          const struct ek_tensors *tensors,
                          const char *const (*meta)[2], size_t n_meta,
                          struct ek_err *err)
{
    int rc = check_tensors(tensors, path, err);
    if (rc)
        return rc;
    rc = add_header(out, tensors, meta, n_meta);
    return rc ? ek_err_set(err, rc, "%s: %s", path, ek_status_text(rc)) : 0;
}

int ek_safetensors_write(const char *path, const struct ek_tensors *tensors,
                         const char *const (*meta)[2], size_t n_meta,
                         struct ek_err *err)
{
    struct ek_file_part *parts = NULL;
    struct ek_buf header;
    ek_buf_init(&header, EK_SAFETENSORS_HEADER_MAX);
    int rc = ek_safetensors_header(&header, path, tensors, meta, n_meta, err);
    if (rc)
        goto out;
    parts = ek_alloc_array(tensors->n + 1, sizeof *parts);
    if (!parts) {
        rc = ek_err_set(err, EK_ENOMEM, "%s: %s", path, ek_status_text(EK_ENOMEM));
        goto out;
    }
    parts[0] = (struct ek_file_part){header.data, header.len};
    for (size_t i = 0; i < tensors->n; i++)
        parts[i + 1] =
            (struct ek_file_part){tensors->items[i].data, tensors->items[i].bytes};
    rc = ek_file_write_parts(path, parts, tensors->n + 1, err);
out:
    ek_free(parts);
    ek_buf_release(&header);
    return rc;
}
