/* verb_bench_memory.c - keel bench memory: how fast memory is read, from the caches to
 * DRAM, by one thread and by more. */
#include "cli/bench.h"
#include "cli/verb.h"

#include <stdio.h>
#include <stdlib.h>

#define ARENA_BYTES (1 << 20)
#define MIB_MAX     65536

struct settings {
    struct ek_bench_settings bench;
    struct ek_opt_list mib;
};

static const struct ek_opt opts[] = {
    {.name = "mib",
     .letter = 'm',
     .type = EK_OPT_LIST,
     .offset = offsetof(struct settings, mib),
     .value = "N",
     .help = "MiB that all threads read together; without it half of the L2 caches, "
             "half of the L3 cache, and 16 times the L3 cache"},
    EK_OPT_BENCH_THREADS(offsetof(struct settings, bench)),
    EK_OPT_BENCH_REPEATS(offsetof(struct settings, bench), "9"),
    EK_OPT_BENCH_ISA(offsetof(struct settings, bench)),
    EK_OPT_BENCH_JSON(offsetof(struct settings, bench)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "bench memory",
    .summary = "measure how fast memory is read",
    .arguments = "",
    .details =
        "Each thread reads its own share, front to back, with the widest loads of the "
        "ISA; rows are for 1, 2, 4 ... threads up to --threads. GB/s are 10^9 bytes. "
        "The last sizes tell what decoding can reach: it reads every weight once a "
        "token.",
    .examples = "keel bench memory\n"
                "keel bench memory --mib 16 --mib 1024 --json",
    .opts = opts,
    .min_args = 0,
    .max_args = 0,
};

static int row(struct ek_bench *b, double mib, int n_members, struct ek_err *err)
{
    struct ek_bench_stat s;
    struct ek_buf out;
    int rc = ek_bench_bandwidth(&s, b, (size_t)(mib * 1048576), n_members,
                                (int)b->set->repeats, err);
    if (rc)
        return rc;
    if (!b->set->json) {
        printf("%10.2f %8d %10.2f %10.2f %10.2f\n", mib, n_members, s.min, s.median,
               s.max);
        return 0;
    }
    ek_buf_init(&out, 1 << 12);
    rc = ek_buf_addf(&out, "{\"name\":\"read\",\"mib\":%.2f,\"members\":%d,", mib,
                     n_members);
    if (!rc)
        rc = ek_bench_add_stat(&out, "GB/s", &s);
    if (!rc)
        rc = ek_buf_add_char(&out, ',');
    if (!rc)
        rc = ek_bench_add_machine(&out, b);
    if (!rc)
        rc = ek_buf_add_char(&out, '}');
    rc = ek_bench_print(&out, rc, err);
    ek_buf_release(&out);
    return rc;
}

static int rows(struct ek_bench *b, double mib, struct ek_err *err)
{
    int most = ek_team_size(b->team), rc = 0;
    for (int n = 1; !rc && n < most; n *= 2)
        rc = row(b, mib, n, err);
    return rc ? rc : row(b, mib, most, err);
}

static int measure(const struct settings *set, struct ek_err *err)
{
    struct ek_bench b = {0};
    ek_bench_choose_isa(&set->bench);
    int rc = ek_bench_open(&b, &set->bench, NULL, err);
    if (rc)
        goto out;
    if (!set->bench.json) {
        ek_bench_print_machine(&b);
        printf("%10s %8s %10s %10s %10s\n", "MiB", "threads", "min", "median",
               "max GB/s");
    }
    for (size_t i = 0; !rc && i < set->mib.n; i++)
        rc = rows(&b, strtod(set->mib.items[i], NULL), err);
    double l2 = (double)b.topology.l2_bytes * ek_team_size(b.team) / 1048576;
    double l3 = (double)b.topology.l3_bytes / 1048576;
    double sizes[] = {l2 > 0 ? l2 / 2 : 0.5, l3 > 0 ? l3 / 2 : 8,
                      l3 > 32 ? 16 * l3 : 512};
    for (size_t i = 0; !rc && set->mib.n == 0 && i < sizeof sizes / sizeof *sizes; i++)
        rc = rows(&b, sizes[i], err);
out:
    ek_bench_close(&b);
    return rc;
}

static bool are_sizes_right(const struct ek_opt_list *mib)
{
    for (size_t i = 0; i < mib->n; i++) {
        char *end;
        double v = strtod(mib->items[i], &end);
        if (*end || !(v >= 0.0625 && v <= MIB_MAX)) {
            fprintf(stderr,
                    "keel bench memory: --mib '%s': expected a number from 0.0625 to "
                    "%d\n",
                    mib->items[i], MIB_MAX);
            return false;
        }
    }
    return true;
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_err err = EK_ERR_INIT;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    if (ek_verb_options(&ek_verb_bench_memory, &set, &args, argc, argv, &arena,
                        &code)) {
        if (!are_sizes_right(&set.mib))
            code = EK_EXIT_USAGE;
        else if (measure(&set, &err))
            code = ek_verb_fail(&ek_verb_bench_memory, &err, false);
    }
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_bench_memory = {&table, run};
