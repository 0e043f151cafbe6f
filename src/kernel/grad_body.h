/* grad_body.h - the code of grad.h, included once by each ISA's grad.c: the compiler
 * makes of 16 lanes what the ISA has. Sums run in 16 lanes of f32, lane c mod 16, and
 * are joined in f64, halves onto each other, so the bits are the same everywhere. */
#ifndef EVENKEEL_KERNEL_GRAD_BODY_H
#define EVENKEEL_KERNEL_GRAD_BODY_H

#include "kernel/grad.h"
#include "kernel/grad_act.h"
#include "kernel/grad_lanes.h"
#include "kernel/grad_norm.h"
#include "num/float.h"

#include <math.h>
#include <stddef.h>

static void mul(float *y, const float *a, const float *b, float s, int64_t n,
                bool is_added)
{
    if (is_added && b)
        for (int64_t i = 0; i < n; i++)
            y[i] += s * a[i] * b[i];
    else if (is_added)
        for (int64_t i = 0; i < n; i++)
            y[i] += s * a[i];
    else if (b)
        for (int64_t i = 0; i < n; i++)
            y[i] = s * a[i] * b[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = s * a[i];
}

static void add(float *y, const float *a, const float *b, float s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + s * b[i];
}

static void mix(float *y, const float *a, const float *b, float s, float t, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = t * (a[i] + s * b[i]);
}

/* A 32-bit hash of a counter under a 64-bit key: two rounds of the murmur3 finaliser
 * (Appleby, public domain), one half of the key before each. */
static inline uint32_t hash_of(uint32_t i, uint32_t k0, uint32_t k1)
{
    uint32_t h = i * 0x9e3779b1u ^ k0;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    h = (h ^ h >> 16) + k1;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return h ^ h >> 16;
}

static void dropout(float *y, const float *x, int64_t n, uint64_t key, int64_t first,
                    float p, bool is_added)
{
    const int64_t turn = INT64_C(1) << 32, room = turn - first % turn;
    if (n > room) { /* counters beyond 2^32 have another key */
        dropout(y + room, x + room, n - room, key, first + room, p, is_added);
        n = room;
    }
    const uint32_t k0 = (uint32_t)key,
                   k1 = (uint32_t)(key >> 32) ^ (uint32_t)(first >> 32);
    const uint32_t limit = (uint32_t)((double)p * 4294967296.0), at = (uint32_t)first;
    const float keep = 1.0f / (1.0f - p);
    if (is_added)
        for (int64_t i = 0; i < n; i++)
            y[i] += hash_of(at + (uint32_t)i, k0, k1) < limit ? 0.0f : keep * x[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = hash_of(at + (uint32_t)i, k0, k1) < limit ? 0.0f : keep * x[i];
}

static double dot(const float *a, const float *b, int64_t n)
{
    ek_lanes sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        sum += LOAD(a + i) * LOAD(b + i);
    if (i < n)
        sum += load_part(a + i, n - i, 0.0f) * load_part(b + i, n - i, 0.0f);
    return join(sum);
}

static void row_dots(float *out, const float *a, int64_t lda, const float *b,
                     int64_t ldb, int64_t N, int64_t C)
{
    for (int64_t r = 0; r < N; r += 4) {
        ek_lanes sum[4] = {{0}};
        float lane[LANES];
        for (int64_t k = 0; k < 4; k++) {
            int64_t row = r + k < N ? r + k : N - 1, c = 0;
            const float *x = a + row * lda, *y = b + row * ldb;
            for (; c + LANES <= C; c += LANES)
                sum[k] += LOAD(x + c) * LOAD(y + c);
            if (c < C)
                sum[k] += load_part(x + c, C - c, 0.0f) * load_part(y + c, C - c, 0.0f);
        }
        STORE(lane, join_four(sum));
        for (int64_t k = 0; k < 4 && r + k < N; k++)
            out[r + k] = lane[4 * k];
    }
}

static void col_sum(float *sum, const float *x, int64_t ld, int64_t N, int64_t C)
{
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES) {
        ek_lanes s = LOAD(sum + c);
        for (int64_t r = 0; r < N; r++)
            s += LOAD(x + r * ld + c);
        STORE(sum + c, s);
    }
    for (; c < C; c++)
        for (int64_t r = 0; r < N; r++)
            sum[c] += x[r * ld + c];
}

static float scores(float *x, float s, const int32_t *ids, int32_t id, int64_t n)
{
    float lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = -INFINITY;
    int64_t i = 0;
    for (; ids && i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float v = ids[i + j] == id ? -INFINITY : s * x[i + j];
            x[i + j] = v;
            lane[j] = v > lane[j] ? v : lane[j];
        }
    for (; !ids && i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float v = x[i + j] *= s;
            lane[j] = v > lane[j] ? v : lane[j];
        }
    for (int j = 0; i < n; i++, j++) {
        float v = x[i] = ids && ids[i] == id ? -INFINITY : s * x[i];
        lane[j] = v > lane[j] ? v : lane[j];
    }
    float top = lane[0];
    for (int j = 1; j < LANES; j++)
        top = lane[j] > top ? lane[j] : top;
    return top;
}

static double exp_sum(float *e, const float *x, float top, int64_t n)
{
    ek_lanes sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        float lane[LANES];
        for (int j = 0; j < LANES; j++)
            lane[j] = exp_of(x[i + j] - top);
        STORE(e + i, LOAD(lane));
        sum += LOAD(lane);
    }
    for (int64_t k = i; k < n; k++)
        e[k] = exp_of(x[k] - top);
    if (i < n)
        sum += load_part(e + i, n - i, 0.0f);
    return join(sum);
}

