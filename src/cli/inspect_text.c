/* inspect_text.c - keel inspect's page for a person. Text from the file is shown with
 * its control characters written out: a terminal never obeys a model file. */
#include "base/file.h"
#include "base/utf8.h"
#include "cli/inspect.h"
#include "cli/terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 60 /* of a string value */
#define SHOWN_ELEMS 6  /* of an array */

int ek_inspect_add_real(struct ek_buf *out, double v, bool is_f32)
{
    char text[40];
    if (v == trunc(v) && fabs(v) < 1e15)
        return ek_buf_addf(out, "%.1f", v);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (is_f32 ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v)
            break;
    }
    return ek_buf_add_str(out, text);
}

static int add_plain(struct ek_buf *out, const char *s, size_t n)
{
    return ek_terminal_add(out, s, n, "");
}

static int add_quoted(struct ek_buf *out, const char *s, size_t n)
{
    size_t shown = n <= SHOWN_BYTES ? n : ek_utf8_whole_prefix(s, SHOWN_BYTES);
    int rc = ek_buf_add_char(out, '"');
    if (!rc)
        rc = add_plain(out, s, shown);
    if (!rc)
        rc = ek_buf_add_str(out, shown < n ? "...\"" : "\"");
    if (!rc && shown < n)
        rc = ek_buf_addf(out, " (%zu bytes)", n);
    return rc;
}

/* 134515008 -> "134,515,008" */
static const char *group_digits(char out[32], uint64_t v)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, v), at = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    return out;
}

static int add_element(struct ek_buf *out, const struct ek_gguf_kv *kv, uint64_t i)
{
    struct ek_str s;
    switch (kv->elem) {
    case EK_GGUF_STR:
        s = ek_gguf_str_at(kv, i);
        return add_quoted(out, s.p, s.n);
    case EK_GGUF_F32:
    case EK_GGUF_F64:
        return ek_inspect_add_real(out, ek_gguf_num_at(kv, i), kv->elem == EK_GGUF_F32);
    case EK_GGUF_BOOL:
        return ek_buf_add_str(out, ek_gguf_int_at(kv, i) ? "true" : "false");
    case EK_GGUF_U64:
        return ek_buf_addf(out, "%" PRIu64, (uint64_t)ek_gguf_int_at(kv, i));
    default:
        return ek_buf_addf(out, "%" PRId64, ek_gguf_int_at(kv, i));
    }
}

static int add_kv(struct ek_buf *out, const struct ek_gguf_kv *kv, int width)
{
    char type[48];
    if (kv->type == EK_GGUF_ARRAY)
        snprintf(type, sizeof type, "%s[%" PRIu64 "]", ek_gguf_type_name(kv->elem),
                 kv->n);
    else
        snprintf(type, sizeof type, "%s", ek_gguf_type_name(kv->type));
    int pad = width - (int)(kv->key.n < (size_t)width ? kv->key.n : (size_t)width);
    int rc = ek_buf_add_str(out, "  ");
    if (!rc)
        rc = add_plain(out, kv->key.p, kv->key.n);
    if (!rc)
        rc = ek_buf_addf(out, "%*s  %-14s ", pad, "", type);
    for (uint64_t i = 0; i < kv->n && i < SHOWN_ELEMS && !rc; i++) {
        rc = i ? ek_buf_add_str(out, ", ") : 0;
        if (!rc)
            rc = add_element(out, kv, i);
    }
    if (!rc)
        rc = ek_buf_add_str(out, kv->n > SHOWN_ELEMS ? ", ...\n" : "\n");
    return rc;
}

