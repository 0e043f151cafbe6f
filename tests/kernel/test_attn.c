/* attention of every variant.
 *
 * The answer is computed here in f64 by the plain formula over a KV cache kept as
 * (position, head, dim), with values already rounded to the kv dtype.
 *
 * Tolerance: a score errs by (D+3) ulp/2 of sum|q k| scale, which moves p by as much
 * relatively; exp adds 4e-7 and the sums over n keys n ulp/2. With |q|,|k|,|v| <= 1 and
 * the shapes below all together stays under 2e-5 of the largest |v| (1). */
#include "kernel_test.h"
#include "num/float.h"
#include "num/quant.h"

#define TOLERANCE      2e-5
#define TOLERANCE_E4M3 2e-3
#define PART_ROWS      1024

/* A cache of several sequences in shuffled pages, and queries for all of them. */
struct fixture {
    struct ek_attn_dims d;
    struct ek_attn_seq seqs[8];
    int32_t pages[8][64];
    int64_t n_seqs, rows, n_pages, ldq, ldo, ldk;
    float *q, *out; /* (rows, H*D) */
    float *k, *v; /* all tokens of all sequences, rounded: (token, K*D), row `token0` */
    int64_t token0[8];
    void *k_pool, *v_pool;
    unsigned char *scratch;
    float *parts;
};

static float rounded(float x, enum ek_dtype t, float scale)
{
    unsigned char block[8];
    float y = x / scale;
    ek_quant_from_f32(block, t, &y, 1);
    ek_quant_to_f32(&y, t, block, 1);
    return y * scale;
}

/* lengths[i] tokens are in the cache of sequence i, of which the last n[i] are queries. */
static void setup(struct fixture *f, const struct ek_attn_dims *d, int64_t n_seqs,
                  const int *lengths, const int *n, uint64_t seed)
{
    struct ek_rng rng;
    ek_rng_init(&rng, seed);
    *f = (struct fixture){.d = *d, .n_seqs = n_seqs};
    int64_t tokens = 0, KD = d->K * d->D, P = d->page_tokens;
    for (int64_t i = 0; i < n_seqs; i++) {
        f->token0[i] = tokens;
        f->seqs[i] = (struct ek_attn_seq){
            f->pages[i], lengths[i] - n[i], n[i], f->rows, 0, 0, 0};
        f->rows += n[i];
        tokens += lengths[i];
        f->n_pages += (lengths[i] + P - 1) / P;
    }
    f->n_pages += 3; /* some that belong to nobody */
    f->ldq = d->H * d->D + 4;
    f->ldo = d->H * d->D + 8;
    f->ldk = KD + 5;
    int32_t *order = new_bytes((size_t)f->n_pages * sizeof *order);
    for (int32_t p = 0; p < f->n_pages; p++) {
        int32_t other = (int32_t)ek_rng_below(&rng, (uint64_t)p + 1);
        order[p] = order[other];
        order[other] = p;
    }
    for (int64_t i = 0, next = 0; i < n_seqs; i++)
        for (int64_t p = 0; p < (lengths[i] + P - 1) / P; p++)
            f->pages[i][p] = order[next++];
    ek_free(order);
    f->q = new_floats(f->rows * f->ldq);
    f->out = new_floats(f->rows * f->ldo);
    f->k = new_floats(tokens * f->ldk);
    f->v = new_floats(tokens * f->ldk);
    fill_random(f->q, f->rows * f->ldq, &rng);
    fill_random(f->k, tokens * f->ldk, &rng);
    fill_random(f->v, tokens * f->ldk, &rng);
    size_t pool = (size_t)(f->n_pages * P * KD) * ek_dtype_block_bytes(d->kv_dtype);
    f->k_pool = new_bytes(pool);
    f->v_pool = new_bytes(pool);
    /* What was never written is NaN in every kv dtype: reading it shows. */
    memset(f->k_pool, 0xff, pool);
    memset(f->v_pool, 0xff, pool);
    f->scratch = new_bytes(ek_attn_scratch_bytes(d));
    f->parts = new_bytes(PART_ROWS * ek_attn_part_bytes(d));
}

static void teardown(struct fixture *f)
{
    ek_free(f->q);
    ek_free(f->out);
    ek_free(f->k);
    ek_free(f->v);
    ek_free(f->k_pool);
    ek_free(f->v_pool);
    ek_free(f->scratch);
    ek_free(f->parts);
}

