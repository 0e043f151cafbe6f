/* api_messages.c - a chat's messages: roles, content, content parts. */
#include "serve/api.h"

#include <stdio.h>
#include <string.h>

static int bad(struct ek_api_error *e, size_t i, const char *what)
{
    char param[32];
    snprintf(param, sizeof param, "messages[%zu]", i);
    return ek_api_fail(e, 400, param, "%s: %s", param, what);
}

/* Joins text parts with a line end between, as vLLM does for templates that take
 * strings. */
static int join_parts(struct ek_buf *out, const json_t *parts, size_t i,
                      struct ek_api_error *e)
{
    for (size_t k = 0; k < json_array_size(parts); k++) {
        const json_t *part = json_array_get(parts, k);
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text");
        if (!type || strcmp(type, "text") != 0) {
            char what[128];
            snprintf(
                what, sizeof what,
                "content part %zu is of type \"%.40s\"; only \"text\" is supported", k,
                type ? type : "?");
            return bad(e, i, what);
        }
        if (!json_is_string(text))
            return bad(e, i, "a text part needs a string \"text\"");
        int rc = k > 0 ? ek_buf_add_char(out, '\n') : 0;
        if (!rc)
            rc = ek_buf_add(out, json_string_value(text), json_string_length(text));
        if (rc)
            return ek_api_fail(e, 500, "", "out of memory");
    }
    return 0;
}

static int join_content(json_t *message, const json_t *parts, size_t i,
                        struct ek_api_error *e)
{
    struct ek_buf text;
    ek_buf_init(&text, EK_API_BODY_BYTES_MAX);
    int rc = join_parts(&text, parts, i, e);
    if (!rc && json_object_set_new(message, "content",
                                   json_stringn(text.data ? text.data : "", text.len)))
        rc = ek_api_fail(e, 500, "", "out of memory");
    ek_buf_release(&text);
    return rc;
}

static bool is_role(const char *role)
{
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    for (size_t k = 0; k < sizeof roles / sizeof roles[0]; k++) {
        if (!strcmp(role, roles[k]))
            return true;
    }
    return false;
}

static int check_message(json_t *m, size_t i, struct ek_api_error *e)
{
    if (!json_is_object(m))
        return bad(e, i, "expected an object");
    const char *role = json_string_value(json_object_get(m, "role"));
    if (!role || !is_role(role))
        return bad(e, i,
                   "role must be \"system\", \"developer\", \"user\", \"assistant\" or "
                   "\"tool\"");
    bool may_call = !strcmp(role, "assistant");
    /* Templates know the older name of the role. */
    if (!strcmp(role, "developer") &&
        json_object_set_new(m, "role", json_string("system")))
        return ek_api_fail(e, 500, "", "out of memory");
    const json_t *content = json_object_get(m, "content");
    const json_t *calls = json_object_get(m, "tool_calls");
    if (calls && !json_is_array(calls) && !json_is_null(calls))
        return bad(e, i, "tool_calls must be a list");
    bool may_lack = may_call && json_array_size(calls) > 0;
    if (json_is_array(content))
        return join_content(m, content, i, e);
    if (!json_is_string(content) && !(may_lack && (!content || json_is_null(content))))
        return bad(e, i, "content must be a string or a list of text parts");
    return 0;
}

int ek_api_check_messages(json_t *messages, struct ek_api_error *e)
{
    char text[64];
    if (!json_is_array(messages))
        return ek_api_fail(e, 400, "messages", "messages: expected a list, got %s",
                           ek_api_describe(text, messages));
    if (json_array_size(messages) == 0)
        return ek_api_fail(e, 400, "messages", "messages: is empty");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        int rc = check_message(json_array_get(messages, i), i, e);
        if (rc)
            return rc;
    }
    return 0;
}
