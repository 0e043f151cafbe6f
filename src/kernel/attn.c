/* attn.c - items, scratch, and the course of attention (see attn_int.h). */
#include "kernel/attn.h"

#include "kernel/attn_int.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
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

static struct parts parts_of(const struct ek_attn_dims *d, float *base, int64_t pad)
{
    int64_t Dp = round_up(d->D, pad), Pp = round_up(d->page_tokens, 16);
    int64_t R = EK_ATTN_TILE * (d->H / d->K), Rp = round_up(R, 16), at = 0;
    struct parts p = {.Dp = Dp, .Pp = Pp};
    const struct {
        float **part;
        int64_t n;
    } list[] = {{&p.q, R * Dp},  {&p.acc, R * Dp},           {&p.k, Pp * Dp},
                {&p.v, Pp * Dp}, {&p.s, EK_ATTN_GROUP * Pp}, {&p.m, Rp},
                {&p.l, Rp}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        *list[i].part = base ? base + at : NULL;
        at += list[i].n;
    }
    p.end = at;
    return p;
}

size_t ek_attn_scratch_bytes(const struct ek_attn_dims *d)
{
    return (size_t)parts_of(d, NULL, EK_ATTN_PAD).end * sizeof(float);
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

/* Tokens [j0,j1) that a row sees of the n from position base; none when j0 >= j1. */
struct span {
    int64_t j0, j1;
};

static struct span span_of(const struct ek_attn_args *a, const struct item *it,
                           int64_t r, int64_t base, int64_t n)
{
    const struct ek_attn_dims *d = a->d;
    int64_t pos = it->seq->pos0 + it->q0 + r / (d->H / d->K);
    int64_t first = d->window > 0 ? pos - d->window + 1 : 0;
    return (struct span){first > base ? first - base : 0,
                         pos + 1 - base < n ? pos + 1 - base : n};
}

/* Positions [first,last] that any row of the item sees. */
struct reach {
    int64_t first, last;
};

static struct reach reach_of(const struct ek_attn_args *a, const struct item *it)
{
    int64_t pos = it->seq->pos0 + it->q0, window = a->d->window;
    return (struct reach){window > 0 && pos >= window ? pos - window + 1 : 0,
                          pos + it->n - 1};
}

/* Where the cell of logical page `page` begins in a pool. */
static size_t cell_at(const struct ek_attn_args *a, const struct item *it, int64_t page)
{
    const struct ek_attn_dims *d = a->d;
    size_t cell =
        (size_t)((int64_t)d->page_tokens * d->D) * ek_dtype_block_bytes(d->kv_dtype);
    return ((size_t)it->seq->pages[page] * (size_t)d->K + (size_t)it->kv_head) * cell;
}

/* Tokens of the page that the item may see. */
static int64_t tokens_of(const struct ek_attn_args *a, const struct reach *see,
                         int64_t page)
{
    int64_t P = a->d->page_tokens;
    return see->last + 1 - page * P < P ? see->last + 1 - page * P : P;
}

/* Page after page, row after row. */
static void run_by_rows(const struct ek_attn_args *a, const struct item *it,
                        const struct parts *p, const struct ek_attn_steps *steps)
{
    const struct ek_attn_dims *d = a->d;
    const struct reach see = reach_of(a, it);
    const float scale = d->scale * (d->k_scale ? d->k_scale[it->kv_head] : 1.0f);
    int64_t P = d->page_tokens;
    for (int64_t page = see.first / P; page <= see.last / P; page++) {
        size_t at = cell_at(a, it, page);
        int64_t n = tokens_of(a, &see, page);
        steps->load(p->k, (const char *)a->k_pool + at, d->kv_dtype, n, d->D, p->Dp);
        steps->load(p->v, (const char *)a->v_pool + at, d->kv_dtype, n, d->D, p->Dp);
        for (int64_t r = 0; r < it->n * (d->H / d->K); r++) {
            struct span s = span_of(a, it, r, page * P, P);
            if (s.j0 >= s.j1)
                continue;
            struct ek_attn_row row = {p->acc + r * p->Dp, p->m + r, p->l + r};
            steps->score(p->s, p->q + r * p->Dp, p->k, p->Pp, p->Dp);
            steps->update(&row, p->s, p->v, s.j0, s.j1, p->Pp, p->Dp, scale,
                          d->softcap);
        }
    }
}

/* The item's rows over the page from position base, neighbours that see the same tokens
 * together. */
static void visit_page(const struct ek_attn_args *a, const struct item *it,
                       const struct parts *p, int64_t base,
                       const struct ek_attn_steps *steps, struct ek_attn_group *g)
{
    int64_t n = it->n * (a->d->H / a->d->K), P = a->d->page_tokens, r = 0;
    while (r < n) {
        struct span see = span_of(a, it, r, base, P), other = see;
        int64_t end = r;
        while (end < n && end - r < EK_ATTN_GROUP && other.j0 == see.j0 &&
               other.j1 == see.j1)
            other = span_of(a, it, ++end, base, P);
        g->R = (int)(end - r);
        g->j0 = see.j0;
        g->j1 = see.j1;
        g->q = p->q + r * p->Dp;
        g->acc = p->acc + r * p->Dp;
        g->m = p->m + r;
        g->l = p->l + r;
        if (see.j0 < see.j1)
            steps->group(g);
        r = end;
    }
}

/* From this many rows on, a page is widened once instead of by every group. */
#define MANY_ROWS (2 * EK_ATTN_GROUP)

static void run_by_groups(const struct ek_attn_args *a, const struct item *it,
                          const struct parts *p, const struct ek_attn_steps *steps)
{
    const struct ek_attn_dims *d = a->d;
    const struct reach see = reach_of(a, it);
    int64_t P = d->page_tokens;
    bool widens = d->kv_dtype != EK_DTYPE_F32 && it->n * (d->H / d->K) > MANY_ROWS;
    struct ek_attn_group g = {.t = widens ? EK_DTYPE_F32 : d->kv_dtype,
                              .D = widens ? p->Dp : d->D,
                              .s = p->s,
                              .Dp = p->Dp,
                              .Pp = p->Pp,
                              .softcap = d->softcap};
    g.scale = d->scale * (d->k_scale ? d->k_scale[it->kv_head] : 1.0f);
    for (int64_t page = see.first / P; page <= see.last / P; page++) {
        size_t at = cell_at(a, it, page);
        size_t next = page < see.last / P ? cell_at(a, it, page + 1) : at;
        g.k = (const unsigned char *)a->k_pool + at;
        g.v = (const unsigned char *)a->v_pool + at;
        g.next_k = (const unsigned char *)a->k_pool + next;
        g.next_v = (const unsigned char *)a->v_pool + next;
        if (widens) {
            int64_t n = tokens_of(a, &see, page);
            steps->load(p->k, g.k, d->kv_dtype, n, d->D, p->Dp);
            steps->load(p->v, g.v, d->kv_dtype, n, d->D, p->Dp);
            g.k = (const unsigned char *)p->k;
            g.v = (const unsigned char *)p->v;
        }
        visit_page(a, it, p, page * P, steps, &g);
    }
}

void ek_attn_run(const struct ek_attn_args *a, int64_t i0, int64_t i1, void *scratch,
                 const struct ek_attn_steps *steps)
{
    struct parts p = parts_of(a->d, scratch, steps->pad);
    /* Row by row, columns behind D and tokens never loaded stay as set here. */
    if (!steps->group)
        memset(p.k, 0, (size_t)(2 * p.Pp * p.Dp) * sizeof(float));
    for (int64_t i = i0; i < i1; i++) {
        struct item it = locate(a, i);
        begin_rows(a, &it, &p);
        if (steps->group)
            run_by_groups(a, &it, &p, steps);
        else
            run_by_rows(a, &it, &p, steps);
        end_rows(a, &it, &p);
    }
}