static int64_t slot_of(const struct fixture *f, int64_t i, int64_t pos)
{
    int64_t P = f->d.page_tokens;
    return f->pages[i][pos / P] * P + pos % P;
}

/* Writes all tokens into the pools, and rounds f->k, f->v as the pools hold them. */
static void write_all(struct fixture *f, const struct ek_ops *ops)
{
    for (int64_t i = 0; i < f->n_seqs; i++) {
        int64_t len = f->seqs[i].pos0 + f->seqs[i].n_tokens, at = f->token0[i];
        int64_t *slot = new_bytes((size_t)len * sizeof *slot);
        for (int64_t t = 0; t < len; t++)
            slot[t] = slot_of(f, i, t);
        struct ek_kv_rows rows = {.k = f->k + at * f->ldk,
                                  .v = f->v + at * f->ldk,
                                  .ldk = f->ldk,
                                  .ldv = f->ldk,
                                  .slot = slot};
        ops->kv_write(f->k_pool, f->v_pool, &rows, 0, len / 2, &f->d);
        ops->kv_write(f->k_pool, f->v_pool, &rows, len / 2, len, &f->d);
        ek_free(slot);
        for (int64_t t = at; t < at + len; t++)
            for (int64_t c = 0; c < f->d.K * f->d.D; c++) {
                float *k = &f->k[t * f->ldk + c], *v = &f->v[t * f->ldk + c];
                int64_t h = c / f->d.D;
                *k = rounded(*k, f->d.kv_dtype, f->d.k_scale ? f->d.k_scale[h] : 1);
                *v = rounded(*v, f->d.kv_dtype, f->d.v_scale ? f->d.v_scale[h] : 1);
            }
    }
}

/* A batch of n of the fixture's sequences, or of others in its pools. */
static struct ek_attn_args args_of(const struct fixture *f,
                                   const struct ek_attn_seq *seqs, int64_t n)
{
    return (struct ek_attn_args){f->out, f->q,   f->k_pool, f->v_pool, &f->d,
                                 seqs,   f->ldo, f->ldq,    n,         f->parts};
}

/* Without splits, one item after the other. */
static void run_seqs(const struct fixture *f, const struct ek_ops *ops,
                     struct ek_attn_seq *seqs, int64_t n)
{
    int64_t n_items = ek_attn_cut(seqs, n, &f->d, 0, 0);
    struct ek_attn_args a = args_of(f, seqs, n);
    ops->attn(&a, 0, n_items, 1, f->scratch);
}

static void run_all(struct fixture *f, const struct ek_ops *ops)
{
    run_seqs(f, ops, f->seqs, f->n_seqs);
}

/* e4m3 keys meet a query rounded to bf16. */
static float query_of(const struct fixture *f, float q)
{
    return f->d.kv_dtype == EK_DTYPE_E4M3 ? ek_bf16_to_f32(ek_f32_to_bf16(q)) : q;
}

static double tolerance_of(const struct fixture *f)
{
    return f->d.kv_dtype == EK_DTYPE_E4M3 ? TOLERANCE_E4M3 : TOLERANCE;
}

/* Row `row` (position pos of sequence i), head h, in f64. */
static void expect_head(const struct fixture *f, int64_t i, int64_t row, int64_t pos,
                        int64_t h)
{
    int64_t D = f->d.D, kv = h / (f->d.H / f->d.K);
    int64_t first = f->d.window > 0 && pos >= f->d.window ? pos - f->d.window + 1 : 0;
    const float *q = f->q + row * f->ldq + h * D, *out = f->out + row * f->ldo + h * D;
    double s[1024], sum[256] = {0}, max = -HUGE_VAL, total = 0;
    for (int64_t j = first; j <= pos; j++) {
        const float *k = f->k + (f->token0[i] + j) * f->ldk + kv * D;
        s[j] = 0;
        for (int64_t c = 0; c < D; c++)
            s[j] += (double)query_of(f, q[c]) * (double)k[c];
        s[j] *= (double)f->d.scale;
        if (f->d.softcap > 0)
            s[j] = (double)f->d.softcap * tanh(s[j] / (double)f->d.softcap);
        max = s[j] > max ? s[j] : max;
    }
    for (int64_t j = first; j <= pos; j++) {
        double p = exp(s[j] - max);
        const float *v = f->v + (f->token0[i] + j) * f->ldk + kv * D;
        total += p;
        for (int64_t c = 0; c < D; c++)
            sum[c] += p * (double)v[c];
    }
    for (int64_t c = 0; c < D; c++)
        if (!(fabs((double)out[c] - sum[c] / total) <= tolerance_of(f)))
            fail_msg("D=%d H=%d K=%d P=%d window=%d pos=%ld head=%ld: %.8f, not %.8f",
                     f->d.D, f->d.H, f->d.K, f->d.page_tokens, f->d.window, (long)pos,
                     (long)h, (double)out[c], sum[c] / total);
}

