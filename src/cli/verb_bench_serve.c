/* verb_bench_serve.c - keel bench serve: a server under load, seen by its clients. */
#include "cli/load.h"
#include "cli/progress.h"
#include "cli/verb.h"
#include "load/trace.h"

#include <stdlib.h>

#define ARENA_BYTES (1 << 20)
#define AT(member)  offsetof(struct ek_load_settings, member)

static const struct ek_opt opts[] = {
    {.name = "url",
     .letter = 'u',
     .type = EK_OPT_STR,
     .offset = AT(url),
     .value = "URL",
     .fallback = "http://127.0.0.1:8080",
     .help = "the server; http or https, with /v1 at its end or without"},
    {.name = "model_name",
     .type = EK_OPT_STR,
     .offset = AT(model_name),
     .value = "ID",
     .help = "the model to ask for instead of the first listed"},
    {.name = "endpoint",
     .type = EK_OPT_CHOICE,
     .offset = AT(endpoint),
     .choices = "chat|completions",
     .fallback = "chat",
     .help = "/v1/chat/completions or /v1/completions"},
    {.name = "api_key_file",
     .type = EK_OPT_STR,
     .offset = AT(api_key_file),
     .value = "FILE",
     .help = "a file whose first line is the API key; without it EVENKEEL_API_KEY is "
             "sent where it is set"},
    {.name = "ca_file",
     .type = EK_OPT_STR,
     .offset = AT(ca_file),
     .value = "FILE",
     .help = "PEM of the authorities to trust for https instead of the system's"},
    {.name = "prompt_tokens",
     .letter = 'p',
     .type = EK_OPT_INT,
     .offset = AT(prompt_tokens),
     .fallback = "128",
     .min = 1,
     .max = EK_TRACE_TOKENS_MAX,
     .help = "length of each prompt, without a trace"},
    {.name = "output_tokens",
     .letter = 'n',
     .type = EK_OPT_INT,
     .offset = AT(output_tokens),
     .fallback = "128",
     .min = 1,
     .max = EK_TRACE_TOKENS_MAX,
     .help = "length of each answer, without a trace"},
    {.name = "trace",
     .letter = 't',
     .type = EK_OPT_STR,
     .offset = AT(trace),
     .value = "FILE",
     .help = "take lengths and arrivals from a Mooncake (JSONL) or Azure (CSV) trace"},
    {.name = "scale",
     .type = EK_OPT_REAL,
     .offset = AT(scale),
     .fallback = "1",
     .min = 1e-6,
     .max = 1e6,
     .help = "run the trace so many times as fast"},
    {.name = "length_scale",
     .type = EK_OPT_REAL,
     .offset = AT(length_scale),
     .fallback = "1",
     .min = 1e-6,
     .max = 1e3,
     .help = "multiply the trace's lengths"},
    {.name = "max_tokens",
     .type = EK_OPT_INT,
     .offset = AT(max_tokens),
     .min = 0,
     .max = EK_TRACE_TOKENS_MAX,
     .help = "shorten requests whose prompt and answer are longer together; 0: to what "
             "the server says its model takes"},
    {.name = "rate",
     .letter = 'r',
     .type = EK_OPT_REAL,
     .offset = AT(rate),
     .value = "R",
     .min = 0,
     .max = 1e6,
     .help = "open loop: R requests a second on average; 0: none"},
    {.name = "burstiness",
     .type = EK_OPT_REAL,
     .offset = AT(burstiness),
     .min = 0,
     .max = 1e9,
     .help = "draw arrivals from a gamma distribution of this shape: 1 is Poisson, "
             "less comes in bursts, much more evenly; 0: 1, or the trace's pattern"},
    {.name = "concurrency",
     .letter = 'c',
     .type = EK_OPT_INT,
     .offset = AT(concurrency),
     .min = 0,
     .max = 65536,
     .help = "closed loop: requests always under way; open loop: the most under way; "
             "0: 1 and 1024"},
    {.name = "requests",
     .type = EK_OPT_INT,
     .offset = AT(requests),
     .min = 0,
     .max = 1e9,
     .help = "end after so many requests; 0: the trace's, or no end"},
    {.name = "duration",
     .letter = 'd',
     .type = EK_OPT_MS,
     .offset = AT(duration_ms),
     .min = 0,
     .max = 366.0 * 86400000.0,
     .help = "send nothing after this time, and wait for what is under way; 0: 30s "
             "where neither --requests nor --trace is given"},
    {.name = "warm_up",
     .type = EK_OPT_INT,
     .offset = AT(warm_up),
     .min = 0,
     .max = 100000,
     .help = "requests that are sent and answered before and not counted"},
    {.name = "timeout",
     .type = EK_OPT_MS,
     .offset = AT(timeout_ms),
     .fallback = "10min",
     .min = 1,
     .max = 24 * 3600000.0,
     .help = "give a request up after this time; it has failed then"},
    {.name = "ignore_eos",
     .type = EK_OPT_FLAG,
     .offset = AT(ignore_eos),
     .fallback = "true",
     .help = "ask for answers of full length; servers that know no ignore_eos may want "
             "--no-ignore-eos"},
    {.name = "temperature",
     .type = EK_OPT_REAL,
     .offset = AT(temperature),
     .fallback = "0",
     .min = 0,
     .max = 2,
     .help = "temperature of each request"},
    {.name = "body",
     .type = EK_OPT_STR,
     .offset = AT(body),
     .value = "JSON",
     .help = "an object whose members are added to the body of each request"},
    {.name = "calibrate",
     .type = EK_OPT_FLAG,
     .offset = AT(calibrate),
     .fallback = "true",
     .help = "ask the server first what words cost in tokens; without, a word is taken "
             "for a token"},
    {.name = "slo",
     .type = EK_OPT_STR,
     .offset = AT(slo),
     .value = "LIMITS",
     .help = "tell goodput, the requests a second within these limits in milliseconds: "
             "ttft:MS,tpot:MS,e2e:MS, any of them"},
    {.name = "seed",
     .type = EK_OPT_INT,
     .offset = AT(seed),
     .fallback = "1",
     .min = 0,
     .max = 1e300,
     .help = "the same seed makes the same prompts and arrivals; another, prompts that "
             "no cache has seen"},
    {.name = "json",
     .type = EK_OPT_STR,
     .offset = AT(json),
     .value = "FILE",
     .help = "write one JSON object; - is standard output, in place of the table"},
    {.name = "svg",
     .type = EK_OPT_STR,
     .offset = AT(svg),
     .value = "FILE",
     .help = "draw the distributions"},
    {0},
};

