/* params.c - a growable list of parameters, each its own block of memory. */
#include "graph/params.h"

#include "base/mem.h"
#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct ek_params {
    struct ek_param **list; /* owned; entries never move */
    int n, cap;
    uint64_t seed;
    bool is_deferred; /* entries have no memory until ek_params_take */
};

int ek_params_new(struct ek_params **set, uint64_t seed, struct ek_err *err)
{
    struct ek_params *s = ek_calloc(1, sizeof *s);
    if (!s)
        return ek_err_set(err, EK_ENOMEM, "parameters: out of memory");
    s->seed = seed;
    *set = s;
    return 0;
}

static void param_free(struct ek_param *p)
{
    if (!p)
        return;
    ek_free(p->value);
    ek_free(p->grad);
    ek_free(p->touched);
    ek_free(p);
}

void ek_params_free(struct ek_params *set)
{
    if (!set)
        return;
    for (int i = 0; i < set->n; i++)
        param_free(set->list[i]);
    ek_free(set->list);
    ek_free(set);
}

int ek_params_count(const struct ek_params *set)
{
    return set->n;
}

int ek_params_find(const struct ek_params *set, const char *name)
{
    for (int i = 0; i < set->n; i++)
        if (strcmp(set->list[i]->name, name) == 0)
            return i;
    return -1;
}

struct ek_param *ek_params_get(const struct ek_params *set, int id)
{
    return set->list[id];
}

int ek_params_track(struct ek_param *p)
{
    if (!p->touched)
        p->touched = ek_calloc((size_t)p->rows, 1);
    return p->touched ? 0 : EK_ENOMEM;
}

static void zero_grad(struct ek_param *p)
{
    const unsigned char *touched = ek_param_touched(p);
    size_t bytes = (size_t)p->cols * sizeof *p->grad;
    if (!touched)
        memset(p->grad, 0, (size_t)p->rows * bytes);
    for (int64_t r = 0; touched && r < p->rows; r++)
        if (touched[r])
            memset(p->grad + r * p->cols, 0, bytes);
    if (p->touched)
        memset(p->touched, 0, (size_t)p->rows);
}

void ek_params_zero_grad(struct ek_params *set)
{
    for (int i = 0; i < set->n; i++)
        if (set->list[i]->grad)
            zero_grad(set->list[i]);
}

