#include "train/need.h"

#include "base/file.h"
#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define SHOWN    3 /* parts of a refusal */
#define KEYS     5 /* of a part, at most */
#define SENTENCE 4096

/* What a part grows with. */
struct key {
    const char *name;
    const char *instead; /* right where it is 0 or not in use; NULL: nothing is */
};

/* In the order of enum ek_need_part; the keys in the order to lower them. */
static const struct {
    const char *name;
    struct key keys[KEYS];
} parts[EK_NEED_PARTS] = {
    [EK_NEED_ITEMS] = {"items", {{"model.dim", NULL}}},
    [EK_NEED_POSITIONS] = {"positions",
                           {{"model.max_length", NULL}, {"model.dim", NULL}}},
    [EK_NEED_COLUMNS] = {"categories",
                         {{"model.column_rows", "model.column_rows above 0"},
                          {"model.column_dim", NULL},
                          {"model.dim", NULL}}},
    [EK_NEED_LAYERS] = {"layers",
                        {{"model.ffn", NULL},
                         {"model.dim_qk", NULL},
                         {"model.dim_v", NULL},
                         {"model.blocks", NULL},
                         {"model.dim", NULL}}},
    [EK_NEED_STEP] = {"a step",
                      {{"train.batch", NULL},
                       {"train.max_tokens", "train.max_tokens above 0"},
                       {"model.max_length", NULL},
                       {"model.negatives", "model.loss sampled"},
                       {"model.dim", NULL}}},
    [EK_NEED_ROWS] = {"gradient rows",
                      {{"train.micro_batches", NULL},
                       {"train.batch", NULL},
                       {"model.negatives", "model.loss sampled"},
                       {"model.dim", NULL}}},
    [EK_NEED_BATCHES] = {"batches", {{"train.batch", NULL}, {"train.ahead", NULL}}},
    [EK_NEED_RANKING] = {"ranking",
                         {{"eval.batch", NULL}, {"run.threads", "run.threads 1"}}},
};

enum ek_need_part ek_need_of_param(const char *name)
{
    if (!strcmp(name, "items"))
        return EK_NEED_ITEMS;
    if (!strcmp(name, "positions"))
        return EK_NEED_POSITIONS;
    if (!strncmp(name, "event.column.", 13) || !strncmp(name, "user.column.", 12))
        return EK_NEED_COLUMNS;
    return EK_NEED_LAYERS;
}

/* Largest first; equal ones in the order of the enum. */
static void sort_parts(enum ek_need_part order[EK_NEED_PARTS], const struct ek_need *n)
{
    for (int i = 0; i < EK_NEED_PARTS; i++)
        order[i] = (enum ek_need_part)i;
    for (int i = 1; i < EK_NEED_PARTS; i++) {
        int at = i;
        for (; at > 0 && n->bytes[order[at - 1]] < n->bytes[i]; at--)
            order[at] = order[at - 1];
        order[at] = (enum ek_need_part)i;
    }
}

/* False: it overflows. */
static bool add_all(size_t *sum, const struct ek_need *n)
{
    *sum = 0;
    for (int i = 0; i < EK_NEED_PARTS; i++)
        if (!ek_add_size(sum, *sum, n->bytes[i]))
            return false;
    return true;
}

/* What the run reads of a key, all of which are whole numbers; 0: nothing. */
static int64_t value_of(const struct ek_train_config *c, const char *name)
{
    const bool is_hstu = c->model.kind == EK_REC_HSTU;
    if ((!strcmp(name, "model.negatives") && c->model.loss != EK_REC_SAMPLED) ||
        (!strcmp(name, "model.ffn") && is_hstu) ||
        (!strncmp(name, "model.dim_", 10) && !is_hstu))
        return 0;
    const struct ek_opt *o = ek_train_keys;
    int64_t v;
    while (o->name && strcmp(o->name, name) != 0)
        o++;
    assert(o->type == EK_OPT_INT); /* not the table's end */
    memcpy(&v, (const char *)c + o->offset, sizeof v);
    return v;
}

/* " (model.ffn 65536, model.blocks 64)"; a key at 0 says nothing of the size. */
static int add_keys(struct ek_buf *out, enum ek_need_part part,
                    const struct ek_train_config *c)
{
    const char *before = " (";
    int rc = 0;
    for (int i = 0; i < KEYS && parts[part].keys[i].name && !rc; i++) {
        const char *key = parts[part].keys[i].name;
        const int64_t v = value_of(c, key);
        if (v == 0)
            continue;
        rc = ek_buf_addf(out, "%s%s %" PRId64, before, key, v);
        before = ", ";
    }
    return rc || before[0] == ' ' ? rc : ek_buf_add_char(out, ')');
}

