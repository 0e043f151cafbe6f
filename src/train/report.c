/* report.c - MFU by its definitions, and what a run came to, as lines for a person. */
#include "train/run_int.h"

#include <inttypes.h>
#include <math.h>

_Static_assert(EK_TRAIN_ENTROPY == 3 * EK_EVAL_CUTS, "metrics of ranking come first");

const char *ek_train_metric_name(char out[24], const struct ek_train_config *c)
{
    static const char *const names[] = {"ndcg", "recall", "mrr"};
    int metric = c->eval.metric;
    if (metric >= EK_TRAIN_ENTROPY)
        snprintf(out, 24, "%s", metric == EK_TRAIN_AUC ? "auc" : "normalised_entropy");
    else
        snprintf(out, 24, "%s@%d", names[metric / EK_EVAL_CUTS],
                 ek_eval_cuts[metric % EK_EVAL_CUTS]);
    return out;
}

double ek_train_metric(const struct ek_evaluation *e, const struct ek_train_config *c)
{
    const struct ek_ranking *r = c->eval.filter ? &e->filtered : &e->unfiltered;
    int cut = c->eval.metric % EK_EVAL_CUTS;
    if (c->eval.metric >= EK_TRAIN_ENTROPY)
        return c->eval.metric == EK_TRAIN_AUC ? e->auc : e->normalised_entropy;
    switch ((enum ek_train_metric)(c->eval.metric / EK_EVAL_CUTS)) {
    case EK_TRAIN_NDCG:
        return r->ndcg[cut];
    case EK_TRAIN_RECALL:
        return r->recall[cut];
    case EK_TRAIN_MRR:
        return r->mrr[cut];
    }
    return (double)NAN;
}

bool ek_train_is_better(double value, double best, const struct ek_train_config *c)
{
    if (isnan(value) || isnan(best))
        return !isnan(value);
    return c->eval.metric == EK_TRAIN_ENTROPY ? value < best : value > best;
}

/* Seconds that operations took, one at a time, recomputation aside. Before the first
 * micro-batch nothing is bound, and no line can be asked for. */
static double operation_seconds(const struct ek_train *t)
{
    const struct ek_graph *g = ek_rec_graph(t->model);
    struct ek_graph_row row;
    double ms = 0;
    for (int i = 0; t->n_micro_done > 0 && i < ek_graph_rows(g); i++) {
        ek_graph_explain(g, i, &row);
        if (row.phase[0] != 'r') /* recompute, reduce */
            ms += row.ms;
    }
    return ms / 1e3 * (double)t->n_micro_done;
}

void ek_train_mfu(struct ek_train_mfu *m, const struct ek_train *t)
{
    const struct ek_train_sums *s = &t->all;
    double seconds = operation_seconds(t), flops = (double)s->flops;
    *m = (struct ek_train_mfu){(double)NAN, (double)NAN, (double)NAN};
    if (t->peak <= 0 || s->seconds <= 0 || seconds <= 0)
        return;
    m->local = flops / (seconds * t->peak);
    m->end_to_end = flops / (s->seconds * t->peak);
    m->ratio = m->end_to_end / m->local;
}

static int add_ranking(struct ek_buf *b, const char *name,
                       const struct ek_evaluation *e)
{
    const struct ek_ranking *f = &e->filtered, *u = &e->unfiltered;
    int rc = ek_buf_addf(b, "%s%" PRId64 " samples; seen items filtered, unfiltered\n",
                         name, e->samples);
    for (int k = 0; k < EK_EVAL_CUTS && !rc; k++)
        rc = ek_buf_addf(b,
                         "  @%-11d recall %.4f %.4f   ndcg %.4f %.4f   mrr %.4f %.4f\n",
                         ek_eval_cuts[k], f->recall[k], u->recall[k], f->ndcg[k],
                         u->ndcg[k], f->mrr[k], u->mrr[k]);
    if (!rc && isfinite(e->normalised_entropy))
        rc = ek_buf_addf(b, "  clicks       normalised entropy %.4f, AUC %.4f\n",
                         e->normalised_entropy, e->auc);
    return rc;
}

static int add_mfu(struct ek_buf *b, const struct ek_train *t)
{
    struct ek_train_mfu m;
    ek_train_mfu(&m, t);
    if (!isfinite(m.ratio))
        return 0;
    return ek_buf_addf(
        b,
        "MFU           end to end %.2f %% = local %.2f %% x ratio %.3f of %.1f GFLOP/s "
        "(%s, measured in this run)\n"
        "              local: useful FLOPs over the time of the operations alone; end "
        "to end: over all of\n"
        "              training's time, waits for batches and optimizers included; "
        "recomputation never counts\n",
        100 * m.end_to_end, 100 * m.local, m.ratio, t->peak / 1e9,
        t->c->train.dtype == 1 ? "bf16" : "f32");
}

int ek_train_report(struct ek_buf *out, const struct ek_train *t)
{
    const struct ek_train_progress *p = &t->progress;
    double seconds = t->all.seconds > 1e-9 ? t->all.seconds : 1e-9;
    char metric[24];
    int rc = ek_buf_addf(
        out,
        "trained       %" PRId64 " steps, %" PRId64 " sequences, %" PRId64
        " events in %.1f s; %.0f sequences/s, %.0f events/s\n",
        p->steps, p->sequences, p->tokens, p->seconds,
        (double)t->all.sequences / seconds, (double)t->all.tokens / seconds);
    if (!rc)
        rc =
            ek_buf_addf(out, "best          validation %s %.4f at step %" PRId64 "%s\n",
                        ek_train_metric_name(metric, t->c), p->best, p->best_step,
                        t->is_stopped_early ? ", stopped early" : "");
    if (!rc)
        rc = add_ranking(out, "validation    ", &t->valid);
    if (!rc && t->has_test)
        rc = add_ranking(out, "test          ", &t->test);
    if (!rc)
        rc = add_mfu(out, t);
    return rc ? rc : ek_buf_addf(out, "written to    %s\n", t->c->run.dir);
}
