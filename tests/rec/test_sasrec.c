/* test_sasrec.c - sasrec against its formulas in float64, one position at a time. */
#include "reckit.h"

#define BLOCKS 2

/* One sequence; xs (L, D) in place. */
static void block(struct reckit *k, double (*x)[MAX_D], int64_t L, const char *part)
{
    const int64_t D = k->c.dim, H = k->c.heads, d = D / H;
    double q_in[MAX_T][MAX_D], q[MAX_T][MAX_D], kv[MAX_T][2 * MAX_D], z[MAX_D];
    for (int64_t t = 0; t < L; t++) {
        rk_norm(q_in[t], x[t], rk_weight(k, part, "attention.norm.gain"),
                rk_weight(k, part, "attention.norm.bias"), D, 1e-8);
        rk_linear(q[t], q_in[t], rk_weight(k, part, "attention.q"),
                  rk_weight(k, part, "attention.q.bias"), D, D);
        rk_linear(kv[t], x[t], rk_weight(k, part, "attention.kv"),
                  rk_weight(k, part, "attention.kv.bias"), D, 2 * D);
    }
    for (int64_t t = 0; t < L; t++) {
        double o[MAX_D] = {0}, y[MAX_D], up[2 * MAX_D], down[MAX_D];
        for (int64_t h = 0; h < H; h++) {
            double sum = 0, p[MAX_T];
            for (int64_t j = 0; j <= t; j++) {
                double s = 0;
                for (int64_t i = 0; i < d; i++)
                    s += q[t][h * d + i] * kv[j][h * d + i];
                sum += p[j] = exp(s / sqrt((double)d));
            }
            for (int64_t j = 0; j <= t; j++)
                for (int64_t i = 0; i < d; i++)
                    o[h * d + i] += p[j] / sum * kv[j][D + h * d + i];
        }
        rk_linear(y, o, rk_weight(k, part, "attention.out"),
                  rk_weight(k, part, "attention.out.bias"), D, D);
        for (int64_t i = 0; i < D; i++)
            y[i] += q_in[t][i];
        rk_norm(z, y, rk_weight(k, part, "ffn.norm.gain"),
                rk_weight(k, part, "ffn.norm.bias"), D, 1e-8);
        rk_linear(up, z, rk_weight(k, part, "ffn.up"),
                  rk_weight(k, part, "ffn.up.bias"), D, k->c.ffn);
        for (int64_t i = 0; i < k->c.ffn; i++)
            up[i] = up[i] > 0 ? up[i] : 0;
        rk_linear(down, up, rk_weight(k, part, "ffn.down"),
                  rk_weight(k, part, "ffn.down.bias"), k->c.ffn, D);
        for (int64_t i = 0; i < D; i++)
            x[t][i] = z[i] + down[i];
    }
}

/* Largest distance of h from the reference. */
static double distance(struct reckit *k)
{
    const float *h = rk_h(k);
    double far = 0;
    for (int64_t b = 0; b < k->b.B; b++) {
        double x[MAX_T][MAX_D], want[MAX_D];
        int64_t first = k->offsets[b], L = k->offsets[b + 1] - first;
        for (int64_t t = 0; t < L; t++)
            rk_embed(k, x[t], first + t, t);
        block(k, x, L, "block0");
        block(k, x, L, "block1");
        for (int64_t t = 0; t < L; t++) {
            double norm = 0;
            rk_norm(want, x[t], rk_weight(k, "output", "norm.gain"),
                    rk_weight(k, "output", "norm.bias"), k->c.dim, 1e-8);
            for (int64_t i = 0; i < k->c.dim; i++)
                norm += want[i] * want[i];
            for (int64_t i = 0; i < k->c.dim; i++) {
                double w = k->c.is_cosine ? want[i] / sqrt(norm) : want[i];
                far = fmax(far, fabs(w - (double)h[(first + t) * k->c.dim + i]));
            }
        }
    }
    return far;
}

static void h_is_what_the_formulas_say(void **state)
{
    (void)state;
    for (int cosine = 0; cosine < 2; cosine++)
        for (int heads = 1; heads <= 4; heads *= 2) {
            struct reckit k;
            struct ek_rec_config c = rk_config(EK_REC_SASREC);
            c.is_cosine = cosine;
            c.heads = heads;
            c.blocks = BLOCKS;
            rk_open(&k, &c, (struct frame_how){0});
            rk_forward(&k);
            double far = distance(&k);
            if (!(far < 2e-5))
                fail_msg("%d heads, cosine %d: %.3g away", heads, cosine, far);
            rk_close(&k);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h_is_what_the_formulas_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
