/* matmul.c - the matmul of each weight format at decode, batched decode and prefill,
 * against a streaming read and against the peak of dot products of the same run.
 *
 *   bench_matmul [--rounds N] [--threads N] [--isa avx2] [--memory hot] [--only TEXT]
 *                [--json FILE]
 *
 * Each case goes through as many copies of its matrix as fill 192 MiB (six times an L3
 * of 32 MiB), so that weights come from memory; --memory hot: one copy again and again.
 * --only: cases whose name has TEXT in it, such as qwen3_up_int4_T1.
 *
 * GB/s: packed bytes of the weights over time. GFLOP/s: 2 T N K over time, each product
 * counted once, though integers do ten for eight. Shares: of the read and of the dot
 * products that were measured in the same round. Columns are split among threads. */
#include "args.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/team.h"
#include "kernel/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define POOL_BYTES ((size_t)192 << 20)
#define HUGE       ((size_t)2 << 20)
#define MAX_T      512
#define MAX_K      3072
#define MAX_N      49152
#define ROUND_S    0.02 /* the least time of a measurement */

struct shape {
    const char *name;
    int64_t N, K;
};

static const struct shape shapes[] = {
    {"smollm2_up", 1536, 576},    {"smollm2_down", 576, 1536},
    {"smollm2_head", 49152, 576}, {"qwen3_up", 3072, 1024},
    {"qwen3_down", 1024, 3072},   {"qwen3_head", 49152, 1024}};
static const int Ts[] = {1, 2, 4, 8, 16, 32, 128, 512};

struct bench {
    unsigned char *pool; /* POOL_BYTES of weights */
    float *x, *y;        /* (MAX_T, MAX_K), (MAX_T, MAX_N) */
    void *act;
    struct ek_team *team;
    const struct ek_ops *ops;
    struct bench_args args; /* its flag: --memory hot */
    struct ek_weight w;
    int64_t T, n_copies, n_passes;
    size_t stride; /* bytes between copies */
};

