/* chat.h - a terminal conversation: who answers (a model here or a server elsewhere)
 * behind one door, so that the terminal does not care. */
#ifndef EVENKEEL_CLI_CHAT_H
#define EVENKEEL_CLI_CHAT_H

#include "base/err.h"
#include "cli/model.h"
#include "cli/sampling.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Settings of `keel chat`; the options table in verb_chat.c fills them. */
struct ek_chat_options {
    const char *url;        /* a server's base, or NULL: the model runs here */
    const char *api_key;    /* from EVENKEEL_API_KEY, or NULL */
    const char *ask;        /* answer this once and end, or NULL */
    const char *system;     /* system prompt, or NULL: the template's default */
    const char *model_name; /* for --url: the model to ask for, or NULL: the first */
    struct ek_sampling_settings sampling;
    struct ek_model_settings model; /* not with --url */
};

/* Where an answer goes, and what is known of it afterwards. */
struct ek_chat_sink {
    void (*on_text)(void *arg, const char *p, size_t n); /* whole characters */
    void *arg;
    bool (*is_stopped)(void);   /* asked between tokens; true ends the answer */
    int64_t n_prompt, n_answer; /* tokens; out */
    int64_t first_us, total_us; /* until the first text, and in all; out */
    bool is_cut;                /* the answer reached max_tokens; out */
};

struct ek_chat_backend {
    void *ctx;      /* owned */
    char name[256]; /* the model's name, for the person */
    /* Streams the answer to `messages` (array of {role, content}). A stopped answer is
     * no error. Errors: those of the engine or the server, with its sentence. */
    int (*answer)(void *ctx, const json_t *messages, struct ek_chat_sink *sink,
                  struct ek_err *err);
    void (*close)(void *ctx);
};

/* Loads the model at `path`; errors of a file are the input's (exit 3). */
int ek_chat_local_open(struct ek_chat_backend *b, const char *path,
                       const struct ek_chat_options *o, struct ek_err *err) EK_MUST_USE;

/* Asks the server at o->url which model it runs. */
int ek_chat_remote_open(struct ek_chat_backend *b, const struct ek_chat_options *o,
                        struct ek_err *err) EK_MUST_USE;

#endif
