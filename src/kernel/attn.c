/* attn.c - items, scratch, and the course of attention (see attn_int.h). */
#include "kernel/attn.h"

#include "kernel/attn_int.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t tiles_of(const struct ek_attn_seq *seq)
{
    return (seq->n_tokens + EK_ATTN_TILE - 1) / EK_ATTN_TILE;
}

int64_t ek_attn_items(const struct ek_attn_dims *d, const struct ek_attn_seq *seqs,
                      int64_t n_seqs)
{
    int64_t n = 0;
    for (int64_t i = 0; i < n_seqs; i++)
        n += tiles_of(&seqs[i]) * d->K;
    return n;
}

/* The parts of one thread's scratch. */
struct parts {
    float *q, *acc, *k, *v, *s, *m, *l;
    int64_t Dp, Pp, end; /* end: floats in all */
};

static struct parts parts_of(const struct ek_attn_dims *d, float *base)
{
    int64_t Dp = round_up(d->D, 16), Pp = round_up(d->page_tokens, 16);
    int64_t R = EK_ATTN_TILE * (d->H / d->K), Rp = round_up(R, 16), at = 0;
    struct parts p = {.Dp = Dp, .Pp = Pp};
    const struct {
        float **part;
        int64_t n;
    } list[] = {{&p.q, R * Dp}, {&p.acc, R * Dp}, {&p.k, Pp * Dp}, {&p.v, Pp * Dp},
                {&p.s, Pp},     {&p.m, Rp},       {&p.l, Rp}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        *list[i].part = base ? base + at : NULL;
        at += list[i].n;
    }
    p.end = at;
    return p;
}

size_t ek_attn_scratch_bytes(const struct ek_attn_dims *d)
{
    return (size_t)parts_of(d, NULL).end * sizeof(float);
}

/* One item: queries [q0, q0+n) of a sequence, one kv head. */
struct item {
    const struct ek_attn_seq *seq;
    int64_t q0, n, kv_head;
};

static struct item locate(const struct ek_attn_args *a, int64_t i)
{
    const struct ek_attn_seq *seq = a->seqs;
    while (i >= tiles_of(seq) * a->d->K) {
        i -= tiles_of(seq) * a->d->K;
        seq++;
        assert(seq < a->seqs + a->n_seqs);
    }
    struct item it = {
        .seq = seq, .q0 = i / a->d->K * EK_ATTN_TILE, .kv_head = i % a->d->K};
    it.n = seq->n_tokens - it.q0 < EK_ATTN_TILE ? seq->n_tokens - it.q0 : EK_ATTN_TILE;
    return it;
}

/* Row i*g + h of the scratch is query i of the item, head h of its group of g. */
static void begin_rows(const struct ek_attn_args *a, const struct item *it,
                       const struct parts *p)
{
    int64_t D = a->d->D, g = a->d->H / a->d->K;
    memset(p->q, 0, (size_t)(it->n * g * p->Dp) * sizeof(float));
    memset(p->acc, 0, (size_t)(it->n * g * p->Dp) * sizeof(float));
    for (int64_t r = 0; r < it->n * g; r++) {
        const float *q = a->q + (it->seq->row0 + it->q0 + r / g) * a->ldq +
                         (it->kv_head * g + r % g) * D;
        memcpy(p->q + r * p->Dp, q, (size_t)D * sizeof *q);
        p->m[r] = -INFINITY;
        p->l[r] = 0;
    }
}

static void end_rows(const struct ek_attn_args *a, const struct item *it,
                     const struct parts *p)
{
    const struct ek_attn_dims *d = a->d;
    int64_t D = d->D, g = d->H / d->K;
    float v_scale = d->v_scale ? d->v_scale[it->kv_head] : 1.0f;
    for (int64_t r = 0; r < it->n * g; r++) {
        float *out = a->out + (it->seq->row0 + it->q0 + r / g) * a->ldo +
                     (it->kv_head * g + r % g) * D;
        const float *acc = p->acc + r * p->Dp;
        float scale = v_scale / p->l[r];
        for (int64_t c = 0; c < D; c++)
            out[c] = acc[c] * scale;
    }
}

/* The item's rows over logical page `page`, already loaded. */
static void visit_page(const struct ek_attn_args *a, const struct item *it,
                       const struct parts *p, int64_t page,
                       const struct ek_attn_steps *steps)
{
    const struct ek_attn_dims *d = a->d;
    int64_t g = d->H / d->K, P = d->page_tokens, base = page * P;
    float scale = d->scale * (d->k_scale ? d->k_scale[it->kv_head] : 1.0f);
    for (int64_t r = 0; r < it->n * g; r++) {
        int64_t pos = it->seq->pos0 + it->q0 + r / g;
        int64_t first = d->window > 0 ? pos - d->window + 1 : 0;
        int64_t j0 = first > base ? first - base : 0;
        int64_t j1 = pos + 1 - base < P ? pos + 1 - base : P;
        if (j0 >= j1)
            continue;
        struct ek_attn_row row = {p->acc + r * p->Dp, p->m + r, p->l + r};
        steps->score(p->s, p->q + r * p->Dp, p->k, p->Pp, p->Dp);
        steps->update(&row, p->s, p->v, j0, j1, p->Pp, p->Dp, scale, d->softcap);
    }
}

static void run_item(const struct ek_attn_args *a, const struct item *it,
                     const struct parts *p, const struct ek_attn_steps *steps)
{
    const struct ek_attn_dims *d = a->d;
    int64_t P = d->page_tokens, pos = it->seq->pos0 + it->q0, last = pos + it->n - 1;
    int64_t first = d->window > 0 && pos >= d->window ? pos - d->window + 1 : 0;
    size_t cell = (size_t)(P * d->D) * ek_dtype_block_bytes(d->kv_dtype);
    begin_rows(a, it, p);
    for (int64_t page = first / P; page <= last / P; page++) {
        size_t at = ((size_t)it->seq->pages[page] * (size_t)d->K + (size_t)it->kv_head);
        int64_t n = last + 1 - page * P < P ? last + 1 - page * P : P;
        steps->load(p->k, (const char *)a->k_pool + at * cell, d->kv_dtype, n, d->D,
                    p->Dp);
        steps->load(p->v, (const char *)a->v_pool + at * cell, d->kv_dtype, n, d->D,
                    p->Dp);
        visit_page(a, it, p, page, steps);
    }
    end_rows(a, it, p);
}

void ek_attn_run(const struct ek_attn_args *a, int64_t i0, int64_t i1, void *scratch,
                 const struct ek_attn_steps *steps)
{
    struct parts p = parts_of(a->d, scratch);
    /* Columns behind D and tokens never loaded stay as set here. */
    memset(p.k, 0, (size_t)(2 * p.Pp * p.Dp) * sizeof(float));
    for (int64_t i = i0; i < i1; i++) {
        struct item it = locate(a, i);
        run_item(a, &it, &p, steps);
    }
}
