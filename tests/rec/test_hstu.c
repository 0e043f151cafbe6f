/* test_hstu.c - hstu against its formulas in float64, one position at a time. */
#include "reckit.h"

#define EXTRA 11 /* rows that the published code pads with */

/* min(floor(ln(max(|d|, 1)) / 0.301), 128) of seconds. */
static int bucket(int64_t d)
{
    double x = fabs((double)d);
    return (int)fmin(floor(log(x < 1 ? 1 : x) / 0.301), 128);
}

static double score(struct reckit *k, const char *part, int64_t first, int64_t L,
                    int64_t i, int64_t j)
{
    int64_t N = k->c.max_length + EXTRA;
    double s = (double)rk_weight(k, part, "bias.position")[N - 1 + j - i];
    if (!k->c.has_times)
        return s;
    int64_t next = k->b.next_times ? k->next_times[first + i]
                   : i + 1 < L     ? k->times[first + i + 1]
                                   : k->times[first + i];
    return s + (double)rk_weight(
                   k, part,
                   "bias.time")[bucket(next / 1000000 - k->times[first + j] / 1000000)];
}

static void block(struct reckit *k, double (*x)[MAX_D], int64_t first, int64_t L,
                  const char *part)
{
    const int64_t D = k->c.dim, H = k->c.heads, d = k->c.dim_v ? k->c.dim_v : D / H;
    const int64_t V = H * d, N = k->c.max_length + EXTRA;
    const double n = k->c.norm == EK_REC_LENGTH ? (double)L : (double)N;
    double all[MAX_T][4 * 2 * MAX_D];
    for (int64_t t = 0; t < L; t++) {
        double in[MAX_D];
        rk_norm(in, x[t], NULL, NULL, D, 1e-6);
        rk_linear(all[t], in, rk_weight(k, part, "uvqk"), NULL, D, 4 * V);
        for (int64_t i = 0; i < 4 * V; i++)
            all[t][i] = rk_silu(all[t][i]);
    }
    for (int64_t t = 0; t < L; t++) {
        double o[2 * MAX_D] = {0}, y[2 * MAX_D], out[MAX_D];
        for (int64_t h = 0; h < H; h++)
            for (int64_t j = 0; j <= t; j++) {
                double s = score(k, part, first, L, t, j);
                for (int64_t i = h * d; i < (h + 1) * d; i++)
                    s += all[t][2 * V + i] * all[j][3 * V + i];
                for (int64_t i = h * d; i < (h + 1) * d; i++)
                    o[i] += rk_silu(s) / n * all[j][V + i];
            }
        rk_norm(y, o, NULL, NULL, V, 1e-6);
        for (int64_t i = 0; i < V; i++)
            y[i] *= all[t][i];
        rk_linear(out, y, rk_weight(k, part, "out"), rk_weight(k, part, "out.bias"), V,
                  D);
        for (int64_t i = 0; i < D; i++)
            x[t][i] += out[i];
    }
}

static double distance(struct reckit *k)
{
    const float *h = rk_h(k);
    double far = 0;
    for (int64_t b = 0; b < k->b.B; b++) {
        double x[MAX_T][MAX_D];
        int64_t first = k->offsets[b], L = k->offsets[b + 1] - first;
        for (int64_t t = 0; t < L; t++)
            rk_embed(k, x[t], first + t, t);
        block(k, x, first, L, "block0");
        block(k, x, first, L, "block1");
        for (int64_t t = 0; t < L; t++) {
            double norm = 0;
            for (int64_t i = 0; i < k->c.dim; i++)
                norm += x[t][i] * x[t][i];
            for (int64_t i = 0; i < k->c.dim; i++) {
                double w = k->c.is_cosine ? x[t][i] / sqrt(norm) : x[t][i];
                far = fmax(far, fabs(w - (double)h[(first + t) * k->c.dim + i]));
            }
        }
    }
    return far;
}

static void h_is_what_the_formulas_say(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        struct reckit k;
        struct ek_rec_config c = rk_config(EK_REC_HSTU);
        c.is_cosine = i & 1;
        c.has_times = i & 2;
        c.norm = i & 4 ? EK_REC_LENGTH : EK_REC_CEILING;
        c.heads = i & 8 ? 4 : 2;
        c.dim_qk = c.dim_v = i & 8 ? 5 : 0;
        rk_open(&k, &c, (struct frame_how){0});
        for (int told = 0; told < 2; told++) {
            k.b.next_times = told ? k.next_times : NULL;
            rk_forward(&k);
            double far = distance(&k);
            if (!(far < 2e-5))
                fail_msg("variant %d, next times %s: %.3g away", i,
                         told ? "told" : "not told", far);
        }
        rk_close(&k);
    }
}

/* Deviation of a parameter's initial values. */
static double deviation(struct reckit *k, const char *part, const char *name, int64_t n)
{
    const float *w = rk_weight(k, part, name);
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)w[i];
        square += (double)w[i] * (double)w[i];
    }
    return sqrt(square / (double)n - sum / (double)n * sum / (double)n);
}

static void parameters_begin_as_published(void **state)
{
    (void)state;
    struct reckit k;
    struct ek_rec_config c = rk_config(EK_REC_HSTU);
    c.dim = 128;
    c.max_length = 200;
    c.has_times = true;
    rk_open(&k, &c, (struct frame_how){.keeps_init = true});
    const struct {
        const char *part, *name;
        int64_t n;
        double want;
    } all[] = {
        {"block0", "uvqk", 128 * 512, 0.02},
        {"block0", "bias.position", 2 * 211 - 1, 0.02},
        {"block1", "bias.time", 129, 0.02},
        {"block0", "out", 128 * 128, sqrt(6.0 / 256) / sqrt(3.0)},
        {"block0", "out.bias", 128, 1 / sqrt(128.0) / sqrt(3.0)},
        {"", "positions", 211 * 128, sqrt(2.0 / (211 + 128))},
        {"", "items", N_ITEMS * 128, 0.0176}, /* 0.02, cut at two deviations */
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        double got = deviation(&k, all[i].part, all[i].name, all[i].n);
        double room = 4 / sqrt((double)all[i].n);
        if (!(fabs(got / all[i].want - 1) < room))
            fail_msg("%s: deviation %.4f, expected %.4f", all[i].name, got,
                     all[i].want);
    }
    rk_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h_is_what_the_formulas_say),
        cmocka_unit_test(parameters_begin_as_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
