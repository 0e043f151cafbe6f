/* config_table.c - every key of a training configuration, with its default. */
#include "train/config.h"

#define NO_MAX 1e300

/* One line of the table each; AT names the member as the key does. */
#define AT(m) .offset = offsetof(struct ek_train_config, m)
#define TEXT(key, m, text, shown, words)                                               \
    {                                                                                  \
        .name = (key), .type = EK_OPT_STR, AT(m), .fallback = (text),                  \
        .value = (shown), .help = (words)                                              \
    }
#define LIST(key, m, words)                                                            \
    {                                                                                  \
        .name = (key), .type = EK_OPT_LIST, AT(m), .value = "NAME", .help = (words)    \
    }
#define CHOICE(key, m, text, all, words)                                               \
    {                                                                                  \
        .name = (key), .type = EK_OPT_CHOICE, AT(m), .fallback = (text),               \
        .choices = (all), .help = (words)                                              \
    }
#define BOOL(key, m, text, words)                                                      \
    {                                                                                  \
        .name = (key), .type = EK_OPT_FLAG, AT(m), .fallback = (text), .help = (words) \
    }
#define INT(key, m, text, lo, hi, words)                                               \
    {                                                                                  \
        .name = (key), .type = EK_OPT_INT, AT(m), .fallback = (text), .min = (lo),     \
        .max = (hi), .help = (words)                                                   \
    }
#define REAL(key, m, text, lo, hi, words)                                              \
    {                                                                                  \
        .name = (key), .type = EK_OPT_REAL, AT(m), .fallback = (text), .min = (lo),    \
        .max = (hi), .help = (words)                                                   \
    }
#define SIZE(key, m, text, words)                                                      \
    {                                                                                  \
        .name = (key), .type = EK_OPT_BYTES, AT(m), .fallback = (text),                \
        .help = (words)                                                                \
    }

/* In the order of enum ek_train_metric and of the cuts. */
#define METRICS                                                                        \
    "ndcg@5|ndcg@10|ndcg@20|ndcg@50|ndcg@200|recall@5|recall@10|recall@20|recall@50|"  \
    "recall@200|mrr@5|mrr@10|mrr@20|mrr@50|mrr@200|normalised_entropy|auc"

