/* explain.c - what each operation of a step costs: `keel train --explain`. */
#include "base/clock.h"
#include "base/file.h"
#include "train/resident.h"
#include "train/run_int.h"

#include <inttypes.h>
#include <string.h>

#define WARM_STEPS  3
#define TIMED_STEPS 20

struct totals {
    double ms, flops, bytes, saved;
};

/* What the arena takes: whole pages of 2 MiB (ek_alloc_huge). */
static int64_t resident_arena(const struct ek_train *t)
{
    const int64_t huge = (int64_t)2 << 20;
    int64_t bytes = (int64_t)ek_graph_arena_bytes(ek_rec_graph(t->model));
    return bytes < huge ? bytes : (bytes + huge - 1) / huge * huge;
}

int64_t ek_train_planned_bytes(const struct ek_train *t)
{
    const size_t *of = t->need.bytes;
    return resident_arena(t) + (int64_t)(of[EK_NEED_ITEMS] + of[EK_NEED_POSITIONS] +
                                         of[EK_NEED_COLUMNS] + of[EK_NEED_LAYERS]);
}

/* The sum that the run was let in by. */
static int add_need(struct ek_buf *out, const struct ek_train *t)
{
    char there[32] = "?";
    if (t->available_bytes < INT64_MAX)
        ek_format_bytes(there, (uint64_t)t->available_bytes);
    int rc = ek_buf_addf(out, "held          ");
    if (!rc)
        rc = ek_need_text(out, &t->need);
    return rc ? rc : ek_buf_addf(out, "; %s was there for it\n", there);
}

static int add_memory(struct ek_buf *out, const struct ek_train *t)
{
    const struct ek_graph *g = ek_rec_graph(t->model);
    int64_t plan = ek_train_planned_bytes(t);
    int64_t peak = ek_resident_peak() - t->resident_bytes;
    char a[32], b[32], c[32], d[32];
    return ek_buf_addf(
        out,
        "memory        %s in one arena at the ceiling (%" PRId64 " sequences, %" PRId64
        " events), %s of it kept for backward\n"
        "              %s planned with parameters, gradients and optimizers; the "
        "process grew by %s at most, %.1f %% of it\n",
        ek_format_bytes(a, ek_graph_arena_bytes(g)), t->max_sequences, t->max_rows,
        ek_format_bytes(b, ek_graph_saved_bytes(g)), ek_format_bytes(c, (uint64_t)plan),
        ek_format_bytes(d, (uint64_t)(peak > 0 ? peak : 0)),
        100.0 * (double)peak / (double)plan);
}

static int run_steps(struct ek_train *t, int n, struct ek_err *err)
{
    struct ek_batch first;
    double loss;
    for (int i = 0; i < n; i++) {
        /* a short epoch ends, and the next one begins */
        for (int tries = 0; tries < 2 && !ek_loader_next(t->loader, &first); tries++)
            continue;
        int rc = ek_train_step(t, &first, &loss, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* FLOPs and bytes are of the batch that is bound last; so is local MFU, nearly. */
static int add_row(struct ek_buf *out, const struct ek_train *t,
                   const struct ek_graph_row *r, struct totals *sum)
{
    char bytes[32], saved[32];
    bool is_useful = r->phase[0] != 'r';
    double mfu = r->ms > 0 ? (double)r->flops / (r->ms / 1e3 * t->peak) : 0;
    if (is_useful)
        sum->ms += r->ms;
    sum->flops += (double)r->flops;
    sum->bytes += (double)r->bytes;
    sum->saved += (double)r->saved_bytes;
    return ek_buf_addf(
        out, "%-14.14s %-22.22s %-18.18s %-9s %9.3f %11s %8.3f %7.2f %11s\n", r->region,
        r->name ? r->name : "", r->op, r->phase, (double)r->flops / 1e6,
        ek_format_bytes(bytes, (uint64_t)r->bytes), r->ms, 100 * mfu,
        r->saved_bytes ? ek_format_bytes(saved, (uint64_t)r->saved_bytes) : "");
}

static int add_table(struct ek_buf *out, struct ek_train *t, double step_ms)
{
    const struct ek_graph *g = ek_rec_graph(t->model);
    struct ek_graph_row row;
    struct totals sum = {0};
    char a[32], b[32];
    int rc = ek_buf_addf(out, "%-14s %-22s %-18s %-9s %9s %11s %8s %7s %11s\n",
                         "region", "value", "operation", "phase", "MFLOP", "bytes",
                         "ms", "MFU %", "saved");
    for (int i = 0; i < ek_graph_rows(g) && !rc; i++) {
        ek_graph_explain(g, i, &row);
        rc = add_row(out, t, &row, &sum);
    }
    if (!rc)
        rc = ek_buf_addf(out, "%-14s %-22s %-18s %-9s %9.3f %11s %8.3f %7.2f %11s\n",
                         "sum", "", "", "", sum.flops / 1e6,
                         ek_format_bytes(a, (uint64_t)sum.bytes), sum.ms,
                         sum.ms > 0 ? 100 * sum.flops / (sum.ms / 1e3 * t->peak) : 0.0,
                         ek_format_bytes(b, (uint64_t)sum.saved));
    if (rc)
        return rc;
    rc = ek_buf_addf(
        out,
        "\nbatch         %" PRId64 " sequences, %" PRId64
        " events; means of %d steps, FLOPs and bytes of the last\n"
        "step          %.3f ms with loader and optimizers; peak %.1f GFLOP/s\n",
        t->batch.B, t->batch.T, TIMED_STEPS, step_ms, t->peak / 1e9);
    if (!rc)
        rc = add_memory(out, t);
    return rc ? rc : add_need(out, t);
}

int ek_train_explain(struct ek_buf *out, struct ek_train *t, struct ek_err *err)
{
    t->peak = ek_train_peak(t->team, t->isa, t->c->train.dtype == 1);
    int rc = run_steps(t, WARM_STEPS, err);
    if (rc)
        return rc;
    ek_graph_profile(ek_rec_graph(t->model), true);
    int64_t start = ek_clock_us();
    rc = run_steps(t, TIMED_STEPS, err);
    double ms = (double)(ek_clock_us() - start) / 1e3 / TIMED_STEPS;
    if (rc)
        return rc;
    rc = add_table(out, t, ms);
    return rc ? ek_err_set(err, rc, "explain: %s", ek_status_text(rc)) : 0;
}
