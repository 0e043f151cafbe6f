/* jagged_reduce.c - the sums over the stage of jagged attention, each in one order. */
#include "kernel/jagged.h"
#include "kernel/jagged_int.h"
#include "num/float.h"

#include <string.h>

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t query_rows(const struct ek_jagged_args *a)
{
    const struct ek_jagged_batch *batch = a->batch;
    int64_t last = a->d->is_broadcast_q ? 1 : batch->B;
    return batch->q_offsets[last] - batch->q_offsets[0];
}

int64_t ek_jagged_reduce_units(const struct ek_jagged_args *a)
{
    int64_t n = query_rows(a);
    if (a->bias && a->dpos)
        n += 2 * a->bias->N - 1;
    if (a->bias && a->dtime)
        n += EK_JAGGED_BUCKETS;
    return n;
}

/* sum (H*D) += the parts of sequence b, query i, ascending. */
static void add_parts(float *sum, const struct ek_jagged_args *a, int64_t b, int64_t i)
{
    struct ek_jagged_seq s = ek_jagged_seq_of(a->d, a->batch, b);
    const int64_t n = (int64_t)a->d->H * a->d->D, step = ek_jagged_part_keys(a->d, &s);
    const float *x = a->stage + a->plan->stage_at[b] + i * n;
    for (int64_t lo = 0; lo == 0 || lo < s.Lk; lo += step, x += s.Lq * n)
        for (int64_t c = 0; c < n; c++)
            sum[c] += x[c];
}

static void write_row(const struct ek_jagged_args *a, int64_t row, const float *sum)
{
    const int64_t n = (int64_t)a->d->H * a->d->D;
    if (a->d->dtype == EK_DTYPE_F32) {
        memcpy((float *)a->dq + row * a->ldq, sum, (size_t)n * sizeof *sum);
    } else {
        uint16_t *y = (uint16_t *)a->dq + row * a->ldq;
        for (int64_t c = 0; c < n; c++)
            y[c] = ek_f32_to_bf16(sum[c]);
    }
}

/* The sequence that query row r belongs to. */
static int64_t sequence_of(const struct ek_jagged_batch *batch, int64_t r)
{
    int64_t lo = 0, hi = batch->B - 1;
    while (lo < hi) {
        int64_t mid = (lo + hi + 1) / 2;
        if (batch->q_offsets[mid] <= r)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* The sums of row u are taken where the first of its parts is staged. */
static void reduce_query(const struct ek_jagged_args *a, int64_t u)
{
    const int64_t row = a->batch->q_offsets[0] + u, n = (int64_t)a->d->H * a->d->D;
    const int64_t size = (int64_t)ek_dtype_block_bytes(a->d->dtype);
    if (a->d->is_broadcast_q) {
        if (a->batch->B == 0) {
            memset((char *)a->dq + row * a->ldq * size, 0, (size_t)(n * size));
            return;
        }
        float *sum = a->stage + a->plan->stage_at[0] + u * n;
        struct ek_jagged_seq s = ek_jagged_seq_of(a->d, a->batch, 0);
        int64_t step = ek_jagged_part_keys(a->d, &s);
        for (int64_t p = 1; p * step < s.Lk; p++)
            for (int64_t c = 0; c < n; c++)
                sum[c] += sum[p * s.Lq * n + c];
        for (int64_t b = 1; b < a->batch->B; b++)
            add_parts(sum, a, b, u);
        write_row(a, row, sum);
        return;
    }
    const int64_t b = sequence_of(a->batch, row);
    struct ek_jagged_seq s = ek_jagged_seq_of(a->d, a->batch, b);
    if (ek_jagged_is_direct(a->d, &s))
        return;
    const int64_t step = ek_jagged_part_keys(a->d, &s);
    float *sum = a->stage + a->plan->stage_at[b] + (row - s.q0) * n;
    for (int64_t p = 1; p * step < s.Lk; p++)
        for (int64_t c = 0; c < n; c++)
            sum[c] += sum[p * s.Lq * n + c];
    write_row(a, row, sum);
}

/* Entries [n0,n1) of dpos, tiles in the order of the plan. */
static void reduce_pos(const struct ek_jagged_args *a, int64_t n0, int64_t n1)
{
    memset(a->dpos + n0, 0, (size_t)(n1 - n0) * sizeof *a->dpos);
    for (int64_t t = 0; t < a->plan->n_bwd; t++) {
        const struct ek_jagged_tile *x = &a->plan->bwd[t];
        struct ek_jagged_seq s = ek_jagged_seq_of(a->d, a->batch, x->b);
        int64_t count, first = ek_jagged_first_diagonal(&count, a->d, &s, x);
        first += a->bias->N - 1; /* entry of the first sum */
        int64_t lo = most(n0, first), hi = least(n1, first + count - 1);
        const float *sums = a->stage + x->stage;
        for (int64_t n = lo; n < hi; n++)
            a->dpos[n] += sums[n - first];
    }
}

static void reduce_time(const struct ek_jagged_args *a, int64_t n0, int64_t n1)
{
    memset(a->dtime + n0, 0, (size_t)(n1 - n0) * sizeof *a->dtime);
    for (int64_t t = 0; t < a->plan->n_bwd; t++) {
        const struct ek_jagged_tile *x = &a->plan->bwd[t];
        struct ek_jagged_seq s = ek_jagged_seq_of(a->d, a->batch, x->b);
        int64_t count;
        ek_jagged_first_diagonal(&count, a->d, &s, x);
        const float *sums = a->stage + x->stage + count;
        for (int64_t n = n0; n < n1; n++)
            a->dtime[n] += sums[n];
    }
}

void ek_jagged_reduce(const struct ek_jagged_args *a, int64_t u0, int64_t u1)
{
    int64_t n = query_rows(a);
    for (int64_t u = u0; u < least(u1, n); u++)
        reduce_query(a, u);
    if (!a->bias)
        return;
    if (a->dpos) {
        int64_t size = 2 * a->bias->N - 1;
        if (u1 > n && u0 < n + size)
            reduce_pos(a, most(u0 - n, 0), least(u1 - n, size));
        n += size;
    }
    if (a->dtime && u1 > n)
        reduce_time(a, most(u0 - n, 0), u1 - n);
}
