/* attn.c - decode attention at depth: the best variant of this CPU against ref (one
 * thread) and against a streaming read of the same keys and values by as many threads,
 * interleaved in one run.
 *
 *   bench_attn [--rounds N] [--threads N] [--isa avx2] [--pages huge] [--only TEXT]
 *              [--json FILE]
 *
 * --pages huge: asks for 2 MiB pages of memory, which shows what the TLB costs.
 * --only: cases whose name has TEXT in it, such as qwen3_0.6b_e4m3.
 *
 * One query of each of many sequences, as many as fill the pools (96 MiB together, three
 * times an L3 of 32 MiB, pages shuffled), so that from depth 1024 on keys and values come
 * from memory. ref takes a few of the same sequences and is counted by the token.
 * GB/s: bytes of keys and values at the depth over the CPU time of the slowest thread. */
#include "args.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/team.h"
#include "kernel/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define POOL_BYTES  ((size_t)48 << 20) /* of K, and of V */
#define MAX_SEQS    512
#define MAX_THREADS 64
#define REF_TOKENS  8192 /* keys that ref takes */

struct shape {
    const char *name;
    int H, K, D;
};

static const struct shape shapes[] = {{"smollm2_135m", 9, 3, 64},
                                      {"qwen3_0.6b", 16, 8, 128}};
static const enum ek_dtype dtypes[] = {EK_DTYPE_F32, EK_DTYPE_BF16, EK_DTYPE_E4M3};
static const char *const dtype_names[] = {"f32", "bf16", "e4m3"};
static const int depths[] = {0, 1024, 4096};

struct bench {
    unsigned char *k, *v;   /* POOL_BYTES each */
    float *q, *out;         /* (MAX_SEQS, H*D) */
    unsigned char *scratch; /* of all threads */
    size_t scratch_bytes;   /* of one */
    struct ek_team *team;
    int32_t *pages; /* all pages, shuffled; sequences take runs of it */
    struct ek_attn_seq seqs[MAX_SEQS];
    struct ek_attn_dims d;
    int64_t n_seqs;
    const struct ek_ops *ours;
    struct bench_args args;
    uint64_t sink; /* keeps the streaming read alive */
};

/* Of this thread: other processes then cost a measurement less. */
static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Random values of kv dtype: no NaN, and magnitudes around 1. */
static void fill(unsigned char *pool, enum ek_dtype t, struct ek_rng *rng)
{
    size_t n = POOL_BYTES / ek_dtype_block_bytes(t);
    for (size_t i = 0; i < n; i++) {
        uint32_t r = (uint32_t)ek_rng_below(rng, 1u << 24);
        uint32_t f32 = 0x3f000000u | (r & 0x7fffffu) | (r >> 23 << 31);
        uint16_t bf16 = (uint16_t)(f32 >> 16);
        uint8_t e4m3 = (uint8_t)((r & 0x8f) | 0x30);
        if (t == EK_DTYPE_F32)
            memcpy(pool + 4 * i, &f32, sizeof f32);
        else if (t == EK_DTYPE_BF16)
            memcpy(pool + 2 * i, &bf16, sizeof bf16);
        else
            pool[i] = e4m3;
    }
}

static size_t bytes_a_token(const struct bench *b)
{
    return 2 * (size_t)(b->d.K * b->d.D) * ek_dtype_block_bytes(b->d.kv_dtype);
}

/* As many sequences at the depth as the pools hold. */
static void set_case(struct bench *b, int depth)
{
    int64_t P = b->d.page_tokens, n = (depth + 1 + P - 1) / P;
    int64_t n_pages = (int64_t)(2 * POOL_BYTES / bytes_a_token(b)) / P;
    b->n_seqs = n_pages / n < MAX_SEQS ? n_pages / n : MAX_SEQS;
    for (int64_t i = 0; i < b->n_seqs; i++)
        b->seqs[i] = (struct ek_attn_seq){
            .pages = b->pages + i * n, .pos0 = depth, .n_tokens = 1, .row0 = i};
}

static void set_format(struct bench *b, const struct shape *s, enum ek_dtype t)
{
    struct ek_rng rng;
    ek_rng_init(&rng, 1);
    b->d = (struct ek_attn_dims){
        .H = s->H, .K = s->K, .D = s->D, .page_tokens = 16, .kv_dtype = t};
    b->d.scale = 1.0f / sqrtf((float)s->D);
    fill(b->k, t, &rng);
    fill(b->v, t, &rng);
    for (int64_t i = 0; i < (int64_t)MAX_SEQS * s->H * s->D; i++)
        b->q[i] = (float)(ek_rng_uniform(&rng) * 2 - 1);
    int64_t n_pages = (int64_t)(2 * POOL_BYTES / bytes_a_token(b)) / 16;
    for (int32_t i = 0; i < n_pages; i++) {
        int32_t other = (int32_t)ek_rng_below(&rng, (uint64_t)i + 1);
        b->pages[i] = b->pages[other];
        b->pages[other] = i;
    }
}

