/* api_error.c - errors in OpenAI's shape. */
#include "base/utf8.h"
#include "serve/api.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ek_api_fail(struct ek_api_error *e, int http, const char *param, const char *fmt,
                ...)
{
    va_list args;
    va_start(args, fmt);
    e->http = http;
    snprintf(e->param, sizeof e->param, "%s", param);
    ek_err_setv(&e->err, EK_EINVAL, fmt, args);
    va_end(args);
    return EK_EINVAL;
}

const char *ek_api_error_type(int http)
{
    switch (http) {
    case 401:
        return "AuthenticationError";
    case 404:
        return "NotFoundError";
    case 405:
        return "MethodNotAllowedError";
    case 408:
        return "RequestTimeoutError";
    case 413:
    case 431:
        return "RequestTooLargeError";
    case 429:
        return "RateLimitError";
    case 501:
        return "NotImplementedError";
    case 503:
        return "ServiceUnavailableError";
    case 504:
        return "DeadlineExceededError";
    default:
        return http >= 500 ? "InternalServerError" : "BadRequestError";
    }
}

int ek_api_write_error(struct ek_buf *out, int http, const char *param,
                       const char *message)
{
    int rc = ek_buf_add_str(out, "{\"error\":{\"message\":");
    if (!rc)
        rc = ek_json_add_str(out, message, strlen(message));
    if (!rc)
        rc = ek_buf_addf(out, ",\"type\":\"%s\",\"param\":", ek_api_error_type(http));
    if (!rc && *param)
        rc = ek_json_add_str(out, param, strlen(param));
    else if (!rc)
        rc = ek_buf_add_str(out, "null");
    if (!rc)
        rc = ek_buf_addf(out, ",\"code\":%d}}", http);
    return rc;
}

const char *ek_api_describe(char out[64], const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        snprintf(out, 64, "an array of %zu", json_array_size(v));
        return out;
    case JSON_STRING: {
        size_t n = json_string_length(v);
        size_t cut = n > 40 ? ek_utf8_whole_prefix(json_string_value(v), 40) : n;
        snprintf(out, 64, "\"%.*s%s\"", (int)cut, json_string_value(v),
                 cut < n ? "..." : "");
        return out;
    }
    case JSON_INTEGER:
        snprintf(out, 64, "%lld", (long long)json_integer_value(v));
        return out;
    case JSON_REAL:
        snprintf(out, 64, "%g", json_real_value(v));
        return out;
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    default:
        return "null";
    }
}
