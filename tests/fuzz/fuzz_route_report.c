/* fuzz_route_report.c - any bytes as a load report; the first byte says in which form.
 * What is understood goes to a pool, whose figures must stay finite whatever it says. */
#include "route/pool.h"
#include "route/report.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int decode(struct ek_load_report *r, const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;
    switch (data[0] % 5) {
    case 0:
        return ek_report_header(r, text, size - 1, NULL);
    case 1:
        return ek_report_trailer(r, text, size - 1, NULL);
    case 2:
        return ek_report_proto(r, text, size - 1, NULL);
    case 3:
        return ek_report_json(r, text, size - 1);
    default:
        return ek_report_agent(r, text, size - 1);
    }
}

static void must(bool fact)
{
    if (!fact)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ek_load_report r;
    struct ek_pool_options o;
    struct ek_pool *pool;
    struct ek_backend_spec s = {"a", "127.0.0.1:1", 1, 1, 0};
    struct ek_backend_state now;
    int32_t b = -1;
    if (size == 0 || decode(&r, data, size))
        return 0;
    ek_pool_options_default(&o);
    o.max_backends = 1;
    o.n_explained = 1;
    must(!ek_pool_new(&pool, &o) && !ek_pool_add(pool, &b, &s, 1));
    (void)!ek_pool_report(pool, b, &r, 1000000);
    must(ek_pool_read(pool, b, 1000000, &now));
    /* Unknown is NAN: a report of which nothing was left says nothing of room. */
    must(isnan(now.room) || (isfinite(now.room) && now.room <= 1e6));
    must(isfinite(now.weight));
    must(isnan(now.effective_capacity) || now.effective_capacity >= 0);
    ek_pool_free(pool);
    return 0;
}
