/* graph.c - what a training step is made of: gemm's share of the peak, and block attention
 * fused with what goes before it.
 *
 *   bench_graph [--threads N] [--rounds N]
 *
 * Peak: FMA on registers alone (kernel/probe.h), measured in the same round. */
#include "base/clock.h"
#include "base/mem.h"
#include "graph/ops.h"
#include "kernel/gemm.h"
#include "kernel/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define D 64

struct gemm_bench {
    struct ek_gemm g;
    bool is_bf16;
    int n;
};

static float *floats(size_t n)
{
    float *p = ek_alloc_huge(n * sizeof(float));
    if (!p)
        exit(1);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(i % 17) * 0.01f;
    return p;
}

static void multiply(void *arg, int member, int n_members)
{
    const struct gemm_bench *b = arg;
    (void)n_members;
    struct ek_gemm g = b->g;
    g.a += member * (256 << 10);
    g.c += member * (256 << 10);
    const struct ek_gemm_ops *ops = ek_gemm_ops_get(ek_isa_best());
    for (int i = 0; i < b->n; i++)
        (b->is_bf16 ? ops->bf16 : ops->f32)(&g);
}

static void peak(void *arg, int member, int n_members)
{
    const struct gemm_bench *b = arg;
    (void)member;
    (void)n_members;
    ek_ops_get(ek_isa_best())
        ->probe_dot(b->is_bf16 ? EK_WEIGHT_BF16 : EK_WEIGHT_F32, 200000);
}

static double timed(struct ek_team *team, void (*fn)(void *, int, int), void *arg)
{
    int64_t start = ek_clock_us();
    ek_team_run(team, fn, arg);
    return (double)(ek_clock_us() - start) * 1e-6;
}

static void bench_gemm(struct ek_team *team, int rounds)
{
    static const int64_t shapes[][4] = {{96, 64, 64, 0},   {96, 256, 64, 0},
                                        {96, 64, 256, 0},  {256, 128, 64, 0},
                                        {32, 64, 1152, 1}, {96, 512, 512, 0}};
    float *a = floats(1 << 20), *b = floats(1 << 20), *c = floats(1 << 20);
    int members = ek_team_size(team);
    for (int k = 0; k < 12; k++) {
        const int64_t *s = shapes[k / 2];
        struct gemm_bench x = {.is_bf16 = k % 2,
                               .g = {.M = s[0],
                                     .N = s[1],
                                     .K = s[2],
                                     .am = s[3] ? 1 : s[2],
                                     .ak = s[3] ? s[0] : 1,
                                     .a = a,
                                     .b = b,
                                     .ldb = s[1],
                                     .c = c,
                                     .ldc = s[1]}};
        double flops = 2.0 * (double)(s[0] * s[1] * s[2]), best = 0, top = 0;
        x.n = (int)(2e8 / flops) + 1;
        double macs = (double)ek_ops_get(ek_isa_best())
                          ->probe_dot(x.is_bf16 ? EK_WEIGHT_BF16 : EK_WEIGHT_F32, 1);
        for (int r = 0; r < rounds; r++) {
            double t = timed(team, multiply, &x), p = timed(team, peak, &x);
            best = fmax(best, flops * x.n * members / t * 1e-9);
            top = fmax(top, 2 * macs * 200000 * members / p * 1e-9);
        }
        printf("gemm %s %4lld x %4lld x %4lld%s  %7.1f GFLOP/s  %5.2f of peak\n",
               x.is_bf16 ? "bf16" : "f32 ", (long long)s[0], (long long)s[1],
               (long long)s[2], s[3] ? " (dW)" : "     ", best, best / top);
    }
    ek_free(a);
    ek_free(b);
    ek_free(c);
}

/* --- block attention, fused and as three operations --------------------------------- */

enum { BLOCK_ROWS = 12800, BLOCK_SEQS = 64, HEADS = 4, WIDTH = HEADS * D };

struct block_bench {
    struct ek_params *params;
    struct ek_graph *g;
    double best;
};

