/* forward.c - one step: every member of the team walks the same layers together.
 *
 * A step is one dispatch of the team. Work is split in two ways, and a barrier stands
 * wherever it changes from one to the other:
 *   by rows      a member owns rows [t0,t1) of the batch: norms, RoPE, KV writes
 *   by columns   a member owns a run of output panels for all rows: the matmuls
 * and attention by items (a tile of queries and a kv head; where those are few, a span
 * of its positions), taken in turn. That makes ten barriers a layer. In a small step
 * (EK_LM_SMALL_ROWS) every member norms and prepares all rows into buffers of its own,
 * and six are left:
 *   q k v | RoPE, KV write | attention | o | gate, up | down |
 * In the last layer, only rows with logits go on behind attention, behind a barrier
 * more where whoever owns a row had to finish it.
 * No shared buffer is written in the stretch between two barriers in which another
 * member may still read it: each is written again a layer later.
 * No number depends on the split: kernels promise a row's bits whatever else is
 * computed, so a sequence's result is the same alone, in a batch, in chunks, with any
 * team.
 */
#include "lm/model_int.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Rows that are computed with one copy of the weights. */
struct group {
    int32_t lo, hi;
    enum ek_lm_copy copy;
};

struct step {
    struct ek_lm *lm;
    struct ek_kv *kv;
    float *logits;
    int32_t T;              /* rows */
    int32_t n_out;          /* rows with logits */
    const int32_t *out_row; /* (n_out) which they are */
    int32_t n_seqs;         /* of attention */
    struct group group[2];  /* decode's rows, then prefill's; together [0,T) */
    int64_t n_items;        /* of attention; the same for every layer */
    bool has_parts;         /* some of their sums are in parts */
    bool is_small;          /* members prepare all rows for themselves */
    /* What is left of the step behind the last layer's attention, where that is less:
     * the rows with logits, moved together. NULL: all of it. */
    const struct step *rest;
};

/* A member's view of a step. */
struct crew {
    const struct step *s;
    int member, n_members;
    int64_t t0, t1; /* the rows it owns: embedding, keys and values */
    int64_t p0, p1; /* the rows it norms and prepares: its own, or all */
    float *x, *h;   /* where it finds and puts them: the plan's, or its own */
    void *const *act;
    int64_t n_saturated; /* values of keys and values that left e4m3's range */
};

static void meet(const struct crew *c)
{
    ek_team_barrier(c->s->lm->team, c->member);
}

/* After work by rows: nobody waits for rows that each has prepared for itself. */
static void meet_rows(const struct crew *c)
{
    if (!c->s->is_small)
        meet(c);
}

/* Rows [t0,t1) of x (T,K), rows K apart, into the forms that the n weights need. */
static void prepare(const struct crew *c, const float *x, int64_t T, int64_t t0,
                    int64_t t1, const struct ek_weight *w, int n)
{
    const struct ek_lm *lm = c->s->lm;
    bool is_done[EK_LM_ACT_COUNT] = {false};
    for (int i = 0; i < n; i++) {
        enum ek_lm_act a = ek_lm_act_of(w[i].format);
        if (!is_done[a] && t0 < t1)
            lm->ops->matmul_prepare(c->act[a], w[i].format, x, w[i].K, T, w[i].K, t0,
                                    t1);
        is_done[a] = true;
    }
}

/* This member's rows of x for the n matrices from `first` on, each group's in the forms
 * of its copy. */
static void prepare_rows(const struct crew *c, const float *x,
                         const struct ek_lm_layer *y, enum ek_lm_matrix first, int n)
{
    const struct ek_lm *lm = c->s->lm;
    if (lm->watch) {
        meet(c); /* rows of every member */
        lm->watch(lm->watch_arg, (int32_t)(y - lm->layers), first, x, c->s->T,
                  c->member, c->n_members);
    }
    for (int i = 0; i < 2; i++) {
        const struct group *g = &c->s->group[i];
        prepare(c, x, c->s->T, c->p0 > g->lo ? c->p0 : g->lo,
                c->p1 < g->hi ? c->p1 : g->hi, &y->w[g->copy][first], n);
    }
}

