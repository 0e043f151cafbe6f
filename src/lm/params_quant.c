/* params_quant.c - config.json's quantization_config: which schemes are read.
 *
 * What it says is checked for what would change the numbers and cannot be seen from the
 * tensors; types, groups and zeros are taken from the tensors themselves (source.h).
 * How activations were meant to be rounded is not followed: here they keep 8 or 16
 * bits.
 */
#include "lm/params_int.h"

#include <string.h>

static const json_t *get(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return v && !json_is_null(v) ? v : NULL;
}

static const char *word(const json_t *o, const char *key, const char *fallback)
{
    const char *s = json_string_value(get(o, key));
    return s ? s : fallback;
}

static int refuse(const char *file, const char *key, const char *value,
                  const char *expected, struct ek_err *err)
{
    return ek_err_set(err, EK_EUNSUP,
                      "%s: config.json: quantization_config: key '%s': '%.64s' is not "
                      "supported: expected %s",
                      file, key, value, expected);
}

static int check_fp8(const json_t *q, const char *file, struct ek_err *err)
{
    const json_t *block = get(q, "weight_block_size");
    const char *fmt = word(q, "fmt", "e4m3");
    if (strcmp(fmt, "e4m3") != 0)
        return refuse(file, "fmt", fmt, "e4m3", err);
    if (block && (json_array_size(block) != 2 ||
                  json_integer_value(json_array_get(block, 0)) != 128 ||
                  json_integer_value(json_array_get(block, 1)) != 128))
        return refuse(file, "weight_block_size", "another size", "[128, 128]", err);
    return 0;
}

/* The weights of one group of compressed-tensors. */
static int check_group(const json_t *w, const char *file, struct ek_err *err)
{
    const char *type = word(w, "type", "int"), *order = word(w, "actorder", "static");
    json_int_t bits = json_integer_value(get(w, "num_bits"));
    bool is_int4 = !strcmp(type, "int") && bits == 4;
    if (!w)
        return refuse(file, "weights", "null", "an object", err);
    if (!is_int4 && (strcmp(type, "float") != 0 || bits != 8))
        return refuse(file, "weights", type, "int with num_bits 4, or float with 8",
                      err);
    if (!strcmp(order, "group") || json_is_true(get(w, "actorder")))
        return refuse(file, "actorder", order, "null or static", err);
    return 0;
}

static int check_compressed(const json_t *q, const char *file, struct ek_err *err)
{
    const json_t *groups = get(q, "config_groups"), *group;
    const char *format = word(q, "format", "?"), *name;
    const char *sparse = word(get(q, "sparsity_config"), "format", "dense");
    if (strcmp(format, "pack-quantized") != 0 &&
        strcmp(format, "float-quantized") != 0 &&
        strcmp(format, "naive-quantized") != 0)
        return refuse(file, "format", format, "pack-quantized or float-quantized", err);
    if (strcmp(sparse, "dense") != 0)
        return refuse(file, "sparsity_config", sparse, "dense", err);
    if (json_object_size(get(get(q, "transform_config"), "config_groups")) > 0)
        return refuse(file, "transform_config", "a transform", "none", err);
    if (!json_is_object(groups))
        return refuse(file, "config_groups", "?", "an object", err);
    json_object_foreach((json_t *)(uintptr_t)groups, name, group)
    {
        int rc = check_group(get(group, "weights"), file, err);
        if (rc)
            return rc;
    }
    return 0;
}

int ek_lm_check_quantization(const json_t *q, const char *file, struct ek_err *err)
{
    const char *method = word(q, "quant_method", "?");
    if (!q)
        return 0;
    if (!strcmp(method, "fp8"))
        return check_fp8(q, file, err);
    if (!strcmp(method, "compressed-tensors"))
        return check_compressed(q, file, err);
    return refuse(file, "quant_method", method,
                  "fp8, compressed-tensors, unquantised weights, or a GGUF file", err);
}
