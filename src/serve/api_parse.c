/* api_parse.c - the fields of a chat or completion body; the plain ones in a table. */
#include "serve/api.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum field_type { F_BOOL, F_INT, F_REAL };
enum { CHAT = 1, COMPLETION = 2, BOTH = 3 };

struct field {
    const char *name;
    enum field_type type;
    int where; /* the kinds that have it */
    size_t offset;
    double min, max;
};

#define AT(member) offsetof(struct ek_api_params, member)
#define INT_MAX_D  2147483647.0

static const struct field fields[] = {
    {"stream", F_BOOL, BOTH, AT(stream), 0, 0},
    {"n", F_INT, BOTH, AT(n), 1, EK_CHOICES_MAX},
    {"best_of", F_INT, COMPLETION, AT(best_of), 1, EK_CHOICES_MAX},
    {"max_tokens", F_INT, BOTH, AT(max_tokens), 1, INT_MAX_D},
    {"max_completion_tokens", F_INT, CHAT, AT(max_completion_tokens), 1, INT_MAX_D},
    {"min_tokens", F_INT, BOTH, AT(min_tokens), 0, INT_MAX_D},
    {"seed", F_INT, BOTH, AT(seed), -0x1p63, 0x1p63},
    {"top_k", F_INT, BOTH, AT(top_k), -1, INT_MAX_D},
    {"priority", F_INT, BOTH, AT(priority), -INT_MAX_D - 1, INT_MAX_D},
    {"top_logprobs", F_INT, CHAT, AT(n_top), 0, EK_TOP_LOGPROBS_MAX},
    {"logprobs", F_INT, COMPLETION, AT(n_top), 0, EK_TOP_LOGPROBS_MAX},
    {"temperature", F_REAL, BOTH, AT(temperature), 0, 2},
    {"top_p", F_REAL, BOTH, AT(top_p), 0, 1},
    {"min_p", F_REAL, BOTH, AT(min_p), 0, 1},
    {"frequency_penalty", F_REAL, BOTH, AT(frequency_penalty), -2, 2},
    {"presence_penalty", F_REAL, BOTH, AT(presence_penalty), -2, 2},
    {"repetition_penalty", F_REAL, BOTH, AT(repetition_penalty), 0.01, 10},
    {"timeout", F_REAL, BOTH, AT(timeout), 0.001, 86400},
    {"logprobs", F_BOOL, CHAT, AT(logprobs), 0, 0},
    {"echo", F_BOOL, BOTH, AT(echo), 0, 0},
    {"add_generation_prompt", F_BOOL, CHAT, AT(add_generation_prompt), 0, 0},
    {"continue_final_message", F_BOOL, CHAT, AT(continue_final_message), 0, 0},
    {"add_special_tokens", F_BOOL, COMPLETION, AT(add_special_tokens), 0, 0},
    {"skip_special_tokens", F_BOOL, BOTH, AT(skip_special_tokens), 0, 0},
    {"include_stop_str_in_output", F_BOOL, BOTH, AT(include_stop), 0, 0},
    {"ignore_eos", F_BOOL, BOTH, AT(ignore_eos), 0, 0},
    {"return_token_ids", F_BOOL, BOTH, AT(return_token_ids), 0, 0},
};
#define N_FIELDS (sizeof fields / sizeof fields[0])

/* Fields that change what an answer is and that this server does not have. */
static const char *const refused[] = {
    "tools",         "functions",          "function_call",   "suffix",
    "audio",         "prediction",         "guided_json",     "guided_regex",
    "guided_choice", "guided_grammar",     "json_schema",     "grammar",
    "prompt_embeds", "structured_outputs", "prompt_logprobs", "use_beam_search",
    "bad_words",     "web_search_options",
};

/* The member, or NULL when it is absent or null. */
static json_t *get(const json_t *root, const char *name)
{
    json_t *v = json_object_get(root, name);
    return json_is_null(v) ? NULL : v;
}

static int wrong(struct ek_api_error *e, const char *name, const char *expected,
                 const json_t *v)
{
    char text[64];
    return ek_api_fail(e, 400, name, "%s: expected %s, got %s", name, expected,
                       ek_api_describe(text, v));
}

static int read_number(void *to, const struct field *f, const json_t *v,
                       struct ek_api_error *e)
{
    char range[96];
    if (f->max > INT_MAX_D)
        snprintf(range, sizeof range, "an integer of 64 bits");
    else
        snprintf(range, sizeof range, "%s from %.10g to %.10g",
                 f->type == F_INT ? "an integer" : "a number", f->min, f->max);
    double d = json_number_value(v);
    if (!json_is_number(v) || !(d >= f->min && d <= f->max) ||
        (f->type == F_INT && !json_is_integer(v) && (d != floor(d) || fabs(d) > 1e15)))
        return wrong(e, f->name, range, v);
    if (f->type == F_REAL)
        *(double *)to = d;
    else
        *(int64_t *)to = json_is_integer(v) ? json_integer_value(v) : (int64_t)d;
    return 0;
}

