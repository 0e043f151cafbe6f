/* simulate_measure.c - every policy over every seed: means, their standard errors, and
 * each against the best of the peers. */
#include "base/mem.h"
#include "route/simulate.h"

#include <math.h>

static struct ek_sim_mean mean_of(const double *x, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    double error = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : 0;
    return (struct ek_sim_mean){mean, error};
}

enum { PEAK = EK_SIM_PHASES, REFUSED, MISPLACED, N_FIGURES };

static double figure(const struct ek_sim_result *r, int f)
{
    return f < EK_SIM_PHASES ? r->overloaded[f]
           : f == PEAK       ? r->peak
           : f == REFUSED    ? r->refused
                             : r->misplaced;
}

static struct ek_sim_mean *place(struct ek_sim_row *row, int f)
{
    return f < EK_SIM_PHASES ? &row->overloaded[f]
           : f == PEAK       ? &row->peak
           : f == REFUSED    ? &row->refused
                             : &row->misplaced;
}

static void sum_up(struct ek_sim_row *row, const struct ek_sim_result *results,
                   size_t n)
{
    double x[100];
    for (int f = 0; f < N_FIGURES; f++) {
        for (size_t i = 0; i < n; i++)
            x[i] = figure(&results[i], f);
        *place(row, f) = mean_of(x, n);
    }
}

static int find_best_peer(const struct ek_sim_table *t, int phase)
{
    int best = -1;
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct ek_sim_row *row = &t->rows[i];
        if (row->policy.is_peer &&
            (best < 0 ||
             row->overloaded[phase].mean < t->rows[best].overloaded[phase].mean))
            best = (int)i;
    }
    return best;
}

static int find_oracle(const struct ek_sim_table *t)
{
    for (size_t i = 0; i < t->n_rows; i++) {
        if (t->rows[i].policy.rule == EK_SIM_ORACLE)
            return (int)i;
    }
    return -1;
}

/* The error of a ratio of two means from the pairs of each seed (delta method). */
static struct ek_sim_mean ratio_of(const struct ek_sim_result *a,
                                   const struct ek_sim_result *b, size_t n, int phase)
{
    double rest[100], sum_a = 0, sum_b = 0;
    for (size_t i = 0; i < n; i++) {
        sum_a += a[i].overloaded[phase];
        sum_b += b[i].overloaded[phase];
    }
    if (sum_b <= 0)
        return (struct ek_sim_mean){(double)NAN, (double)NAN};
    double ratio = sum_a / sum_b;
    for (size_t i = 0; i < n; i++)
        rest[i] = a[i].overloaded[phase] - ratio * b[i].overloaded[phase];
    double error = mean_of(rest, n).error * (double)n / sum_b;
    return (struct ek_sim_mean){ratio, error};
}

static void compare(struct ek_sim_table *t, const struct ek_sim_result *all, size_t n)
{
    int oracle = find_oracle(t);
    for (int k = 0; k < EK_SIM_PHASES; k++) {
        int peer = t->best_peer[k] = find_best_peer(t, k);
        for (size_t i = 0; i < t->n_rows; i++) {
            struct ek_sim_row *row = &t->rows[i];
            row->ratio[k] = (struct ek_sim_mean){(double)NAN, (double)NAN};
            row->gap[k] = (double)NAN;
            if (peer < 0)
                continue;
            row->ratio[k] = ratio_of(all + i * n, all + (size_t)peer * n, n, k);
            double best = t->rows[peer].overloaded[k].mean;
            if (oracle >= 0)
                row->gap[k] = (best - row->overloaded[k].mean) /
                              (best - t->rows[oracle].overloaded[k].mean);
        }
    }
}

int ek_sim_measure(struct ek_sim_table *t, const struct ek_sim *s,
                   void (*on_run)(void *arg, int64_t n_done, int64_t n_runs), void *arg,
                   struct ek_err *err)
{
    size_t n = (size_t)s->seeds;
    struct ek_sim_result *all = ek_calloc(s->policies.n * n, sizeof *all);
    int rc = all ? 0 : ek_err_set(err, EK_ENOMEM, "out of memory");
    *t = (struct ek_sim_table){.n_rows = s->policies.n};
    for (size_t i = 0; !rc && i < t->n_rows; i++) {
        (void)ek_sim_policy_find(&t->rows[i].policy, s->policies.items[i]);
        for (size_t k = 0; !rc && k < n; k++) {
            rc = ek_sim_run(&all[i * n + k], NULL, s, &t->rows[i].policy,
                            (uint64_t)s->seed + k, err);
            if (!rc && on_run)
                on_run(arg, (int64_t)(i * n + k + 1), (int64_t)(t->n_rows * n));
        }
        if (!rc)
            sum_up(&t->rows[i], all + i * n, n);
    }
    if (!rc)
        compare(t, all, n);
    ek_free(all);
    return rc;
}
