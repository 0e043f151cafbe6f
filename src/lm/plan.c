/* plan.c - the buffers of a step, measured and cut in one pass that runs twice: first
 * over no memory to learn the size, then over the allocation. */
#include "base/file.h"
#include "base/mem.h"
#include "lm/model_int.h"

#include <string.h>

struct cutter {
    unsigned char *base; /* NULL: only measure */
    size_t at;
    bool overflowed;
};

static void *cut(struct cutter *c, size_t n, size_t size)
{
    size_t bytes, end, padded;
    if (!ek_mul_size(&bytes, n, size) || !ek_add_size(&end, c->at, bytes) ||
        !ek_add_size(&padded, end, 63)) {
        c->overflowed = true;
        return NULL;
    }
    void *p = c->base ? c->base + c->at : NULL;
    c->at = padded & ~(size_t)63;
    return p;
}

static int64_t panels_of(const struct ek_weight *w)
{
    return (w->N + EK_PANEL - 1) / EK_PANEL;
}

void ek_lm_columns(int64_t *n0, int64_t *n1, const struct ek_weight *w, int n, int i,
                   int member, int n_members)
{
    int64_t total = 0, at = 0, lo, hi, panels = panels_of(&w[i]);
    for (int k = 0; k < n; k++) {
        at += k < i ? panels_of(&w[k]) : 0;
        total += panels_of(&w[k]);
    }
    ek_team_share(&lo, &hi, total, 1, member, n_members);
    *n0 = (lo > at ? lo - at : 0) * EK_PANEL;
    *n1 = (hi - at < panels ? hi - at : panels) * EK_PANEL;
    *n1 = *n1 < w[i].N ? *n1 : w[i].N;
}

enum ek_lm_act ek_lm_act_of(enum ek_weight_format f)
{
    if (f == EK_WEIGHT_F32)
        return EK_LM_ACT_F32;
    return f == EK_WEIGHT_BF16 || f == EK_WEIGHT_E4M3 ? EK_LM_ACT_BF16 : EK_LM_ACT_I8;
}

static bool need_act(size_t bytes[EK_LM_ACT_COUNT], const struct ek_weight *w,
                     int32_t T)
{
    size_t b = ek_matmul_act_bytes(w->format, T, w->K);
    enum ek_lm_act a = ek_lm_act_of(w->format);
    if (b > bytes[a])
        bytes[a] = b;
    return b > 0;
}

static bool need_acts(size_t bytes[EK_LM_ACT_COUNT], const struct ek_lm *lm, int32_t T)
{
    bool is_ok = need_act(bytes, &lm->head, T);
    for (int32_t l = 0; l < lm->p.n_layers; l++) {
        for (int i = 0; i < EK_LM_COPIES * EK_LM_MATRICES; i++)
            is_ok =
                need_act(bytes,
                         &lm->layers[l].w[i / EK_LM_MATRICES][i % EK_LM_MATRICES], T) &&
                is_ok;
    }
    return is_ok;
}

/* The members' own buffers. Written by nobody else: 64 bytes of one member stand in no
 * cache line of another. */
static void cut_own(struct ek_lm_plan *b, struct cutter *c, const struct ek_lm *lm,
                    const size_t act[EK_LM_ACT_COUNT])
{
    int n = ek_team_size(lm->team);
    b->own = cut(c, (size_t)n, sizeof *b->own);
    for (int i = 0; i < n; i++) {
        struct ek_lm_own own = {0};
        own.x = cut(c, EK_LM_SMALL_ROWS * (size_t)lm->p.C, sizeof(float));
        own.h = cut(c, EK_LM_SMALL_ROWS * (size_t)lm->p.C, sizeof(float));
        own.att =
            cut(c, EK_LM_SMALL_ROWS * (size_t)lm->p.H * (size_t)lm->p.D, sizeof(float));
        for (int a = 0; a < EK_LM_ACT_COUNT; a++)
            own.act[a] = act[a] ? cut(c, act[a], 1) : NULL;
        if (c->base)
            b->own[i] = own;
    }
}

