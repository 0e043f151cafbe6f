/* enginekit.h - an engine over the model of kitmodel.h, the requests it gets and what its
 * answers say. */
#ifndef EVENKEEL_TESTS_SERVE_ENGINEKIT_H
#define EVENKEEL_TESTS_SERVE_ENGINEKIT_H

#include "serve/kitmodel.h"

#define KIT_CTX  256
#define KIT_WIDE "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww"

/* What one choice has said. */
struct kit_answer {
    struct ek_buf text;
    int32_t ids[KIT_CTX];
    uint64_t starts[KIT_CTX];
    float logprobs[KIT_CTX];
    int32_t n_ids;
    int32_t n_generated, n_deltas;
    enum ek_finish finish;
    int32_t stop_id, stop_string;
    bool is_last;
};

static inline double kit_softmax(float *p, const float *x, int64_t n, float temperature)
{
    double max = (double)x[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        max = (double)x[i] > max ? (double)x[i] : max;
    for (int64_t i = 0; i < n; i++) {
        double e = exp(((double)x[i] - max) / (double)temperature);
        p[i] = (float)e;
        sum += e;
    }
    for (int64_t i = 0; i < n; i++)
        p[i] = (float)((double)p[i] / sum);
    return max / (double)temperature + log(sum);
}

static inline int64_t kit_argmax(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* request.user is an array of n kit_answer. */
static inline void kit_on_delta(void *arg, struct ek_delta *d)
{
    struct kit *k = arg;
    struct kit_answer *a = (struct kit_answer *)d->request->user + d->choice;
    assert_int_equal(a->finish, EK_FINISH_NONE);
    if (a->text.len + d->text.len <= a->text.max)
        assert_int_equal(ek_buf_add(&a->text, d->text.data, d->text.len), 0);
    for (int32_t i = 0; i < d->n_tokens; i++) {
        a->ids[a->n_ids] = d->tokens[i].id;
        a->starts[a->n_ids] = d->tokens[i].start;
        a->logprobs[a->n_ids++] = d->tokens[i].logprob;
    }
    assert_true(ek_utf8_whole_prefix(d->text.data, d->text.len) == d->text.len);
    a->n_generated = d->n_generated;
    a->n_deltas++;
    a->finish = d->finish;
    a->stop_id = d->stop_id;
    a->stop_string = d->stop_string;
    a->is_last = d->is_last;
    assert_true((d->error != NULL) == (d->finish == EK_FINISH_ERROR));
    if (d->finish != EK_FINISH_NONE)
        return;
    if (k->holds_deltas)
        k->held[k->n_held++] = d;
    else
        ek_engine_give_back(k->engine, d);
}

static inline void kit_release_deltas(struct kit *k)
{
    k->holds_deltas = false;
    while (k->n_held > 0)
        ek_engine_give_back(k->engine, k->held[--k->n_held]);
}

static inline void
kit_together(void *arg, void (*fn)(void *work, int member, int n_members), void *work)
{
    struct kit *k = arg;
    k->n_together++;
    ek_team_run(k->team, fn, work);
}

static inline struct ek_engine_model kit_model(struct kit *k)
{
    return (struct ek_engine_model){
        .forward = kit_forward,
        .copy_page = kit_copy_page,
        .poison = kit_poison,
        .together = k->team ? kit_together : NULL,
        .n_members = 3,
        .now_us = kit_now_us,
        .arg = k,
        .V = k->V,
        .has_own_decode = k->has_own_decode,
        .kv_saturated = &k->kv_saturated,
    };
}

/* has_own_decode: as of a model with weights of two formats. */
static inline void kit_open_as(struct kit *k, const struct ek_engine_options *o,
                               bool has_own_decode)
{
    memset(k, 0, sizeof *k);
    k->has_own_decode = has_own_decode;
    pthread_mutex_init(&k->gate, NULL);
    made_bpe_init(&k->made);
    k->end_id = made_token(&k->made, "<|im_end|>", EK_TOK_CONTROL);
    k->wide_id = made_token(&k->made, KIT_WIDE, EK_TOK_NORMAL);
    k->tokenizer = made_bpe_load(&k->made, "gpt-2");
    k->V = ek_tokenizer_size(k->tokenizer);
    assert_true(ek_tokenizer_is_end(k->tokenizer, k->end_id));
    assert_int_equal(ek_team_new(&k->team, 3, false, NULL), 0);
    struct ek_engine_model model = kit_model(k);
    assert_int_equal(ek_engine_new(&k->engine, &model, k->tokenizer, o,
                                   ek_ops_get(EK_ISA_REF), kit_on_delta, k, NULL),
                     0);
}

static inline void kit_open(struct kit *k, const struct ek_engine_options *o)
{
    kit_open_as(k, o, false);
}

static inline void kit_default(struct ek_engine_options *o)
{
    *o = (struct ek_engine_options){.ctx = KIT_CTX,
                                    .n_pages = KIT_PAGES,
                                    .max_seqs = 4,
                                    .max_batch_tokens = 32,
                                    .prefill_chunk = 8,
                                    .reserve_tokens = 32,
                                    .page_check = EK_PAGE_CHECK_FULL,
                                    .caches_prefixes = true};
}

static inline void kit_close(struct kit *k)
{
    struct ek_pages *p = ek_engine_get_pages(k->engine);
    assert_true(ek_pages_is_sane(p));
    ek_pages_drop_cache(p);
    assert_int_equal(p->n_free + p->n_quarantined, p->n_pages);
    ek_engine_free(k->engine);
    ek_team_free(k->team);
    ek_tokenizer_free(k->tokenizer);
}

/* A request whose prompt are the bytes of `prompt`. */
static inline struct ek_request *kit_request(const char *prompt, int32_t max_tokens,
                                             int32_t n)
{
    struct ek_request *r = malloc(sizeof *r);
    struct kit_answer *a = calloc((size_t)n, sizeof *a);
    assert_non_null(r);
    assert_non_null(a);
    ek_request_init(r, 16 << 20);
    for (int32_t i = 0; i < n; i++)
        ek_buf_init(&a[i].text, 1 << 16);
    size_t len = strlen(prompt);
    int32_t *ids = ek_arena_alloc(&r->arena, len * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < len; i++)
        ids[i] = (unsigned char)prompt[i];
    r->user = a;
    r->prompt = ids;
    r->n_prompt = (int32_t)len;
    r->n = n;
    r->max_tokens = max_tokens;
    return r;
}

static inline void kit_submit(struct kit *k, struct ek_request *r)
{
    assert_int_equal(ek_request_prepare(r, k->engine, NULL), 0);
    ek_engine_submit(k->engine, r);
}

static inline void kit_run(struct kit *k)
{
    int n = 0;
    while (ek_engine_step(k->engine))
        assert_true(n++ < 100000);
}

static inline struct kit_answer *kit_answer(const struct ek_request *r, int32_t i)
{
    return (struct kit_answer *)r->user + i;
}

static inline void kit_free(struct ek_request *r)
{
    for (int32_t i = 0; i < r->n; i++)
        ek_buf_release(&kit_answer(r, i)->text);
    free(r->user);
    ek_request_release(r);
    free(r);
}

/* Makes the wide token likelier by `bias`: 6 is about every other token, 100 all. */
static inline void kit_widen(const struct kit *k, struct ek_request *r, float bias)
{
    struct ek_logit_bias *b = ek_arena_alloc(&r->arena, sizeof *b);
    assert_non_null(b);
    *b = (struct ek_logit_bias){k->wide_id, bias};
    r->sampling.bias = b;
    r->sampling.n_bias = 1;
}

/* Steps until the choice has n tokens. */
static inline void kit_step_until(struct kit *k, const struct ek_request *r, int32_t n)
{
    for (int i = 0; r->choices[0].n_generated < n; i++) {
        assert_true(i < 10000);
        ek_engine_step(k->engine);
    }
}

/* Both said the same, bit for bit. */
static inline void kit_assert_same(const struct kit_answer *a,
                                   const struct kit_answer *b)
{
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n_ids * sizeof a->ids[0]);
    assert_memory_equal(a->starts, b->starts, (size_t)a->n_ids * sizeof a->starts[0]);
    assert_memory_equal(a->logprobs, b->logprobs,
                        (size_t)a->n_ids * sizeof a->logprobs[0]);
    assert_int_equal(a->text.len, b->text.len);
    assert_memory_equal(a->text.data, b->text.data, a->text.len);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->n_generated, b->n_generated);
}

static inline void kit_stop(struct ek_request *r, const char *text)
{
    assert_int_equal(ek_stop_add(&r->stop, &r->arena, text, strlen(text)), 0);
}

#endif