static int read_fields(struct ek_api_params *p, struct ek_api_error *e)
{
    int kind = p->kind == EK_API_CHAT ? CHAT : COMPLETION;
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct field *f = &fields[i];
        const json_t *v = f->where & kind ? get(p->root, f->name) : NULL;
        if (!v)
            continue;
        void *to = (char *)p + f->offset;
        int rc = 0;
        if (f->type != F_BOOL)
            rc = read_number(to, f, v, e);
        else if (json_is_boolean(v))
            *(bool *)to = json_is_true(v);
        else
            rc = wrong(e, f->name, "true or false", v);
        if (rc)
            return rc;
    }
    p->has_seed = get(p->root, "seed") != NULL;
    return 0;
}

static bool is_empty(const json_t *v)
{
    return json_is_false(v) || (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_integer(v) && json_integer_value(v) == 0);
}

/* Refuses by name what cannot be honoured; empty and switched-off forms pass. */
static int refuse(const struct ek_api_params *p, struct ek_api_error *e)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const json_t *v = get(p->root, refused[i]);
        if (v && !is_empty(v))
            return ek_api_fail(e, 400, refused[i], "%s: not supported by this server",
                               refused[i]);
    }
    const json_t *choice = get(p->root, "tool_choice");
    const char *word = json_string_value(choice);
    if (choice && (!word || (strcmp(word, "none") != 0 && strcmp(word, "auto") != 0)))
        return ek_api_fail(
            e, 400, "tool_choice",
            "tool_choice: tools are not supported by this server, so only "
            "\"none\" and \"auto\" are accepted");
    const json_t *format = get(p->root, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format && !type)
        return wrong(e, "response_format", "an object with a type", format);
    if (format && strcmp(type, "text") != 0)
        return ek_api_fail(e, 400, "response_format",
                           "response_format: type \"%s\" is not supported by this "
                           "server, only \"text\" is",
                           type);
    const json_t *modalities = get(p->root, "modalities");
    for (size_t i = 0; i < json_array_size(modalities); i++) {
        const char *m = json_string_value(json_array_get(modalities, i));
        if (!m || strcmp(m, "text") != 0)
            return ek_api_fail(e, 400, "modalities",
                               "modalities: only [\"text\"] is supported");
    }
    return 0;
}

static int read_stops(struct ek_api_params *p, struct ek_api_error *e)
{
    const json_t *v = get(p->root, "stop");
    if (!v)
        return 0;
    if (!json_is_string(v) && !json_is_array(v))
        return wrong(e, "stop", "a string or a list of strings", v);
    size_t n = json_is_string(v) ? 1 : json_array_size(v);
    if (n > EK_STOP_STRINGS_MAX)
        return ek_api_fail(e, 400, "stop", "stop: %zu strings are over the limit of %d",
                           n, EK_STOP_STRINGS_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_string(v) ? v : json_array_get(v, i);
        size_t len = json_string_length(s);
        if (!json_is_string(s))
            return wrong(e, "stop", "a string or a list of strings", s);
        if (len == 0 || len > EK_STOP_BYTES_MAX)
            return ek_api_fail(e, 400, "stop",
                               "stop: a string of %zu bytes; 1 to %d are allowed", len,
                               EK_STOP_BYTES_MAX);
        p->stops[p->n_stops++] = (struct ek_str){json_string_value(s), len};
    }
    return 0;
}

static int read_stop_ids(struct ek_api_params *p, struct ek_arena *arena,
                         struct ek_api_error *e)
{
    const json_t *v = get(p->root, "stop_token_ids");
    size_t n = json_array_size(v);
    if (!v)
        return 0;
    if (!json_is_array(v) || n > EK_API_STOP_IDS_MAX)
        return wrong(e, "stop_token_ids", "a list of at most 64 token ids", v);
    p->stop_ids = ek_arena_alloc(arena, n * sizeof *p->stop_ids);
    if (!p->stop_ids)
        return ek_api_fail(e, 500, "", "out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(v, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
            return wrong(e, "stop_token_ids", "token ids", id);
        p->stop_ids[p->n_stop_ids++] = (int32_t)value;
    }
    return 0;
}

