#include "num/int4.h"

#include "num/float.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define N EK_INT4_GROUP

/* Largest scale: 15 of it, the largest minimum, fit f16. */
#define SCALE_MAX 4094.0f

/* A group being fitted. */
struct fit {
    enum ek_int4_kind kind;
    const float *x;
    float v[N];  /* weights */
    float vx[N]; /* v x */
    float sv, sx, sxx;
    struct ek_int4 best;
    float cost; /* of best */
};

/* To what the scale or minimum is stored as. */
static float stored(enum ek_int4_kind kind, float d)
{
    d = d > SCALE_MAX ? SCALE_MAX : d < -SCALE_MAX ? -SCALE_MAX : d;
    if (kind == EK_INT4_SYM || kind == EK_INT4_ZERO)
        return ek_bf16_to_f32(ek_f32_to_bf16(d));
    return ek_f16_to_f32(ek_f32_to_f16(d));
}

static float stored_min(float m)
{
    m = m > 65504.0f ? 65504.0f : m < -65504.0f ? -65504.0f : m;
    return ek_f16_to_f32(ek_f32_to_f16(m));
}

/* l[k] = the whole number nearest to x[k]*inv + shift within [lo,hi], ties to even. */
static void round_codes(float l[N], const float *x, float inv, float shift, float lo,
                        float hi)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds */
    for (int k = 0; k < N; k++) {
        float y = x[k] * inv + shift;
        y = y < lo ? lo : y;
        y = y > hi ? hi : y;
        l[k] = y + magic - magic;
    }
}

/* sum a[k] b[k], in four chains so that they run side by side. */
static float dot(const float *a, const float *b)
{
    float s[4] = {0};
    for (int k = 0; k < N; k += 4) {
        for (int i = 0; i < 4; i++)
            s[i] += a[k + i] * b[k + i];
    }
    return (s[0] + s[1]) + (s[2] + s[3]);
}