static const struct ek_opt_verb table = {
    .name = "bench serve",
    .summary = "measure an OpenAI-compatible server under load",
    .arguments = "",
    .details =
        "With --rate, or a trace and no --concurrency, the loop is open: requests are "
        "sent when they are due, answered or not, and every time counts from when a "
        "request was due. Else the loop is closed: --concurrency requests are always "
        "under way.\n\n"
        "Time to first token is the time to the first text that is not empty. Time per "
        "output token is (end to end - first token) / (tokens - 1) of each answer; "
        "time "
        "between tokens is every gap between two pieces of text. Counts of tokens are "
        "the server's (usage). 429 and 503 are counted as refused, everything else "
        "that is no whole answer as failed. Quantiles are within 0.2 %.\n\n"
        "Prompts are rows of English words, and differ unless a trace says otherwise: "
        "equal hash_ids of a Mooncake trace are equal blocks of 512 tokens, so that a "
        "prefix cache finds them.\n\n"
        "Ctrl-C ends the run and prints what was measured.",
    .examples =
        "keel bench serve --concurrency 16 --prompt-tokens 120 --output-tokens 128 \\\n"
        "    --warm-up 16 --requests 256\n"
        "keel bench serve --url https://host --api-key-file key --rate 4 \\\n"
        "    --duration 60s --slo ttft:500,tpot:50 --json run.json --svg run.svg\n"
        "keel bench serve --trace mooncake-conversation.jsonl --rate 2 \\\n"
        "    --length-scale 0.1 --duration 5min",
    .opts = opts,
};

static int run(int argc, char **argv)
{
    struct ek_load_settings set = {.api_key = getenv("EVENKEEL_API_KEY")};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_err err = EK_ERR_INIT;
    int code = EK_EXIT_OK;
    bool is_input = false, is_interrupted = false;
    ek_arena_init(&arena, ARENA_BYTES);
    if (!ek_verb_options(&ek_verb_bench_serve, &set, &args, argc, argv, &arena, &code))
        goto out;
    ek_interrupt_catch();
    int rc = ek_load_bench(&set, &is_input, &is_interrupted, &err);
    if (rc)
        code = ek_verb_fail(&ek_verb_bench_serve, &err, is_input);
    if (rc == EK_EINVAL && !is_input)
        code = EK_EXIT_USAGE;
    if (is_interrupted)
        code = EK_EXIT_INTERRUPTED;
out:
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_bench_serve = {&table, run};