struct work {
    struct bench *b;
    const struct ek_ops *ops;
    struct ek_attn_args args;
    int64_t n_items;
    uint64_t sum[MAX_THREADS];
    double cpu_s[MAX_THREADS];
};

/* Of the thread that took longest. */
static double slowest(const struct work *w)
{
    double s = 0;
    for (int i = 0; i < MAX_THREADS; i++)
        s = w->cpu_s[i] > s ? w->cpu_s[i] : s;
    return s;
}

static void attend_some(void *arg, int member, int n_members)
{
    struct work *w = arg;
    double start = cpu_s();
    w->ops->attn(&w->args, member, w->n_items, n_members,
                 w->b->scratch + (size_t)member * w->b->scratch_bytes);
    w->cpu_s[member] = cpu_s() - start;
}

/* Seconds a key with its value, all kv heads. */
static double attend(struct bench *b, const struct ek_ops *ops, int64_t n_seqs,
                     bool by_team)
{
    int64_t ld = (int64_t)b->d.H * b->d.D;
    struct work w = {
        .b = b, .ops = ops, .n_items = ek_attn_cut(b->seqs, n_seqs, &b->d, 0, 0)};
    w.args = (struct ek_attn_args){b->out,  b->q, b->k, b->v,   &b->d,
                                   b->seqs, ld,   ld,   n_seqs, NULL};
    if (by_team)
        ek_team_run(b->team, attend_some, &w);
    else
        attend_some(&w, 0, 1);
    return slowest(&w) / (double)(n_seqs * (b->seqs[0].pos0 + 1));
}

static void stream_some(void *arg, int member, int n_members)
{
    struct work *w = arg;
    uint64_t sum[8] = {0};
    int64_t lo, hi;
    double start = cpu_s();
    ek_team_share(&lo, &hi, POOL_BYTES, 4096, member, n_members);
    for (int side = 0; side < 2; side++)
        for (int64_t i = lo; i < hi; i += 64) {
            uint64_t x[8];
            memcpy(x, (side ? w->b->v : w->b->k) + i, sizeof x);
            for (int j = 0; j < 8; j++)
                sum[j] += x[j];
        }
    for (int j = 0; j < 8; j++)
        w->sum[member] += sum[j];
    w->cpu_s[member] = cpu_s() - start;
}

/* Bytes a second of reading both pools from end to end. */
static double stream(struct bench *b)
{
    struct work w = {.b = b};
    ek_team_run(b->team, stream_some, &w);
    double s = slowest(&w);
    for (int j = 0; j < b->args.n_threads; j++)
        b->sink += w.sum[j];
    return 2.0 * (double)POOL_BYTES / s;
}

static void print_json(FILE *json, const char *name, const char *kind, double ours,
                       double peer, const double *ratio, int n, double must, double aim)
{
    fprintf(json,
            "{\"name\":\"attn_decode_%s_%s\",\"ours\":%.3f,\"peer\":%.3f,"
            "\"unit\":\"GB/s\",\"ratio\":%.3f,\"low\":%.3f,\"high\":%.3f,"
            "\"must\":%.2f,\"aim\":%.2f}\n",
            name, kind, ours, peer, ratio[n / 2], ratio[n / 10], ratio[n - 1 - n / 10],
            must, aim);
}