static void open_block(struct block_bench *b, struct ek_team *team, bool is_bf16,
                       bool is_fused)
{
    static int64_t edges[BLOCK_SEQS + 1];
    static float places[BLOCK_ROWS];
    static float *x, *weights;
    struct ek_graph_options o = {
        .team = team, .isa = ek_isa_best(), .is_bf16 = is_bf16};
    b->best = 1e9;
    if (ek_params_new(&b->params, 1, NULL) || ek_graph_new(&b->g, b->params, &o, NULL))
        exit(1);
    struct ek_graph *g = b->g;
    int axis = ek_graph_axis(g, "rows", BLOCK_ROWS);
    int ends = ek_graph_axis(g, "edges", BLOCK_SEQS + 1);
    int in[] = {ek_graph_input(g, "x", axis, WIDTH, EK_DTYPE_F32),
                ek_graph_input(g, "places", axis, 1, EK_DTYPE_F32),
                ek_graph_input(g, "offsets", ends, 1, EK_DTYPE_I64),
                ek_graph_input(g, "weights", axis, WIDTH, EK_DTYPE_F32)};
    struct ek_param_spec spec = {.name = "w",
                                 .rows = WIDTH,
                                 .cols = 3 * WIDTH,
                                 .init = EK_INIT_UNIFORM,
                                 .scale = 0.05f};
    int w = ek_graph_param(g, &spec), y;
    if (is_fused) {
        struct ek_block block = {
            .heads = HEADS, .kv_heads = HEADS, .dim = D, .base = 10000};
        y = ek_block_attention(g, in[0], w, -1, in[1], in[2], &block);
    } else {
        int z = ek_rope(g, ek_linear(g, in[0], w, -1, EK_ACT_NONE), in[1], D, 10000);
        struct ek_attention a = {.heads = HEADS,
                                 .kv_heads = HEADS,
                                 .dim = D,
                                 .score = EK_JAGGED_SOFTMAX,
                                 .alpha = 1.0f / sqrtf(D),
                                 .scale = 1,
                                 .mask = {.block = 64},
                                 .out_axis = -1,
                                 .pos = -1,
                                 .time = -1,
                                 .t_query = -1,
                                 .t_key = -1,
                                 .seq_scale = -1,
                                 .targets = -1};
        y = ek_jagged_attention(
            g, ek_graph_columns(g, z, 0, WIDTH), ek_graph_columns(g, z, WIDTH, WIDTH),
            ek_graph_columns(g, z, 2 * WIDTH, WIDTH), in[2], in[2], &a);
    }
    ek_graph_loss(g, ek_inner(g, y, in[3]));
    if (ek_graph_plan(g, NULL) || ek_graph_set_axis(g, axis, BLOCK_ROWS) ||
        ek_graph_set_axis(g, ends, BLOCK_SEQS + 1))
        exit(1);
    for (int i = 0; i <= BLOCK_SEQS; i++) /* lengths from 6 to 394 */
        edges[i] = (int64_t)BLOCK_ROWS * i * (i + 1) / (BLOCK_SEQS * (BLOCK_SEQS + 1));
    for (int i = 0; i < BLOCK_ROWS; i++)
        places[i] = (float)(i % 400);
    x = x ? x : floats((size_t)BLOCK_ROWS * WIDTH);
    weights = weights ? weights : floats((size_t)BLOCK_ROWS * WIDTH);
    const void *p[] = {x, places, edges, weights};
    for (int i = 0; i < 4; i++)
        ek_graph_bind(g, in[i], p[i]);
}

static void bench_block(struct ek_team *team, int rounds, bool is_bf16)
{
    struct block_bench b[2]; /* composed, fused */
    for (int i = 0; i < 2; i++)
        open_block(&b[i], team, is_bf16, i);
    for (int r = 0; r < 2 * rounds; r++) {
        struct block_bench *k = &b[r % 2];
        int64_t start = ek_clock_us();
        ek_graph_forward(k->g, (uint64_t)r);
        ek_graph_backward(k->g, 1.0f);
        k->best = fmin(k->best, (double)(ek_clock_us() - start) * 1e-3);
    }
    printf("x W, rope, attention in blocks, %s, %d rows of %d x %d: %.2f ms composed, "
           "%.2f fused, %.2f x\n",
           is_bf16 ? "bf16" : "f32", BLOCK_ROWS, HEADS, D, b[0].best, b[1].best,
           b[0].best / b[1].best);
    for (int i = 0; i < 2; i++) {
        ek_graph_free(b[i].g);
        ek_params_free(b[i].params);
    }
}

int main(int argc, char **argv)
{
    struct ek_team *team = NULL;
    int threads = 0, rounds = 15;
    for (int i = 1; i + 1 < argc; i += 2)
        *(strcmp(argv[i], "--threads") == 0 ? &threads : &rounds) =
            (int)strtol(argv[i + 1], NULL, 10);
    if (ek_team_new(&team, threads, true, NULL))
        return 1;
    printf("%d threads\n", ek_team_size(team));
    bench_gemm(team, rounds);
    bench_block(team, rounds, false);
    bench_block(team, rounds, true);
    ek_team_free(team);
    return 0;
}