/* Columns [n0,n1) of rows [lo,hi) of y (T,N) = prepared rows * w. */
static void multiply(const struct crew *c, float *y, const struct ek_weight *w,
                     const struct group *g, int64_t n0, int64_t n1,
                     enum ek_matmul_mode mode)
{
    const struct ek_lm *lm = c->s->lm;
    const unsigned char *act = c->act[ek_lm_act_of(w->format)];
    if (n0 < n1 && g->lo < g->hi)
        lm->ops->matmul(y + (int64_t)g->lo * w->N, w->N,
                        act + ek_matmul_act_bytes(w->format, g->lo, w->K), w,
                        g->hi - g->lo, n0, n1, mode);
}

/* This member's share of the columns of the n products of the matrices from `first`
 * on: panels are dealt out over all of them. */
static void multiply_columns(const struct crew *c, float *const *y,
                             const struct ek_lm_layer *layer, enum ek_lm_matrix first,
                             int n, enum ek_matmul_mode mode)
{
    for (int i = 0; i < n; i++) {
        int64_t n0, n1;
        ek_lm_columns(&n0, &n1, &layer->w[EK_LM_DECODE][first], n, i, c->member,
                      c->n_members);
        for (int g = 0; g < 2; g++)
            multiply(c, y[i], &layer->w[c->s->group[g].copy][first + i],
                     &c->s->group[g], n0, n1, mode);
    }
}

/* c->h = norm(x) over the rows this member prepares. */
static void norm_rows(const struct crew *c, const float *x, const float *gain)
{
    const struct ek_lm_params *p = &c->s->lm->p;
    if (c->p0 < c->p1)
        c->s->lm->ops->rmsnorm(c->h + c->p0 * p->C, p->C, x + c->p0 * p->C, p->C, gain,
                               p->norm_offset, p->norm_eps, c->p1 - c->p0, p->C);
}

/* x += norm(a block's output), where the family norms it. */
static void post_norm(const struct crew *c, const float *gain)
{
    const struct ek_lm *lm = c->s->lm;
    int64_t C = lm->p.C;
    norm_rows(c, lm->plan.h, gain);
    if (c->p0 < c->p1)
        lm->ops->add(c->x + c->p0 * C, c->h + c->p0 * C, (c->p1 - c->p0) * C);
}

static void embed_rows(const struct crew *c)
{
    const struct ek_lm *lm = c->s->lm;
    const struct ek_lm_plan *b = &lm->plan;
    bool is_own = c->x != b->x;
    int64_t C = lm->p.C, n = c->t1 - c->t0;
    float scale = lm->p.embed_scale;
    for (int64_t t = is_own ? c->p0 : c->t0; t < (is_own ? c->p1 : c->t1); t++) {
        float *x = c->x + t * C;
        ek_weight_row(x, &lm->embed, b->token[t]);
        for (int64_t i = 0; scale != 1.0f && i < C; i++)
            x[i] *= scale;
    }
    if (n > 0)
        ek_rope_table(b->cs + c->t0 * lm->rope.n_dims, &lm->rope, b->pos + c->t0, n);
    if (n > 0 && lm->p.window > 0)
        ek_rope_table(b->cs_local + c->t0 * lm->rope_local.n_dims, &lm->rope_local,
                      b->pos + c->t0, n);
    if (c->s->is_small && !is_own)
        meet(c); /* the residual stream is shared, and all of it is read next */
}

/* Whether queries, keys and values are rotated on their way to the pages. */
static bool is_rotated(const struct step *s)
{
    return s->kv->dtype == EK_DTYPE_E4M3;
}

/* Of layer l; borrows the model's scales. */
static struct ek_attn_dims dims_of(const struct step *s, int32_t l)
{
    const struct ek_lm_params *p = &s->lm->p;
    bool has_scales = s->lm->kv_scales && s->kv->dtype == EK_DTYPE_E4M3;
    const float *scales = has_scales ? s->lm->kv_scales + 2 * l * p->K : NULL;
    return (struct ek_attn_dims){.H = p->H,
                                 .K = p->K,
                                 .D = p->D,
                                 .page_tokens = EK_PAGE_TOKENS,
                                 .kv_dtype = s->kv->dtype,
                                 .scale = p->attn_scale,
                                 .window = p->is_local[l] ? p->window : 0,
                                 .softcap = p->attn_softcap,
                                 .k_scale = scales,
                                 .v_scale = scales ? scales + p->K : NULL};
}

