/* bench.h - what the measuring verbs share: the machine, repetitions and their spread.
 *
 * Every row names machine, ISA, threads and repetitions, and gives minimum, median and
 * maximum: a table for people, one JSON object a line with --json.
 */
#ifndef EVENKEEL_CLI_BENCH_H
#define EVENKEEL_CLI_BENCH_H

#include "base/buf.h"
#include "base/team.h"
#include "kernel/ops.h"

#define EK_BENCH_REPEATS_MAX 1000

struct ek_bench_settings {
    int64_t threads, repeats;
    int isa; /* place in its choices */
    bool json;
};

/* Entries of an options table; `at` is the offset of the struct ek_bench_settings. */
#define EK_OPT_BENCH_THREADS(at)                                                       \
    {                                                                                  \
        .name = "threads", .letter = 't', .type = EK_OPT_INT,                          \
        .offset = (at) + offsetof(struct ek_bench_settings, threads), .value = "N",    \
        .fallback = "0", .min = 0, .max = 256,                                         \
        .help = "threads that work; 0: one a physical core"                            \
    }
#define EK_OPT_BENCH_REPEATS(at, n)                                                    \
    {                                                                                  \
        .name = "repeat", .letter = 'r', .type = EK_OPT_INT,                           \
        .offset = (at) + offsetof(struct ek_bench_settings, repeats), .value = "N",    \
        .fallback = n, .min = 1, .max = EK_BENCH_REPEATS_MAX,                          \
        .help = "repetitions of each row, behind one that does not count"              \
    }
#define EK_OPT_BENCH_ISA(at)                                                           \
    {                                                                                  \
        .name = "isa", .type = EK_OPT_CHOICE,                                          \
        .offset = (at) + offsetof(struct ek_bench_settings, isa), .fallback = "best",  \
        .choices = "best|ref|avx2|avx512",                                             \
        .help = "kernels to run; best: what EK_ISA says, else the widest of this CPU"  \
    }
#define EK_OPT_BENCH_JSON(at)                                                          \
    {                                                                                  \
        .name = "json", .type = EK_OPT_FLAG,                                           \
        .offset = (at) + offsetof(struct ek_bench_settings, json),                     \
        .help = "print one JSON object a row"                                          \
    }

/* Minimum, median and maximum of n repetitions. */
struct ek_bench_stat {
    double min, median, max;
    int n;
};

/* Sorts v[0,n), n >= 1. */
struct ek_bench_stat ek_bench_stat_of(double *v, int n);

/* Seconds of a clock. A team of one counts its own processor time, which leaves out
 * what else the machine does. */
double ek_bench_now_s(const struct ek_team *team);

/* The machine, and the team that works on it. */
struct ek_bench {
    const struct ek_bench_settings *set; /* borrowed */
    struct ek_topology topology;
    const struct ek_ops *ops;
    struct ek_team *team; /* owned, or borrowed from a runtime */
    bool is_team_borrowed;
    unsigned char *memory; /* what was read last, owned; kept for the next time */
    size_t memory_bytes;
    int n_memory_members;
};

/* Makes what --isa says the process's choice (EK_ISA), so that whatever is opened later
 * follows it. */
void ek_bench_choose_isa(const struct ek_bench_settings *set);

/* team NULL: a new one of set->threads. Errors: those of the parts. */
int ek_bench_open(struct ek_bench *b, const struct ek_bench_settings *set,
                  struct ek_team *team, struct ek_err *err) EK_MUST_USE;
void ek_bench_close(struct ek_bench *b);

/* GB/s (10^9) that n_members of the team read together from `bytes` of memory, each its
 * own share, the first touch its own, in pages of 2 MiB as weights lie. Errors:
 * EK_ENOMEM. */
int ek_bench_bandwidth(struct ek_bench_stat *gb_s, struct ek_bench *b, size_t bytes,
                       int n_members, int n_repeats, struct ek_err *err) EK_MUST_USE;

/* GFLOP/s (two a multiply-add) of the dot products that a matmul of weights in `format`
 * is made of, on registers alone, on n_members of the team. */
struct ek_bench_stat ek_bench_peak(const struct ek_bench *b,
                                   enum ek_weight_format format, int n_members,
                                   int n_repeats);

/* Appends `"cpu":"...","isa":"...","threads":N` to a row. Errors: those of
 * ek_buf_add. */
int ek_bench_add_machine(struct ek_buf *row, const struct ek_bench *b) EK_MUST_USE;

/* Appends `"unit":"...","repeats":N,"min":...,"median":...,"max":...`. */
int ek_bench_add_stat(struct ek_buf *row, const char *unit,
                      const struct ek_bench_stat *s) EK_MUST_USE;

/* Prints the row with its line end and flushes; rc: what appending to it said. Errors:
 * rc, EK_EIO, with a sentence. */
int ek_bench_print(struct ek_buf *row, int rc, struct ek_err *err) EK_MUST_USE;

/* The head of a table: the machine in a line. */
void ek_bench_print_machine(const struct ek_bench *b);

#endif
