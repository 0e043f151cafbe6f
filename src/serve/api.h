/* api.h - JSON bodies of the OpenAI API read into checked parameters.
 *
 * Nothing here knows a model: what needs one (token ids, lengths, the template) is
 * checked by request.c. Fields that are not known are accepted and ignored; fields that
 * are known and cannot be honoured are refused by name, never ignored. null counts as
 * absent where OpenAI allows it.
 */
#ifndef EVENKEEL_SERVE_API_H
#define EVENKEEL_SERVE_API_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "serve/engine.h"

#include <stdbool.h>
#include <stdint.h>

#define EK_API_BODY_BYTES_MAX (8u << 20)
#define EK_API_VALUES_MAX     1000000 /* values in one body */
#define EK_API_PROMPTS_MAX    32      /* prompts of one completion request */
#define EK_API_CHOICES_MAX    128     /* prompts times n */
#define EK_API_BIASES_MAX     1024
#define EK_API_STOP_IDS_MAX   64
#define EK_API_REQUEST_ID_MAX 63 /* bytes */

/* An answer that is an error, in OpenAI's shape. */
struct ek_api_error {
    int http;       /* 400, 404, ... */
    char param[64]; /* the field at fault, or "" */
    struct ek_err err;
};

/* Sets http, param ("" for none) and the sentence; returns EK_EINVAL. */
int ek_api_fail(struct ek_api_error *e, int http, const char *param, const char *fmt,
                ...) EK_PRINTF(4, 5);

/* "BadRequestError" and so on. */
const char *ek_api_error_type(int http);

/* Appends {"error":{"message":...,"type":...,"param":...,"code":...}}. */
int ek_api_write_error(struct ek_buf *out, int http, const char *param,
                       const char *message) EK_MUST_USE;

enum ek_api_kind { EK_API_CHAT, EK_API_COMPLETION };

struct ek_api_params {
    enum ek_api_kind kind;
    json_t *root;           /* owned; what is borrowed below lives in it */
    const char *model;      /* NULL: not given */
    json_t *messages;       /* chat: objects with role and string content */
    json_t *kwargs;         /* chat_template_kwargs, an object, or NULL */
    const json_t *prompt;   /* completion: checked for its shape */
    const char *request_id; /* NULL: ours */
    const char *cache_salt; /* NULL: none; else 1..512 bytes */
    bool stream;
    bool include_usage;    /* a last chunk with the usage */
    bool continuous_usage; /* usage in each chunk */
    bool has_max_tokens;   /* given; else max_tokens is a default that may be cut */
    bool has_seed;
    int64_t n;
    int64_t best_of;
    int64_t max_tokens; /* 0: what the context leaves */
    int64_t max_completion_tokens;
    int64_t min_tokens;
    int64_t seed;
    int64_t top_k;
    int64_t priority; /* of 32 bits; lower is earlier */
    int64_t n_top;    /* top_logprobs, or a completion's logprobs; -1: absent */
    double temperature, top_p, min_p;
    double frequency_penalty, presence_penalty, repetition_penalty;
    double timeout; /* seconds from arrival to the end; 0: none given */
    bool logprobs;
    bool echo;
    bool add_generation_prompt;
    bool continue_final_message;
    bool add_special_tokens; /* BOS before a completion's text prompt */
    bool skip_special_tokens;
    bool include_stop;
    bool ignore_eos;
    bool return_token_ids;
    struct ek_logit_bias *bias; /* (n_bias) arena; ids not checked against a model */
    int32_t n_bias;
    int32_t *stop_ids; /* (n_stop_ids) arena */
    int32_t n_stop_ids;
    struct ek_str stops[EK_STOP_STRINGS_MAX];
    int32_t n_stops;
};

/* Reads and checks a body. On failure *e says what to answer and p needs no release.
 * Errors: EK_EINVAL, EK_ENOMEM (http 500). */
int ek_api_parse(struct ek_api_params *p, enum ek_api_kind kind, const char *body,
                 size_t n, struct ek_arena *arena, struct ek_api_error *e) EK_MUST_USE;
void ek_api_params_release(struct ek_api_params *p);

/* Parses a body that must be an object: *root is the caller's. For endpoints with few
 * fields of their own. */
int ek_api_object(json_t **root, const char *body, size_t n,
                  struct ek_api_error *e) EK_MUST_USE;

/* Points *to at a string field of at most 512 bytes, which may be absent or null
 * (*to unchanged). */
int ek_api_read_string(const char **to, const json_t *root, const char *name,
                       struct ek_api_error *e) EK_MUST_USE;

/* Checks a chat's messages and joins content parts to strings, in place. */
int ek_api_check_messages(json_t *messages, struct ek_api_error *e) EK_MUST_USE;

/* A JSON value in a few words for messages: "the string \"abc\"", "-3", "null". */
const char *ek_api_describe(char out[64], const json_t *v);

#endif
