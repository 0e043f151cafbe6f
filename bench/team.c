/* team.c - what it costs to start and end a parallel region: ek_team_run against an
 * OpenMP parallel region of the same compiler, in one process, interleaved.
 *
 *   bench_team [--threads N] [--rounds N] [--json FILE]
 *
 * The region does nothing, so its time is the dispatch. `gap` is serial work of the
 * caller between two regions, as an engine has between two layers; `idle` is a sleep
 * long past anyone's spin. Both sides rest before each batch, or the spinning threads
 * of the one would take the processors of the other. */
#include "base/team.h"

#include "args.h"
#include "base/clock.h"
#include "base/mem.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_RUNS 2000

struct bench {
    struct ek_team *team;
    int n_threads;
    int64_t touched[256]
                   [8]; /* a cache line a member, so that the region is not empty */
};

struct row {
    const char *name;
    int gap_us;   /* busy, between two regions */
    int sleep_us; /* asleep, between two regions */
    int n_runs;
};

static const struct row rows[] = {
    {"back_to_back", 0, 0, 2000},
    {"gap_5us", 5, 0, 1000},
    {"gap_50us", 50, 0, 200},
    {"idle_5ms", 0, 5000, 10},
};
#define N_ROWS (sizeof rows / sizeof rows[0])

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void touch(void *arg, int member, int n_members)
{
    struct bench *b = arg;
    (void)n_members;
    b->touched[member][0]++;
}

static void run_ours(struct bench *b)
{
    ek_team_run(b->team, touch, b);
}

static void run_openmp(struct bench *b)
{
#pragma omp parallel num_threads(b->n_threads)
    touch(b, omp_get_thread_num(), b->n_threads);
}

static int compare_i64(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Median nanoseconds of one region over a batch. */
static double batch(struct bench *b, const struct row *row,
                    void (*run)(struct bench *b))
{
    static int64_t ns[MAX_RUNS];
    usleep(20000);
    for (int i = 0; i < 50 && !row->sleep_us; i++)
        run(b);
    for (int i = 0; i < row->n_runs; i++) {
        if (row->sleep_us)
            usleep((useconds_t)row->sleep_us);
        for (int64_t end = now_ns() + 1000L * row->gap_us; now_ns() < end;)
            ;
        int64_t start = now_ns();
        run(b);
        ns[i] = now_ns() - start;
    }
    qsort(ns, (size_t)row->n_runs, sizeof ns[0], compare_i64);
    return (double)ns[row->n_runs / 2];
}

static void measure(struct bench *b, const struct row *row, int n_rounds, FILE *json)
{
    double ours[BENCH_MAX_ROUNDS], peer[BENCH_MAX_ROUNDS], ratio[BENCH_MAX_ROUNDS];
    for (int i = 0; i < n_rounds; i++) {
        /* The order changes each round: neither is always the one that follows. */
        if (i % 2)
            peer[i] = batch(b, row, run_openmp);
        ours[i] = batch(b, row, run_ours);
        if (i % 2 == 0)
            peer[i] = batch(b, row, run_openmp);
        ratio[i] = peer[i] / ours[i];
    }
    size_t n = (size_t)n_rounds, mid = n / 2, low = n / 10, high = n - 1 - n / 10;
    bench_sort(ours, n);
    bench_sort(peer, n);
    bench_sort(ratio, n);
    printf("%-14s %8.2f %8.2f %8.2f   %8.2f %8.2f %8.2f   %6.2f (%.2f to %.2f)\n",
           row->name, ours[0] / 1e3, ours[mid] / 1e3, ours[n - 1] / 1e3, peer[0] / 1e3,
           peer[mid] / 1e3, peer[n - 1] / 1e3, ratio[mid], ratio[low], ratio[high]);
    if (json)
        fprintf(json,
                "{\"name\":\"team_%s\",\"ours\":%.3f,\"peer\":%.3f,\"unit\":\"us\","
                "\"ratio\":%.3f,\"low\":%.3f,\"high\":%.3f,\"must\":0.9,\"aim\":1.0}\n",
                row->name, ours[mid] / 1e3, peer[mid] / 1e3, ratio[mid], ratio[low],
                ratio[high]);
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_team [--threads N] [--rounds N] [--json FILE]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct ek_err err = EK_ERR_INIT;
    struct bench_args args = {.n_rounds = 31, .max_threads = 256};
    if (!bench_take(&args, argc, argv))
        return usage();
    if (ek_team_new(&b.team, args.n_threads, true, &err)) {
        fprintf(stderr, "bench_team: %s\n", err.text);
        return 1;
    }
    b.n_threads = ek_team_size(b.team);
    printf(
        "%d threads, %d rounds, microseconds a region: min, median, max; the ratio's "
        "median and 10%% to 90%%\n%-14s %26s   %26s   %s\n",
        b.n_threads, args.n_rounds, "", "ek_team_run", "OpenMP parallel",
        "OpenMP/ours");
    for (size_t i = 0; i < N_ROWS; i++)
        measure(&b, &rows[i], args.n_rounds, args.json);
    ek_team_free(b.team);
    if (args.json && fclose(args.json)) {
        perror("bench_team: --json");
        return 1;
    }
    return 0;
}
