/* simulate_out.c - the table for a terminal and as JSON. */
#include "base/json.h"
#include "route/simulate.h"

#include <math.h>

static const char *const phases[EK_SIM_PHASES] = {"steady", "scale_out", "loss"};

static int add_mean(struct ek_buf *out, const char *name, const struct ek_sim_mean *m)
{
    int rc = ek_buf_addf(out, ", \"%s\": {\"mean\": ", name);
    if (!rc)
        rc = ek_json_add_double(out, m->mean);
    if (!rc)
        rc = ek_buf_add_str(out, ", \"error\": ");
    if (!rc)
        rc = ek_json_add_double(out, m->error);
    return rc ? rc : ek_buf_add_char(out, '}');
}

static int add_phase(struct ek_buf *out, const struct ek_sim_row *row, int k)
{
    int rc = ek_buf_addf(out, ", \"%s\": {\"phase\": %d", phases[k], k + 1);
    if (!rc)
        rc = add_mean(out, "overloaded", &row->overloaded[k]);
    if (!rc && isfinite(row->ratio[k].mean))
        rc = add_mean(out, "ratio_to_best_peer", &row->ratio[k]);
    if (!rc && isfinite(row->gap[k])) {
        rc = ek_buf_add_str(out, ", \"gap_closed\": ");
        rc = rc ? rc : ek_json_add_double(out, row->gap[k]);
    }
    return rc ? rc : ek_buf_add_char(out, '}');
}

static int add_row(struct ek_buf *out, const struct ek_sim_row *row)
{
    int rc = ek_buf_addf(out, "{\"policy\": \"%s\", \"is_peer\": %s", row->policy.name,
                         row->policy.is_peer ? "true" : "false");
    for (int k = 0; !rc && k < EK_SIM_PHASES; k++)
        rc = add_phase(out, row, k);
    if (!rc)
        rc = add_mean(out, "peak", &row->peak);
    if (!rc)
        rc = add_mean(out, "refused", &row->refused);
    if (!rc)
        rc = add_mean(out, "misplaced", &row->misplaced);
    return rc ? rc : ek_buf_add_char(out, '}');
}

int ek_sim_json(struct ek_buf *out, const struct ek_sim *s,
                const struct ek_sim_table *t)
{
    int rc = ek_buf_add_str(out, "{\"scenario\": {");
    for (const struct ek_opt *o = ek_sim_keys; !rc && o->name; o++) {
        rc = ek_buf_addf(out, "%s\"%s\": ", o == ek_sim_keys ? "" : ", ", o->name);
        if (!rc)
            rc = ek_opt_value_json(out, o, s);
    }
    if (!rc)
        rc = ek_buf_add_str(out, "}, \"rows\": [");
    for (size_t i = 0; !rc && i < t->n_rows; i++) {
        rc = i ? ek_buf_add_str(out, ", ") : 0;
        if (!rc)
            rc = add_row(out, &t->rows[i]);
    }
    return rc ? rc : ek_buf_add_str(out, "]}\n");
}

static int text_row(struct ek_buf *out, const struct ek_sim_row *row)
{
    int rc = ek_buf_addf(out, "%-20s", row->policy.name);
    for (int k = 0; !rc && k < EK_SIM_PHASES; k++)
        rc = ek_buf_addf(out, " %6.2f +-%5.2f", 100 * row->overloaded[k].mean,
                         100 * row->overloaded[k].error);
    if (!rc)
        rc = ek_buf_addf(out, " %6.2f %7.2f %9.2f ", row->peak.mean,
                         100 * row->refused.mean, 100 * row->misplaced.mean);
    for (int k = 0; !rc && k < EK_SIM_PHASES && isfinite(row->ratio[k].mean); k++)
        rc = ek_buf_addf(out, " %6.3f", row->ratio[k].mean);
    return rc ? rc : ek_buf_add_char(out, '\n');
}

static int text_foot(struct ek_buf *out, const struct ek_sim_table *t)
{
    int rc = 0;
    for (int k = 0; !rc && k < EK_SIM_PHASES; k++) {
        if (t->best_peer[k] < 0 || !isfinite(t->rows[0].ratio[k].mean))
            continue;
        const struct ek_sim_row *row = &t->rows[0];
        rc = ek_buf_addf(out, "%s: best peer %s; %s is %.3f +-%.3f of it", phases[k],
                         t->rows[t->best_peer[k]].policy.name, row->policy.name,
                         row->ratio[k].mean, row->ratio[k].error);
        if (!rc && isfinite(row->gap[k]))
            rc = ek_buf_addf(out, ", %.0f %% of the way to the oracle",
                             100 * row->gap[k]);
        if (!rc)
            rc = ek_buf_add_char(out, '\n');
    }
    return rc;
}

int ek_sim_text(struct ek_buf *out, const struct ek_sim *s,
                const struct ek_sim_table *t)
{
    int rc = ek_buf_addf(
        out,
        "session-time at overloaded backends, %% (+- standard error, %lld seeds)\n"
        "%-20s %14s %14s %14s %6s %7s %9s  / best peer\n",
        (long long)s->seeds, "policy", "steady", "scale-out", "loss", "peak", "refused",
        "misplaced");
    for (size_t i = 0; !rc && i < t->n_rows; i++)
        rc = text_row(out, &t->rows[i]);
    return rc ? rc : text_foot(out, t);
}
