/* inspect_json.c - keel inspect --json: one object with the keys that are listed in
 * docs/guide/inspect.md. The file's arrays are given by count and first elements. */
#include "base/json.h"
#include "base/mem.h"
#include "cli/inspect.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_ELEMS 8

/* "key":"value" or "key":null, with a comma behind. */
static int add_text(struct ek_buf *out, const char *key, const char *value)
{
    int rc = ek_buf_addf(out, "\"%s\":", key);
    if (!rc)
        rc = value ? ek_json_add_str(out, value, strlen(value))
                   : ek_buf_add_str(out, "null");
    return rc ? rc : ek_buf_add_char(out, ',');
}

static int add_element(struct ek_buf *out, const struct ek_gguf_kv *kv, uint64_t i)
{
    struct ek_str s;
    double v;
    switch (kv->elem) {
    case EK_GGUF_STR:
        s = ek_gguf_str_at(kv, i);
        return ek_json_add_str(out, s.p, s.n);
    case EK_GGUF_F32:
    case EK_GGUF_F64:
        v = ek_gguf_num_at(kv, i);
        return isfinite(v) ? ek_inspect_add_real(out, v, kv->elem == EK_GGUF_F32)
                           : ek_buf_add_str(out, "null");
    case EK_GGUF_BOOL:
        return ek_buf_add_str(out, ek_gguf_int_at(kv, i) ? "true" : "false");
    case EK_GGUF_U64:
        return ek_buf_addf(out, "%" PRIu64, (uint64_t)ek_gguf_int_at(kv, i));
    default:
        return ek_buf_addf(out, "%" PRId64, ek_gguf_int_at(kv, i));
    }
}

static int add_value(struct ek_buf *out, const struct ek_gguf_kv *kv)
{
    if (kv->type != EK_GGUF_ARRAY)
        return add_element(out, kv, 0);
    int rc = ek_buf_addf(out, "{\"array_of\":\"%s\",\"count\":%" PRIu64 ",\"first\":[",
                         ek_gguf_type_name(kv->elem), kv->n);
    for (uint64_t i = 0; i < kv->n && i < SHOWN_ELEMS && !rc; i++) {
        rc = i ? ek_buf_add_char(out, ',') : 0;
        if (!rc)
            rc = add_element(out, kv, i);
    }
    return rc ? rc : ek_buf_add_str(out, "]}");
}

static int add_gguf(struct ek_buf *out, const struct ek_gguf *g)
{
    int rc = ek_buf_add_char(out, '{');
    for (size_t i = 0; i < ek_gguf_n_kv(g) && !rc; i++) {
        const struct ek_gguf_kv *kv = ek_gguf_kv_at(g, i);
        rc = i ? ek_buf_add_char(out, ',') : 0;
        if (!rc)
            rc = ek_json_add_str(out, kv->key.p, kv->key.n);
        if (!rc)
            rc = ek_buf_add_char(out, ':');
        if (!rc)
            rc = add_value(out, kv);
    }
    return rc ? rc : ek_buf_add_char(out, '}');
}

static int add_metas(struct ek_buf *out, const struct ek_safetensors *s)
{
    const char *key, *value;
    int rc = ek_buf_add_char(out, '{');
    for (size_t i = 0; !rc && ek_safetensors_meta_at(s, i, &key, &value); i++) {
        rc = i ? ek_buf_add_char(out, ',') : 0;
        if (!rc)
            rc = ek_json_add_str(out, key, strlen(key));
        if (!rc)
            rc = ek_buf_add_char(out, ':');
        if (!rc)
            rc = ek_json_add_str(out, value, strlen(value));
    }
    return rc ? rc : ek_buf_add_char(out, '}');
}

static int add_piece(const char *p, size_t n, void *out)
{
    return ek_buf_add(out, p, n);
}

static int add_metadata(struct ek_buf *out, const struct ek_inspect *f)
{
    int rc = ek_buf_add_str(out, "\"metadata\":");
    if (rc)
        return rc;
    if (f->m.gguf)
        return add_gguf(out, f->m.gguf);
    if (f->m.config)
        return json_dump_callback(f->m.config, add_piece, out, JSON_COMPACT) ? EK_ENOMEM
                                                                             : 0;
    return add_metas(out, f->m.shards);
}