static void expect_all(const struct fixture *f)
{
    for (int64_t i = 0; i < f->n_seqs; i++)
        for (int64_t t = 0; t < f->seqs[i].n_tokens; t++)
            for (int64_t h = 0; h < f->d.H; h++)
                expect_head(f, i, f->seqs[i].row0 + t, f->seqs[i].pos0 + t, h);
}

static const float k_scales[] = {0.5f, 0.25f, 1.5f}, v_scales[] = {2.0f, 0.125f, 0.3f};

static struct ek_attn_dims dims(int H, int K, int D, enum ek_dtype t)
{
    struct ek_attn_dims d = {.H = H, .K = K, .D = D, .page_tokens = 16, .kv_dtype = t};
    d.scale = 1.0f / sqrtf((float)D);
    if (t == EK_DTYPE_E4M3 && K <= 3) {
        d.k_scale = k_scales;
        d.v_scale = v_scales;
    }
    return d;
}

static const enum ek_dtype kv_dtypes[] = {EK_DTYPE_F32, EK_DTYPE_BF16, EK_DTYPE_E4M3};

/* A mixed batch: decode, a first chunk, a later chunk, nothing, a long decode. */
static const int lengths[] = {1, 37, 50, 20, 99}, queries[] = {1, 37, 19, 0, 1};

static void check_dims(const struct ek_ops *ops, const struct ek_attn_dims *d)
{
    struct fixture f;
    setup(&f, d, 5, lengths, queries, (uint64_t)(d->D * 31 + d->H));
    write_all(&f, ops);
    run_all(&f, ops);
    expect_all(&f);
    teardown(&f);
}

static void check_formula(const struct ek_ops *ops)
{
    static const int heads[][2] = {{3, 3}, {9, 3}, {4, 1}, {1, 1}};
    static const int head_dims[] = {1, 15, 20, 64, 80, 128, 256};
    for (size_t t = 0; t < COUNT(kv_dtypes); t++)
        for (size_t i = 0; i < COUNT(heads) * COUNT(head_dims); i++) {
            const int *hk = heads[i % COUNT(heads)];
            struct ek_attn_dims d =
                dims(hk[0], hk[1], head_dims[i / COUNT(heads)], kv_dtypes[t]);
            check_dims(ops, &d);
        }
}

static void agrees_with_the_formula_for_ratios_and_head_dims(void **state)
{
    (void)state;
    for_each_isa(check_formula);
}

static void check_options(const struct ek_ops *ops)
{
    static const int windows[] = {1, 7, 16, 17, 100}, pages[] = {16, 32, 48, 80};
    for (size_t i = 0; i < COUNT(windows) * COUNT(pages); i++) {
        struct ek_attn_dims d = dims(4, 2, 24, kv_dtypes[i % COUNT(kv_dtypes)]);
        d.window = windows[i % COUNT(windows)];
        d.page_tokens = pages[i / COUNT(windows)];
        d.scale *= 4;
        d.softcap = i % 2 ? 0.0f : 1.5f;
        check_dims(ops, &d);
    }
}

static void agrees_with_the_formula_for_windows_caps_and_page_sizes(void **state)
{
    (void)state;
    for_each_isa(check_options);
}

/* One sequence of 75 tokens: all at once, then in chunks of any size, then token by
 * token; each also item by item. */
static void check_chunks(const struct ek_ops *ops)
{
    for (size_t i = 0; i < 2 * COUNT(kv_dtypes); i++) {
        struct ek_attn_dims d = dims(6, 2, 80, kv_dtypes[i % COUNT(kv_dtypes)]);
        d.window = i < COUNT(kv_dtypes) ? 0 : 21;
        struct fixture f;
        int n = 75;
        setup(&f, &d, 1, &n, &n, 5);
        write_all(&f, ops);
        run_all(&f, ops);
        float *whole = new_floats(n * f.ldo);
        memcpy(whole, f.out, (size_t)(n * f.ldo) * sizeof *whole);
        for (int step = 1; step < n; step += 9) {
            memset(f.out, 0, (size_t)(n * f.ldo) * sizeof *f.out);
            for (int t = 0; t < n; t += step) {
                struct ek_attn_seq part = {
                    f.pages[0], t, n - t < step ? n - t : step, t, 0, 0, 0};
                struct ek_attn_args a = args_of(&f, &part, 1);
                for (int64_t it = ek_attn_cut(&part, 1, &d, 0, 0); it-- > 0;)
                    ops->attn(&a, it, it + 1, 1, f.scratch);
            }
            assert_memory_equal(whole, f.out, (size_t)(n * f.ldo) * sizeof *whole);
        }
        ek_free(whole);
        teardown(&f);
    }
}

