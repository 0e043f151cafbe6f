/* args.h - what the measurements of this folder share: arguments and the order of
 * figures. */
#ifndef EVENKEEL_BENCH_ARGS_H
#define EVENKEEL_BENCH_ARGS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_MAX_ROUNDS 1001

/* The defaults go in; what a program has no use for stays NULL. */
struct bench_args {
    int n_rounds;    /* 1 to BENCH_MAX_ROUNDS */
    int n_threads;   /* 0 to max_threads */
    int max_threads; /* 0: there is no --threads */
    FILE *json;
    const char *only; /* cases with this in their names; NULL: all */
    bool takes_cases; /* --only, and --isa avx2 */
    bool is_avx2;
    const char *flag, *flag_value; /* one of the program's own */
    bool has_flag;
};

/* False: not to be understood, or the JSON file cannot be written. */
static inline bool bench_take(struct bench_args *a, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *key = argv[i], *value = argv[i + 1];
        if (!strcmp(key, "--rounds"))
            a->n_rounds = (int)strtol(value, NULL, 10);
        else if (a->max_threads > 0 && !strcmp(key, "--threads"))
            a->n_threads = (int)strtol(value, NULL, 10);
        else if (a->takes_cases && !strcmp(key, "--only"))
            a->only = value;
        else if (a->takes_cases && !strcmp(key, "--isa") && !strcmp(value, "avx2"))
            a->is_avx2 = true;
        else if (a->flag && !strcmp(key, a->flag) && !strcmp(value, a->flag_value))
            a->has_flag = true;
        else if (strcmp(key, "--json") || !(a->json = fopen(value, "w")))
            return false;
    }
    return argc % 2 == 1 && a->n_rounds >= 1 && a->n_rounds <= BENCH_MAX_ROUNDS &&
           a->n_threads >= 0 && a->n_threads <= a->max_threads;
}

static inline int bench_compare(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static inline void bench_sort(double *x, size_t n)
{
    qsort(x, n, sizeof *x, bench_compare);
}

#endif
