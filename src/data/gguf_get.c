/* gguf_get.c - questions to an open GGUF file; conversions are checked, never silent.
 */
#include "data/gguf_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *ek_gguf_name(const struct ek_gguf *g)
{
    return g->name;
}

size_t ek_gguf_n_kv(const struct ek_gguf *g)
{
    return g->n_kv;
}

const struct ek_gguf_kv *ek_gguf_kv_at(const struct ek_gguf *g, size_t i)
{
    return &g->kv[i];
}

const struct ek_tensors *ek_gguf_tensors(const struct ek_gguf *g)
{
    return &g->tensors;
}

const char *ek_gguf_type_name(enum ek_gguf_type t)
{
    static const char *const name[] = {
        [EK_GGUF_U8] = "u8",   [EK_GGUF_I8] = "i8",       [EK_GGUF_U16] = "u16",
        [EK_GGUF_I16] = "i16", [EK_GGUF_U32] = "u32",     [EK_GGUF_I32] = "i32",
        [EK_GGUF_F32] = "f32", [EK_GGUF_BOOL] = "bool",   [EK_GGUF_STR] = "string",
        [EK_GGUF_U64] = "u64", [EK_GGUF_ARRAY] = "array", [EK_GGUF_I64] = "i64",
        [EK_GGUF_F64] = "f64",
    };
    return (unsigned)t < sizeof name / sizeof name[0] ? name[t] : "?";
}

struct ek_str ek_gguf_str_at(const struct ek_gguf_kv *kv, uint64_t i)
{
    const unsigned char *at = kv->data + (kv->str_offsets ? kv->str_offsets[i] : 0);
    return (struct ek_str){(const char *)at + 8, (size_t)ek_gguf_load_u64(at)};
}

static float load_f32(const unsigned char *p)
{
    uint32_t bits = ek_gguf_load_u32(p);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static double load_f64(const unsigned char *p)
{
    uint64_t bits = ek_gguf_load_u64(p);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

int64_t ek_gguf_int_at(const struct ek_gguf_kv *kv, uint64_t i)
{
    const unsigned char *p = kv->data;
    switch (kv->elem) {
    case EK_GGUF_U8:
    case EK_GGUF_BOOL:
        return p[i];
    case EK_GGUF_I8:
        return (int8_t)p[i];
    case EK_GGUF_U16:
        return p[2 * i] | p[2 * i + 1] << 8;
    case EK_GGUF_I16:
        return (int16_t)(p[2 * i] | p[2 * i + 1] << 8);
    case EK_GGUF_U32:
        return ek_gguf_load_u32(p + 4 * i);
    case EK_GGUF_I32:
        return (int32_t)ek_gguf_load_u32(p + 4 * i);
    case EK_GGUF_U64:
    case EK_GGUF_I64:
        return (int64_t)ek_gguf_load_u64(p + 8 * i);
    default:
        return 0;
    }
}

double ek_gguf_num_at(const struct ek_gguf_kv *kv, uint64_t i)
{
    if (kv->elem == EK_GGUF_F32)
        return (double)load_f32(kv->data + 4 * i);
    if (kv->elem == EK_GGUF_F64)
        return load_f64(kv->data + 8 * i);
    if (kv->elem == EK_GGUF_U64)
        return (double)ek_gguf_load_u64(kv->data + 8 * i);
    return (double)ek_gguf_int_at(kv, i);
}

static bool is_integer(enum ek_gguf_type t)
{
    return t <= EK_GGUF_I32 || t == EK_GGUF_U64 || t == EK_GGUF_I64;
}

static int wrong_type(const struct ek_gguf *g, const struct ek_gguf_kv *kv,
                      const char *expected, struct ek_err *err)
{
    return ek_err_set(err, EK_EFORMAT, "%s: key '%.*s': is of type %s; expected %s",
                      g->name, ek_gguf_shown(kv->key), kv->key.p,
                      ek_gguf_type_name(kv->type), expected);
}

int ek_gguf_get_u32(const struct ek_gguf *g, const char *key, uint32_t *out,
                    struct ek_err *err)
{
    const struct ek_gguf_kv *kv = ek_gguf_find(g, key);
    if (!kv)
        return EK_ENOENT;
    if (!is_integer(kv->type))
        return wrong_type(g, kv, "an integer", err);
    int64_t v = ek_gguf_int_at(kv, 0);
    bool is_huge = kv->type == EK_GGUF_U64 && v < 0;
    if (is_huge || v < 0 || v > (int64_t)UINT32_MAX) {
        char text[32];
        if (is_huge)
            snprintf(text, sizeof text, "%" PRIu64, (uint64_t)v);
        else
            snprintf(text, sizeof text, "%" PRId64, v);
        return ek_err_set(err, EK_EFORMAT,
                          "%s: key '%s': %s is out of range; expected 0 to 4294967295",
                          g->name, key, text);
    }
    *out = (uint32_t)v;
    return 0;
}

int ek_gguf_get_f32(const struct ek_gguf *g, const char *key, float *out,
                    struct ek_err *err)
{
    const struct ek_gguf_kv *kv = ek_gguf_find(g, key);
    if (!kv)
        return EK_ENOENT;
    if (!is_integer(kv->type) && kv->type != EK_GGUF_F32 && kv->type != EK_GGUF_F64)
        return wrong_type(g, kv, "a number", err);
    float v = (float)ek_gguf_num_at(kv, 0);
    if (!isfinite(v))
        return ek_err_set(err, EK_EFORMAT,
                          "%s: key '%s': %g is not a finite f32; expected one", g->name,
                          key, ek_gguf_num_at(kv, 0));
    *out = v;
    return 0;
}

int ek_gguf_get_bool(const struct ek_gguf *g, const char *key, bool *out,
                     struct ek_err *err)
{
    const struct ek_gguf_kv *kv = ek_gguf_find(g, key);
    if (!kv)
        return EK_ENOENT;
    if (kv->type != EK_GGUF_BOOL)
        return wrong_type(g, kv, "bool", err);
    if (kv->data[0] > 1)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: key '%s': byte %d is no bool; expected 0 or 1", g->name,
                          key, kv->data[0]);
    *out = kv->data[0] == 1;
    return 0;
}

int ek_gguf_get_str(const struct ek_gguf *g, const char *key, struct ek_str *out,
                    struct ek_err *err)
{
    const struct ek_gguf_kv *kv = ek_gguf_find(g, key);
    if (!kv)
        return EK_ENOENT;
    if (kv->type != EK_GGUF_STR)
        return wrong_type(g, kv, "a string", err);
    *out = ek_gguf_str_at(kv, 0);
    return 0;
}