static int add_gguf(struct ek_buf *out, const struct ek_gguf *g)
{
    size_t width = 0;
    for (size_t i = 0; i < ek_gguf_n_kv(g); i++) {
        size_t n = ek_gguf_kv_at(g, i)->key.n;
        width = n > width ? n : width;
    }
    if (width > 48)
        width = 48;
    int rc = ek_buf_addf(out, "\nmetadata (%zu keys)\n", ek_gguf_n_kv(g));
    for (size_t i = 0; i < ek_gguf_n_kv(g) && !rc; i++)
        rc = add_kv(out, ek_gguf_kv_at(g, i), (int)width);
    return rc;
}

static int add_json_value(struct ek_buf *out, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        return add_quoted(out, json_string_value(v), json_string_length(v));
    case JSON_INTEGER:
        return ek_buf_addf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    case JSON_REAL:
        return ek_inspect_add_real(out, json_real_value(v), false);
    case JSON_TRUE:
        return ek_buf_add_str(out, "true");
    case JSON_FALSE:
        return ek_buf_add_str(out, "false");
    case JSON_ARRAY:
        return ek_buf_addf(out, "[%zu values]", json_array_size(v));
    case JSON_OBJECT:
        return ek_buf_addf(out, "{%zu keys}", json_object_size(v));
    default:
        return ek_buf_add_str(out, "null");
    }
}

static int add_config(struct ek_buf *out, json_t *config)
{
    int rc = ek_buf_addf(out, "\nconfig.json (%zu keys)\n", json_object_size(config));
    for (void *i = json_object_iter(config); i && !rc;
         i = json_object_iter_next(config, i)) {
        const char *key = json_object_iter_key(i);
        size_t n = strlen(key);
        rc = ek_buf_add_str(out, "  ");
        if (!rc)
            rc = add_plain(out, key, n);
        if (!rc)
            rc = ek_buf_addf(out, "%*s  ", n < 32 ? (int)(32 - n) : 0, "");
        if (!rc)
            rc = add_json_value(out, json_object_iter_value(i));
        if (!rc)
            rc = ek_buf_add_char(out, '\n');
    }
    return rc;
}

static int add_metas(struct ek_buf *out, const struct ek_safetensors *s)
{
    const char *key, *value;
    int rc = 0;
    for (size_t i = 0; !rc && ek_safetensors_meta_at(s, i, &key, &value); i++) {
        if (i == 0)
            rc = ek_buf_add_str(out, "\n__metadata__\n");
        if (!rc)
            rc = ek_buf_add_str(out, "  ");
        if (!rc)
            rc = add_plain(out, key, strlen(key));
        if (!rc)
            rc = ek_buf_add_str(out, "  ");
        if (!rc)
            rc = add_quoted(out, value, strlen(value));
        if (!rc)
            rc = ek_buf_add_char(out, '\n');
    }
    return rc;
}

static int add_tensors(struct ek_buf *out, const struct ek_tensors *t)
{
    size_t width = 4;
    for (size_t i = 0; i < t->n; i++) {
        size_t n = strlen(t->items[i].name);
        width = n > width ? n : width;
    }
    if (width > 60)
        width = 60;
    int rc = ek_buf_addf(out, "\ntensors (%zu)\n", t->n);
    for (size_t i = 0; i < t->n && !rc; i++) {
        const struct ek_tensor *x = &t->items[i];
        size_t n = strlen(x->name);
        char shape[96], bytes[32];
        rc = ek_buf_add_str(out, "  ");
        if (!rc)
            rc = add_plain(out, x->name, n);
        if (!rc)
            rc = ek_buf_addf(out, "%*s  %-5s %12s  %s\n",
                             n < width ? (int)(width - n) : 0, "",
                             ek_dtype_name(x->dtype), ek_format_bytes(bytes, x->bytes),
                             ek_tensor_shape_text(shape, x));
    }
    return rc;
}