/* Many pages, more heads a kv head than a group of rows holds, and tiles on
 * both sides of the number of rows from which a page is widened once. */
static void check_depth(const struct ek_ops *ops)
{
    static const int page_tokens[] = {16, 48, 80}, steps[] = {1, 2, 3, 40};
    for (size_t i = 0; i < COUNT(page_tokens) * COUNT(kv_dtypes); i++) {
        struct ek_attn_dims d = dims(6, 1, 72, kv_dtypes[i % COUNT(kv_dtypes)]);
        d.page_tokens = page_tokens[i / COUNT(kv_dtypes)];
        d.window = i % 2 ? 0 : 70;
        struct fixture f;
        int n = 170;
        setup(&f, &d, 1, &n, &n, 11);
        write_all(&f, ops);
        run_all(&f, ops);
        expect_all(&f);
        float *whole = new_floats(n * f.ldo);
        memcpy(whole, f.out, (size_t)(n * f.ldo) * sizeof *whole);
        for (size_t s = 0; s < COUNT(steps); s++)
            for (int t = 120; t < n; t += steps[s]) {
                int left = n - t < steps[s] ? n - t : steps[s];
                struct ek_attn_seq part = {f.pages[0], t, left, t, 0, 0, 0};
                memset(f.out + t * f.ldo, 0, (size_t)(left * f.ldo) * sizeof *f.out);
                run_seqs(&f, ops, &part, 1);
                for (int r = t; r < t + left; r++)
                    assert_memory_equal(whole + r * f.ldo, f.out + r * f.ldo,
                                        (size_t)(d.H * d.D) * sizeof *whole);
            }
        ek_free(whole);
        teardown(&f);
    }
}

static void deep_decode_and_small_chunks_give_the_bits_of_whole_prefill(void **state)
{
    (void)state;
    for_each_isa(check_depth);
}

static void chunks_and_decode_give_the_bits_of_whole_prefill(void **state)
{
    (void)state;
    for_each_isa(check_chunks);
}

/* Sequences across several spans: decode, chunks, one that fits in no span's bounds. */
static const int deep_lengths[] = {700, 530, 64, 256, 257, 300};
static const int deep_queries[] = {1, 20, 3, 1, 1, 14};

static void run_cut(struct fixture *f, const struct ek_ops *ops, int64_t want)
{
    int64_t n_items = ek_attn_cut(f->seqs, f->n_seqs, &f->d, want, PART_ROWS);
    struct ek_attn_args a = args_of(f, f->seqs, f->n_seqs);
    assert_true(n_items >= want || want > 100);
    for (int64_t it = n_items; it-- > 0;)
        ops->attn(&a, it, it + 1, 1, f->scratch);
    for (int64_t t = 0; t < f->rows; t++)
        ops->attn_merge(&a, t, t + 1, f->scratch);
}

