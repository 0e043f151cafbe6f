/* peak.c - the denominator of MFU, measured in the run that it is about: the same probe
 * as `keel bench kernel --peak`. */
#include "base/clock.h"
#include "kernel/ops.h"
#include "train/run_int.h"

#define SECONDS   0.01 /* of one repetition */
#define REPEATS   5
#define N_MEMBERS 1024

struct probe {
    const struct ek_ops *ops;
    enum ek_weight_format format;
    int64_t rounds;
    int64_t done[N_MEMBERS]; /* multiply-adds */
};

static void dot_share(void *arg, int member, int n_members)
{
    struct probe *p = arg;
    (void)n_members;
    if (member < N_MEMBERS)
        p->done[member] = p->ops->probe_dot(p->format, p->rounds);
}

static double run(struct probe *p, struct ek_team *team)
{
    int64_t start = ek_clock_us();
    ek_team_run(team, dot_share, p);
    return (double)(ek_clock_us() - start) / 1e6;
}

double ek_train_peak(struct ek_team *team, enum ek_isa isa, bool is_bf16)
{
    struct probe p = {.ops = ek_ops_get(isa),
                      .format = is_bf16 ? EK_WEIGHT_BF16 : EK_WEIGHT_F32,
                      .rounds = 1000};
    double best = 0;
    while (run(&p, team) < SECONDS)
        p.rounds *= 2;
    for (int r = 0; r < REPEATS; r++) {
        double s = run(&p, team), sum = 0;
        for (int i = 0; i < ek_team_size(team) && i < N_MEMBERS; i++)
            sum += 2.0 * (double)p.done[i];
        if (s > 0 && sum / s > best)
            best = sum / s;
    }
    return best;
}