static void adamw(float *w, float *m, float *v, const float *g, int64_t n,
                  const struct ek_adamw *o)
{
    const float b1 = o->beta1, b2 = o->beta2, c1 = 1.0f - b1, c2 = 1.0f - b2;
    const float step = o->lr / o->correct1, root = 1.0f / sqrtf(o->correct2);
    const float keep = 1.0f - o->lr * o->decay, eps = o->eps, scale = o->grad_scale;
    for (int64_t i = 0; !g && i < n; i++) {
        float m1 = b1 * m[i], v1 = b2 * v[i];
        m[i] = m1;
        v[i] = v1;
        w[i] = keep * w[i] - step * m1 / (sqrtf(v1) * root + eps);
    }
    for (int64_t i = 0; g && i < n; i++) {
        float d = g[i] * scale;
        float m1 = b1 * m[i] + c1 * d;
        float v1 = b2 * v[i] + c2 * d * d;
        m[i] = m1;
        v[i] = v1;
        w[i] = keep * w[i] - step * m1 / (sqrtf(v1) * root + eps);
    }
}

static void adagrad(float *w, float *m, const float *g, int64_t n,
                    const struct ek_adagrad *o)
{
    double squares = dot(g, g, n);
    if (o->l2 != 0.0f) {
        double l2 = (double)o->l2;
        squares += 2 * l2 * dot(g, w, n) + l2 * l2 * dot(w, w, n);
    }
    float sum = *m + (float)(squares / (double)n);
    float mult = o->lr / (sqrtf(sum) + o->eps);
    float keep = o->l2 != 0.0f ? 1.0f - mult * o->l2 : 1.0f - o->lr * o->decay;
    *m = sum;
    for (int64_t i = 0; i < n; i++)
        w[i] = keep * w[i] - mult * g[i];
    if (o->max_norm <= 0.0f)
        return;
    double norm = sqrt(dot(w, w, n));
    if (norm > (double)o->max_norm)
        mul(w, w, NULL, (float)((double)o->max_norm / norm), n, false);
}

#define EK_GRAD_OPS(name)                                                              \
    const struct ek_grad_ops name = {                                                  \
        .act = act,                                                                    \
        .act_grad = act_grad,                                                          \
        .silu = silu,                                                                  \
        .silu_grad = silu_grad,                                                        \
        .mul = mul,                                                                    \
        .add = add,                                                                    \
        .mix = mix,                                                                    \
        .dropout = dropout,                                                            \
        .dot = dot,                                                                    \
        .row_dots = row_dots,                                                          \
        .col_sum = col_sum,                                                            \
        .norm = norm,                                                                  \
        .norm_grad = norm_grad,                                                        \
        .norm_grad_w = norm_grad_w,                                                    \
        .scores = scores,                                                              \
        .exp_sum = exp_sum,                                                            \
        .adamw = adamw,                                                                \
        .adagrad = adagrad,                                                            \
    }

#endif
