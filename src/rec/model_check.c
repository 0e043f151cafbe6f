/* model_check.c - a configuration's values, before anything is built: key, value, what
 * would be right. */
#include "graph/rows.h"
#include "rec/model_int.h"

struct rule {
    const char *key;
    int64_t value, lo, hi;
};

static int check_rules(const struct rule *r, size_t n, struct ek_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (r[i].value < r[i].lo || r[i].value > r[i].hi)
            return ek_err_set(err, EK_EINVAL, "%s: %lld; expected %lld to %lld",
                              r[i].key, (long long)r[i].value, (long long)r[i].lo,
                              (long long)r[i].hi);
    return 0;
}

static int check_shares(const struct ek_rec_config *c, struct ek_err *err)
{
    if (!(c->dropout >= 0 && c->dropout < 1))
        return ek_err_set(err, EK_EINVAL, "dropout: %g; expected 0 to below 1",
                          c->dropout);
    if (!(c->click_weight >= 0 && c->click_weight < 1e6))
        return ek_err_set(err, EK_EINVAL, "click_weight: %g; expected 0 or more",
                          c->click_weight);
    if (!(c->temperature > 1e-6 && c->temperature < 1e6))
        return ek_err_set(err, EK_EINVAL,
                          "temperature: %g; expected above 0, such as 0.05 with "
                          "cosine or 1 with dot",
                          c->temperature);
    return 0;
}

static int check_heads(const struct ek_rec_config *c, struct ek_err *err)
{
    if (c->dim % c->heads)
        return ek_err_set(err, EK_EINVAL, "heads: %d; expected a divisor of dim %lld",
                          c->heads, (long long)c->dim);
    if (c->dim_qk > EK_JAGGED_DIM_MAX || c->dim_v > EK_JAGGED_DIM_MAX)
        return ek_err_set(err, EK_EINVAL,
                          "heads: %d make heads of %lld; expected heads of at most %d",
                          c->heads,
                          (long long)(c->dim_qk > c->dim_v ? c->dim_qk : c->dim_v),
                          EK_JAGGED_DIM_MAX);
    return 0;
}

int ek_rec_check(struct ek_rec_config *c, const struct ek_rec_shape *s,
                 struct ek_err *err)
{
    bool is_sampled = c->loss == EK_REC_SAMPLED;
    const struct rule rules[] = {
        {"dim", c->dim, 1, EK_ROW_COLS},
        {"blocks", c->blocks, 1, 64},
        {"heads", c->heads, 1, 256},
        {"ffn", c->ffn, 0, 65536},
        {"dim_qk", c->dim_qk, 0, EK_JAGGED_DIM_MAX},
        {"dim_v", c->dim_v, 0, EK_JAGGED_DIM_MAX},
        {"max_length", c->max_length, 1, 1 << 20},
        {"loss", c->loss, EK_REC_SAMPLED, EK_REC_FULL},
        {"norm", c->norm, EK_REC_CEILING, EK_REC_LENGTH},
        {"negatives", c->negatives, is_sampled, is_sampled ? 1 << 20 : INT64_MAX},
        {"items", s->n_items, 1, INT32_MAX - 1},
        {"sequences of a batch", s->max_sequences, 1, INT32_MAX - 1},
        {"rows of a batch", s->max_rows, 1, EK_JAGGED_ROWS_MAX},
        {"columns", s->n_columns, 0, EK_REC_COLUMNS_MAX},
        {"column_dim", c->column_dim, 0, EK_ROW_COLS},
        {"column_rows", c->column_rows, 0, INT32_MAX - 1},
    };
    int rc = check_rules(rules, sizeof rules / sizeof rules[0], err);
    if (rc)
        return rc;
    if ((rc = check_shares(c, err)))
        return rc;
    c->ffn = c->ffn ? c->ffn : c->dim;
    c->column_dim = c->column_dim ? c->column_dim : c->dim;
    c->dim_qk = c->dim_qk ? c->dim_qk : c->dim / c->heads;
    c->dim_v = c->dim_v ? c->dim_v : c->dim / c->heads;
    return check_heads(c, err);
}
