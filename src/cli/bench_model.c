#include "cli/bench_model.h"

#include "base/mem.h"
#include "base/rng.h"

#include <string.h>

#define FILL_BYTES ((size_t)1 << 20) /* of random values that repeat */

void ek_bench_model_init(struct ek_bench_model *m, struct ek_runtime *rt)
{
    *m = (struct ek_bench_model){.rt = rt};
}

void ek_bench_model_release(struct ek_bench_model *m)
{
    ek_kv_release(&m->kv);
    ek_free(m->pages);
    ek_free(m->tokens);
    ek_free(m->logits);
    ek_free(m->seqs);
    *m = (struct ek_bench_model){0};
}

/* Random values of magnitude 1/16 to 1/4: finite in each type, and small enough that no
 * position takes all of the attention. */
static void fill(unsigned char *p, size_t n, enum ek_dtype t)
{
    struct ek_rng rng;
    ek_rng_init(&rng, 1);
    for (size_t i = 0; i < n; i += 4) {
        uint64_t r = ek_rng_u64(&rng);
        uint32_t sign = (uint32_t)(r >> 63) << 31;
        uint32_t f32 = sign | (0x3d800000u + (uint32_t)(r & 0xffffff));
        uint32_t bf16 = f32 >> 16 | (f32 ^ 0x80000000u) >> 16 << 16;
        uint32_t e4m3 = (uint32_t)(r & 0x8f8f8f8fu) | 0x18181818u;
        uint32_t v = t == EK_DTYPE_F32 ? f32 : t == EK_DTYPE_BF16 ? bf16 : e4m3;
        memcpy(p + i, &v, sizeof v);
    }
}