/* Split into spans, items in any order, then merged; and every chunk again by decode. */
static void check_spans(const struct ek_ops *ops)
{
    for (size_t i = 0; i < 2 * COUNT(kv_dtypes); i++) {
        struct ek_attn_dims d = dims(6, 3, 40, kv_dtypes[i % COUNT(kv_dtypes)]);
        d.window = i < COUNT(kv_dtypes) ? 0 : 200;
        struct fixture f;
        setup(&f, &d, 6, deep_lengths, deep_queries, 21);
        write_all(&f, ops);
        run_all(&f, ops);
        expect_all(&f);
        float *whole = new_floats(f.rows * f.ldo);
        memcpy(whole, f.out, (size_t)(f.rows * f.ldo) * sizeof *whole);
        memset(f.out, 0, (size_t)(f.rows * f.ldo) * sizeof *whole);
        run_cut(&f, ops, 20); /* all kv heads of a decode sequence together */
        assert_memory_equal(whole, f.out, (size_t)(f.rows * f.ldo) * sizeof *whole);
        memset(f.out, 0, (size_t)(f.rows * f.ldo) * sizeof *whole);
        int64_t n_items = ek_attn_cut(f.seqs, f.n_seqs, &d, 1000, PART_ROWS);
        assert_int_equal(f.seqs[0].part0, 0);
        assert_int_equal(f.seqs[1].part0, -1); /* two tiles */
        assert_int_equal(f.seqs[2].part0, -1); /* one span */
        assert_int_equal(f.seqs[4].part0, 3 * 6);
        assert_int_equal(f.seqs[5].part0, (3 + 2) * 6);
        assert_int_equal(n_items, (3 + 2 + 1 + 1 + 2 + 2) * 3);
        run_cut(&f, ops, 1000);
        assert_memory_equal(whole, f.out, (size_t)(f.rows * f.ldo) * sizeof *whole);
        for (int64_t s = 0; s < f.n_seqs; s++)
            for (int t = 0; t < f.seqs[s].n_tokens; t++) {
                struct ek_attn_seq one = {
                    f.pages[s], f.seqs[s].pos0 + t, 1, f.seqs[s].row0 + t, 0, 0, 0};
                memset(f.out + one.row0 * f.ldo, 0, (size_t)f.ldo * sizeof *whole);
                run_seqs(&f, ops, &one, 1);
            }
        assert_memory_equal(whole, f.out, (size_t)(f.rows * f.ldo) * sizeof *whole);
        ek_free(whole);
        teardown(&f);
    }
}

static void spans_run_apart_give_the_bits_of_whole_sequences(void **state)
{
    (void)state;
    for_each_isa(check_spans);
}

/* Whoever does not fit into the parts stays whole; nothing is split that need not be. */
static void sequences_are_split_while_parts_last(void **state)
{
    (void)state;
    struct ek_attn_dims d = dims(4, 2, 16, EK_DTYPE_F32);
    struct ek_attn_seq seqs[3] = {{.pos0 = 599, .n_tokens = 1},
                                  {.pos0 = 2000, .n_tokens = 1},
                                  {.pos0 = 300, .n_tokens = 1}};
    static const int want[] = {0, 3, 4, 6, 7, 100}, items[] = {3, 3, 6, 6, 12, 12};
    for (size_t i = 0; i < COUNT(want); i++) {
        assert_int_equal(ek_attn_cut(seqs, 3, &d, want[i], 20), items[i]);
        assert_int_equal(seqs[0].part0, want[i] > 3 ? 0 : -1);
        assert_int_equal(seqs[1].part0, -1);
        assert_int_equal(seqs[2].part0, want[i] > 3 ? 12 : -1);
        assert_int_equal(seqs[0].n_heads, want[i] > 6 ? 1 : 2);
    }
}

static void check_batch(const struct ek_ops *ops)
{
    struct ek_attn_dims d = dims(9, 3, 64, EK_DTYPE_BF16);
    struct fixture f;
    setup(&f, &d, 5, lengths, queries, 77);
    write_all(&f, ops);
    run_all(&f, ops);
    float *whole = new_floats(f.rows * f.ldo);
    memcpy(whole, f.out, (size_t)(f.rows * f.ldo) * sizeof *whole);
    memset(f.out, 0, (size_t)(f.rows * f.ldo) * sizeof *f.out);
    for (int64_t i = 0; i < f.n_seqs; i++)
        run_seqs(&f, ops, &f.seqs[i], 1);
    assert_memory_equal(whole, f.out, (size_t)(f.rows * f.ldo) * sizeof *whole);
    ek_free(whole);
    teardown(&f);
}

static void a_sequence_has_the_same_bits_alone_and_in_a_batch(void **state)
{
    (void)state;
    for_each_isa(check_batch);
}

/* The same tokens in other pages: fixtures of two seeds shuffle pages differently, so
 * the pools are copied page by page into a reversed order. */
