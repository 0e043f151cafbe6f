/* probe.c - what is asked of a server before it is put under load: its model, and what
 * a word costs in tokens. */
#include "base/json.h"
#include "load/answer.h"
#include "load/request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FEW_WORDS  8
#define MANY_WORDS 2048

/* GET path, parsed; the caller owns *out. */
static int get_json(json_t **out, struct ek_client *client, const char *path,
                    struct ek_err *err)
{
    struct ek_call call;
    int rc = ek_call_init(&call);
    if (rc)
        return ek_err_set(err, rc, "out of memory");
    call.path = path;
    rc = ek_client_perform(client, &call);
    if (rc || call.status != 200)
        rc = ek_call_explain(&call, err);
    else
        rc = ek_json_parse(out, call.answer.data ? call.answer.data : "",
                           call.answer.len, NULL, err);
    if (rc)
        ek_err_prefix(err, "%s%s", ek_client_url(client), path);
    ek_call_release(&call);
    return rc;
}

int ek_load_find_model(char *model, size_t cap, int64_t *max_len,
                       struct ek_client *client, const char *wanted, struct ek_err *err)
{
    json_t *list = NULL;
    const json_t *found = NULL, *entry;
    size_t i;
    int rc = get_json(&list, client, "/v1/models", err);
    if (rc)
        return rc;
    json_array_foreach(json_object_get(list, "data"), i, entry)
    {
        const char *id = json_string_value(json_object_get(entry, "id"));
        if (id && !found && (!wanted || !strcmp(id, wanted)))
            found = entry;
    }
    const char *id = json_string_value(json_object_get(found, "id"));
    *max_len = json_integer_value(json_object_get(found, "max_model_len"));
    if (*max_len < 0 || *max_len > INT32_MAX)
        *max_len = 0;
    if (!id && !wanted)
        rc = ek_err_set(err, EK_EFORMAT, "%s/v1/models: lists no model",
                        ek_client_url(client));
    else
        snprintf(model, cap, "%s", wanted ? wanted : id);
    json_decref(list);
    return rc;
}

static int on_data(struct ek_call *call, const char *p, size_t n, int64_t now_us)
{
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_answer_feed(call->owner, p, n, now_us, &err);
    if (rc)
        snprintf(call->why, sizeof call->why, "%.255s", err.text);
    return rc;
}

/* Sends one request and waits for its end. */
static int ask(struct ek_answer *a, struct ek_client *client,
               const struct ek_load_options *o, const struct ek_buf *body,
               struct ek_err *err)
{
    struct ek_call call;
    int rc = ek_call_init(&call);
    if (rc)
        return ek_err_set(err, rc, "out of memory");
    call.path = ek_request_path(o);
    call.body = body;
    call.on_data = on_data;
    call.owner = a;
    ek_answer_reset(a);
    rc = ek_client_perform(client, &call);
    if (rc || call.status != 200)
        rc = ek_call_explain(&call, err);
    else
        rc = ek_answer_end(a, err);
    if (rc)
        ek_err_prefix(err, "%s%s", ek_client_url(client), call.path);
    ek_call_release(&call);
    return rc;
}

/* *n_tokens of a prompt of n_words words. */
static int count_tokens(int64_t *n_tokens, int64_t n_words, struct ek_client *client,
                        const struct ek_load_options *o, struct ek_err *err)
{
    struct ek_load_options words = *o;
    struct ek_load_item item = {.n_in = n_words, .n_out = 1, .index = UINT64_MAX - 1};
    struct ek_answer a;
    struct ek_buf body;
    words.scale = (struct ek_prompt_scale){.per_word = 1.0};
    ek_answer_init(&a);
    ek_buf_init(&body, EK_REQUEST_BYTES_MAX);
    int rc = ek_request_write(&body, &words, &item);
    if (rc)
        ek_err_set(err, rc, "%s", ek_status_text(rc));
    else
        rc = ask(&a, client, o, &body, err);
    if (!rc && a.n_prompt < 1)
        rc = ek_err_set(err, EK_EIO,
                        "%s%s: tells no usage.prompt_tokens; with --no-calibrate a "
                        "word is taken for a token",
                        ek_client_url(client), ek_request_path(o));
    if (!rc)
        *n_tokens = a.n_prompt;
    ek_answer_release(&a);
    ek_buf_release(&body);
    return rc;
}

int ek_load_calibrate(struct ek_prompt_scale *scale, struct ek_client *client,
                      const struct ek_load_options *o, int64_t n_tokens,
                      struct ek_err *err)
{
    int64_t few = 0, many = 0;
    int rc = count_tokens(&few, 1, client, o, err);
    if (rc)
        return rc;
    /* As if all of it were words: what is overhead makes the second prompt shorter. */
    struct ek_prompt_scale worst = {.per_word = fmax((double)few, 1.0)};
    int64_t n_many = ek_prompt_words(&worst, n_tokens);
    n_many = n_many < FEW_WORDS ? FEW_WORDS : n_many > MANY_WORDS ? MANY_WORDS : n_many;
    rc = count_tokens(&many, n_many, client, o, err);
    if (rc)
        return rc;
    double per_word = (double)(many - few) / (double)(n_many - 1);
    if (per_word < 0.01)
        return ek_err_set(err, EK_EIO,
                          "%s%s: counts %lld tokens in a prompt of 1 word and %lld in "
                          "one of %lld: no prompt of a wanted length can be made "
                          "(--no-calibrate takes a word for a token)",
                          ek_client_url(client), ek_request_path(o), (long long)few,
                          (long long)many, (long long)n_many);
    *scale = (struct ek_prompt_scale){per_word, (double)few - per_word};
    return 0;
}
