/* weights_pack.c - the second pass of loading: every number is checked, then packed,
 * all members of the team together, each the panels it will read. */
#include "base/file.h"
#include "base/mem.h"
#include "lm/weights_int.h"

/* Pages of the file that may be in memory beside what was packed of them. */
#define FORGET_BYTES ((int64_t)16 << 20)

/* The first element a member found that is no number; t NULL: none. */
struct bad {
    const struct ek_tensor *t;
    size_t at;
};

struct packer {
    const struct ek_lm_packing *p;
    const struct ek_lm_job *job; /* the matrix or vector at hand */
    float *scratch;              /* members * scratch_rows * max_k, owned */
    struct bad bad[256];         /* a member's first element that is not finite */
};

/* Scales of the blocks of rows [r0, r0+128) of an fp8 matrix. */
static void pack_scales(const struct ek_lm_job *j, int64_t r0)
{
    int64_t n = (j->w->K + 127) / 128;
    float *scales = ek_weight_block_scales(j->w) + r0 / 128 * n;
    for (int64_t b = 0; b < n; b++)
        scales[b] = ek_source_scale(&j->src, r0, 128 * b);
}

/* Rows [r0,r1), at most 128, into the matrix at hand; scratch: scratch_rows * K. */
static void pack_source(const struct ek_lm_job *j, int64_t r0, int64_t r1,
                        float *scratch)
{
    const struct ek_source *s = &j->src;
    const struct ek_tensor *t = s->part[EK_SOURCE_CODES];
    size_t K = (size_t)j->w->K, row_bytes = t->bytes / (size_t)s->rows;
    const unsigned char *rows = (const unsigned char *)t->data + (size_t)r0 * row_bytes;
    if (s->kind == EK_SOURCE_PLAIN) {
        ek_weight_pack(j->w, r0, r1, t->dtype, rows, row_bytes, scratch);
    } else if (ek_source_has_blocks(s) && j->w->format == EK_WEIGHT_E4M3) {
        ek_weight_pack(j->w, r0, r1, EK_DTYPE_E4M3, rows, row_bytes, NULL);
        pack_scales(j, r0);
    } else if (s->kind == EK_SOURCE_INT4 && j->w->format == EK_WEIGHT_I4) {
        ek_source_q4(scratch, EK_DTYPE_Q4_1, s, r0, r1);
        ek_weight_pack(j->w, r0, r1, EK_DTYPE_Q4_1, scratch, K / 32 * 20, NULL);
    } else if (s->kind == EK_SOURCE_INT4 && j->w->format == EK_WEIGHT_I4S) {
        ek_source_q4(scratch, EK_DTYPE_Q4_0, s, r0, r1);
        ek_weight_pack(j->w, r0, r1, EK_DTYPE_Q4_0, scratch, K / 32 * 18, NULL);
    } else {
        ek_source_read(scratch, s, r0, r1);
        ek_weight_pack(j->w, r0, r1, EK_DTYPE_F32, scratch, K * sizeof *scratch,
                       scratch + 128 * K);
    }
}

/* Rows [r0,r1) of the matrix at hand: checked, then packed. */
static bool pack_rows(struct packer *z, int member, int64_t r0, int64_t r1)
{
    const struct ek_lm_job *j = z->job;
    struct bad *bad = &z->bad[member];
    if (!ek_source_check(&j->src, r0, r1, &bad->t, &bad->at))
        return false;
    pack_source(j, r0, r1,
                z->scratch + (size_t)member * z->p->scratch_rows * (size_t)z->p->max_k);
    return true;
}

/* E4M3's blocks are packed whole: a border inside one moves to its end. */
static int64_t end_of_block(int64_t row, int64_t N)
{
    int64_t end = (row + 127) / 128 * 128;
    return end < N ? end : N;
}