static void check_permutation(const struct ek_ops *ops)
{
    struct ek_attn_dims d = dims(4, 2, 20, EK_DTYPE_BF16);
    struct fixture f;
    setup(&f, &d, 5, lengths, queries, 3);
    write_all(&f, ops);
    run_all(&f, ops);
    float *before = new_floats(f.rows * f.ldo);
    memcpy(before, f.out, (size_t)(f.rows * f.ldo) * sizeof *before);
    size_t page = (size_t)(d.page_tokens * d.K * d.D) * 2;
    for (int64_t p = 0; p < f.n_pages / 2; p++)
        for (int side = 0; side < 2; side++) {
            char *pool = side ? f.v_pool : f.k_pool, tmp[16 * 2 * 20 * 2];
            char *a = pool + (size_t)p * page,
                 *b = pool + (size_t)(f.n_pages - 1 - p) * page;
            assert_int_equal(page, sizeof tmp);
            memcpy(tmp, a, page);
            memcpy(a, b, page);
            memcpy(b, tmp, page);
        }
    for (int64_t i = 0; i < f.n_seqs; i++)
        for (size_t p = 0; p < COUNT(f.pages[0]); p++)
            f.pages[i][p] = (int32_t)(f.n_pages - 1 - f.pages[i][p]);
    run_all(&f, ops);
    assert_memory_equal(before, f.out, (size_t)(f.rows * f.ldo) * sizeof *before);
    ek_free(before);
    teardown(&f);
}

static void the_place_of_pages_does_not_matter(void **state)
{
    (void)state;
    for_each_isa(check_permutation);
}

/* A NaN in a token must not reach earlier queries of the same tile, nor later ones whose
 * window has left it behind: tokens are multiplied in pairs, so both of a pair. */
static void check_future(const struct ek_ops *ops)
{
    for (size_t i = 0; i < 4 * COUNT(kv_dtypes); i++) {
        struct ek_attn_dims d = dims(4, 2, 16, kv_dtypes[i % COUNT(kv_dtypes)]);
        struct fixture f;
        int n = 100, bad = 70 + (int)(i / COUNT(kv_dtypes)) % 2;
        d.k_scale = d.v_scale = NULL;
        d.window = i < 2 * COUNT(kv_dtypes) ? 0 : 7;
        setup(&f, &d, 1, &n, &n, 9);
        for (int64_t c = 0; c < d.K * d.D; c++)
            f.v[bad * f.ldk + c] = f.k[bad * f.ldk + c] = NAN;
        write_all(&f, ops);
        run_all(&f, ops);
        for (int64_t t = 0; t < n; t++) {
            bool sees = t >= bad && (d.window == 0 || t < bad + d.window);
            for (int64_t c = 0; c < d.H * d.D; c++)
                assert_int_equal(isnan(f.out[t * f.ldo + c]) != 0, sees);
        }
        teardown(&f);
    }
}

static void a_token_that_is_not_seen_touches_no_query(void **state)
{
    (void)state;
    for_each_isa(check_future);
}

/* Every e4m3 code through the pools: with one key the output is the value itself. */
static void check_codes(const struct ek_ops *ops)
{
    struct ek_attn_dims d = dims(1, 1, 256, EK_DTYPE_E4M3);
    d.k_scale = d.v_scale = NULL;
    struct fixture f;
    int n = 1;
    setup(&f, &d, 1, &n, &n, 1);
    memset(f.k_pool, 0, 16 * 256);
    unsigned char *v = f.v_pool;
    int64_t at = f.pages[0][0] * (int64_t)(16 * 256);
    memset(f.k_pool, 0, (size_t)f.n_pages * 16 * 256);
    for (int c = 0; c < 256; c++)
        v[at + c] = (unsigned char)c;
    run_all(&f, ops);
    for (int c = 0; c < 256; c++) {
        float want = ek_e4m3_to_f32((uint8_t)c);
        assert_true(isnan(want) ? isnan(f.out[c]) : f.out[c] == want);
    }
    teardown(&f);
}

static void every_e4m3_code_is_read(void **state)
{
    (void)state;
    for_each_isa(check_codes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_formula_for_ratios_and_head_dims),
        cmocka_unit_test(agrees_with_the_formula_for_windows_caps_and_page_sizes),
        cmocka_unit_test(chunks_and_decode_give_the_bits_of_whole_prefill),
        cmocka_unit_test(deep_decode_and_small_chunks_give_the_bits_of_whole_prefill),
        cmocka_unit_test(spans_run_apart_give_the_bits_of_whole_sequences),
        cmocka_unit_test(sequences_are_split_while_parts_last),
        cmocka_unit_test(a_sequence_has_the_same_bits_alone_and_in_a_batch),
        cmocka_unit_test(the_place_of_pages_does_not_matter),
        cmocka_unit_test(a_token_that_is_not_seen_touches_no_query),
        cmocka_unit_test(every_e4m3_code_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