/* q, k, v of this member's rows: bias, per-head norm, RoPE; k, v into their pages. */
static void finish_qkv(struct crew *c, const struct ek_lm_layer *y, int32_t l)
{
    const struct ek_lm *lm = c->s->lm;
    const struct ek_lm_params *p = &lm->p;
    const struct ek_lm_plan *b = &lm->plan;
    const struct ek_ops *ops = lm->ops;
    bool is_local = p->is_local[l];
    const struct ek_rope *r = is_local ? &lm->rope_local : &lm->rope;
    const float *cs = (is_local ? b->cs_local : b->cs) + c->t0 * r->n_dims;
    int64_t HD = (int64_t)p->H * p->D, KD = (int64_t)p->K * p->D, n = c->t1 - c->t0;
    float *q = b->q + c->t0 * HD, *k = b->k + c->t0 * KD, *v = b->v + c->t0 * KD;
    if (n < 1)
        return;
    for (int64_t t = 0; p->has_qkv_bias && t < n; t++) {
        ops->add(q + t * HD, y->qb, HD);
        ops->add(k + t * KD, y->kb, KD);
        ops->add(v + t * KD, y->vb, KD);
    }
    if (p->has_qk_norm) {
        ops->rmsnorm(q, p->D, q, p->D, y->q_norm, p->norm_offset, p->norm_eps, n * p->H,
                     p->D);
        ops->rmsnorm(k, p->D, k, p->D, y->k_norm, p->norm_offset, p->norm_eps, n * p->K,
                     p->D);
    }
    ops->rope(q, HD, cs, r, n, p->H, p->D);
    ops->rope(k, KD, cs, r, n, p->K, p->D);
    const struct ek_attn_dims d = dims_of(c->s, l);
    if (is_rotated(c->s)) {
        ops->rotate(q, HD, n, p->H, p->D);
        ops->rotate(k, KD, n, p->K, p->D);
        ops->rotate(v, KD, n, p->K, p->D);
    }
    struct ek_kv_rows rows = {.q = b->q,
                              .k = b->k,
                              .v = b->v,
                              .ldq = HD,
                              .ldk = KD,
                              .ldv = KD,
                              .slot = b->slot};
    c->n_saturated += ops->kv_write(ek_kv_k(c->s->kv, l), ek_kv_v(c->s->kv, l), &rows,
                                    c->t0, c->t1, &d);
}

static struct ek_attn_args attn_args(const struct crew *c, int32_t l,
                                     const struct ek_attn_dims *d)
{
    const struct step *s = c->s;
    const struct ek_lm_plan *b = &s->lm->plan;
    int64_t HD = (int64_t)d->H * d->D;
    return (struct ek_attn_args){.out = b->att,
                                 .q = b->q,
                                 .k_pool = ek_kv_k(s->kv, l),
                                 .v_pool = ek_kv_v(s->kv, l),
                                 .d = d,
                                 .seqs = b->seqs,
                                 .ldo = HD,
                                 .ldq = HD,
                                 .n_seqs = s->n_seqs,
                                 .parts = b->parts};
}

/* Items in turn, not in runs: late tiles of a prompt see more keys than early ones. */
static void attend(const struct crew *c, int32_t l)
{
    const struct ek_lm_plan *b = &c->s->lm->plan;
    const struct ek_attn_dims d = dims_of(c->s, l);
    const struct ek_attn_args a = attn_args(c, l, &d);
    c->s->lm->ops->attn(&a, c->member, c->s->n_items, c->n_members,
                        b->scratch + (size_t)c->member * b->scratch_bytes);
}

/* The attention of the rows this member prepares: those of split sequences merged, the
 * rotation of the values undone. In a small step every member does it for itself, in a
 * copy of its own, which so needs no barrier. */
static const float *finish_attention(const struct crew *c, int32_t l)
{
    const struct step *s = c->s;
    const struct ek_lm_plan *b = &s->lm->plan;
    const struct ek_attn_dims d = dims_of(s, l);
    struct ek_attn_args a = attn_args(c, l, &d);
    if (!(s->has_parts || is_rotated(s)) || c->p0 >= c->p1)
        return b->att;
    if (s->is_small) {
        a.out = b->own[c->member].att;
        memcpy(a.out, b->att, (size_t)(s->T * a.ldo) * sizeof *a.out);
    }
    if (s->has_parts)
        s->lm->ops->attn_merge(&a, c->p0, c->p1,
                               b->scratch + (size_t)c->member * b->scratch_bytes);
    if (is_rotated(s))
        s->lm->ops->rotate(a.out + c->p0 * a.ldo, a.ldo, c->p1 - c->p0, d.H, d.D);
    return a.out;
}

