/* quantize_folder.c - what lies beside the weights of a folder: config.json, which says
 * how they are quantised, and the files carried over. */
#include "base/mem.h"
#include "lm/quantize_int.h"

#include <stdio.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)256 << 20)

/* Carried over where they are. */
static const char *const files[] = {"tokenizer.json",
                                    "tokenizer_config.json",
                                    "tokenizer.model",
                                    "special_tokens_map.json",
                                    "added_tokens.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "generation_config.json",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    "preprocessor_config.json",
                                    "processor_config.json",
                                    "LICENSE",
                                    "LICENSE.txt",
                                    "NOTICE"};
#define N_FILES (sizeof files / sizeof files[0])

static int no_memory(const char *folder, struct ek_err *err)
{
    return ek_err_set(err, EK_ENOMEM, "%s: no memory for config.json", folder);
}

/* Whether a module's weight could be taken for a quantised one by who reads the folder:
 * a matrix of the decoder, the head, or one beside it, as a vision tower has. */
static bool is_module(const struct ek_quantize_item *it)
{
    size_t n = strlen(it->name), m = strlen(".weight");
    if (n < m || strcmp(it->name + n - m, ".weight") != 0)
        return false;
    return it->role != EK_ROLE_EMBED &&
           (it->role != EK_ROLE_OTHER || it->src.part[EK_SOURCE_CODES]->n_dims == 2);
}

/* Names of the linear modules that are not quantised. NULL: no memory. */
static json_t *ignored(const struct ek_quantize_plan *p)
{
    json_t *list = json_array();
    int rc = list ? 0 : EK_ENOMEM;
    bool has_head = false;
    for (size_t i = 0; i < p->n_items && !rc; i++) {
        const struct ek_quantize_item *it = &p->items[i];
        if (!is_module(it) || it->part[EK_PART_SCALE].name)
            continue;
        has_head = has_head || it->role == EK_ROLE_HEAD;
        size_t n = strlen(it->name) - strlen(".weight");
        rc = json_array_append_new(list, json_stringn(it->name, n));
    }
    if (!rc && !has_head) /* a tied head is a module all the same */
        rc = json_array_append_new(list, json_string("lm_head"));
    if (rc) {
        json_decref(list);
        return NULL;
    }
    return list;
}

/* quantization_config of the output; `old` is the input's or NULL. NULL: no memory. */
static json_t *describe(const struct ek_quantize_plan *p, const json_t *old)
{
    json_t *ignore = ignored(p), *q = NULL;
    json_t *kv = json_object_get(old, "kv_cache_scheme");
    if (!ignore)
        return NULL;
    if (p->job->to == EK_QUANTIZE_FP8)
        q = json_pack("{s:s, s:s, s:s, s:[i,i], s:O}", "quant_method", "fp8", "fmt",
                      "e4m3", "activation_scheme", "dynamic", "weight_block_size", 128,
                      128, "modules_to_not_convert", ignore);
    else
        q = json_pack(
            "{s:s, s:s, s:s, s:{s:{s:[s], s:n, s:n, s:{s:i, s:s, s:b, s:s, s:i, "
            "s:b}}}, s:O, s:o}",
            "quant_method", "compressed-tensors", "format", "pack-quantized",
            "quantization_status", "compressed", "config_groups", "group_0", "targets",
            "Linear", "input_activations", "output_activations", "weights", "num_bits",
            4, "type", "int", "symmetric", p->job->is_symmetric ? 1 : 0, "strategy",
            "group", "group_size", 32, "dynamic", 0, "ignore", ignore,
            "kv_cache_scheme", kv ? json_incref(kv) : json_null());
    json_decref(ignore);
    return q;
}

/* A dump that knows when it is not whole: json_dumps ignores some failures. */
struct dump {
    struct ek_buf text;
    int rc;
};

static int add_dump(const char *p, size_t n, void *arg)
{
    struct dump *d = arg;
    if (!d->rc)
        d->rc = ek_buf_add(&d->text, p, n);
    return d->rc ? -1 : 0;
}

static int write_config(const struct ek_quantize_plan *p, const char *folder,
                        struct ek_err *err)
{
    char path[4352];
    const struct ek_modelfile *m = p->job->m;
    json_t *config = json_deep_copy(m->config), *q = NULL;
    json_t *text = json_object_get(config, "text_config");
    const json_t *old = json_object_get(m->config, "quantization_config");
    struct dump d = {.rc = 0};
    int rc = config ? 0 : no_memory(folder, err);
    ek_buf_init(&d.text, FILE_BYTES_MAX);
    if (rc)
        goto out;
    json_object_del(config, "quantization_config");
    if (json_is_object(text))
        json_object_del(text, "quantization_config");
    if (p->job->to != EK_QUANTIZE_BF16) {
        q = describe(p, old);
        if (!q || json_object_set(config, "quantization_config", q)) {
            rc = no_memory(folder, err);
            goto out;
        }
    }
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (json_dump_callback(config, add_dump, &d, JSON_INDENT(2)) || d.rc)
        rc = no_memory(folder, err);
    else
        rc = ek_file_write(path, d.text.data, d.text.len, err);
out:
    ek_buf_release(&d.text);
    json_decref(q);
    json_decref(config);
    return rc;
}

static int copy_file(const struct ek_modelfile *m, const char *folder, const char *name,
                     struct ek_err *err)
{
    char from[4352], to[4352];
    struct ek_buf text;
    snprintf(from, sizeof from, "%s%s", m->folder, name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    ek_buf_init(&text, FILE_BYTES_MAX);
    int rc = ek_file_read(&text, from, err);
    if (rc == EK_ENOENT) {
        if (err)
            *err = (struct ek_err)EK_ERR_INIT;
        rc = 0;
    } else if (!rc) {
        rc = ek_file_write(to, text.len ? text.data : "", text.len, err);
    }
    ek_buf_release(&text);
    return rc;
}

int ek_quantize_files(const struct ek_quantize_plan *p, const char *folder,
                      struct ek_err *err)
{
    int rc = write_config(p, folder, err);
    for (size_t i = 0; i < N_FILES && !rc; i++)
        rc = copy_file(p->job->m, folder, files[i], err);
    return rc;
}