static int read_bias(struct ek_api_params *p, struct ek_arena *arena,
                     struct ek_api_error *e)
{
    json_t *v = get(p->root, "logit_bias");
    if (!v)
        return 0;
    size_t n = json_object_size(v);
    if (!json_is_object(v) || n > EK_API_BIASES_MAX)
        return wrong(e, "logit_bias", "an object of at most 1024 token ids", v);
    p->bias = ek_arena_alloc(arena, n * sizeof *p->bias);
    if (!p->bias)
        return ek_api_fail(e, 500, "", "out of memory");
    for (void *it = json_object_iter(v); it; it = json_object_iter_next(v, it)) {
        const char *key = json_object_iter_key(it);
        const json_t *bias = json_object_iter_value(it);
        char *end;
        long id = strtol(key, &end, 10);
        if (*key < '0' || *key > '9' || *end || id > INT32_MAX)
            return ek_api_fail(e, 400, "logit_bias",
                               "logit_bias: the key \"%.40s\" is no token id", key);
        double d = json_number_value(bias);
        if (!json_is_number(bias) || !(d >= -100 && d <= 100))
            return wrong(e, "logit_bias", "numbers from -100 to 100", bias);
        p->bias[p->n_bias++] = (struct ek_logit_bias){(int32_t)id, (float)d};
    }
    return 0;
}

static int read_stream_options(struct ek_api_params *p, struct ek_api_error *e)
{
    const json_t *v = get(p->root, "stream_options");
    if (!v)
        return 0;
    if (!json_is_object(v))
        return wrong(e, "stream_options", "an object", v);
    if (!p->stream)
        return ek_api_fail(e, 400, "stream_options",
                           "stream_options: allowed with \"stream\": true only");
    static const char *const names[] = {"include_usage", "continuous_usage_stats"};
    bool *const to[] = {&p->include_usage, &p->continuous_usage};
    for (int i = 0; i < 2; i++) {
        const json_t *flag = get(v, names[i]);
        if (flag && !json_is_boolean(flag))
            return wrong(e, names[i], "true or false", flag);
        *to[i] = json_is_true(flag);
    }
    p->continuous_usage = p->continuous_usage && p->include_usage;
    return 0;
}

/* Whether it may stand in a header of the answer, and as one value in a line of the
 * log: with a space it could go on to other fields. */
static bool is_request_id(const char *s)
{
    size_t n = 0;
    while ((unsigned char)s[n] > ' ' && s[n] != 0x7f)
        n++;
    return s[n] == 0 && n > 0 && n <= EK_API_REQUEST_ID_MAX;
}

int ek_api_read_string(const char **to, const json_t *root, const char *name,
                       struct ek_api_error *e)
{
    const json_t *v = get(root, name);
    if (!v)
        return 0;
    if (!json_is_string(v) || json_string_length(v) > 512 ||
        strlen(json_string_value(v)) != json_string_length(v))
        return wrong(e, name, "a string of at most 512 bytes", v);
    *to = json_string_value(v);
    return 0;
}

static int read_strings(struct ek_api_params *p, struct ek_api_error *e)
{
    const char *ignored;
    int rc = ek_api_read_string(&p->model, p->root, "model", e);
    if (!rc)
        rc = ek_api_read_string(&p->request_id, p->root, "request_id", e);
    if (!rc)
        rc = ek_api_read_string(&ignored, p->root, "user", e);
    if (!rc)
        rc = ek_api_read_string(&p->cache_salt, p->root, "cache_salt", e);
    if (!rc && p->cache_salt && !*p->cache_salt)
        return ek_api_fail(e, 400, "cache_salt",
                           "cache_salt: is empty; leave it out to share with all "
                           "requests that have none");
    if (!rc && p->request_id && !is_request_id(p->request_id))
        rc = wrong(e, "request_id",
                   "1 to 63 bytes without spaces and control characters",
                   json_object_get(p->root, "request_id"));
    return rc;
}

static int read_chat(struct ek_api_params *p, struct ek_api_error *e)
{
    p->messages = get(p->root, "messages");
    p->kwargs = get(p->root, "chat_template_kwargs");
    if (!p->messages)
        return ek_api_fail(e, 400, "messages", "messages: missing");
    if (p->kwargs && !json_is_object(p->kwargs))
        return wrong(e, "chat_template_kwargs", "an object", p->kwargs);
    if (p->echo)
        return ek_api_fail(e, 400, "echo", "echo: not supported in chat completions");
    if (p->n_top > 0 && !p->logprobs)
        return ek_api_fail(e, 400, "top_logprobs",
                           "top_logprobs: allowed with \"logprobs\": true only");
    if (p->continue_final_message && get(p->root, "add_generation_prompt") &&
        p->add_generation_prompt)
        return ek_api_fail(e, 400, "continue_final_message",
                           "continue_final_message: contradicts "
                           "\"add_generation_prompt\": true");
    if (p->continue_final_message)
        p->add_generation_prompt = false;
    return ek_api_check_messages(p->messages, e);
}

static int check_ids(const json_t *ids, struct ek_api_error *e)
{
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v > INT32_MAX)
            return wrong(e, "prompt", "token ids", id);
    }
    return 0;
}

