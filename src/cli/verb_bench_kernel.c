/* verb_bench_kernel.c - keel bench kernel: what our matmuls reach of what the
 * instruction they are made of can do. */
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/verb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES (1 << 20)

struct settings {
    struct ek_bench_settings bench;
    int64_t n, k;
    struct ek_opt_list rows;
    bool peak;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "peak",
     .type = EK_OPT_FLAG,
     .offset = AT(peak),
     .help = "only the dot products alone, no matmul"},
    {.name = "n",
     .type = EK_OPT_INT,
     .offset = AT(n),
     .value = "N",
     .fallback = "3072",
     .min = 16,
     .max = 1 << 18,
     .help = "outputs of the weight"},
    {.name = "k",
     .type = EK_OPT_INT,
     .offset = AT(k),
     .value = "N",
     .fallback = "1024",
     .min = 32,
     .max = 1 << 16,
     .help = "inputs of the weight"},
    {.name = "rows",
     .type = EK_OPT_LIST,
     .offset = AT(rows),
     .value = "N",
     .help = "rows of activations; without it 1, 4, 16, 64 and 512"},
    EK_OPT_BENCH_THREADS(AT(bench)),
    EK_OPT_BENCH_REPEATS(AT(bench), "5"),
    EK_OPT_BENCH_ISA(AT(bench)),
    EK_OPT_BENCH_JSON(AT(bench)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "bench kernel",
    .summary = "measure matmuls in each weight format against their dot products",
    .arguments = "",
    .details =
        "First the dot-product instruction that each weight format is multiplied by, "
        "in "
        "a loop over registers: the peak, in GFLOP/s (10^9, two a product). Then y = x "
        "w "
        "for a weight of --n outputs and --k inputs in each packed format, preparing x "
        "included, and its share of that peak. Each product is "
        "counted once; integer weights take ten for eight, as some columns of "
        "activations have two 8-bit terms, so their share cannot pass 80 %.\n\n"
        "With few rows the weight streams from cache or memory; GB/s says how fast.",
    .examples = "keel bench kernel --peak\n"
                "keel bench kernel --n 1536 --k 576 --rows 1 --rows 512 --threads 1",
    .opts = opts,
    .min_args = 0,
    .max_args = 0,
};

/* Everything a measurement holds; closed whole. */
struct work {
    struct ek_bench bench;
    const struct settings *set;
    struct ek_buf out;
    double peak[EK_WEIGHT_COUNT]; /* GFLOP/s of a format's dot products */
    struct ek_weight w;
    float *x, *y, *scratch;
    void *act;
    int64_t T;
};

static int print_row(struct work *k, const char *name, const char *unit,
                     const struct ek_bench_stat *s, const char *extra,
                     struct ek_err *err)
{
    int rc = ek_buf_addf(&k->out, "{\"name\":\"%s\",", name);
    if (!rc)
        rc = ek_bench_add_stat(&k->out, unit, s);
    if (!rc)
        rc = ek_buf_addf(&k->out, ",%s,", extra);
    if (!rc)
        rc = ek_bench_add_machine(&k->out, &k->bench);
    if (!rc)
        rc = ek_buf_add_char(&k->out, '}');
    return ek_bench_print(&k->out, rc, err);
}

static int peaks(struct work *k, struct ek_err *err)
{
    const struct ek_bench *b = &k->bench;
    int n = ek_team_size(b->team), rc = 0;
    if (!b->set->json)
        printf("\n%-6s %6s %10s %10s %10s\n", "weight", "", "min", "median",
               "max GFLOP/s of dot products alone");
    for (int i = 0; !rc && i < EK_WEIGHT_COUNT; i++) {
        enum ek_weight_format f = (enum ek_weight_format)i;
        struct ek_bench_stat s = ek_bench_peak(b, f, n, (int)b->set->repeats);
        k->peak[f] = s.median;
        if (b->set->json)
            rc =
                print_row(k, ek_weight_name(f), "GFLOP/s", &s, "\"is_peak\":true", err);
        else
            printf("%-6s %6s %10.1f %10.1f %10.1f\n", ek_weight_name(f), "", s.min,
                   s.median, s.max);
    }
    return rc;
}

static void multiply(void *arg, int member, int n_members)
{
    struct work *k = arg;
    int64_t lo, hi;
    ek_team_share(&lo, &hi, k->T, 1, member, n_members);
    if (lo < hi)
        k->bench.ops->matmul_prepare(k->act, k->w.format, k->x, k->w.K, k->T, k->w.K,
                                     lo, hi);
    ek_team_barrier(k->bench.team, member);
    ek_team_share(&lo, &hi, k->w.N, EK_PANEL, member, n_members);
    if (lo < hi)
        k->bench.ops->matmul(k->y, k->w.N, k->act, &k->w, k->T, lo, hi, EK_MATMUL_SET);
}