const struct ek_opt ek_train_keys[] = {
    TEXT("run.name", run.name, "run", "NAME", "what logs and plots call the run"),
    TEXT("run.dir", run.dir, "", "DIR",
         "where checkpoints, logs and plots go; empty: runs/NAME"),
    INT("run.seed", run.seed, "1", 0, 0x1p53,
        "of initial values, order, dropout and negatives"),
    INT("run.threads", run.threads, "0", 0, 256, "0: one a core"),

    TEXT("data.path", data.path, "", "FILE", "the log of events; needed"),
    CHOICE("data.format", data.format, "auto", "auto|pack|s3rec|recbole|csv|tsv",
           "auto: by the name, .pack .txt .inter .csv .tsv, .gz aside"),
    TEXT("data.user", data.user, "user_id", "NAME", "column of the user's id"),
    TEXT("data.item", data.item, "item_id", "NAME", "column of the item's id"),
    TEXT("data.time", data.time, "", "NAME",
         "column of the time; empty: timestamp, if there is one"),
    CHOICE("data.unit", data.unit, "s", "s|ms|us", "of times that are numbers"),
    LIST("data.numeric", data.numeric, "columns kept as numbers of each event"),
    LIST("data.category", data.category, "columns kept as categories of each event"),
    LIST("data.user_numeric", data.user_numeric, "the same for numbers of the user"),
    LIST("data.user_category", data.user_category,
         "the same for categories of the user"),
    LIST("data.skip", data.skip, "columns of a recbole file or a pack to leave out"),
    TEXT("data.click", data.click, "", "NAME",
         "numeric column of events, 0 or 1, that a click head learns; empty: none"),
    CHOICE("data.split", data.split, "leave_one_out", "leave_one_out|by_time",
           "leave_one_out: a user's last event tests, the one before validates"),
    REAL("data.valid", data.valid, "0.1", 0, 1, "by_time: share of events to validate"),
    REAL("data.test", data.test, "0.1", 0, 1, "by_time: share of events to test"),

    CHOICE("model.kind", model.kind, "sasrec", "sasrec|hstu|gem", "the architecture"),
    INT("model.dim", model.dim, "64", 1, 4096, "columns of items and hidden states"),
    INT("model.blocks", model.blocks, "1", 1, 64, "layers"),
    INT("model.heads", model.heads, "1", 1, 64, "of attention; divides model.dim"),
    INT("model.ffn", model.ffn, "0", 0, 65536,
        "hidden columns of the feed-forward; 0: model.dim"),
    INT("model.dim_qk", model.dim_qk, "0", 0, 256,
        "hstu: columns of a head's queries and keys; 0: model.dim / model.heads"),
    INT("model.dim_v", model.dim_v, "0", 0, 256,
        "hstu: columns of a head's values; 0: model.dim / model.heads"),
    REAL("model.dropout", model.dropout, "0.2", 0, 0.99,
         "of embeddings and of each branch"),
    INT("model.max_length", model.max_length, "50", 1, 65536,
        "events of a user that the model sees, the latest"),
    BOOL("model.times", model.times, "false",
         "hstu, gem: bias by the time between events"),
    CHOICE("model.norm", model.norm, "max_length", "max_length|length",
           "hstu: what attention is divided by; max_length: and 11 more, as published"),
    CHOICE("model.loss", model.loss, "sampled", "sampled|full",
           "softmax over the negatives drawn, or over all items"),
    INT("model.negatives", model.negatives, "256", 1, 1048576,
        "sampled: drawn uniformly with repetition, shared by a micro-batch"),
    CHOICE("model.similarity", model.similarity, "dot", "dot|cosine",
           "of a hidden state and an item"),
    REAL("model.temperature", model.temperature, "1", 1e-4, 1e4,
         "scores are divided by it"),
    INT("model.seeds", model.seeds, "4", 1, 256, "gem: pooled rows of a sequence"),
    INT("model.rank", model.rank, "4", 1, 256, "gem: of the factorisation machines"),
    INT("model.experts", model.experts, "2", 1, 16, "gem: of the mixture"),
    INT("model.window", model.window, "0", 0, 65536,
        "gem: of self-attention; 0: blocks of 64"),
    INT("model.chunk", model.chunk, "0", 0, 65536,
        "gem: events whose summary of the past is one; 0: 16"),
    INT("model.column_dim", model.column_dim, "0", 0, 4096,
        "gem: columns of a category's table; 0: model.dim"),
    INT("model.column_rows", model.column_rows, "0", 0, 0x7ffffffe,
        "gem: rows of a category's table, at most; more levels share them by a hash; "
        "0: "
        "a row each"),
    BOOL("model.alternates", model.alternates, "false",
         "gem: every other block skips self-attention, the others do only it"),
    REAL("model.click_weight", model.click_weight, "0", 0, 1e4,
         "of a click head's loss; 0: no such head"),

    INT("train.batch", train.batch, "128", 1, 1048576, "sequences of a micro-batch"),
    INT("train.micro_batches", train.micro_batches, "1", 1, EK_LOADER_MICRO_MAX,
        "of a step, their gradients summed"),
    INT("train.sub_batch", train.sub_batch, "0", 0, 1048576,
        "sequences dealt together; divides train.batch; 0: its largest divisor to 128"),
    INT("train.max_tokens", train.max_tokens, "0", 0, 0x1p40,
        "events of a micro-batch, at most; 0: train.batch alone says"),
    INT("train.ahead", train.ahead, "2", 0, EK_LOADER_AHEAD_MAX,
        "batches prepared in a thread of their own"),
    BOOL("train.cuts_windows", train.cuts_windows, "false",
         "learn from events before the latest model.max_length, too"),
    INT("train.epochs", train.epochs, "100", 1, 1000000, "passes over the users"),
    INT("train.max_steps", train.max_steps, "0", 0, 0x1p53,
        "steps at which training ends; 0: train.epochs alone says"),
    REAL("train.lr", train.lr, "0.001", 0, 1e3, "learning rate of AdamW"),
    REAL("train.beta1", train.beta1, "0.9", 0, 0.999999, "of AdamW"),
    REAL("train.beta2", train.beta2, "0.98", 0, 0.999999, "of AdamW"),
    REAL("train.eps", train.eps, "1e-8", 1e-20, 1, "of AdamW"),
    REAL("train.weight_decay", train.weight_decay, "0", 0, 1e3, "decoupled, of AdamW"),
    INT("train.warmup_steps", train.warmup_steps, "0", 0, 0x1p53,
        "steps in which the rates rise from 0, linearly"),
    CHOICE("train.schedule", train.schedule, "constant", "constant|cosine",
           "of the rates behind the warm-up"),
    REAL("train.lr_end", train.lr_end, "0", 0, 1,
         "cosine: share of the rates at the last step"),
    REAL("train.clip_norm", train.clip_norm, "0", 0, 1e6,
         "ceiling of the gradients' global norm; 0: none"),
    CHOICE(
        "train.dtype", train.dtype, "f32", "f32|bf16",
        "what matmuls and attention round their inputs to; sums and weights are f32"),
    CHOICE("train.items", train.items, "adamw", "adamw|rowwise_adagrad",
           "optimizer of the items, and gem's categories: dense, or of the rows that a "
           "step touched"),
    REAL("train.items_lr", train.items_lr, "0.01", 0, 1e3, "rate of rowwise_adagrad"),
    REAL("train.items_eps", train.items_eps, "1e-8", 1e-20, 1, "of rowwise_adagrad"),
    SIZE("train.max_bytes", train.max_bytes, "0",
         "ceiling of a step's memory; 0: none"),

    INT("eval.every", eval.every, "1", 0, 0x1p53,
        "how often the validation part is ranked; 0: at the end alone"),
    CHOICE("eval.unit", eval.unit, "epochs", "epochs|steps", "of eval.every"),
    {.name = "eval.metric",
     .type = EK_OPT_CHOICE,
     AT(eval.metric),
     .fallback = "ndcg@10",
     .choices = METRICS,
     .value = "METRIC",
     .help = "what the best checkpoint is best at, on the validation part"},
    BOOL("eval.filter", eval.filter, "true",
         "items that a user has had do not compete in eval.metric"),
    INT("eval.patience", eval.patience, "0", 0, 1000000,
        "evaluations in a row without a better one that end training; 0: none do"),
    INT("eval.batch", eval.batch, "512", 1, 1048576, "sequences ranked together"),

    INT("log.every", log.every, "100", 1, 0x1p53, "steps between lines of the log"),
    INT("checkpoint.every", checkpoint.every, "0", 0, 0x1p53,
        "steps between checkpoints; 0: one behind each evaluation"),
    {0},
};
