#include "data/events_stats.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Nearest rank. */
static int64_t quantile(const int64_t *sorted, int64_t n, double q)
{
    int64_t i = (int64_t)ceil(q * (double)n) - 1;
    return sorted[i < 0 ? 0 : i];
}

static double waste(const int64_t *lengths, int64_t n, int64_t batch, int64_t cap)
{
    double useful = 0.0, padded = 0.0;
    for (int64_t at = 0; at < n; at += batch) {
        int64_t end = at + batch < n ? at + batch : n, most = 0;
        for (int64_t i = at; i < end; i++) {
            int64_t len = lengths[i] < cap ? lengths[i] : cap;
            useful += (double)len;
            most = len > most ? len : most;
        }
        padded += (double)(most * (end - at));
    }
    return 1.0 - useful / padded;
}

static void shuffle(int64_t *v, int64_t n)
{
    struct ek_rng rng;
    ek_rng_init(&rng, 1);
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)ek_rng_below(&rng, (uint64_t)i + 1), other = v[k];
        v[k] = v[i];
        v[i] = other;
    }
}

/* lengths (n_users) sorted. */
static void of_lengths(struct ek_stats *s, int64_t *lengths, const struct ek_events *e)
{
    int64_t n = e->n_users, cap = s->max_length ? s->max_length : INT64_MAX, at = 0;
    s->min = lengths[0];
    s->max = lengths[n - 1];
    s->mean = (double)e->n / (double)n;
    s->p50 = quantile(lengths, n, 0.5);
    s->p90 = quantile(lengths, n, 0.9);
    s->p99 = quantile(lengths, n, 0.99);
    for (int i = 0; i <= EK_STATS_BINS; i++)
        s->bin_from[i] = pow((double)s->max + 1.0, (double)i / EK_STATS_BINS);
    for (int i = 0; i < EK_STATS_BINS; i++) {
        bool is_last = i == EK_STATS_BINS - 1;
        for (; at < n && (is_last || (double)lengths[at] < s->bin_from[i + 1]); at++)
            s->users_in[i]++;
    }
    for (int i = 0; i < EK_STATS_BATCHES; i++) {
        s->batch[i] = INT64_C(32) << i;
        s->waste_bucketed[i] = waste(lengths, n, s->batch[i], cap);
    }
    shuffle(lengths, n);
    for (int i = 0; i < EK_STATS_BATCHES; i++)
        s->waste_shuffled[i] = waste(lengths, n, s->batch[i], cap);
}

/* Events of the `n` most popular items as a share. */
static double share_of_top(const int64_t *sorted, int64_t n_items, int64_t n,
                           double all)
{
    double sum = 0.0;
    for (int64_t i = n_items - n; i < n_items; i++)
        sum += (double)sorted[i];
    return sum / all;
}

/* counts (n_items) sorted. */
static void of_items(struct ek_stats *s, const int64_t *counts,
                     const struct ek_events *e)
{
    int64_t n = e->n_items;
    double weighted = 0.0, all = (double)e->n;
    for (int64_t i = 0; i < n; i++)
        weighted += (double)(i + 1) * (double)counts[i];
    s->gini = 2.0 * weighted / ((double)n * all) - ((double)n + 1.0) / (double)n;
    s->top1 = share_of_top(counts, n, (n + 99) / 100, all);
    s->top10 = share_of_top(counts, n, (n + 9) / 10, all);
    for (int i = 0; i < EK_STATS_BINS; i++) {
        double rank = pow((double)n, (double)i / (EK_STATS_BINS - 1));
        int64_t k = (int64_t)rank;
        s->rank[i] = k > n ? n : k;
        s->count_at[i] = counts[n - s->rank[i]];
    }
}

int ek_stats_of(struct ek_stats *s, const struct ek_events *e, int64_t max_length,
                struct ek_err *err)
{
    int64_t *lengths = ek_alloc_array((size_t)e->n_users, sizeof *lengths);
    int64_t *counts = ek_calloc((size_t)e->n_items, sizeof *counts);
    int rc = lengths && counts ? 0 : EK_ENOMEM;
    if (rc) {
        ek_err_set(err, rc, "stats: %s", ek_status_text(rc));
        goto out;
    }
    *s = (struct ek_stats){.max_length = max_length};
    for (int64_t u = 0; u < e->n_users; u++)
        lengths[u] = e->offsets[u + 1] - e->offsets[u];
    for (int64_t i = 0; i < e->n; i++)
        counts[e->items[i]]++;
    qsort(lengths, (size_t)e->n_users, sizeof *lengths, by_value);
    qsort(counts, (size_t)e->n_items, sizeof *counts, by_value);
    of_lengths(s, lengths, e);
    of_items(s, counts, e);
out:
    ek_free(lengths);
    ek_free(counts);
    return rc;
}