static int64_t pages_of(const struct ek_bench_job *job)
{
    int64_t tokens = job->n_tokens + job->depth;
    return (tokens + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS;
}

static int grow_kv(struct ek_bench_model *m, int64_t n_pages, struct ek_err *err)
{
    const struct ek_lm_params *p = ek_lm_get_params(m->rt->lm);
    enum ek_dtype dtype = m->rt->kv.dtype;
    m->cap_pages = 0;
    ek_kv_release(&m->kv);
    ek_free(m->pages);
    m->pages = ek_alloc_array((size_t)n_pages, sizeof *m->pages);
    if (!m->pages)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    int rc = ek_kv_init(&m->kv, p, dtype, (int32_t)n_pages, err);
    if (rc)
        return rc;
    size_t total = ek_kv_page_bytes(p, dtype) * (size_t)n_pages;
    size_t first = total < FILL_BYTES ? total : FILL_BYTES;
    fill(m->kv.data, first, dtype);
    for (size_t at = first; at < total; at += FILL_BYTES)
        memcpy(m->kv.data + at, m->kv.data,
               total - at < FILL_BYTES ? total - at : FILL_BYTES);
    m->cap_pages = n_pages;
    return 0;
}

static int grow_seqs(struct ek_bench_model *m, int64_t n, struct ek_err *err)
{
    size_t V = (size_t)ek_lm_get_params(m->rt->lm)->V;
    size_t chunk = (size_t)m->rt->engine_options.max_batch_tokens;
    size_t most = (size_t)n > chunk ? (size_t)n : chunk, bytes;
    m->cap_seqs = 0;
    ek_free(m->tokens);
    ek_free(m->logits);
    ek_free(m->seqs);
    m->tokens = ek_alloc_array(most, sizeof *m->tokens);
    m->logits = ek_mul_size(&bytes, (size_t)n, V)
                    ? ek_alloc_array(bytes, sizeof *m->logits)
                    : NULL;
    m->seqs = ek_alloc_array((size_t)n, sizeof *m->seqs);
    if (!m->tokens || !m->logits || !m->seqs)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    m->cap_seqs = n;
    return 0;
}

int ek_bench_model_fit(struct ek_bench_model *m, const struct ek_bench_job *job,
                       struct ek_err *err)
{
    int64_t most = m->rt->engine_options.max_batch_tokens;
    if (job->n_tokens < 1 || job->depth < 0 || job->batch < 1 || job->batch > most ||
        job->n_tokens > EK_BENCH_TOKENS_MAX || job->depth > EK_BENCH_TOKENS_MAX ||
        pages_of(job) * job->batch > EK_BENCH_TOKENS_MAX / EK_PAGE_TOKENS)
        return ek_err_set(err, EK_EINVAL,
                          "%lld tokens at depth %lld, %lld sequences: expected at most "
                          "%lld sequences (max_batch_tokens) and %d positions together",
                          (long long)job->n_tokens, (long long)job->depth,
                          (long long)job->batch, (long long)most, EK_BENCH_TOKENS_MAX);
    int rc = 0;
    if (job->batch > m->cap_seqs)
        rc = grow_seqs(m, job->batch, err);
    if (!rc && pages_of(job) * job->batch > m->cap_pages)
        rc = grow_kv(m, pages_of(job) * job->batch, err);
    return rc;
}

/* Tables as sequences that grow together have them: their pages lie in turn. */
static void lay_pages(struct ek_bench_model *m, const struct ek_bench_job *job)
{
    int64_t n = pages_of(job);
    for (int64_t b = 0; b < job->batch; b++) {
        for (int64_t i = 0; i < n; i++)
            m->pages[b * n + i] = (int32_t)(i * job->batch + b);
    }
}

static int32_t some_token(const struct ek_bench_model *m, int64_t i)
{
    int64_t V = ek_lm_get_params(m->rt->lm)->V;
    return (int32_t)((uint64_t)i * 2654435761u % (uint64_t)V);
}

static double prefill(struct ek_bench_model *m, const struct ek_bench_job *job)
{
    int64_t chunk = m->rt->engine_options.max_batch_tokens;
    double start = ek_bench_now_s(m->rt->team);
    for (int64_t at = 0; at < job->n_tokens; at += chunk) {
        int64_t n = job->n_tokens - at < chunk ? job->n_tokens - at : chunk;
        bool is_last = at + n == job->n_tokens;
        for (int64_t i = 0; i < n; i++)
            m->tokens[i] = some_token(m, at + i);
        m->seqs[0] =
            (struct ek_lm_seq){.tokens = m->tokens,
                               .n_tokens = (int32_t)n,
                               .pos0 = (int32_t)at,
                               .pages = m->pages,
                               .want = is_last ? EK_LM_WANT_LAST : EK_LM_WANT_NONE,
                               .decode_from = (int32_t)job->n_tokens};
        ek_lm_forward(m->rt->lm, &m->kv, m->seqs, 1, m->logits);
    }
    return (double)job->n_tokens / (ek_bench_now_s(m->rt->team) - start);
}

static double decode(struct ek_bench_model *m, const struct ek_bench_job *job)
{
    int64_t n = pages_of(job);
    double start = ek_bench_now_s(m->rt->team);
    for (int64_t step = 0; step < job->n_tokens; step++) {
        for (int64_t b = 0; b < job->batch; b++) {
            m->tokens[b] = some_token(m, step * job->batch + b);
            m->seqs[b] = (struct ek_lm_seq){.tokens = &m->tokens[b],
                                            .n_tokens = 1,
                                            .pos0 = (int32_t)(job->depth + step),
                                            .pages = m->pages + b * n,
                                            .want = EK_LM_WANT_LAST};
        }
        ek_lm_forward(m->rt->lm, &m->kv, m->seqs, (int32_t)job->batch, m->logits);
    }
    return (double)(job->n_tokens * job->batch) / (ek_bench_now_s(m->rt->team) - start);
}

double ek_bench_model_run(struct ek_bench_model *m, const struct ek_bench_job *job)
{
    lay_pages(m, job);
    return job->kind == EK_BENCH_PREFILL ? prefill(m, job) : decode(m, job);
}

double ek_bench_model_bytes(const struct ek_bench_model *m,
                            const struct ek_bench_job *job)
{
    const struct ek_lm_params *p = ek_lm_get_params(m->rt->lm);
    double elems = 0, tokens = (double)job->depth + (double)(job->n_tokens + 1) / 2;
    for (int32_t l = 0; l < p->n_layers; l++) {
        bool is_cut = p->is_local[l] && tokens > p->window;
        elems += 2.0 * p->K * p->D * (is_cut ? p->window : tokens);
    }
    return (double)(ek_lm_weight_bytes(m->rt->lm) - ek_lm_prefill_bytes(m->rt->lm)) /
               (double)job->batch +
           elems * (double)ek_dtype_block_bytes(m->rt->kv.dtype);
}

double ek_bench_model_flop(const struct ek_bench_model *m)
{
    const struct ek_lm_params *p = ek_lm_get_params(m->rt->lm);
    double vocab = (double)p->V * p->C * (p->is_tied ? 1 : 2);
    return 2 * ((double)ek_lm_n_params(m->rt->lm) - vocab);
}
