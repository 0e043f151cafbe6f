/* fuzz_template.c - the first line of the input is JSON with the variables (or not), the
 * rest is the template. Small limits keep one input short. */
#include "base/err.h"
#include "base/json.h"
#include "data/template.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char usual[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x <y>\"},{\"role\":\"assistant\","
    "\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":"
    "{\"a\":[1,2.5]}}}]}],\"add_generation_prompt\":true,\"bos_token\":\"<s>\"}";

static json_t *variables(const char *text, size_t n)
{
    static const struct ek_json_limits limits = {.max_bytes = 1u << 16,
                                                 .max_values = 4096};
    json_t *vars = NULL;
    if (ek_json_parse(&vars, text, n, &limits, NULL) == 0 && json_is_object(vars))
        return vars;
    json_decref(vars);
    return json_loadb(usual, sizeof usual - 1, 0, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ek_template_limits limits = {
        .max_steps = 20000, .max_output_bytes = 1u << 18, .max_memory_bytes = 1u << 22};
    static const char *const trusted[] = {"bos_token", NULL};
    const char *text = (const char *)data;
    const char *end = size ? memchr(text, '\n', size) : NULL;
    size_t head = end ? (size_t)(end - text) : 0;
    struct ek_template *t;
    struct ek_err err = EK_ERR_INIT;
    if (ek_template_parse(&t, text + head, size - head, &err)) {
        if (err.text[0] == 0)
            __builtin_trap();
        return 0;
    }
    struct ek_buf out, plain;
    ek_buf_init(&out, 1u << 20);
    ek_buf_init(&plain, 1u << 20);
    json_t *vars = variables(text, head);
    int rc = vars ? ek_template_render(t, &out, &plain, vars, trusted, 0, &limits, &err)
                  : EK_ENOMEM;
    if (out.len != plain.len || (rc && err.text[0] == 0))
        __builtin_trap();
    json_decref(vars);
    ek_template_free(t);
    ek_buf_release(&out);
    ek_buf_release(&plain);
    return 0;
}