/* "; expected a lower train.batch or model.max_length, or train.max_tokens above 0". A
 * key at 1 is no advice. */
static int add_advice(struct ek_buf *out, enum ek_need_part part,
                      const struct ek_train_config *c)
{
    const char *lower[KEYS], *other[KEYS];
    int n = 0, n_other = 0, rc = 0;
    for (int i = 0; i < KEYS && parts[part].keys[i].name; i++) {
        const struct key *k = &parts[part].keys[i];
        const int64_t v = value_of(c, k->name);
        if (v == 0 && k->instead)
            other[n_other++] = k->instead;
        else if (v > 1)
            lower[n++] = k->name;
    }
    for (int i = 0; i < n && !rc; i++)
        rc = ek_buf_addf(out, "%s%s",
                         i == 0       ? "; expected a lower "
                         : i == n - 1 ? " or "
                                      : ", ",
                         lower[i]);
    for (int i = 0; i < n_other && !rc; i++)
        rc = ek_buf_addf(out, "%s%s",
                         i > 0 ? " or "
                         : n   ? ", or "
                               : "; expected ",
                         other[i]);
    return rc || n + n_other > 0 ? rc
                                 : ek_buf_addf(out, "; expected more memory than that");
}

static int add_parts(struct ek_buf *out, const struct ek_need *n, int most,
                     const struct ek_train_config *c)
{
    enum ek_need_part order[EK_NEED_PARTS];
    char bytes[32];
    int rc = 0;
    sort_parts(order, n);
    for (int i = 0; i < most && n->bytes[order[i]] > 0 && !rc; i++) {
        rc = ek_buf_addf(out, "%s%s %s", i ? ", " : "", parts[order[i]].name,
                         ek_format_bytes(bytes, n->bytes[order[i]]));
        if (!rc && c)
            rc = add_keys(out, order[i], c);
    }
    return rc;
}

int ek_need_text(struct ek_buf *out, const struct ek_need *n)
{
    size_t sum;
    char bytes[32];
    if (!add_all(&sum, n))
        return EK_ELIMIT;
    int rc = ek_buf_addf(out, "%s: ", ek_format_bytes(bytes, sum));
    return rc ? rc : add_parts(out, n, EK_NEED_PARTS, NULL);
}

/* The sentence, or, without the memory for it, its status alone. */
static int refuse(struct ek_buf *text, int rc, struct ek_err *err)
{
    rc = rc ? ek_err_set(err, rc, "memory: %s", ek_status_text(rc))
            : ek_err_set(err, EK_ELIMIT, "%s", text->data);
    ek_buf_release(text);
    return rc;
}

int ek_need_overflow(enum ek_need_part part, const struct ek_train_config *c,
                     struct ek_err *err)
{
    struct ek_buf text;
    ek_buf_init(&text, SENTENCE);
    int rc = ek_buf_addf(&text, "memory: %s", parts[part].name);
    if (!rc)
        rc = add_keys(&text, part, c);
    if (!rc)
        rc = ek_buf_addf(&text, " would take more bytes than a number can tell");
    if (!rc)
        rc = add_advice(&text, part, c);
    return refuse(&text, rc, err);
}

int ek_need_check(const struct ek_need *n, int64_t available,
                  const struct ek_train_config *c, struct ek_err *err)
{
    enum ek_need_part order[EK_NEED_PARTS];
    size_t sum;
    char need[32], there[32];
    struct ek_buf text;
    sort_parts(order, n);
    if (!add_all(&sum, n))
        return ek_need_overflow(order[0], c, err);
    if (available < 0)
        available = 0;
    if (sum <= (size_t)available)
        return 0;
    ek_buf_init(&text, SENTENCE);
    int rc = ek_buf_addf(&text, "memory: the run would hold %s, %s is there for it: ",
                         ek_format_bytes(need, sum),
                         ek_format_bytes(there, (uint64_t)available));
    if (!rc)
        rc = add_parts(&text, n, SHOWN, c);
    if (!rc)
        rc = add_advice(&text, order[0], c);
    return refuse(&text, rc, err);
}
