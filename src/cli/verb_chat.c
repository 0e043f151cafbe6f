/* verb_chat.c - keel chat: a conversation on the terminal, or one answer (--ask). */
#include "cli/chat_terminal.h"
#include "cli/verb.h"

#include <stdlib.h>

static const struct ek_opt opts[] = {
    {.name = "url",
     .type = EK_OPT_STR,
     .offset = offsetof(struct ek_chat_options, url),
     .value = "URL",
     .help = "talk to the OpenAI-compatible server at URL"},
    {.name = "ask",
     .type = EK_OPT_STR,
     .offset = offsetof(struct ek_chat_options, ask),
     .value = "TEXT",
     .help = "answer TEXT once on standard output and end",
     .is_flag_only = true},
    {.name = "system",
     .type = EK_OPT_STR,
     .offset = offsetof(struct ek_chat_options, system),
     .value = "TEXT",
     .help = "system prompt; without one the model's template decides"},
    EK_OPT_SAMPLING(offsetof(struct ek_chat_options, sampling), "0.7", "1024"),
    {.name = "model_name",
     .type = EK_OPT_STR,
     .offset = offsetof(struct ek_chat_options, model_name),
     .value = "ID",
     .help = "with --url: the model to ask for instead of the first listed"},
    EK_OPT_MODEL_THREADS(offsetof(struct ek_chat_options, model)),
    EK_OPT_MODEL_CTX(offsetof(struct ek_chat_options, model)),
    EK_OPT_MODEL_WEIGHTS(offsetof(struct ek_chat_options, model)),
    EK_OPT_MODEL_PHASE_WEIGHTS(offsetof(struct ek_chat_options, model)),
    EK_OPT_MODEL_KV_DTYPE(offsetof(struct ek_chat_options, model)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "chat",
    .summary = "talk with a model on the terminal",
    .arguments = "[MODEL]",
    .details = "MODEL is a GGUF file or a Hugging Face folder. With --url the answers "
               "come from "
               "a server instead; its API key is read from EVENKEEL_API_KEY.\n\n"
               "Lines that begin with a slash are commands: /reset, /system [TEXT], "
               "/save FILE, "
               "/help, /quit. Ctrl-C stops an answer, Ctrl-D ends.",
    .examples = "keel chat model.gguf --system 'Answer in one sentence.'\n"
                "keel chat --url http://127.0.0.1:8080\n"
                "keel chat model.gguf --ask 'What is the capital of France?'",
    .opts = opts,
    .min_args = 0,
    .max_args = 1,
};

static int run(int argc, char **argv)
{
    struct ek_chat_options o = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_err err = EK_ERR_INIT;
    struct ek_chat_backend backend = {0};
    int code;
    ek_arena_init(&arena, 1 << 20);
    if (!ek_verb_options(&ek_verb_chat, &o, &args, argc, argv, &arena, &code))
        goto out;
    o.api_key = getenv("EVENKEEL_API_KEY");
    if ((o.url != NULL) == (args.n_args == 1)) {
        ek_err_set(&err, EK_EINVAL, "expected either MODEL or --url URL");
        ek_verb_fail(&ek_verb_chat, &err, false);
        code = EK_EXIT_USAGE;
        goto out;
    }
    int rc = o.url ? ek_chat_remote_open(&backend, &o, &err)
                   : ek_chat_local_open(&backend, args.args[0], &o, &err);
    if (rc) {
        code = ek_verb_fail(&ek_verb_chat, &err, o.url == NULL);
        goto out;
    }
    rc = o.ask ? ek_chat_ask(&backend, &o, &err)
               : ek_chat_terminal_run(&backend, &o, &err);
    code = EK_EXIT_OK;
    if (rc == EK_ECANCELED)
        code = EK_EXIT_INTERRUPTED;
    else if (rc)
        code = ek_verb_fail(&ek_verb_chat, &err, false);
out:
    if (backend.close)
        backend.close(backend.ctx);
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_chat = {&table, run};
