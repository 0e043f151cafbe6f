/* grad_norm.h - layer and RMS norm, for grad_body.h. Four rows go together, so that
 * their sums are joined at once and nobody waits for one row's root; the last rows of a
 * call stand in for those that are missing. Sums are f32: 16 lanes, joined by
 * halves. */
#ifndef EVENKEEL_KERNEL_GRAD_NORM_H
#define EVENKEEL_KERNEL_GRAD_NORM_H

#include "kernel/grad.h"
#include "kernel/grad_lanes.h"

#define ROWS 4

#if defined(__clang__)
#define EK_UNROLL_ROWS _Pragma("unroll")
#else
#define EK_UNROLL_ROWS _Pragma("GCC unroll 4")
#endif
#define EACH_ROW EK_UNROLL_ROWS for (int k = 0; k < ROWS; k++)

struct norm_rows {
    const float *x[ROWS];
    float *y[ROWS];
    float mean[ROWS], rstd[ROWS];
};

/* Sum over columns of x, or of (x - mean)^2, of four rows. */
EK_LANES_INLINE ek_lanes norm_sum(const struct norm_rows *q, int64_t C, bool is_square)
{
    ek_lanes sum[ROWS] = {{0}};
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES)
        EACH_ROW
        {
            ek_lanes d = LOAD(q->x[k] + c) - q->mean[k];
            if (is_square)
                d *= d;
            sum[k] += d;
        }
    if (c < C)
        EACH_ROW
        {
            ek_lanes d = load_part(q->x[k] + c, C - c, q->mean[k]) - q->mean[k];
            if (is_square)
                d *= d;
            sum[k] += d;
        }
    return join_four(sum);
}

static inline void norm_stat(struct norm_rows *q, const struct ek_norm *o)
{
    const float share = 1.0f / (float)o->C;
    float lane[LANES];
    EACH_ROW q->mean[k] = 0.0f;
    if (!o->is_rms) {
        STORE(lane, norm_sum(q, o->C, false) * share);
        EACH_ROW q->mean[k] = lane[4 * k];
    }
    STORE(lane, norm_sum(q, o->C, true) * share + o->eps);
    EACH_ROW q->rstd[k] = 1.0f / sqrtf(lane[4 * k]);
}

EK_LANES_INLINE ek_lanes normed(ek_lanes x, const struct norm_rows *q, int k,
                                const struct ek_norm *o, int64_t c, int64_t n)
{
    ek_lanes y = (x - q->mean[k]) * q->rstd[k];
    if (o->gain)
        y *= n < LANES ? load_part(o->gain + c, n, 1.0f) : LOAD(o->gain + c);
    if (o->bias)
        y += n < LANES ? load_part(o->bias + c, n, 0.0f) : LOAD(o->bias + c);
    return y;
}

static void norm(float *y, int64_t ldy, const struct ek_norm *o)
{
    for (int64_t r = 0; r < o->N; r += ROWS) {
        struct norm_rows q;
        for (int64_t k = 0, last = o->N - 1; k < ROWS; k++) {
            int64_t row = r + k < last ? r + k : last;
            q.x[k] = o->x + row * o->ldx;
            q.y[k] = y + row * ldy;
        }
        norm_stat(&q, o);
        for (int64_t k = 0; k < ROWS && r + k < o->N; k++) {
            o->stat[2 * (r + k)] = q.mean[k];
            o->stat[2 * (r + k) + 1] = q.rstd[k];
            int64_t c = 0, C = o->C;
            for (; c + LANES <= C; c += LANES)
                STORE(q.y[k] + c, normed(LOAD(q.x[k] + c), &q, (int)k, o, c, LANES));
            if (c < C)
                store_part(q.y[k] + c, C - c,
                           normed(load_part(q.x[k] + c, C - c, 0.0f), &q, (int)k, o, c,
                                  C - c));
        }
    }
}

struct norm_back {
    const float *x[ROWS], *dy[ROWS];
    float mean[ROWS], rstd[ROWS], m1[ROWS], m2[ROWS];
    const float *gain;
};

/* g = dy gain and d = x - mean of 16 columns; what is no column gives 0. */
EK_LANES_INLINE ek_lanes back_lanes(ek_lanes *d, const struct norm_back *q, int k,
                                    int64_t c, int64_t n)
{
    bool is_part = n < LANES;
    ek_lanes g = is_part ? load_part(q->dy[k] + c, n, 0.0f) : LOAD(q->dy[k] + c);
    if (q->gain)
        g *= is_part ? load_part(q->gain + c, n, 0.0f) : LOAD(q->gain + c);
    *d = (is_part ? load_part(q->x[k] + c, n, 0.0f) : LOAD(q->x[k] + c)) - q->mean[k];
    return g;
}