/* One thread counts its own processor time, which leaves out what else is running. */
static double now_s(int n_threads)
{
    struct timespec t;
    clock_gettime(n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void read_share(void *arg, int member, int n)
{
    const struct bench *b = arg;
    size_t part = POOL_BYTES / (size_t)n / 512 * 512;
    volatile uint64_t sum = b->ops->probe_read(b->pool + part * (size_t)member, part);
    (void)sum;
}

static void dot_share(void *arg, int member, int n)
{
    const struct bench *b = arg;
    (void)member;
    (void)n;
    b->ops->probe_dot(b->w.format, 1000000);
}

static void multiply_share(void *arg, int member, int n)
{
    const struct bench *b = arg;
    int64_t n0, n1;
    ek_team_share(&n0, &n1, b->w.N, EK_PANEL, member, n);
    for (int64_t i = 0; i < b->n_passes * b->n_copies; i++) {
        struct ek_weight w = b->w;
        w.data = b->pool + (size_t)(i % b->n_copies) * b->stride;
        if (n0 < n1)
            b->ops->matmul(b->y, w.N, b->act, &w, b->T, n0, n1, EK_MATMUL_SET);
        if (n > 1)
            ek_team_barrier(b->team, member);
    }
}

static double timed(struct bench *b, void (*fn)(void *arg, int member, int n))
{
    double start = now_s(b->args.n_threads);
    ek_team_run(b->team, fn, b);
    return now_s(b->args.n_threads) - start;
}

/* Random weights, packed once and copied; random activations. */
static void set_case(struct bench *b, const struct shape *s, enum ek_weight_format f)
{
    struct ek_rng rng;
    ek_rng_init(&rng, 1);
    size_t bytes = ek_weight_bytes(f, s->N, s->K);
    b->w = (struct ek_weight){f, s->N, s->K, b->pool};
    b->stride = (bytes + 4095) / 4096 * 4096 + 4096;
    b->n_copies = b->args.has_flag ? 1 : (int64_t)(POOL_BYTES / b->stride);
    int64_t step = 128; /* rows packed at a time, from the buffer of y */
    for (int64_t i = 0; i < step * s->K; i++)
        b->y[i] = (float)(ek_rng_uniform(&rng) - 0.5);
    for (int64_t n = 0; n < s->N; n += step) {
        int64_t n1 = n + step < s->N ? n + step : s->N;
        ek_weight_pack(&b->w, n, n1, EK_DTYPE_F32, b->y, (size_t)s->K * 4,
                       b->y + step * s->K);
    }
    for (int64_t i = 1; i < b->n_copies; i++)
        memcpy(b->pool + (size_t)i * b->stride, b->pool, bytes);
    for (int64_t i = 0; i < MAX_T * s->K; i++)
        b->x[i] = (float)(ek_rng_uniform(&rng) - 0.5);
    b->ops->matmul_prepare(b->act, f, b->x, s->K, MAX_T, s->K, 0, MAX_T);
}

/* Enough copies for a measurement, no more than the time asks. */
static void set_rows(struct bench *b, int64_t T, int64_t all_copies)
{
    b->T = T;
    b->n_passes = 1;
    b->n_copies = 1;
    timed(b, multiply_share);
    double s = timed(b, multiply_share);
    int64_t n = (int64_t)(ROUND_S / s) + 1;
    b->n_copies = n < all_copies ? n : all_copies;
    b->n_passes = n / b->n_copies;
    if (T <= 32 && !b->args.has_flag) { /* all of the pool, or the cache would help */
        b->n_copies = all_copies;
        b->n_passes = 1;
    }
}

static void print_json(FILE *json, const char *name, const char *kind, const char *unit,
                       double ours, double peer, double ratio, double aim)
{
    fprintf(json,
            "{\"name\":\"matmul_%s_%s\",\"ours\":%.3f,\"peer\":%.3f,\"unit\":\"%s\","
            "\"ratio\":%.3f,\"must\":0,\"aim\":%.2f}\n",
            name, kind, ours, peer, unit, ratio, aim);
}

static void measure(struct bench *b, const char *name)
{
    double gb[BENCH_MAX_ROUNDS], flop[BENCH_MAX_ROUNDS], of_read[BENCH_MAX_ROUNDS],
        of_dot[BENCH_MAX_ROUNDS];
    double bytes = (double)ek_weight_bytes(b->w.format, b->w.N, b->w.K);
    double flops = 2.0 * (double)b->T * (double)b->w.N * (double)b->w.K;
    double macs = (double)b->ops->probe_dot(b->w.format, 1) * 1e6 * b->args.n_threads;
    double terms = b->w.format >= EK_WEIGHT_I8 ? 1.25 : 1;
    double read = 0, dot = 0;
    for (int i = 0; i < b->args.n_rounds; i++) {
        double n = (double)(b->n_copies * b->n_passes);
        read = (double)POOL_BYTES / timed(b, read_share) / 1e9;
        dot = 2.0 * macs / timed(b, dot_share) / 1e9;
        double s = timed(b, multiply_share);
        gb[i] = bytes * n / s / 1e9;
        flop[i] = flops * n / s / 1e9;
        of_read[i] = gb[i] / read;
        of_dot[i] = flop[i] * terms / dot;
    }
    size_t n = (size_t)b->args.n_rounds, mid = n / 2;
    double *lists[] = {gb, flop, of_read, of_dot};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        bench_sort(lists[i], n);
    printf("%-24s %7.1f %7.1f   %7.1f %7.1f   %5.2f %5.2f   %6.1f %7.1f\n", name,
           gb[mid], gb[n - 1], flop[mid], flop[n - 1], of_read[mid], of_dot[mid], read,
           dot);
    fflush(stdout);
    if (!b->args.json)
        return;
    if (b->T <= 4)
        print_json(b->args.json, name, "read", "GB/s", gb[mid], read, of_read[mid],
                   0.9);
    else
        print_json(b->args.json, name, "dot", "GFLOP/s", flop[mid], dot, of_dot[mid],
                   0.7);
}

static void measure_all(struct bench *b)
{
    printf(
        "%d threads, %d rounds, %s; median and best, shares' median, the last round's "
        "read and dot products\n%-24s %15s   %15s   %11s   %14s\n",
        b->args.n_threads, b->args.n_rounds, ek_isa_name(b->ops->isa), "", "GB/s",
        "GFLOP/s", "read   dot", "GB/s  GFLOP/s");
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int f = 0; f < EK_WEIGHT_COUNT; f++) {
            int64_t copies = 0;
            for (size_t i = 0; i < sizeof Ts / sizeof Ts[0]; i++) {
                char name[64];
                snprintf(name, sizeof name, "%s_%s_T%d", shapes[s].name,
                         ek_weight_name((enum ek_weight_format)f), Ts[i]);
                if (b->args.only && !strstr(name, b->args.only))
                    continue;
                if (copies == 0) {
                    set_case(b, &shapes[s], (enum ek_weight_format)f);
                    copies = b->n_copies;
                }
                set_rows(b, Ts[i], copies);
                measure(b, name);
            }
        }
}

static bool reserve(struct bench *b)
{
    size_t act = ek_matmul_act_bytes(EK_WEIGHT_F32, MAX_T, MAX_K);
    struct ek_err err;
    b->pool = ek_alloc_aligned(HUGE, POOL_BYTES);
    b->x = ek_alloc_aligned(HUGE, (size_t)MAX_T * MAX_K * sizeof(float));
    b->y = ek_alloc_aligned(HUGE, (size_t)MAX_T * MAX_N * sizeof(float));
    b->act = ek_alloc_aligned(HUGE, act);
    if (!b->pool || !b->x || !b->y || !b->act ||
        ek_team_new(&b->team, b->args.n_threads, true, &err))
        return false;
    if (madvise(b->pool, POOL_BYTES, MADV_HUGEPAGE) ||
        madvise(b->act, act, MADV_HUGEPAGE))
        perror("bench_matmul: huge pages");
    memset(b->pool, 0, POOL_BYTES);
    memset(b->y, 0, (size_t)MAX_T * MAX_N * sizeof(float));
    return true;
}

static void release(struct bench *b)
{
    ek_team_free(b->team);
    ek_free(b->pool);
    ek_free(b->x);
    ek_free(b->y);
    ek_free(b->act);
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_matmul [--rounds N] [--threads N] [--isa avx2] "
                    "[--memory hot] [--only TEXT] [--json FILE]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static struct bench b;
    b.args = (struct bench_args){.n_rounds = 7,
                                 .n_threads = 1,
                                 .max_threads = 256,
                                 .takes_cases = true,
                                 .flag = "--memory",
                                 .flag_value = "hot"};
    if (!bench_take(&b.args, argc, argv) || b.args.n_threads < 1 ||
        (b.args.is_avx2 && ek_isa_best() < EK_ISA_AVX2))
        return usage();
    b.ops = ek_ops_get(b.args.is_avx2 ? EK_ISA_AVX2 : ek_isa_best());
    int status = 1;
    if (!reserve(&b)) {
        fprintf(stderr, "bench_matmul: out of memory\n");
        goto out;
    }
    measure_all(&b);
    if (b.args.json && fclose(b.args.json)) {
        perror("bench_matmul: --json");
        goto out;
    }
    status = 0;
out:
    release(&b);
    return status;
}