/* In a small step the rows, and all that is made of them, are a member's own; but the
 * residual stream is added to by columns, and so shared, unless outputs are normed
 * before. */
static void set_rows(struct crew *c)
{
    const struct step *s = c->s;
    const struct ek_lm_plan *b = &s->lm->plan;
    const struct ek_lm_own *own = &b->own[c->member];
    ek_team_share(&c->t0, &c->t1, s->T, 1, c->member, c->n_members);
    c->p0 = s->is_small ? 0 : c->t0;
    c->p1 = s->is_small ? s->T : c->t1;
    c->x = s->is_small && s->lm->p.has_post_norms ? own->x : b->x;
    c->h = s->is_small ? own->h : b->h;
    c->act = s->is_small ? own->act : b->act;
}

/* From here on the step is its rest: its rows of the residual stream move together,
 * into the queries' buffer, and those of attention on their way into the form o
 * needs. */
static void narrow(struct crew *c, const float *att, const struct ek_lm_layer *y)
{
    const struct ek_lm *lm = c->s->lm;
    const int32_t *kept = lm->plan.kept;
    int64_t C = lm->p.C, HD = (int64_t)lm->p.H * lm->p.D;
    if (c->s->has_parts || is_rotated(c->s))
        meet(c); /* what was finished is another member's */
    c->s = c->s->rest;
    set_rows(c);
    c->x = lm->plan.q;
    for (int64_t t = c->p0; t < c->p1; t++) {
        memcpy(c->x + t * C, lm->plan.x + kept[t] * C, (size_t)C * sizeof *c->x);
        int g = t >= c->s->group[1].lo;
        prepare(c, att + (kept[t] - t) * HD, c->s->T, t, t + 1,
                &y->w[c->s->group[g].copy][EK_LM_O], 1);
    }
}

/* q, k and v of all rows; k and v into their pages. */
static void qkv_block(struct crew *c, int32_t l)
{
    const struct ek_lm_plan *b = &c->s->lm->plan;
    const struct ek_lm_layer *y = &c->s->lm->layers[l];
    float *out[] = {b->q, b->k, b->v};
    norm_rows(c, c->x, y->attn_norm);
    prepare_rows(c, c->h, y, EK_LM_Q, 3);
    meet_rows(c);
    multiply_columns(c, out, y, EK_LM_Q, 3, EK_MATMUL_SET);
    meet(c);
    finish_qkv(c, y, l);
}

static void attention_block(struct crew *c, int32_t l)
{
    const struct ek_lm *lm = c->s->lm;
    const struct ek_lm_layer *y = &lm->layers[l];
    bool has_post = lm->p.has_post_norms;
    meet(c);
    attend(c, l);
    meet(c);
    const float *att = finish_attention(c, l);
    if (l == lm->p.n_layers - 1 && c->s->rest)
        narrow(c, att, y);
    else
        prepare_rows(c, att, y, EK_LM_O, 1);
    meet_rows(c);
    float *out[] = {has_post ? lm->plan.h : c->x};
    multiply_columns(c, out, y, EK_LM_O, 1, has_post ? EK_MATMUL_SET : EK_MATMUL_ADD);
    meet(c);
    if (has_post)
        post_norm(c, y->post_attn_norm);
}

/* gate = f(gate) * up over this member's columns. */
static void gate_columns(const struct crew *c, const struct ek_lm_layer *y)
{
    const struct step *s = c->s;
    const struct ek_lm_plan *b = &s->lm->plan;
    int64_t F = s->lm->p.F, n0, n1;
    ek_lm_columns(&n0, &n1, &y->w[EK_LM_DECODE][EK_LM_GATE], 1, 0, c->member,
                  c->n_members);
    if (n0 >= n1)
        return;
    for (int g = 0; g < 2; g++) {
        const struct ek_weight *w = y->w[s->group[g].copy];
        multiply(c, b->gate, &w[EK_LM_GATE], &s->group[g], n0, n1, EK_MATMUL_SET);
        multiply(c, b->up, &w[EK_LM_UP], &s->group[g], n0, n1, EK_MATMUL_SET);
    }
    for (int64_t t = 0; t < s->T; t++) {
        float *gate = b->gate + t * F + n0;
        s->lm->ops->glu(gate, gate, b->up + t * F + n0, n1 - n0, s->lm->p.glu);
    }
}

