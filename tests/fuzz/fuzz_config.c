/* fuzz_config.c - any bytes as a --config file: refused with a sentence, or settings
 * inside their bounds. */
#include "base/mem.h"
#include "base/opt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct settings {
    bool pin;
    int64_t threads;
    double temperature;
    const char *listen;
    int64_t kv_memory;
    int64_t idle_timeout;
    int kv_dtype;
    struct ek_opt_list stop;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt options[] = {
    {.name = "pin", .type = EK_OPT_FLAG, .offset = AT(pin)},
    {.name = "threads",
     .type = EK_OPT_INT,
     .offset = AT(threads),
     .min = 0,
     .max = 256},
    {.name = "temperature",
     .type = EK_OPT_REAL,
     .offset = AT(temperature),
     .min = 0,
     .max = 2},
    {.name = "listen", .type = EK_OPT_STR, .offset = AT(listen)},
    {.name = "kv_memory",
     .type = EK_OPT_BYTES,
     .offset = AT(kv_memory),
     .min = 0,
     .max = 1e12},
    {.name = "idle_timeout", .type = EK_OPT_MS, .offset = AT(idle_timeout)},
    {.name = "kv_dtype",
     .type = EK_OPT_CHOICE,
     .offset = AT(kv_dtype),
     .choices = "fp8|bf16|f32"},
    {.name = "stop", .type = EK_OPT_LIST, .offset = AT(stop)},
    {0},
};

static const struct ek_opt_verb verb = {
    .name = "fuzz", .arguments = "", .opts = options};

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void check_settings(const struct settings *s)
{
    must(s->threads >= 0 && s->threads <= 256);
    must(s->temperature >= 0.0 && s->temperature <= 2.0);
    must(s->kv_memory >= 0 && s->idle_timeout >= 0);
    must(s->kv_dtype >= 0 && s->kv_dtype <= 2);
    for (size_t i = 0; i < s->stop.n; i++)
        must(s->stop.items[i] && strlen(s->stop.items[i]) < 1 << 20);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], flag[] = "--config";
    int fd = memfd_create("config", MFD_CLOEXEC);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    char *argv[] = {flag, path};
    for (uint64_t k = 0; k < 4; k++) { /* 0: nothing fails */
        struct settings s = {.pin = false};
        struct ek_opt_args args;
        struct ek_arena arena;
        struct ek_err err = EK_ERR_INIT;
        ek_arena_init(&arena, 1 << 22);
        ek_mem_fail_at(k);
        int rc = ek_opt_parse(&verb, &s, &args, 2, argv, &arena, &err);
        must(!ek_mem_failed() || rc == EK_ENOMEM);
        ek_mem_fail_at(0);
        must(rc == 0 || err.text[0]);
        if (!rc)
            check_settings(&s);
        ek_arena_release(&arena);
    }
    close(fd);
    return 0;
}
