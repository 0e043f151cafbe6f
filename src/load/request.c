#include "load/request.h"

#include "base/json.h"

#include <string.h>

const char *ek_request_path(const struct ek_load_options *o)
{
    return o->is_chat ? "/v1/chat/completions" : "/v1/completions";
}

static int add_dumped(const char *text, size_t n, void *arg)
{
    return ek_buf_add(arg, text, n) ? -1 : 0;
}

/* The members of o->extra, each behind a comma. */
static int add_extra(struct ek_buf *out, const json_t *extra)
{
    size_t n = json_object_size(extra), start = out->len;
    if (n == 0)
        return 0;
    if (json_dump_callback(extra, add_dumped, out, JSON_COMPACT))
        return EK_ENOMEM;
    out->data[start] = ','; /* for the { */
    out->data[--out->len] = 0;
    return 0;
}

int ek_request_write(struct ek_buf *out, const struct ek_load_options *o,
                     const struct ek_load_item *item)
{
    struct ek_prompt_spec spec = {.n_tokens = item->n_in,
                                  .hashes = item->hashes,
                                  .n_hashes = item->n_hashes,
                                  .block_tokens = o->block_tokens,
                                  .seed = o->workload.seed,
                                  .index = item->index};
    ek_buf_reset(out);
    int rc = ek_buf_add_str(out, "{\"model\":");
    if (!rc)
        rc = ek_json_add_str(out, o->model, strlen(o->model));
    if (!rc)
        rc = ek_buf_addf(out,
                         ",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
                         "\"max_tokens\":%lld%s,\"temperature\":",
                         (long long)item->n_out,
                         o->ignore_eos ? ",\"ignore_eos\":true" : "");
    if (!rc)
        rc = ek_json_add_double(out, o->temperature);
    if (!rc)
        rc = add_extra(out, o->extra);
    if (!rc)
        rc = ek_buf_add_str(
            out, o->is_chat ? ",\"messages\":[{\"role\":\"user\",\"content\":\""
                            : ",\"prompt\":\"");
    if (!rc)
        rc = ek_prompt_add(out, &o->scale, &spec);
    return rc ? rc : ek_buf_add_str(out, o->is_chat ? "\"}]}" : "\"}");
}