static void feed_forward_block(const struct crew *c, int32_t l)
{
    const struct step *s = c->s;
    const struct ek_lm *lm = s->lm;
    const struct ek_lm_plan *b = &lm->plan;
    const struct ek_lm_layer *y = &lm->layers[l];
    bool has_post = lm->p.has_post_norms;
    float *out[] = {has_post ? b->h : c->x};
    norm_rows(c, c->x, y->ffn_norm);
    prepare_rows(c, c->h, y, EK_LM_GATE, 2);
    meet_rows(c);
    gate_columns(c, y);
    meet(c);
    prepare_rows(c, b->gate, y, EK_LM_DOWN, 1);
    meet_rows(c);
    multiply_columns(c, out, y, EK_LM_DOWN, 1,
                     has_post ? EK_MATMUL_SET : EK_MATMUL_ADD);
    meet(c);
    if (has_post)
        post_norm(c, y->post_ffn_norm);
}

/* Logits of this member's columns for the wanted rows, which were gathered into h. */
static void head_columns(const struct crew *c)
{
    const struct step *s = c->s;
    const struct ek_lm *lm = s->lm;
    int64_t V = lm->p.V, n0, n1;
    float cap = lm->p.logit_softcap;
    ek_lm_columns(&n0, &n1, &lm->head, 1, 0, c->member, c->n_members);
    if (n0 >= n1)
        return;
    const struct group all = {.hi = s->n_out};
    multiply(c, s->logits, &lm->head, &all, n0, n1, EK_MATMUL_SET);
    for (int64_t t = 0; cap > 0.0f && t < s->n_out; t++) {
        for (int64_t i = n0; i < n1; i++)
            s->logits[t * V + i] = cap * tanhf(s->logits[t * V + i] / cap);
    }
}

static void output(const struct crew *c)
{
    const struct step *s = c->s;
    const struct ek_lm *lm = s->lm;
    const struct ek_lm_params *p = &lm->p;
    int64_t lo = 0, hi = s->n_out;
    if (s->n_out == 0)
        return;
    meet_rows(c); /* a wanted row may be another member's */
    if (!s->is_small)
        ek_team_share(&lo, &hi, s->n_out, 1, c->member, c->n_members);
    for (int64_t i = lo; i < hi; i++)
        lm->ops->rmsnorm(c->h + i * p->C, p->C, c->x + (int64_t)s->out_row[i] * p->C,
                         p->C, lm->out_norm, p->norm_offset, p->norm_eps, 1, p->C);
    prepare(c, c->h, s->n_out, lo, hi, &lm->head, 1);
    meet_rows(c);
    head_columns(c);
}

static void walk(void *arg, int member, int n_members)
{
    const struct step *s = arg;
    struct crew c = {.s = s, .member = member, .n_members = n_members};
    set_rows(&c);
    embed_rows(&c);
    for (int32_t l = 0; l < s->lm->p.n_layers; l++) {
        qkv_block(&c, l);
        if (l == s->lm->p.n_layers - 1 && s->n_out == 0 && !s->lm->watch)
            break; /* keys and values were all that was wanted */
        attention_block(&c, l);
        feed_forward_block(&c, l);
    }
    output(&c);
    s->lm->plan.n_saturated[member] = c.n_saturated;
}

static void cut_items(struct step *s)
{
    const struct ek_attn_dims d = dims_of(s, 0);
    int members = ek_team_size(s->lm->team);
    s->n_items = ek_attn_cut(s->lm->plan.seqs, s->n_seqs, &d,
                             members > 1 ? (int64_t)members * EK_LM_ITEMS : 0,
                             s->lm->plan.n_part_rows);
    for (int32_t i = 0; i < s->n_seqs; i++)
        s->has_parts = s->has_parts || s->lm->plan.seqs[i].part0 >= 0;
}

/* Tokens of a sequence's chunk that the prefill copy computes, row by row. */
static int32_t n_prefill(const struct ek_lm *lm, const struct ek_lm_seq *q)
{
    if (lm->prefill_bytes == 0 || lm->is_by_tokens || q->decode_from <= q->pos0)
        return 0;
    int32_t n = q->decode_from - q->pos0;
    return n < q->n_tokens ? n : q->n_tokens;
}

/* Tokens [i0,i1) of a sequence's chunk as rows from `row` on: ids, positions, slots. To
 * attention they are a sequence of their own. */
