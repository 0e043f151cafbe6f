/* verb_inspect.c - keel inspect: what a model file holds; weights are not loaded. */
#include "base/mem.h"
#include "cli/inspect.h"
#include "cli/verb.h"

#include <stdio.h>

#define ARENA_BYTES (1 << 20)

/* What is written grows with the file's tables; this only stops a runaway. */
#define OUTPUT_BYTES ((size_t)1 << 30)

struct settings {
    bool json;
    bool tensors;
};

static const struct ek_opt opts[] = {
    EK_VERB_JSON(offsetof(struct settings, json)),
    {.name = "tensors",
     .type = EK_OPT_FLAG,
     .offset = offsetof(struct settings, tensors),
     .help = "list every tensor: name, type, bytes, shape"},
    {0},
};

static const struct ek_opt_verb table = {
    .name = "inspect",
    .summary = "show what a model file holds",
    .arguments = "MODEL",
    .details =
        "MODEL is a GGUF file, a Hugging Face folder (config.json, tokenizer.json, "
        "*.safetensors) or one .safetensors file. The whole header is checked; weights "
        "are not read. What keel cannot run (an unknown architecture, for one) is a "
        "note, and everything else is shown.\n\n"
        "Exit code 3 and one line on standard error: the file is truncated, lies about "
        "itself, or its parts contradict each other.",
    .examples = "keel inspect model.gguf\n"
                "keel inspect model.gguf --json | jq .kv_bytes_per_token.fp8\n"
                "keel inspect ./SmolLM2-135M --tensors",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

/* A part that only is not supported is fine to look at; a broken one is not. */
static int judge_notes(const struct ek_inspect *f)
{
    for (int i = 0; i < f->n_notes; i++) {
        if (f->notes[i].status != EK_EUNSUP)
            return ek_verb_fail(&ek_verb_inspect, &f->notes[i], true);
    }
    return EK_EXIT_OK;
}

static int inspect(const char *path, const struct settings *set)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_inspect f;
    struct ek_buf out;
    int rc = ek_inspect_open(&f, path, &err);
    if (rc)
        return ek_verb_fail(&ek_verb_inspect, &err, true);
    ek_buf_init(&out, OUTPUT_BYTES);
    rc = set->json ? ek_inspect_json(&out, &f, set->tensors)
                   : ek_inspect_text(&out, &f, set->tensors);
    if (!rc && (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout)))
        rc = EK_EIO;
    int code = EK_EXIT_OK;
    if (rc) {
        ek_err_set(&err, rc, "standard output: %s", ek_status_text(rc));
        code = ek_verb_fail(&ek_verb_inspect, &err, false);
    } else {
        code = judge_notes(&f);
    }
    ek_buf_release(&out);
    ek_inspect_release(&f);
    return code;
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    if (ek_verb_options(&ek_verb_inspect, &set, &args, argc, argv, &arena, &code))
        code = inspect(args.args[0], &set);
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_inspect = {&table, run};