static inline void back_means(struct norm_back *q, const struct ek_norm *o)
{
    const float share = 1.0f / (float)o->C;
    ek_lanes sum[ROWS] = {{0}}, with_x[ROWS] = {{0}}, d;
    int64_t c = 0;
    for (; c + LANES <= o->C; c += LANES)
        EACH_ROW
        {
            ek_lanes g = back_lanes(&d, q, k, c, LANES);
            sum[k] += g;
            with_x[k] += g * d;
        }
    if (c < o->C)
        EACH_ROW
        {
            ek_lanes g = back_lanes(&d, q, k, c, o->C - c);
            sum[k] += g;
            with_x[k] += g * d;
        }
    float s[LANES], t[LANES];
    STORE(s, join_four(sum) * share);
    STORE(t, join_four(with_x) * share);
    EACH_ROW
    {
        q->m1[k] = o->is_rms ? 0.0f : s[4 * k];
        q->m2[k] = t[4 * k] * q->rstd[k] * q->rstd[k];
    }
}

/* g = dy gain, xhat = (x - mean) rstd:
 * dx = rstd (g - mean(g) - xhat mean(g xhat)); rms has no mean(g). */
static void norm_grad(float *dx, int64_t lddx, const float *dy, int64_t lddy,
                      const struct ek_norm *o, bool is_added)
{
    for (int64_t r = 0; r < o->N; r += ROWS) {
        struct norm_back q = {.gain = o->gain};
        for (int64_t k = 0, last = o->N - 1; k < ROWS; k++) {
            int64_t row = r + k < last ? r + k : last;
            q.x[k] = o->x + row * o->ldx;
            q.dy[k] = dy + row * lddy;
            q.mean[k] = o->stat[2 * row];
            q.rstd[k] = o->stat[2 * row + 1];
        }
        back_means(&q, o);
        for (int64_t k = 0; k < ROWS && r + k < o->N; k++) {
            float *to = dx + (r + k) * lddx;
            for (int64_t c = 0, n; c < o->C; c += n) {
                ek_lanes d;
                n = o->C - c < LANES ? o->C - c : LANES;
                ek_lanes g = back_lanes(&d, &q, (int)k, c, n);
                g = q.rstd[k] * (g - q.m1[k] - d * q.m2[k]);
                if (is_added && n < LANES)
                    g += load_part(to + c, n, 0.0f);
                else if (is_added)
                    g += LOAD(to + c);
                if (n < LANES)
                    store_part(to + c, n, g);
                else
                    STORE(to + c, g);
            }
        }
    }
}

/* 16 columns (or n) of both sums, over all rows in their order. */
static inline void norm_grad_cols(float *dgain, float *dbias, const float *dy,
                                  int64_t lddy, const struct ek_norm *o, int64_t n)
{
    bool is_part = n < LANES;
    ek_lanes with_x = {0}, sum = {0};
    if (dgain)
        with_x = is_part ? load_part(dgain, n, 0.0f) : LOAD(dgain);
    if (dbias)
        sum = is_part ? load_part(dbias, n, 0.0f) : LOAD(dbias);
    for (int64_t r = 0; r < o->N; r++) {
        const float *x = o->x + r * o->ldx, *g = dy + r * lddy;
        ek_lanes a = is_part ? load_part(x, n, 0.0f) : LOAD(x);
        ek_lanes b = is_part ? load_part(g, n, 0.0f) : LOAD(g);
        with_x += b * (a - o->stat[2 * r]) * o->stat[2 * r + 1];
        sum += b;
    }
    if (dgain)
        store_part(dgain, n, with_x);
    if (dbias)
        store_part(dbias, n, sum);
}

static void norm_grad_w(float *dgain, float *dbias, const float *dy, int64_t lddy,
                        const struct ek_norm *o)
{
    for (int64_t c = 0; c < o->C; c += LANES) {
        struct ek_norm part = *o;
        part.x += c;
        norm_grad_cols(dgain ? dgain + c : NULL, dbias ? dbias + c : NULL, dy + c, lddy,
                       &part, o->C - c < LANES ? o->C - c : LANES);
    }
}

#endif
