#include "load/answer.h"

#include "base/json.h"

#include <string.h>

void ek_answer_init(struct ek_answer *a)
{
    *a = (struct ek_answer){0};
    ek_buf_init(&a->line, EK_ANSWER_LINE_MAX);
    ek_answer_reset(a);
}

void ek_answer_reset(struct ek_answer *a)
{
    ek_buf_reset(&a->line);
    a->first_event_us = a->first_text_us = a->last_text_us = a->done_us = 0;
    a->n_texts = 0;
    a->n_prompt = a->n_output = a->n_cached = -1;
    a->has_finish = false;
}

void ek_answer_release(struct ek_answer *a)
{
    ek_buf_release(&a->line);
}

static void take_count(int64_t *out, const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    json_int_t n = json_integer_value(v);
    if (json_is_integer(v) && n >= 0 && n <= INT32_MAX)
        *out = n;
}

static void take_usage(struct ek_answer *a, const json_t *usage)
{
    take_count(&a->n_prompt, usage, "prompt_tokens");
    take_count(&a->n_output, usage, "completion_tokens");
    take_count(&a->n_cached, json_object_get(usage, "prompt_tokens_details"),
               "cached_tokens");
}

static bool has_text(const json_t *choice)
{
    static const char *const keys[] = {"content", "reasoning_content", "reasoning"};
    const json_t *delta = json_object_get(choice, "delta");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (json_string_length(json_object_get(delta, keys[i])) > 0)
            return true;
    }
    return json_string_length(json_object_get(choice, "text")) > 0;
}

static void take_choice(struct ek_answer *a, const json_t *choice, int64_t now_us)
{
    if (a->first_event_us == 0)
        a->first_event_us = now_us;
    if (json_is_string(json_object_get(choice, "finish_reason")))
        a->has_finish = true;
    if (!has_text(choice))
        return;
    if (a->first_text_us == 0)
        a->first_text_us = now_us;
    else if (a->on_gap)
        a->on_gap(a->arg, now_us - a->last_text_us);
    a->last_text_us = now_us;
    a->n_texts++;
}

static int take_event(struct ek_answer *a, const char *data, size_t n, int64_t now_us,
                      struct ek_err *err)
{
    static const struct ek_json_limits limits = {.max_values = 1 << 16};
    json_t *event = NULL;
    int rc = ek_json_parse(&event, data, n, &limits, err);
    if (rc) {
        ek_err_prefix(err, "event of %zu bytes", n);
        return rc;
    }
    const json_t *error = json_object_get(event, "error");
    if (!json_is_object(event)) {
        rc = ek_err_set(err, EK_EFORMAT, "an event is no JSON object");
    } else if (error && !json_is_null(error)) {
        const char *text = json_string_value(json_object_get(error, "message"));
        rc = ek_err_set(err, EK_EIO, "error in the stream: %.300s",
                        text ? text : "without a message");
    } else {
        const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
        take_usage(a, json_object_get(event, "usage"));
        if (choice)
            take_choice(a, choice, now_us);
    }
    json_decref(event);
    return rc;
}

/* A line without its \n. Comments, ids, event names and empty lines are passed over. */
static int take_line(struct ek_answer *a, const char *line, size_t n, int64_t now_us,
                     struct ek_err *err)
{
    if (n > 0 && line[n - 1] == '\r')
        n--;
    if (a->done_us || n < 5 || memcmp(line, "data:", 5) != 0)
        return 0;
    size_t skip = n > 5 && line[5] == ' ' ? 6 : 5;
    line += skip;
    n -= skip;
    if (n == 6 && !memcmp(line, "[DONE]", 6)) {
        a->done_us = now_us;
        return 0;
    }
    return take_event(a, line, n, now_us, err);
}

int ek_answer_feed(struct ek_answer *a, const char *p, size_t n, int64_t now_us,
                   struct ek_err *err)
{
    int rc = 0;
    while (n > 0 && !rc) {
        const char *end = memchr(p, '\n', n);
        size_t len = end ? (size_t)(end - p) : n;
        if (a->line.len > 0 || !end) {
            rc = ek_buf_add(&a->line, p, len);
            if (rc)
                return ek_err_set(err, rc, "a line of the stream: %s",
                                  ek_status_text(rc));
        }
        if (end && a->line.len > 0) {
            rc = take_line(a, a->line.data, a->line.len, now_us, err);
            ek_buf_reset(&a->line);
        } else if (end) {
            rc = take_line(a, p, len, now_us, err);
        }
        p += len + (end != NULL);
        n -= len + (end != NULL);
    }
    return rc;
}

int ek_answer_end(const struct ek_answer *a, struct ek_err *err)
{
    if (a->done_us || a->has_finish)
        return 0;
    if (a->first_event_us == 0)
        return ek_err_set(err, EK_EFORMAT, "the answer is no stream of events");
    return ek_err_set(err, EK_EIO, "the stream ended early, behind %llu texts",
                      (unsigned long long)a->n_texts);
}