static float sum(const float a[N])
{
    float s[4] = {0};
    for (int k = 0; k < N; k += 4) {
        for (int i = 0; i < 4; i++)
            s[i] += a[k + i];
    }
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* Codes to d and m, and their cost; kept where it is the least so far. */
static void consider(struct fit *f, float d, float m, int zero)
{
    float l[N], e[N], ve[N];
    float inv = d != 0 ? 1.0f / d : 0.0f;
    bool is_q4_1 = f->kind == EK_INT4_Q4_1;
    if (!isfinite(inv))
        return;
    round_codes(l, f->x, inv, is_q4_1 ? -m * inv : (float)zero, 0.0f, 15.0f);
    /* Q4_1 has no zero, the others no minimum of their own. */
    for (int k = 0; k < N; k++) {
        e[k] = f->x[k] - (d * (l[k] - (float)zero) + m);
        ve[k] = e[k] * f->v[k];
    }
    float cost = dot(ve, e);
    if (!(cost < f->cost))
        return;
    f->cost = cost;
    f->best.d = d;
    f->best.m = is_q4_1 ? m : -(float)zero * d;
    f->best.zero = zero;
    for (int k = 0; k < N; k++)
        f->best.q[k] = (uint8_t)l[k];
}

/* Codes whose best scale, before it is rounded, costs this much can still win when they
 * are rounded again to it, but not when they are far behind. */
static bool is_worth(const struct fit *f, float cost)
{
    return cost < 1.05f * f->cost;
}

/* The scale that fits the codes x*inv are rounded to, around `zero`. */
static void try_scale(struct fit *f, float inv, int zero)
{
    float l[N], vl[N];
    round_codes(l, f->x, inv, 0.0f, -(float)zero, (float)(15 - zero));
    for (int k = 0; k < N; k++)
        vl[k] = f->v[k] * l[k];
    float sll = dot(vl, l), sxl = dot(f->vx, l);
    if (!(sll > 0) || !is_worth(f, f->sxx - sxl * sxl / sll))
        return;
    float d = stored(f->kind, sxl / sll);
    if (d >= 0 || f->kind == EK_INT4_Q4_0)
        consider(f, d, 0.0f, zero);
}

/* The scale and minimum that fit the codes (x-lo)*inv are rounded to. */
static void try_line(struct fit *f, float inv, float lo)
{
    float l[N], vl[N];
    round_codes(l, f->x, inv, -lo * inv, 0.0f, 15.0f);
    for (int k = 0; k < N; k++)
        vl[k] = f->v[k] * l[k];
    float sl = sum(vl), sll = dot(vl, l), sxl = dot(f->vx, l);
    float det = f->sv * sll - sl * sl;
    if (!(det > 0))
        return;
    float d = (f->sv * sxl - f->sx * sl) / det;
    if (!is_worth(f, f->sxx - d * sxl - (f->sx - d * sl) / f->sv * f->sx))
        return;
    d = stored(f->kind, d);
    /* Given the rounded scale the best minimum is the mean of what is left. */
    consider(f, d, stored_min((f->sx - d * sl) / f->sv), 0);
}

/* The extents, in steps of the scale, that the largest magnitude is tried at. */
static const float extents[] = {8.0f,  7.0f, 7.5f, 8.25f, 7.75f, 7.25f,
                                6.75f, 8.5f, 6.5f, 6.25f, 6.0f,  8.75f};
#define N_EXTENTS (sizeof extents / sizeof extents[0])

static void fit_symmetric(struct fit *f, float lo, float hi)
{
    float top = -lo > hi ? lo : hi; /* signed value of the largest magnitude */
    float most = fabsf(top);
    consider(f, 0.0f, 0.0f, 8);
    if (f->kind == EK_INT4_Q4_0)
        consider(f, stored(f->kind, top / -8.0f), 0.0f, 8); /* the usual writers' */
    else
        consider(f, stored(f->kind, most / 7.5f), 0.0f, 8);
    for (size_t i = 0; i < N_EXTENTS; i++) {
        try_scale(f, extents[i] / most, 8);
        if (f->kind == EK_INT4_Q4_0)
            try_scale(f, -extents[i] / most, 8);
    }
}

/* The range is tried at 15 steps, and a little more and less of them. */
static float steps_of(int i)
{
    int n = (i + 1) / 2;
    return 15.0f + (i % 2 ? -0.2f : 0.2f) * (float)n;
}
#define N_STEPS 16

static void fit_line(struct fit *f, float lo, float hi)
{
    float m = stored_min(lo);
    consider(f, 0.0f, stored_min(f->sx / f->sv), 0);
    consider(f, stored(f->kind, (hi - lo) / 15.0f), m, 0);
    if (!(hi > lo))
        return;
    for (int i = 0; i < N_STEPS; i++)
        try_line(f, steps_of(i) / (hi - lo), lo);
}

static void fit_zero(struct fit *f, float lo, float hi)
{
    lo = lo < 0 ? lo : 0.0f;
    hi = hi > 0 ? hi : 0.0f;
    consider(f, 0.0f, 0.0f, 8);
    for (int i = 0; i < N_STEPS; i++) {
        float inv = steps_of(i) / (hi - lo);
        if (!isfinite(inv))
            continue; /* a range of subnormals: all zeros is as good */
        int zero = (int)(-lo * inv + 0.5f);
        for (int z = zero - 1; z <= zero + 1; z++) {
            if (z >= 0 && z <= 15)
                try_scale(f, inv, z);
        }
    }
}

static void take_weights(struct fit *f, const float *v)
{
    float total = v ? sum(v) : 0.0f;
    bool has_weights =
        total > 1e-30f && total < 1e30f; /* else N / total is no number */
    for (int k = 0; k < N; k++) {
        f->v[k] = has_weights ? v[k] * (N / total) : 1.0f;
        f->vx[k] = f->v[k] * f->x[k];
    }
    f->sv = sum(f->v);
    f->sx = sum(f->vx);
    f->sxx = dot(f->vx, f->x);
}

float ek_int4_fit(struct ek_int4 *out, enum ek_int4_kind kind, const float *x,
                  const float *v)
{
    struct fit f = {.kind = kind, .x = x, .cost = INFINITY};
    float lo = x[0], hi = x[0];
    for (int k = 1; k < N; k++) {
        lo = x[k] < lo ? x[k] : lo;
        hi = x[k] > hi ? x[k] : hi;
    }
    memset(&f.best, 0, sizeof f.best);
    take_weights(&f, v);
    if (kind == EK_INT4_Q4_1) {
        fit_line(&f, lo, hi);
    } else if (lo == 0 && hi == 0) {
        consider(&f, 0.0f, 0.0f, 8);
    } else if (kind == EK_INT4_ZERO) {
        fit_zero(&f, lo, hi);
    } else {
        fit_symmetric(&f, lo, hi);
    }
    /* Twice more from the best: the scale for its codes, and the codes for that. */
    for (int i = 0; i < 2 && f.best.d != 0; i++) {
        if (kind == EK_INT4_Q4_1)
            try_line(&f, 1.0f / f.best.d, f.best.m);
        else
            try_scale(&f, 1.0f / f.best.d, f.best.zero);
    }
    *out = f.best;
    return f.cost;
}