static void lay_rows(struct step *s, const struct ek_lm_seq *q, int32_t i0, int32_t i1,
                     int32_t row)
{
    const struct ek_lm_plan *b = &s->lm->plan;
    if (i0 >= i1)
        return;
    b->seqs[s->n_seqs++] = (struct ek_attn_seq){
        .pages = q->pages, .pos0 = q->pos0 + i0, .n_tokens = i1 - i0, .row0 = row};
    for (int32_t i = i0; i < i1; i++, row++) {
        int32_t pos = q->pos0 + i, page = q->pages[pos / EK_PAGE_TOKENS];
        assert(q->tokens[i] >= 0 && q->tokens[i] < s->lm->p.V);
        assert(page >= 0 && page < s->kv->n_pages);
        b->token[row] = q->tokens[i];
        b->pos[row] = pos;
        b->slot[row] = (int64_t)page * EK_PAGE_TOKENS + pos % EK_PAGE_TOKENS;
        if (q->want == EK_LM_WANT_ALL ||
            (q->want == EK_LM_WANT_LAST && i == q->n_tokens - 1))
            b->out_row[s->n_out++] = row;
    }
}

/* All rows: decode's first, so that each copy of the weights has one run of rows. */
static void lay_all(struct step *s, const struct ek_lm_seq *seqs, int32_t n_seqs)
{
    const struct ek_lm *lm = s->lm;
    int32_t n_decode = 0;
    for (int32_t i = 0; i < n_seqs; i++) {
        const struct ek_lm_seq *q = &seqs[i];
        assert(q->n_tokens >= 1 && q->n_tokens <= lm->plan.T - s->T && q->pos0 >= 0);
        s->T += q->n_tokens;
        n_decode += q->n_tokens - n_prefill(lm, q);
    }
    bool is_prefill = lm->is_by_tokens && s->T >= lm->crossover;
    s->group[0] =
        (struct group){0, n_decode, is_prefill ? EK_LM_PREFILL : EK_LM_DECODE};
    s->group[1] = (struct group){n_decode, s->T, EK_LM_PREFILL};
    int32_t decode_row = 0, prefill_row = n_decode;
    for (int32_t i = 0; i < n_seqs; i++) {
        const struct ek_lm_seq *q = &seqs[i];
        int32_t n = n_prefill(lm, q);
        lay_rows(s, q, 0, n, prefill_row);
        lay_rows(s, q, n, q->n_tokens, decode_row);
        prefill_row += n;
        decode_row += q->n_tokens - n;
    }
}

/* The rest of a step of which few rows have logits: those rows in the order of the
 * step, so that each copy of the weights still has one run of them. */
static bool has_rest(struct step *rest, const struct step *s)
{
    const struct ek_lm_plan *b = &s->lm->plan;
    const struct ek_lm_params *p = &s->lm->p;
    int64_t room = (int64_t)s->T * p->H * p->D; /* of the queries' buffer */
    if (s->is_small || s->n_out * 2 > s->T || (int64_t)s->n_out * p->C > room)
        return false;
    *rest = *s;
    rest->T = 0;
    rest->out_row = b->kept_at;
    rest->has_parts = false;
    for (int g = 0; g < 2; g++) {
        rest->group[g].lo = rest->T;
        for (int32_t i = 0; i < s->n_out; i++) {
            int32_t row = b->out_row[i];
            if (row < s->group[g].lo || row >= s->group[g].hi)
                continue;
            b->kept_at[i] = rest->T;
            b->kept[rest->T++] = row;
        }
        rest->group[g].hi = rest->T;
    }
    return true;
}

int32_t ek_lm_forward(struct ek_lm *lm, struct ek_kv *kv, const struct ek_lm_seq *seqs,
                      int32_t n_seqs, float *logits)
{
    struct step s = {.lm = lm, .kv = kv, .logits = logits, .out_row = lm->plan.out_row};
    struct step rest;
    assert(kv->n_layers == lm->p.n_layers && kv->K == lm->p.K && kv->D == lm->p.D);
    lay_all(&s, seqs, n_seqs);
    if (s.T == 0)
        return 0;
    s.is_small = s.T <= EK_LM_SMALL_ROWS && ek_team_size(lm->team) > 1;
    cut_items(&s);
    if (!lm->watch && has_rest(&rest, &s))
        s.rest = &rest;
    ek_team_run(lm->team, walk, &s);
    for (int i = 0; i < ek_team_size(lm->team); i++)
        kv->n_saturated += lm->plan.n_saturated[i];
    return s.n_out;
}