static int matmul_row(struct work *k, struct ek_err *err)
{
    const struct ek_bench *b = &k->bench;
    double v[EK_BENCH_REPEATS_MAX] = {0};
    double flop = 2.0 * (double)k->T * (double)k->w.N * (double)k->w.K;
    double bytes = (double)ek_weight_bytes(k->w.format, k->w.N, k->w.K);
    int times = 1;
    for (double s = 0; s < 0.01; times *= 2) { /* finds how many are long enough */
        double start = ek_bench_now_s(b->team);
        for (int i = 0; i < times; i++)
            ek_team_run(b->team, multiply, k);
        s = ek_bench_now_s(b->team) - start;
    }
    for (int r = 0; r < (int)b->set->repeats; r++) {
        double start = ek_bench_now_s(b->team);
        for (int i = 0; i < times; i++)
            ek_team_run(b->team, multiply, k);
        v[r] = flop * times / (ek_bench_now_s(b->team) - start) / 1e9;
    }
    struct ek_bench_stat s = ek_bench_stat_of(v, (int)b->set->repeats);
    double peak = k->peak[k->w.format], share = s.median / peak;
    double gb_s = s.median / flop * bytes;
    const char *name = ek_weight_name(k->w.format);
    if (!b->set->json) {
        printf("%-6s %6lld %10.1f %10.1f %10.1f %9.1f %% %8.1f\n", name,
               (long long)k->T, s.min, s.median, s.max, 100 * share, gb_s);
        return 0;
    }
    char extra[160];
    snprintf(extra, sizeof extra,
             "\"rows\":%lld,\"n\":%lld,\"k\":%lld,\"peak\":%.4f,\"share\":%.4f,"
             "\"weight_gb_s\":%.3f",
             (long long)k->T, (long long)k->w.N, (long long)k->w.K, peak, share, gb_s);
    return print_row(k, name, "GFLOP/s", &s, extra, err);
}

/* The weight in format f, of random values. */
static int pack(struct work *k, enum ek_weight_format f, struct ek_err *err)
{
    const struct settings *set = k->set;
    struct ek_rng rng;
    size_t bytes = ek_weight_bytes(f, set->n, set->k);
    size_t act = ek_matmul_act_bytes(f, k->T, set->k);
    ek_free(k->w.data);
    ek_free(k->act);
    k->w = (struct ek_weight){f, set->n, set->k, ek_alloc_huge(bytes)};
    k->act = ek_alloc_aligned(64, act);
    if (!k->w.data || !k->act)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    ek_rng_init(&rng, 1);
    size_t K = (size_t)set->k;
    for (int64_t n0 = 0; n0 < set->n; n0 += 128) {
        int64_t n1 = n0 + 128 < set->n ? n0 + 128 : set->n;
        float *rows = k->scratch + 128 * K;
        for (size_t i = 0; i < (size_t)(n1 - n0) * K; i++)
            rows[i] = (float)ek_rng_uniform(&rng) - 0.5f;
        ek_weight_pack(&k->w, n0, n1, EK_DTYPE_F32, rows, K * sizeof(float),
                       k->scratch);
    }
    return 0;
}

static int matmuls(struct work *k, struct ek_err *err)
{
    static const char *const usual[] = {"1", "4", "16", "64", "512"};
    const char *const *rows = usual;
    size_t n = sizeof usual / sizeof *usual, most = 0;
    int rc = 0;
    if (k->set->rows.n > 0) {
        rows = (const char *const *)k->set->rows.items;
        n = k->set->rows.n;
    }
    for (size_t i = 0; i < n; i++) {
        size_t T = strtoul(rows[i], NULL, 10);
        most = T > most ? T : most;
    }
    size_t N = (size_t)k->set->n, K = (size_t)k->set->k;
    k->x = ek_alloc_array(most * K, sizeof(float));
    k->y = ek_alloc_array(most * N, sizeof(float));
    k->scratch = ek_alloc_array(256 * K, sizeof(float));
    if (!k->x || !k->y || !k->scratch)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    for (size_t i = 0; i < most * K; i++)
        k->x[i] = (float)(i % 97) / 97 - 0.5f;
    if (!k->bench.set->json)
        printf("\n%-6s %6s %10s %10s %10s %11s %8s   (n %zu, k %zu)\n", "weight",
               "rows", "min", "median", "max GFLOP/s", "of peak", "GB/s", N, K);
    for (int f = 0; !rc && f < EK_WEIGHT_COUNT; f++) {
        k->T = (int64_t)most;
        rc = pack(k, (enum ek_weight_format)f, err);
        for (size_t i = 0; !rc && i < n; i++) {
            k->T = (int64_t)strtoul(rows[i], NULL, 10);
            rc = matmul_row(k, err);
        }
    }
    return rc;
}

static int measure(const struct settings *set, struct ek_err *err)
{
    struct work k = {.set = set};
    ek_buf_init(&k.out, 1 << 12);
    ek_bench_choose_isa(&set->bench);
    int rc = ek_bench_open(&k.bench, &set->bench, NULL, err);
    if (!rc && !set->bench.json)
        ek_bench_print_machine(&k.bench);
    if (!rc)
        rc = peaks(&k, err);
    if (!rc && !set->peak)
        rc = matmuls(&k, err);
    ek_free(k.w.data);
    ek_free(k.act);
    ek_free(k.x);
    ek_free(k.y);
    ek_free(k.scratch);
    ek_bench_close(&k.bench);
    ek_buf_release(&k.out);
    return rc;
}

static bool are_rows_right(const struct ek_opt_list *rows)
{
    for (size_t i = 0; i < rows->n; i++) {
        char *end;
        long v = strtol(rows->items[i], &end, 10);
        if (*end || v < 1 || v > 65536) {
            fprintf(stderr,
                    "keel bench kernel: --rows '%s': expected a whole number from 1 to "
                    "65536\n",
                    rows->items[i]);
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
    if (ek_verb_options(&ek_verb_bench_kernel, &set, &args, argc, argv, &arena,
                        &code)) {
        if (!are_rows_right(&set.rows))
            code = EK_EXIT_USAGE;
        else if (measure(&set, &err))
            code = ek_verb_fail(&ek_verb_bench_kernel, &err, false);
    }
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_bench_kernel = {&table, run};