/* A string, a list of strings, a list of ids, or a list of lists of ids. */
static int read_completion(struct ek_api_params *p, struct ek_api_error *e)
{
    const json_t *v = p->prompt = get(p->root, "prompt");
    const char *const shapes = "a string, strings, token ids, or lists of token ids";
    if (!v)
        return ek_api_fail(e, 400, "prompt", "prompt: missing");
    if (p->best_of > 0 && p->best_of != p->n)
        return ek_api_fail(e, 400, "best_of",
                           "best_of: only the value of n (%lld) is "
                           "supported",
                           (long long)p->n);
    p->logprobs = p->n_top >= 0;
    if (json_is_string(v))
        return json_string_length(v) > 0
                   ? 0
                   : ek_api_fail(e, 400, "prompt", "prompt: is empty");
    size_t n = json_array_size(v);
    if (!json_is_array(v))
        return wrong(e, "prompt", shapes, v);
    const json_t *first = json_array_get(v, 0);
    if (n == 0)
        return ek_api_fail(e, 400, "prompt", "prompt: is empty");
    if (json_is_integer(first))
        return check_ids(v, e);
    if (n > EK_API_PROMPTS_MAX || (int64_t)n * p->n > EK_API_CHOICES_MAX)
        return ek_api_fail(
            e, 400, "prompt",
            "prompt: %zu prompts times n %lld; at most %d prompts and %d "
            "choices are allowed",
            n, (long long)p->n, EK_API_PROMPTS_MAX, EK_API_CHOICES_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(v, i);
        if (json_typeof(one) != json_typeof(first) ||
            !(json_is_string(one) || json_is_array(one)))
            return wrong(e, "prompt", shapes, one);
        if (json_string_length(one) == 0 && json_array_size(one) == 0)
            return ek_api_fail(e, 400, "prompt", "prompt: entry %zu is empty", i);
        int rc = check_ids(one, e);
        if (rc)
            return rc;
    }
    return 0;
}

int ek_api_object(json_t **root, const char *body, size_t n, struct ek_api_error *e)
{
    static const struct ek_json_limits limits = {.max_bytes = EK_API_BODY_BYTES_MAX,
                                                 .max_values = EK_API_VALUES_MAX};
    json_t *v;
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_json_parse(&v, body, n, &limits, &err);
    if (rc)
        return ek_api_fail(e, rc == EK_ENOMEM ? 500 : 400, "", "%s", err.text);
    if (!json_is_object(v)) {
        char text[64];
        ek_api_fail(e, 400, "", "the body must be a JSON object, not %s",
                    ek_api_describe(text, v));
        json_decref(v);
        return EK_EINVAL;
    }
    *root = v;
    return 0;
}

static void set_defaults(struct ek_api_params *p)
{
    p->n = 1;
    p->n_top = -1;
    p->temperature = p->top_p = p->repetition_penalty = 1;
    p->add_generation_prompt = p->add_special_tokens = p->skip_special_tokens = true;
}

/* max_completion_tokens wins over the older max_tokens. */
static int settle_max_tokens(struct ek_api_params *p, struct ek_api_error *e)
{
    if (p->max_completion_tokens > 0)
        p->max_tokens = p->max_completion_tokens;
    p->has_max_tokens = p->max_tokens > 0;
    if (p->kind == EK_API_COMPLETION && !p->has_max_tokens)
        p->max_tokens = p->min_tokens > 16 ? p->min_tokens : 16;
    if (p->has_max_tokens && p->min_tokens > p->max_tokens)
        return ek_api_fail(e, 400, "min_tokens",
                           "min_tokens: %lld is more than max_tokens %lld",
                           (long long)p->min_tokens, (long long)p->max_tokens);
    return 0;
}

int ek_api_parse(struct ek_api_params *p, enum ek_api_kind kind, const char *body,
                 size_t n, struct ek_arena *arena, struct ek_api_error *e)
{
    *p = (struct ek_api_params){.kind = kind};
    set_defaults(p);
    int rc = ek_api_object(&p->root, body, n, e);
    if (!rc)
        rc = read_fields(p, e);
    if (!rc)
        rc = refuse(p, e);
    if (!rc)
        rc = read_strings(p, e);
    if (!rc)
        rc = read_stream_options(p, e);
    if (!rc)
        rc = read_stops(p, e);
    if (!rc)
        rc = read_stop_ids(p, arena, e);
    if (!rc)
        rc = read_bias(p, arena, e);
    if (!rc)
        rc = settle_max_tokens(p, e);
    if (!rc)
        rc = kind == EK_API_CHAT ? read_chat(p, e) : read_completion(p, e);
    if (rc)
        ek_api_params_release(p);
    return rc;
}

void ek_api_params_release(struct ek_api_params *p)
{
    json_decref(p->root);
    p->root = NULL;
}
