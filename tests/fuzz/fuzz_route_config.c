/* fuzz_route_config.c - any bytes as the lists of a proxy's configuration: refused with
 * a sentence, or listeners and backends whose names and addresses are there. */
#include "route/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fact)
{
    if (!fact)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ek_route_backend common = {.report_path = "/load"};
    struct ek_route_lists lists = {{NULL, NULL, 0}, {NULL, NULL, 0}};
    struct ek_route_config c = {.n_backends = 0};
    struct ek_err err = EK_ERR_INIT;
    struct ek_arena arena;
    ek_arena_init(&arena, 1 << 24);
    int rc = ek_opt_keys_read(ek_route_list_keys, &lists, "fuzz.yaml",
                              (const char *)data, size, &arena, &err);
    if (!rc)
        rc = ek_route_config_add(&c, &lists, &common, &arena, &err);
    must(!rc == !err.text[0]);
    for (size_t i = 0; !rc && i < c.n_backends; i++) {
        must(*c.backends[i].spec.name && c.backends[i].spec.weight > 0);
        must(strlen(c.backends[i].spec.address) <= EK_BACKEND_ADDR_MAX);
    }
    ek_arena_release(&arena);
    return 0;
}
