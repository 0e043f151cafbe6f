#include "data/events_synth.h"

#include "base/mem.h"
#include "base/rng.h"
#include "data/events_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define START_US ((int64_t)1700000000 * 1000000)

/* Zipf by rejection-inversion over ranks 1..n: no table, any n. Source: Hoermann and
 * Derflinger, "Rejection-inversion to generate variates from monotone discrete
 * distributions", 1996. */
struct zipf {
    double s, n;
    double top, bottom, accept;
};

/* The integral of x^-s, and its inverse. */
static double area(const struct zipf *z, double x)
{
    double l = log(x), t = l * (1.0 - z->s);
    return fabs(t) < 1e-9 ? l * (1.0 + t / 2.0) : expm1(t) / (1.0 - z->s);
}

static double area_inverse(const struct zipf *z, double a)
{
    double t = a * (1.0 - z->s);
    t = t < -1.0 ? -1.0 : t; /* rounding at the end */
    return exp(fabs(t) < 1e-9 ? a * (1.0 - t / 2.0) : log1p(t) / (1.0 - z->s));
}

static void zipf_init(struct zipf *z, double s, int64_t n)
{
    *z = (struct zipf){.s = s, .n = (double)n};
    z->bottom = area(z, 1.5) - 1.0;
    z->top = area(z, z->n + 0.5);
    z->accept = 2.0 - area_inverse(z, area(z, 2.5) - pow(2.0, -s));
}

