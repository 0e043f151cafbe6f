#include "load/workload.h"

#include <math.h>

/* Gamma(shape, 1) by Marsaglia and Tsang, "A simple method for generating gamma
 * variables", ACM TOMS 26 (2000); below 1 by their power of a uniform. */
static double draw_gamma(struct ek_rng *rng, double shape)
{
    if (shape < 1.0) {
        double u = 1.0 - ek_rng_uniform(rng);
        return draw_gamma(rng, shape + 1.0) * pow(u, 1.0 / shape);
    }
    double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = ek_rng_normal(rng), v = 1.0 + c * x;
        if (v <= 0.0)
            continue;
        v = v * v * v;
        double u = 1.0 - ek_rng_uniform(rng);
        if (log(u) < 0.5 * x * x + d * (1.0 - v + log(v)))
            return d * v;
    }
}

/* How many rows of the trace will be sent. */
static uint64_t n_rows(const struct ek_workload_options *o)
{
    return o->n_max && o->n_max < o->trace->n ? o->n_max : o->trace->n;
}

/* With a rate the rows that will be sent come at that rate on average. */
static double factor_of(const struct ek_workload_options *o)
{
    if (o->rate <= 0.0)
        return 1.0 / o->time_scale;
    uint64_t n = n_rows(o);
    double span_us = (double)o->trace->rows[n - 1].at_us;
    return span_us > 0.0 ? (double)(n - 1) / o->rate * 1e6 / span_us : 1.0;
}

void ek_workload_init(struct ek_workload *w, const struct ek_workload_options *o)
{
    *w = (struct ek_workload){.o = *o, .time_factor = 1.0};
    if (o->trace)
        w->time_factor = factor_of(o);
    ek_rng_init(&w->rng, o->seed);
}

static int64_t scale_length(int64_t n, double scale)
{
    double v = round((double)n * scale);
    return v < 1.0 ? 1 : v > EK_TRACE_TOKENS_MAX ? EK_TRACE_TOKENS_MAX : (int64_t)v;
}

static void take_lengths(const struct ek_workload *w, struct ek_load_item *item)
{
    const struct ek_workload_options *o = &w->o;
    item->n_in = o->prompt_tokens;
    item->n_out = o->output_tokens;
    if (o->trace) {
        const struct ek_trace_row *row = &o->trace->rows[item->index];
        item->n_in = scale_length(row->n_in, o->length_scale);
        item->n_out = scale_length(row->n_out, o->length_scale);
        item->hashes = row->n_hashes ? o->trace->hashes + row->first_hash : NULL;
        item->n_hashes = row->n_hashes;
    }
    if (o->max_tokens == 0 || item->n_in + item->n_out <= o->max_tokens)
        return;
    int64_t half = o->max_tokens > 1 ? o->max_tokens / 2 : 1;
    item->n_out = item->n_out < half ? item->n_out : half;
    int64_t room = o->max_tokens - item->n_out > 1 ? o->max_tokens - item->n_out : 1;
    item->n_in = item->n_in < room ? item->n_in : room;
    item->is_shortened = true;
}

static int64_t take_time(struct ek_workload *w, const struct ek_load_item *item)
{
    const struct ek_workload_options *o = &w->o;
    double at = 0.0;
    if (o->trace && o->burstiness <= 0.0) {
        at = (double)o->trace->rows[item->index].at_us * w->time_factor;
    } else if (o->rate > 0.0) {
        double shape = o->burstiness > 0.0 ? o->burstiness : 1.0;
        w->at_us += draw_gamma(&w->rng, shape) / (shape * o->rate) * 1e6;
        at = w->at_us;
    }
    return at < (double)EK_WORKLOAD_US_MAX ? (int64_t)at : EK_WORKLOAD_US_MAX;
}

bool ek_workload_next(struct ek_workload *w, struct ek_load_item *item)
{
    uint64_t n = w->o.trace ? n_rows(&w->o) : w->o.n_max;
    if (n && w->next >= n)
        return false;
    *item = (struct ek_load_item){.index = w->next++};
    take_lengths(w, item);
    item->at_us = take_time(w, item);
    return true;
}
