#include "cli/bench.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define READ_AHEAD   4096 /* bytes that a read may prefetch behind its end */
#define PEAK_SECONDS 0.02 /* of one repetition of a probe */

double ek_bench_now_s(const struct ek_team *team)
{
    struct timespec t;
    bool is_alone = ek_team_size(team) == 1;
    clock_gettime(is_alone ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

struct ek_bench_stat ek_bench_stat_of(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, compare);
    double median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
    return (struct ek_bench_stat){v[0], median, v[n - 1], n};
}

void ek_bench_choose_isa(const struct ek_bench_settings *set)
{
    static const char *const names[] = {NULL, "ref", "avx2", "avx512"};
    if (names[set->isa])
        setenv("EK_ISA", names[set->isa], 1);
}

int ek_bench_open(struct ek_bench *b, const struct ek_bench_settings *set,
                  struct ek_team *team, struct ek_err *err)
{
    enum ek_isa isa;
    *b = (struct ek_bench){.set = set, .team = team, .is_team_borrowed = team != NULL};
    int rc = ek_isa_choose(&isa, err);
    if (!rc)
        rc = ek_topology_read(&b->topology, err);
    if (rc)
        return rc;
    b->ops = ek_ops_get(isa);
    return team ? 0 : ek_team_new(&b->team, (int)set->threads, true, err);
}

void ek_bench_close(struct ek_bench *b)
{
    if (!b->is_team_borrowed)
        ek_team_free(b->team);
    b->team = NULL;
    ek_free(b->memory);
    b->memory = NULL;
}

/* What members do together; the others of the team only meet. */
struct job {
    const struct ek_ops *ops;
    enum ek_weight_format format; /* of dot products */
    unsigned char *memory;
    size_t share; /* bytes of a member */
    int64_t rounds;
    int n_members;
    enum { TOUCH, READ, DOT } what;
    int64_t done[256][8]; /* multiply-adds, or what was read; a cache line a member */
};

static void work(void *arg, int member, int n_members)
{
    struct job *j = arg;
    (void)n_members;
    if (member >= j->n_members)
        return;
    unsigned char *mine = j->memory + (size_t)member * j->share;
    if (j->what == TOUCH)
        memset(mine, member + 1, j->share);
    else if (j->what == READ)
        j->done[member][0] = (int64_t)j->ops->probe_read(mine, j->share);
    else
        j->done[member][0] = j->ops->probe_dot(j->format, j->rounds);
}

/* b->memory for this size and these members, touched by who will read it. */
static int fit_memory(struct ek_bench *b, struct job *j, size_t bytes,
                      struct ek_err *err)
{
    char text[32];
    j->memory = b->memory;
    if (b->memory && b->memory_bytes == bytes && b->n_memory_members == j->n_members)
        return 0;
    ek_free(b->memory);
    b->memory = ek_alloc_huge(j->share * (size_t)j->n_members + READ_AHEAD);
    if (!b->memory)
        return ek_err_set(err, EK_ENOMEM, "no memory to read from: %s",
                          ek_format_bytes(text, bytes));
    b->memory_bytes = bytes;
    b->n_memory_members = j->n_members;
    j->memory = b->memory;
    j->what = TOUCH;
    ek_team_run(b->team, work, j);
    return 0;
}

int ek_bench_bandwidth(struct ek_bench_stat *gb_s, struct ek_bench *b, size_t bytes,
                       int n_members, int n_repeats, struct ek_err *err)
{
    double v[EK_BENCH_REPEATS_MAX] = {0};
    struct job j = {.ops = b->ops, .n_members = n_members};
    j.share = bytes / (size_t)n_members & ~(size_t)4095;
    if (j.share == 0)
        return ek_err_set(err, EK_EINVAL, "%zu bytes: expected 4096 for each thread",
                          bytes);
    int rc = fit_memory(b, &j, bytes, err);
    if (rc)
        return rc;
    j.what = READ;
    /* Small buffers are read many times in a repetition, or the clock would show. */
    double read = (double)j.share * n_members;
    int times = (int)(67108864 / read) + 1;
    for (int r = -1; r < n_repeats; r++) {
        double start = ek_bench_now_s(b->team);
        for (int i = 0; i < times; i++)
            ek_team_run(b->team, work, &j);
        double s = ek_bench_now_s(b->team) - start;
        if (r >= 0)
            v[r] = read * times / s / 1e9;
    }
    *gb_s = ek_bench_stat_of(v, n_repeats);
    return 0;
}

struct ek_bench_stat ek_bench_peak(const struct ek_bench *b,
                                   enum ek_weight_format format, int n_members,
                                   int n_repeats)
{
    double v[EK_BENCH_REPEATS_MAX] = {0}, s = 0;
    struct job j = {.ops = b->ops,
                    .format = format,
                    .rounds = 1000,
                    .n_members = n_members,
                    .what = DOT};
    for (; s < PEAK_SECONDS; j.rounds *= 2) { /* finds how many rounds take long */
        double start = ek_bench_now_s(b->team);
        ek_team_run(b->team, work, &j);
        s = ek_bench_now_s(b->team) - start;
    }
    for (int r = 0; r < n_repeats; r++) {
        double start = ek_bench_now_s(b->team);
        ek_team_run(b->team, work, &j);
        s = ek_bench_now_s(b->team) - start;
        v[r] = 0;
        for (int i = 0; i < n_members; i++)
            v[r] += 2.0 * (double)j.done[i][0] / s / 1e9;
    }
    return ek_bench_stat_of(v, n_repeats);
}

int ek_bench_add_machine(struct ek_buf *row, const struct ek_bench *b)
{
    int rc = ek_buf_add_str(row, "\"cpu\":");
    if (!rc)
        rc = ek_json_add_str(row, b->topology.model, strlen(b->topology.model));
    return rc ? rc
              : ek_buf_addf(row, ",\"isa\":\"%s\",\"threads\":%d",
                            ek_isa_name(b->ops->isa), ek_team_size(b->team));
}

int ek_bench_add_stat(struct ek_buf *row, const char *unit,
                      const struct ek_bench_stat *s)
{
    return ek_buf_addf(row,
                       "\"unit\":\"%s\",\"repeats\":%d,\"min\":%.4f,\"median\":%.4f,"
                       "\"max\":%.4f",
                       unit, s->n, s->min, s->median, s->max);
}

int ek_bench_print(struct ek_buf *row, int rc, struct ek_err *err)
{
    if (!rc)
        rc = ek_buf_add_char(row, '\n');
    if (!rc && (fwrite(row->data, 1, row->len, stdout) != row->len || fflush(stdout)))
        rc = EK_EIO;
    ek_buf_reset(row);
    return rc ? ek_err_set(err, rc, "standard output: %s", ek_status_text(rc)) : 0;
}

void ek_bench_print_machine(const struct ek_bench *b)
{
    char l2[32], l3[32];
    printf("%s, %d cores, L2 %s a core, L3 %s; ISA %s, %d threads, %lld repetitions\n",
           b->topology.model[0] ? b->topology.model : "unknown CPU",
           b->topology.n_cores, ek_format_bytes(l2, b->topology.l2_bytes),
           ek_format_bytes(l3, b->topology.l3_bytes), ek_isa_name(b->ops->isa),
           ek_team_size(b->team), (long long)b->set->repeats);
}
