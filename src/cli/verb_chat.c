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
    {.name = "max_tokens",
     .letter = 'n',
     .type = EK_OPT_INT,
     .offset = offsetof(struct ek_chat_options, max_tokens),
     .value = "N",
     .fallback = "1024",
     .min = 1,
     .max = 1 << 24,
     .help = "longest answer, in tokens"},
    {.name = "temperature",
     .type = EK_OPT_REAL,
     .offset = offsetof(struct ek_chat_options, temperature),
     .value = "T",
     .fallback = "0.7",
     .min = 0,
     .max = 2,
     .help = "0 always takes the likeliest token"},
    {.name = "top_p",
     .type = EK_OPT_REAL,
     .offset = offsetof(struct ek_chat_options, top_p),
     .value = "P",
     .fallback = "0.95",
     .min = 0,
     .max = 1,
     .help = "draw from the likeliest tokens that hold this much probability"},
    {.name = "top_k",
     .type = EK_OPT_INT,
     .offset = offsetof(struct ek_chat_options, top_k),
     .value = "K",
     .fallback = "40",
     .min = 0,
     .max = 1 << 20,
     .help = "draw from the K likeliest tokens; 0 is all"},
    {.name = "min_p",
     .type = EK_OPT_REAL,
     .offset = offsetof(struct ek_chat_options, min_p),
     .value = "P",
     .fallback = "0.05",
     .min = 0,
     .max = 1,
     .help = "leave out tokens less likely than P times the likeliest"},
    {.name = "seed",
     .type = EK_OPT_INT,
     .offset = offsetof(struct ek_chat_options, seed),
     .value = "N",
     .fallback = "-1",
     .min = -1,
     .max = 9007199254740992.0,
     .help = "seed of the draws; -1 takes a new one"},
    {.name = "model_name",
     .type = EK_OPT_STR,
     .offset = offsetof(struct ek_chat_options, model_name),
     .value = "ID",
     .help = "with --url: the model to ask for instead of the first listed"},
    {.name = "threads",
     .letter = 't',
     .type = EK_OPT_INT,
     .offset = offsetof(struct ek_chat_options, threads),
     .value = "N",
     .fallback = "0",
     .min = 0,
     .max = 256,
     .help = "compute threads; 0 is one a physical core"},
    {.name = "ctx",
     .type = EK_OPT_INT,
     .offset = offsetof(struct ek_chat_options, ctx),
     .value = "TOKENS",
     .fallback = "0",
     .min = 0,
     .max = 1 << 24,
     .help = "context in tokens; 0 is the model's own"},
    {.name = "weights",
     .type = EK_OPT_CHOICE,
     .offset = offsetof(struct ek_chat_options, weights),
     .choices = "keep|f32|bf16|fp8|int8|int4",
     .fallback = "keep",
     .help = "format the weights are computed in"},
    {.name = "kv_dtype",
     .type = EK_OPT_CHOICE,
     .offset = offsetof(struct ek_chat_options, kv_dtype),
     .choices = "bf16|f32",
     .fallback = "bf16",
     .help = "format of the KV cache"},
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