static void pack_member(void *arg, int member, int n_members)
{
    struct packer *z = arg;
    const struct ek_lm_job *j = z->job;
    int64_t lo, hi, N = j->w->N;
    ek_lm_columns(&lo, &hi, j->with, j->n, j->i, member, n_members);
    if (j->w->format == EK_WEIGHT_E4M3) {
        lo = end_of_block(lo, N);
        hi = end_of_block(hi, N);
    }
    /* 128 rows at a time: few enough to stay in cache between check and packing. */
    z->bad[member].t = NULL;
    for (int64_t r = lo; r < hi; r += 128) {
        if (!pack_rows(z, member, r, r + 128 < hi ? r + 128 : hi))
            return;
    }
}

/* What a member found that no member of lower rows did; t NULL: nothing. */
static struct bad first_bad(const struct packer *z)
{
    for (int i = 0; i < ek_team_size(z->p->lm->team); i++) {
        if (z->bad[i].t)
            return z->bad[i];
    }
    return (struct bad){NULL, 0};
}

static struct bad pack_vector(struct packer *z)
{
    const struct ek_lm_job *j = z->job;
    float *out = (void *)((unsigned char *)z->p->lm->packed + j->at);
    struct bad bad = {NULL, 0};
    if (ek_source_check(&j->src, 0, j->src.rows, &bad.t, &bad.at)) {
        ek_source_read(out, &j->src, 0, j->src.rows);
        *j->vec = out;
    }
    return bad;
}

/* A prefill copy that was not packed is the decode copy. */
static void share_copies(struct ek_lm *lm)
{
    for (int32_t l = 0; l < lm->p.n_layers; l++) {
        struct ek_lm_layer *y = &lm->layers[l];
        for (int i = 0; i < EK_LM_MATRICES; i++) {
            if (!y->w[EK_LM_PREFILL][i].data)
                y->w[EK_LM_PREFILL][i] = y->w[EK_LM_DECODE][i];
        }
    }
}

static int pack_jobs(struct packer *z, struct ek_err *err)
{
    struct ek_lm *lm = z->p->lm;
    int64_t done = 0, kept = 0;
    for (size_t i = 0; i < z->p->n_jobs; i++) {
        struct ek_lm_job *j = &z->p->jobs[i];
        struct bad bad;
        z->job = j;
        if (j->vec) {
            bad = pack_vector(z);
        } else {
            j->w->data = (unsigned char *)lm->packed + j->at;
            ek_team_run(lm->team, pack_member, z);
            bad = first_bad(z);
        }
        if (bad.t)
            return ek_err_set(err, EK_EFORMAT,
                              "%s: tensor '%s': element %zu or the scale of its block "
                              "is not finite%s",
                              z->p->m->path, bad.t->name, bad.at,
                              bad.t == j->src.part[EK_SOURCE_SCALE] ? ", or too large"
                                                                    : "");
        done += (int64_t)ek_source_bytes(&j->src);
        if (done - kept > FORGET_BYTES) { /* or the file would stay in memory too */
            ek_modelfile_forget(z->p->m);
            kept = done;
        }
        if (z->p->o->on_progress)
            z->p->o->on_progress(z->p->o->progress_arg, done, z->p->total_bytes);
    }
    if (lm->p.is_tied)
        lm->head = lm->embed;
    share_copies(lm);
    ek_modelfile_forget(z->p->m);
    return 0;
}

static int take_memory(struct packer *z, struct ek_err *err)
{
    struct ek_lm *lm = z->p->lm;
    size_t n;
    char text[32];
    lm->packed_bytes = z->p->bytes;
    lm->packed = ek_alloc_huge(z->p->bytes);
    if (ek_mul_size(&n, (size_t)z->p->max_k,
                    z->p->scratch_rows * (size_t)ek_team_size(lm->team)))
        z->scratch = ek_alloc_array(n, sizeof(float));
    if (!lm->packed || !z->scratch)
        return ek_err_set(err, EK_ENOMEM, "%s: no memory for %s of weights",
                          z->p->m->path, ek_format_bytes(text, z->p->bytes));
    return 0;
}

int ek_lm_pack_all(const struct ek_lm_packing *p, struct ek_err *err)
{
    struct packer z = {.p = p};
    int rc = take_memory(&z, err);
    if (!rc)
        rc = pack_jobs(&z, err);
    ek_free(z.scratch);
    return rc;
}