static void cut_all(struct ek_lm_plan *b, struct cutter *c, const struct ek_lm *lm,
                    const size_t act[EK_LM_ACT_COUNT],
                    const size_t own[EK_LM_ACT_COUNT])
{
    const struct ek_lm_params *p = &lm->p;
    size_t T = (size_t)b->T, f = sizeof(float);
    size_t C = (size_t)p->C, F = (size_t)p->F;
    size_t HD = (size_t)p->H * (size_t)p->D, KD = (size_t)p->K * (size_t)p->D;
    b->x = cut(c, T * C, f);
    b->h = cut(c, T * C, f);
    b->q = cut(c, T * HD, f);
    b->att = cut(c, T * HD, f);
    b->k = cut(c, T * KD, f);
    b->v = cut(c, T * KD, f);
    b->gate = cut(c, T * F, f);
    b->up = cut(c, T * F, f);
    b->cs = cut(c, T * (size_t)p->rope.n_dims, f);
    b->cs_local = cut(c, T * (size_t)p->rope_local.n_dims, f);
    for (int i = 0; i < EK_LM_ACT_COUNT; i++)
        b->act[i] = act[i] ? cut(c, act[i], 1) : NULL;
    b->token = cut(c, T, sizeof *b->token);
    b->pos = cut(c, T, sizeof *b->pos);
    b->slot = cut(c, T, sizeof *b->slot);
    b->out_row = cut(c, T, sizeof *b->out_row);
    b->kept = cut(c, T, sizeof *b->kept);
    b->kept_at = cut(c, T, sizeof *b->kept_at);
    b->seqs = cut(c, T, sizeof *b->seqs);
    cut_own(b, c, lm, own);
    b->n_saturated = cut(c, (size_t)ek_team_size(lm->team), sizeof *b->n_saturated);
    b->parts = cut(c, (size_t)b->n_part_rows, b->part_bytes);
    b->scratch = cut(c, (size_t)ek_team_size(lm->team), b->scratch_bytes);
}

int ek_lm_plan_init(struct ek_lm_plan *plan, const struct ek_lm *lm, int32_t T,
                    struct ek_err *err)
{
    size_t act[EK_LM_ACT_COUNT] = {0}, own[EK_LM_ACT_COUNT] = {0};
    char text[32];
    memset(plan, 0, sizeof *plan);
    if (T < 1 || T > EK_LM_BATCH_MAX)
        return ek_err_set(err, EK_ELIMIT, "max_batch_tokens %d: expected 1 to %d", T,
                          EK_LM_BATCH_MAX);
    /* Any dtype measures the same scratch. */
    struct ek_attn_dims d = {.H = lm->p.H,
                             .K = lm->p.K,
                             .D = lm->p.D,
                             .page_tokens = EK_PAGE_TOKENS,
                             .kv_dtype = EK_DTYPE_F32};
    struct ek_lm_plan b = {.T = T};
    int members = ek_team_size(lm->team);
    b.scratch_bytes = ek_attn_scratch_bytes(&d);
    b.part_bytes = ek_attn_part_bytes(&d);
    b.n_part_rows =
        members > 1 ? EK_LM_PART_ROWS + (int64_t)members * EK_LM_PART_ROWS_MEMBER : 0;
    struct cutter c = {NULL, 0,
                       !need_acts(act, lm, T) || !need_acts(own, lm, EK_LM_SMALL_ROWS)};
    cut_all(&b, &c, lm, act, own);
    if (c.overflowed)
        return ek_err_set(err, EK_ELIMIT, "the buffers of %d tokens a step overflow",
                          T);
    b.bytes = c.at;
    b.memory = ek_alloc_huge(c.at);
    if (!b.memory)
        return ek_err_set(err, EK_ENOMEM,
                          "no memory for the buffers of %d tokens a step (%s)", T,
                          ek_format_bytes(text, c.at));
    c = (struct cutter){b.memory, 0, false};
    cut_all(&b, &c, lm, act, own);
    *plan = b;
    return 0;
}

void ek_lm_plan_release(struct ek_lm_plan *plan)
{
    ek_free(plan->memory);
    memset(plan, 0, sizeof *plan);
}
