/* config.h - what `keel train` is told: one struct, one table of nested keys
 * (base/opt.h), the same for the YAML file, --set, --help and the manifest of a
 * checkpoint.
 *
 *   parse (ek_opt_parse) -> ek_train_config_check -> used; nobody interprets a key
 *   twice
 *
 * A checkpoint holds the checked configuration as JSON; eval, recommend and resume read
 * it back with ek_train_config_read and get the same struct.
 * Threads: values only.
 */
#ifndef EVENKEEL_TRAIN_CONFIG_H
#define EVENKEEL_TRAIN_CONFIG_H

#include "base/opt.h"
#include "data/events_read.h"
#include "rec/model.h"
#include "train/loader.h"

/* What data.format says: text formats of events_read.h, and the packed file. */
enum ek_train_format {
    EK_TRAIN_AUTO, /* by the name's end: .pack, else as events_read.h */
    EK_TRAIN_PACK,
    EK_TRAIN_S3REC,
    EK_TRAIN_RECBOLE,
    EK_TRAIN_CSV,
    EK_TRAIN_TSV,
};

enum ek_train_unit { EK_TRAIN_EPOCHS, EK_TRAIN_STEPS };
enum ek_train_schedule { EK_TRAIN_CONSTANT, EK_TRAIN_COSINE };
enum ek_train_items { EK_TRAIN_ADAMW, EK_TRAIN_ROWWISE_ADAGRAD };
enum ek_train_metric { EK_TRAIN_NDCG, EK_TRAIN_RECALL, EK_TRAIN_MRR };

/* What eval.metric says: below EK_TRAIN_ENTROPY a metric of ranking at one of five
 * cuts, enum ek_train_metric * 5 + index of the cut; then those of a click head. */
enum { EK_TRAIN_ENTROPY = 15, EK_TRAIN_AUC };

struct ek_train_config {
    struct {
        const char *name;      /* of the run, for a person */
        const char *dir;       /* where everything goes; "": runs/NAME */
        int64_t seed, threads; /* threads 0: all cores */
    } run;
    struct {
        const char *path;               /* the log; needed */
        int format;                     /* enum ek_train_format */
        const char *user, *item, *time; /* columns, as in events_read.h */
        int unit;                       /* enum ek_events_unit */
        struct ek_opt_list numeric, category, user_numeric, user_category, skip;
        const char *click;  /* numeric column of events, 0 or 1; "": none */
        int split;          /* enum ek_split_kind */
        double valid, test; /* shares, by_time */
    } data;
    struct {
        int kind; /* enum ek_rec_kind */
        int64_t dim, blocks, heads, ffn, dim_qk, dim_v;
        double dropout;
        int64_t max_length;
        bool times;
        int norm; /* enum ek_rec_norm */
        int loss; /* enum ek_rec_loss */
        int64_t negatives;
        int similarity; /* 0 dot, 1 cosine */
        double temperature;
        int64_t seeds, rank, experts, window, chunk, column_dim, column_rows; /* gem */
        bool alternates;
        double click_weight; /* of every kind */
    } model;
    struct {
        int64_t batch, micro_batches, sub_batch, max_tokens, ahead;
        bool cuts_windows;
        int64_t epochs, max_steps; /* max_steps 0: none; whichever comes first ends */
        double lr, beta1, beta2, eps, weight_decay;
        int64_t warmup_steps;
        int schedule;     /* enum ek_train_schedule */
        double lr_end;    /* of cosine: share of lr that is left at the end */
        double clip_norm; /* 0: none */
        int dtype;        /* 0 f32, 1 bf16: inputs of matmuls */
        int items;        /* enum ek_train_items */
        double items_lr, items_eps;
        int64_t max_bytes; /* ceiling of the graph's arena; 0: none */
    } train;
    struct {
        int64_t every;    /* 0: never before the end */
        int unit;         /* enum ek_train_unit */
        int metric;       /* as above; the least normalised entropy is the best */
        bool filter;      /* seen items do not compete in the watched metric */
        int64_t patience; /* evaluations without a better one; 0: never stop */
        int64_t batch;    /* sequences of a forward pass */
    } eval;
    struct {
        int64_t every; /* steps a line */
    } log;
    struct {
        int64_t every; /* steps a `last` checkpoint; 0: at evaluations */
    } checkpoint;
};

/* The table; offsets are of struct ek_train_config, which stands first in the settings
 * of a verb that has it as `keys`. */
extern const struct ek_opt ek_train_keys[];

/* What the table cannot say of one key: what is missing, contradictory, or does not fit
 * another key. Fills what follows from others (run.dir), in `arena`. *key: the key that
 * is wrong, for its place (ek_opt_place). Errors: EK_EINVAL key, value and what would
 * be right; EK_ENOMEM. */
int ek_train_config_check(struct ek_train_config *c, const char **key,
                          struct ek_arena *arena, struct ek_err *err) EK_MUST_USE;

/* The configuration as JSON, and back: text[0,n) named `name` in errors (a manifest's).
 * Errors: those of ek_buf_add; of ek_opt_keys_read and ek_train_config_check. */
int ek_train_config_json(struct ek_buf *out,
                         const struct ek_train_config *c) EK_MUST_USE;
int ek_train_config_read(struct ek_train_config *c, const char *name, const char *text,
                         size_t n, struct ek_arena *arena,
                         struct ek_err *err) EK_MUST_USE;

/* The first key by which the two would not train the same numbers (threads, lengths of
 * the run, logs and places aside); NULL: none. For a resume. */
const struct ek_opt *ek_train_config_differ(const struct ek_train_config *a,
                                            const struct ek_train_config *b);

/* What the parts of a run are given. */
void ek_train_rec_config(struct ek_rec_config *out, const struct ek_train_config *c);
void ek_train_loader_options(struct ek_loader_options *out,
                             const struct ek_train_config *c);
void ek_train_events_options(struct ek_events_options *out,
                             const struct ek_train_config *c);

#endif