static void measure(struct bench *b, const char *name)
{
    const struct ek_ops *ref = ek_ops_get(EK_ISA_REF);
    double ours[BENCH_MAX_ROUNDS], plain[BENCH_MAX_ROUNDS], read[BENCH_MAX_ROUNDS],
        of_ref[BENCH_MAX_ROUNDS], of_read[BENCH_MAX_ROUNDS],
        bytes = (double)bytes_a_token(b);
    int64_t n_ref = REF_TOKENS / (b->seqs[0].pos0 + 1);
    n_ref = n_ref < 1 ? 1 : n_ref < b->n_seqs ? n_ref : b->n_seqs;
    for (int i = 0; i < b->args.n_rounds; i++) {
        read[i] = stream(b) / 1e9;
        ours[i] = bytes / attend(b, b->ours, b->n_seqs, true) / 1e9;
        plain[i] = bytes / attend(b, ref, n_ref, false) / 1e9;
        of_ref[i] = ours[i] / plain[i];
        of_read[i] = ours[i] / read[i];
    }
    size_t n = (size_t)b->args.n_rounds, mid = n / 2, low = n / 10,
           high = n - 1 - n / 10;
    double *lists[] = {ours, plain, read, of_ref, of_read};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        bench_sort(lists[i], n);
    printf("%-24s %7.2f %7.2f %7.2f   %7.2f %7.2f   %6.1f (%.1f to %.1f)   %5.2f (%.2f "
           "to %.2f)\n",
           name, ours[0], ours[mid], ours[n - 1], plain[mid], read[mid], of_ref[mid],
           of_ref[low], of_ref[high], of_read[mid], of_read[low], of_read[high]);
    fflush(stdout);
    if (b->args.json) {
        print_json(b->args.json, name, "ref", ours[mid], plain[mid], of_ref,
                   b->args.n_rounds, 1, 10);
        print_json(b->args.json, name, "stream", ours[mid], read[mid], of_read,
                   b->args.n_rounds, 0, 0.85);
    }
}

static void measure_all(struct bench *b)
{
    printf(
        "%d threads, %d rounds, %s, GB/s of keys and values: min, median, max; ref; a "
        "streaming read; ratios' median and 10%% to 90%%\n%-24s %23s   %7s %7s   %s\n",
        b->args.n_threads, b->args.n_rounds, ek_isa_name(b->ours->isa), "", "ours",
        "ref", "read", "ours/ref, ours/read");
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++) {
            set_format(b, &shapes[s], dtypes[t]);
            for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
                char name[64];
                snprintf(name, sizeof name, "%s_%s_%d", shapes[s].name, dtype_names[t],
                         depths[i]);
                set_case(b, depths[i]);
                if (!b->args.only || strstr(name, b->args.only))
                    measure(b, name);
            }
        }
}

static bool reserve(struct bench *b)
{
    if (ek_team_new(&b->team, b->args.n_threads, true, NULL))
        return false;
    const struct ek_attn_dims most = {
        .H = 16, .K = 3, .D = 128, .page_tokens = 16, .kv_dtype = EK_DTYPE_F32};
    b->k = ek_alloc_aligned((size_t)2 << 20, POOL_BYTES);
    b->v = ek_alloc_aligned((size_t)2 << 20, POOL_BYTES);
    b->q = ek_alloc_aligned(64, (size_t)MAX_SEQS * 2048 * sizeof(float));
    b->out = ek_alloc_aligned(64, (size_t)MAX_SEQS * 2048 * sizeof(float));
    b->scratch_bytes = ek_attn_scratch_bytes(&most);
    b->scratch = ek_alloc_aligned(64, (size_t)b->args.n_threads * b->scratch_bytes);
    /* the smallest page of a case: e4m3, 3 heads of 64 */
    b->pages = ek_alloc_array(POOL_BYTES / ((size_t)16 * 3 * 64), sizeof *b->pages);
    return b->k && b->v && b->q && b->out && b->scratch && b->pages;
}

static void release(struct bench *b)
{
    ek_team_free(b->team);
    ek_free(b->k);
    ek_free(b->v);
    ek_free(b->q);
    ek_free(b->out);
    ek_free(b->scratch);
    ek_free(b->pages);
}

static int usage(void)
{
    fprintf(stderr,
            "usage: bench_attn [--rounds N] [--threads N] [--isa avx2] [--pages huge] "
            "[--only TEXT] [--json FILE]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static struct bench b;
    b.args = (struct bench_args){.n_rounds = 7,
                                 .n_threads = 1,
                                 .max_threads = MAX_THREADS,
                                 .takes_cases = true,
                                 .flag = "--pages",
                                 .flag_value = "huge"};
    if (!bench_take(&b.args, argc, argv) || b.args.n_threads < 1 ||
        (b.args.is_avx2 && ek_isa_best() < EK_ISA_AVX2))
        return usage();
    b.ours = ek_ops_get(b.args.is_avx2 ? EK_ISA_AVX2 : ek_isa_best());
    int status = 1;
    if (!reserve(&b)) {
        fprintf(stderr, "bench_attn: out of memory\n");
        goto out;
    }
    if (b.args.has_flag && (madvise(b.k, POOL_BYTES, MADV_HUGEPAGE) ||
                            madvise(b.v, POOL_BYTES, MADV_HUGEPAGE)))
        perror("bench_attn: --pages huge");
    measure_all(&b);
    if (b.args.json && fclose(b.args.json)) {
        perror("bench_attn: --json");
        goto out;
    }
    status = 0;
out:
    release(&b);
    return status;
}