static int add_types(struct ek_buf *out, const struct ek_inspect *f)
{
    bool is_first = true;
    int rc = ek_buf_add_str(out, "\"types\":[");
    for (int t = 0; t < EK_DTYPE_COUNT && !rc; t++) {
        if (!f->types[t].n)
            continue;
        rc = ek_buf_addf(out,
                         "%s{\"dtype\":\"%s\",\"tensors\":%zu,\"parameters\":%" PRIu64
                         ",\"bytes\":%zu}",
                         is_first ? "" : ",", ek_dtype_name((enum ek_dtype)t),
                         f->types[t].n, f->types[t].n_params, f->types[t].bytes);
        is_first = false;
    }
    return rc ? rc : ek_buf_add_str(out, "],");
}

static int add_language(struct ek_buf *out, const struct ek_inspect *f)
{
    int rc = add_text(out, "tokenizer", f->has_tokenizer ? f->tokenizer : NULL);
    if (!rc)
        rc = ek_buf_addf(out, "\"vocabulary\":%" PRId64 ",\"context\":%" PRId64 ",",
                         f->n_tokens, f->context);
    if (!rc)
        rc = ek_buf_addf(out, "\"chat_template_bytes\":%zu,",
                         f->has_template ? f->template_bytes : 0);
    if (!rc && f->kv_elems)
        rc = ek_buf_addf(out,
                         "\"kv_bytes_per_token\":{\"f32\":%" PRId64 ",\"bf16\":%" PRId64
                         ",\"fp8\":%" PRId64 "},",
                         4 * f->kv_elems, 2 * f->kv_elems, f->kv_elems);
    else if (!rc)
        rc = ek_buf_add_str(out, "\"kv_bytes_per_token\":null,");
    return rc;
}

static int add_notes(struct ek_buf *out, const struct ek_inspect *f)
{
    int rc = ek_buf_add_str(out, "\"notes\":[");
    for (int i = 0; i < f->n_notes && !rc; i++) {
        rc = i ? ek_buf_add_char(out, ',') : 0;
        if (!rc)
            rc = ek_json_add_str(out, f->notes[i].text, strlen(f->notes[i].text));
    }
    return rc ? rc : ek_buf_add_str(out, "],");
}

static int add_tensor(struct ek_buf *out, const struct ek_tensor *t)
{
    int rc = ek_buf_add_str(out, "{\"name\":");
    if (!rc)
        rc = ek_json_add_str(out, t->name, strlen(t->name));
    if (!rc)
        rc = ek_buf_addf(out, ",\"dtype\":\"%s\",\"shape\":[", ek_dtype_name(t->dtype));
    for (int i = 0; i < t->n_dims && !rc; i++)
        rc = ek_buf_addf(out, "%s%" PRId64, i ? "," : "", t->shape[i]);
    return rc ? rc : ek_buf_addf(out, "],\"bytes\":%zu}", t->bytes);
}

static int add_tensors(struct ek_buf *out, const struct ek_tensors *t)
{
    int rc = ek_buf_add_str(out, ",\"tensor_list\":[");
    for (size_t i = 0; i < t->n && !rc; i++) {
        rc = i ? ek_buf_add_char(out, ',') : 0;
        if (!rc)
            rc = add_tensor(out, &t->items[i]);
    }
    return rc ? rc : ek_buf_add_char(out, ']');
}

int ek_inspect_json(struct ek_buf *out, const struct ek_inspect *f, bool has_tensors)
{
    int rc = ek_buf_add_char(out, '{');
    if (!rc)
        rc = add_text(out, "file", f->m.path);
    if (!rc)
        rc = add_text(out, "format", f->m.gguf ? "gguf" : "safetensors");
    if (!rc)
        rc = add_text(out, "architecture", f->arch[0] ? f->arch : NULL);
    if (!rc)
        rc = ek_buf_addf(out,
                         "\"parameters\":%" PRIu64 ",\"tensors\":%zu,\"bytes\":%zu,",
                         f->n_params, f->m.tensors->n, f->bytes);
    if (!rc)
        rc = add_types(out, f);
    if (!rc)
        rc = add_language(out, f);
    if (!rc)
        rc = add_notes(out, f);
    if (!rc)
        rc = add_metadata(out, f);
    if (!rc && has_tensors)
        rc = add_tensors(out, f->m.tensors);
    return rc ? rc : ek_buf_add_str(out, "}\n");
}