static int64_t zipf_draw(const struct zipf *z, struct ek_rng *rng)
{
    for (;;) {
        double u = z->top + ek_rng_uniform(rng) * (z->bottom - z->top);
        double x = area_inverse(z, u), k = floor(x + 0.5);
        k = k < 1.0 ? 1.0 : k > z->n ? z->n : k;
        if (k - x <= z->accept || u >= area(z, k + 0.5) - pow(k, -z->s))
            return (int64_t)k;
    }
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

struct synth {
    const struct ek_synth_options *o;
    struct zipf zipf;
    int64_t stride; /* without a common divisor with n_items: ranks to ids */
    struct ek_rng rng;
    struct ek_build build;
    int32_t *index; /* (n_items) id to index; -1: not yet there */
};

static int64_t draw_item(struct synth *s)
{
    int64_t rank = zipf_draw(&s->zipf, &s->rng) - 1;
    return (int64_t)((uint64_t)rank * (uint64_t)s->stride % (uint64_t)s->o->n_items);
}

int64_t ek_synth_successor(const struct ek_synth_options *o, int64_t id, int which)
{
    struct ek_rng rng;
    int64_t next = 0;
    ek_rng_init(&rng, o->seed ^ (uint64_t)id * 0x9e3779b97f4a7c15u);
    for (int i = 0; i <= which; i++)
        next = (int64_t)ek_rng_below(&rng, (uint64_t)o->n_items);
    return next;
}

/* Chances 8:4:2:1. */
static int64_t follow(struct synth *s, int64_t id)
{
    uint64_t u = ek_rng_below(&s->rng, 15);
    return ek_synth_successor(s->o, id, u < 8 ? 0 : u < 12 ? 1 : u < 14 ? 2 : 3);
}

static int64_t draw_length(struct synth *s)
{
    const struct ek_synth_options *o = s->o;
    double v = round(exp(log(o->median) + o->sigma * ek_rng_normal(&s->rng)));
    if (!(v < (double)o->max_length))
        return o->max_length;
    return v < (double)o->min_length ? o->min_length : (int64_t)v;
}

/* last: the item before, -1: none. */
static bool is_successor(const struct synth *s, int64_t last, int64_t id)
{
    bool is_one = false;
    for (int i = 0; i < EK_SYNTH_SUCCESSORS && last >= 0; i++)
        is_one |= ek_synth_successor(s->o, last, i) == id;
    return is_one;
}

static int add_event(struct synth *s, int32_t user, int64_t last, int64_t id,
                     int64_t us, int segment)
{
    struct ek_build_column *columns = s->build.columns;
    double z = -1.0 + (id % EK_SYNTH_SEGMENTS == segment ? 1.5 : -0.5) +
               (is_successor(s, last, id) ? 1.0 : 0.0);
    float chance = (float)(1.0 / (1.0 + exp(-z)));
    char name[24];
    int rc = 0;
    if (s->index[id] < 0) {
        int n = snprintf(name, sizeof name, "%" PRId64, id + 1);
        rc = ek_intern_put(&s->build.items, name, (size_t)n, &s->index[id]);
    }
    if (!rc)
        rc = ek_build_row(&s->build, user, s->index[id], us);
    if (!rc)
        rc = ek_build_number(&columns[1],
                             ek_rng_uniform(&s->rng) < (double)chance ? 1.0f : 0.0f);
    return rc ? rc : ek_build_number(&columns[2], chance);
}

static int add_user(struct synth *s, int64_t u)
{
    static const char *const segments[] = {"a", "b", "c", "d"};
    char name[24];
    int32_t user = 0;
    int segment = (int)ek_rng_below(&s->rng, EK_SYNTH_SEGMENTS);
    int64_t n = draw_length(s), id = -1;
    int64_t us =
        START_US + (int64_t)(ek_rng_uniform(&s->rng) * 90.0 * 86400.0) * 1000000;
    int len = snprintf(name, sizeof name, "%" PRId64, u + 1);
    int rc = ek_intern_put(&s->build.users, name, (size_t)len, &user);
    if (!rc)
        rc = ek_build_level(&s->build.columns[0], segments[segment], 1);
    for (int64_t i = 0; i < n && !rc; i++) {
        bool followed = i > 0 && ek_rng_uniform(&s->rng) < s->o->follow;
        int64_t last = id;
        id = followed ? follow(s, id) : draw_item(s);
        rc = add_event(s, user, last, id, us, segment);
        double gap = exp(log(3600.0) + 1.5 * ek_rng_normal(&s->rng));
        us += (int64_t)(gap < 1e8 ? gap : 1e8) * 1000000;
    }
    return rc;
}

static double entropy(double p)
{
    return p <= 0.0 || p >= 1.0 ? 0.0 : -p * log(p) - (1.0 - p) * log1p(-p);
}

struct ek_synth_clicks ek_synth_clicks(const struct ek_events *e)
{
    const struct ek_column *click = ek_events_column(e, "click");
    const struct ek_column *chance = ek_events_column(e, "click_chance");
    struct ek_synth_clicks c = {0};
    if (!click || !chance || e->n == 0)
        return c;
    for (int64_t i = 0; i < e->n; i++) {
        c.rate += (double)click->numbers[i];
        c.bayes += entropy((double)chance->numbers[i]);
    }
    c.rate /= (double)e->n;
    c.bayes /= (double)e->n;
    c.entropy = entropy(c.rate);
    return c;
}

static int check(const struct ek_synth_options *o, struct ek_err *err)
{
    if (o->n_users < 1 || o->n_users > EK_EVENTS_USERS_MAX || o->n_items < 1 ||
        o->n_items > EK_EVENTS_ITEMS_MAX)
        return ek_err_set(err, EK_EINVAL, "users, items: expected 1 to 2147483647");
    if (o->min_length < 1 || o->max_length < o->min_length)
        return ek_err_set(err, EK_EINVAL,
                          "lengths %" PRId64 " to %" PRId64
                          ": expected 1 or more, the second not below the first",
                          o->min_length, o->max_length);
    if (!(o->median >= 1.0 && o->median < 1e9 && o->sigma >= 0.0 && o->sigma <= 10.0 &&
          o->zipf >= 0.0 && o->zipf <= 10.0 && o->follow >= 0.0 && o->follow <= 1.0))
        return ek_err_set(err, EK_EINVAL,
                          "median 1 to 1e9, sigma and zipf 0 to 10, follow 0 to 1: one "
                          "of them is outside");
    return 0;
}

static int begin(struct synth *s)
{
    int64_t n = s->o->n_items;
    s->stride = (int64_t)((double)n * 0.6180339887498949) | 1;
    while (gcd(s->stride, n) != 1)
        s->stride++;
    zipf_init(&s->zipf, s->o->zipf, n);
    ek_rng_init(&s->rng, s->o->seed);
    ek_build_init(&s->build, true);
    s->index = ek_alloc_array((size_t)n, sizeof *s->index);
    if (!s->index)
        return EK_ENOMEM;
    for (int64_t i = 0; i < n; i++)
        s->index[i] = -1;
    int rc =
        ek_build_column(&s->build, "segment", 7, EK_COLUMN_USER, EK_COLUMN_CATEGORY);
    if (!rc)
        rc = ek_build_column(&s->build, "click", 5, EK_COLUMN_EVENT, EK_COLUMN_NUMERIC);
    return rc ? rc
              : ek_build_column(&s->build, "click_chance", 12, EK_COLUMN_EVENT,
                                EK_COLUMN_NUMERIC);
}

int ek_events_synth(struct ek_events *e, const struct ek_synth_options *o,
                    struct ek_err *err)
{
    struct synth s = {.o = o};
    char source[200];
    int rc = check(o, err);
    if (rc)
        return rc;
    rc = begin(&s);
    for (int64_t u = 0; u < o->n_users && !rc; u++)
        rc = add_user(&s, u);
    snprintf(source, sizeof source, "synth seed %" PRIu64 ", follow %g, zipf %g",
             o->seed, o->follow, o->zipf);
    if (!rc)
        rc = ek_build_finish(&s.build, e, source);
    if (rc)
        ek_err_set(err, rc, "synth: %s", ek_status_text(rc));
    ek_build_release(&s.build);
    ek_free(s.index);
    return rc;
}