static int add_types(struct ek_buf *out, const struct ek_inspect *f)
{
    int rc = 0;
    const char *label = "by type";
    for (int t = 0; t < EK_DTYPE_COUNT && !rc; t++) {
        char bytes[32], params[32];
        if (!f->types[t].n)
            continue;
        rc = ek_buf_addf(
            out, "%-14s %-5s %12s  %5.1f %%  %s parameters in %zu tensor%s\n", label,
            ek_dtype_name((enum ek_dtype)t), ek_format_bytes(bytes, f->types[t].bytes),
            f->bytes ? 100.0 * (double)f->types[t].bytes / (double)f->bytes : 0.0,
            group_digits(params, f->types[t].n_params), f->types[t].n,
            f->types[t].n == 1 ? "" : "s");
        label = "";
    }
    return rc;
}

static int add_kv_cost(struct ek_buf *out, const struct ek_inspect *f)
{
    char f32[32], bf16[32], fp8[32];
    uint64_t n = (uint64_t)f->kv_elems;
    if (!n)
        return ek_buf_addf(out, "%-14s unknown\n", "KV a token");
    return ek_buf_addf(out, "%-14s f32 %s, bf16 %s, fp8 %s\n", "KV a token",
                       ek_format_bytes(f32, 4 * n), ek_format_bytes(bf16, 2 * n),
                       ek_format_bytes(fp8, n));
}

static int add_head(struct ek_buf *out, const struct ek_inspect *f)
{
    char a[32], b[32];
    int rc = ek_buf_addf(out, "%-14s ", "file");
    if (!rc)
        rc = add_plain(out, f->m.path, strlen(f->m.path));
    if (!rc)
        rc = ek_buf_addf(out, "\n%-14s %s\n%-14s ", "format",
                         f->m.gguf ? "GGUF" : "safetensors", "architecture");
    if (!rc)
        rc = f->arch[0] ? add_plain(out, f->arch, strlen(f->arch))
                        : ek_buf_add_str(out, "not stated");
    if (!rc)
        rc = ek_buf_addf(out, "\n%-14s %s in %zu tensors\n%-14s %s\n", "parameters",
                         group_digits(a, f->n_params), f->m.tensors->n, "weights",
                         ek_format_bytes(b, f->bytes));
    return rc ? rc : add_types(out, f);
}

static int add_language(struct ek_buf *out, const struct ek_inspect *f)
{
    char a[32];
    int rc = ek_buf_addf(out, "%-14s ", "tokenizer");
    if (!rc && f->has_tokenizer)
        rc = add_plain(out, f->tokenizer, strlen(f->tokenizer));
    else if (!rc)
        rc = ek_buf_add_str(out, "none");
    if (!rc && f->n_tokens)
        rc = ek_buf_addf(out, ", %s tokens", group_digits(a, (uint64_t)f->n_tokens));
    if (!rc && f->context)
        rc = ek_buf_addf(out, "\n%-14s %s tokens", "context",
                         group_digits(a, (uint64_t)f->context));
    else if (!rc)
        rc = ek_buf_addf(out, "\n%-14s not stated", "context");
    if (!rc && f->has_template)
        rc = ek_buf_addf(out, "\n%-14s yes, %zu bytes\n", "chat template",
                         f->template_bytes);
    else if (!rc)
        rc = ek_buf_addf(out, "\n%-14s no\n", "chat template");
    return rc ? rc : add_kv_cost(out, f);
}

int ek_inspect_text(struct ek_buf *out, const struct ek_inspect *f, bool has_tensors)
{
    int rc = add_head(out, f);
    if (!rc)
        rc = add_language(out, f);
    for (int i = 0; i < f->n_notes && !rc; i++)
        rc = ek_buf_addf(out, "%-14s %s\n", "note", f->notes[i].text);
    if (!rc && f->m.gguf)
        rc = add_gguf(out, f->m.gguf);
    if (!rc && f->m.config)
        rc = add_config(out, f->m.config);
    if (!rc && f->m.shards)
        rc = add_metas(out, f->m.shards);
    if (!rc && has_tensors)
        rc = add_tensors(out, f->m.tensors);
    return rc;
}