/* FNV-1a: the name's part of the seed. */
static uint64_t hash_name(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

static void fill_normal(float *x, size_t n, double deviation, bool is_cut,
                        struct ek_rng *rng)
{
    for (size_t i = 0; i < n; i++) {
        double z = ek_rng_normal(rng);
        while (is_cut && fabs(z) > 2)
            z = ek_rng_normal(rng);
        x[i] = (float)(z * deviation);
    }
}

static void fill(struct ek_param *p, uint64_t seed)
{
    size_t n = (size_t)p->rows * (size_t)p->cols;
    double scale = (double)p->scale, fans = (double)(p->rows + p->cols);
    struct ek_rng rng;
    ek_rng_init(&rng, seed ^ hash_name(p->name));
    switch (p->init) {
    case EK_INIT_ZERO:
    case EK_INIT_ONE:
        for (size_t i = 0; i < n; i++)
            p->value[i] = p->init == EK_INIT_ONE ? 1.0f : 0.0f;
        break;
    case EK_INIT_NORMAL:
    case EK_INIT_TRUNCATED:
        fill_normal(p->value, n, scale, p->init == EK_INIT_TRUNCATED, &rng);
        break;
    case EK_INIT_XAVIER_NORMAL:
        fill_normal(p->value, n, scale * sqrt(2 / fans), false, &rng);
        break;
    case EK_INIT_UNIFORM:
    case EK_INIT_XAVIER_UNIFORM:
        if (p->init == EK_INIT_XAVIER_UNIFORM)
            scale *= sqrt(6 / fans);
        for (size_t i = 0; i < n; i++)
            p->value[i] = (float)((2 * ek_rng_uniform(&rng) - 1) * scale);
        break;
    }
}

static int check_spec(const struct ek_param_spec *s, struct ek_err *err)
{
    size_t len = s->name ? strlen(s->name) : 0;
    if (len < 1 || len > 63)
        return ek_err_set(err, EK_EINVAL,
                          "parameter '%s': a name has 1 to 63 bytes, this one %zu",
                          s->name ? s->name : "", len);
    if (s->rows < 1 || s->cols < 1 || s->rows > INT32_MAX)
        return ek_err_set(err, EK_EINVAL,
                          "parameter '%s': (%lld,%lld) is no shape; expected 1 to %d "
                          "rows, at least 1 column",
                          s->name, (long long)s->rows, (long long)s->cols, INT32_MAX);
    return 0;
}

/* Of the values, and of the gradient. False: it overflows. */
static bool value_bytes(size_t *bytes, int64_t rows, int64_t cols)
{
    return ek_mul_size(bytes, (size_t)rows, (size_t)cols) &&
           ek_mul_size(bytes, *bytes, sizeof(float));
}

bool ek_param_bytes(size_t *sum, const struct ek_param *p)
{
    size_t bytes;
    return value_bytes(&bytes, p->rows, p->cols) && ek_add_size(sum, *sum, bytes) &&
           (p->is_table || ek_add_size(sum, *sum, bytes)) &&
           (!p->touched || ek_add_size(sum, *sum, (size_t)p->rows));
}

static int param_take(struct ek_param *p, uint64_t seed, struct ek_err *err)
{
    size_t bytes;
    bool is_size = value_bytes(&bytes, p->rows, p->cols);
    assert(is_size); /* as ek_params_add found */
    p->value = is_size ? ek_alloc_huge(bytes) : NULL;
    if (p->value && !p->is_table)
        p->grad = ek_alloc_aligned(64, bytes);
    if (!p->value || (!p->is_table && !p->grad))
        return ek_err_set(err, EK_ENOMEM, "parameter '%s': no memory for %zu bytes",
                          p->name, bytes);
    if (p->grad)
        memset(p->grad, 0, bytes);
    fill(p, seed);
    return 0;
}

void ek_params_defer(struct ek_params *set)
{
    set->is_deferred = true;
}

int ek_params_take(struct ek_params *set, struct ek_err *err)
{
    int rc = 0;
    for (int i = 0; i < set->n && !rc; i++)
        if (!set->list[i]->value)
            rc = param_take(set->list[i], set->seed, err);
    set->is_deferred = set->is_deferred && rc;
    return rc;
}

static int param_new(struct ek_param **out, const struct ek_param_spec *s,
                     struct ek_err *err)
{
    size_t bytes;
    if (!value_bytes(&bytes, s->rows, s->cols))
        return ek_err_set(err, EK_ELIMIT, "parameter '%s': (%lld,%lld) overflows",
                          s->name, (long long)s->rows, (long long)s->cols);
    struct ek_param *p = ek_calloc(1, sizeof *p);
    if (!p)
        return ek_err_set(err, EK_ENOMEM, "parameter '%s': out of memory", s->name);
    memcpy(p->name, s->name, strlen(s->name) + 1);
    p->rows = s->rows;
    p->cols = s->cols;
    p->place = EK_PLACE_WHOLE;
    p->is_table = s->is_table;
    p->has_no_decay = s->has_no_decay;
    p->init = s->init;
    p->scale = s->scale;
    *out = p;
    return 0;
}

int ek_params_add(struct ek_params *set, int *id, const struct ek_param_spec *spec,
                  struct ek_err *err)
{
    int rc = check_spec(spec, err);
    if (rc)
        return rc;
    int at = ek_params_find(set, spec->name);
    if (at >= 0) {
        const struct ek_param *p = set->list[at];
        if (p->rows != spec->rows || p->cols != spec->cols ||
            p->is_table != spec->is_table)
            return ek_err_set(
                err, EK_EINVAL,
                "parameter '%s': (%lld,%lld)%s here, (%lld,%lld)%s before", spec->name,
                (long long)spec->rows, (long long)spec->cols,
                spec->is_table ? " table" : "", (long long)p->rows, (long long)p->cols,
                p->is_table ? " table" : "");
        *id = at;
        return 0;
    }
    if (set->n == set->cap) {
        int cap = set->cap ? 2 * set->cap : 16;
        void *list = ek_realloc_array(set->list, (size_t)cap, sizeof(void *));
        if (!list)
            return ek_err_set(err, EK_ENOMEM, "parameter '%s': out of memory",
                              spec->name);
        set->list = list;
        set->cap = cap;
    }
    struct ek_param *p = NULL;
    rc = param_new(&p, spec, err);
    if (!rc && !set->is_deferred)
        rc = param_take(p, set->seed, err);
    if (rc) {
        param_free(p);
        return rc;
    }
    set->list[set->n] = p;
    *id = set->n++;
    return 0;
}
