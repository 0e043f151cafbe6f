/* history.h - what a run wrote into log.jsonl, as curves over steps.
 *
 *   {"kind": "train", "step": 100, "loss": 6.1, "lr": 1e-3, ...}    "loss", "lr" ...
 *   {"kind": "valid", "step": 500, "filtered": {"ndcg@10": .06, ...},    "valid/ndcg@10"
 *    "unfiltered": {"ndcg@10": .05, ...}}                     "valid/unfiltered/ndcg@10"
 *   {"kind": "end", "test": {"ndcg@10": .07, ...}, ...}            a final: "ndcg@10"
 *
 * Every number of a line with a step is a point, by its path of names ("filtered" is
 * the rule and not said); anything else is passed over, so that the log may say more. A
 * step at or before a curve's last one means that the run was resumed before it: the
 * points from there on were not kept, and are dropped. A last line without its end is
 * one that was being written.
 */
#ifndef EVENKEEL_TRAIN_HISTORY_H
#define EVENKEEL_TRAIN_HISTORY_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define EK_HISTORY_NAME   64  /* bytes of a curve's name, NUL included */
#define EK_HISTORY_CURVES 200 /* and finals; what comes behind is passed over */

struct ek_history_point {
    int64_t step;
    double value;
};

struct ek_history_curve {
    char name[EK_HISTORY_NAME];
    struct ek_history_point *points; /* owned; steps rise */
    size_t n, cap;
};

struct ek_history {
    struct ek_history_curve *curves; /* owned; in the order of their first points */
    size_t n_curves, cap_curves;
    struct ek_history_final {
        char name[EK_HISTORY_NAME];
        double value;
    } * finals; /* owned; of the test part */
    size_t n_finals, cap_finals;
};

/* path: the log. Errors: those of ek_file_open; EK_EFORMAT a line that is no JSON
 * object (file, line); EK_ENOMEM. *h is released then. */
int ek_history_read(struct ek_history *h, const char *path,
                    struct ek_err *err) EK_MUST_USE;
int ek_history_parse(struct ek_history *h, const char *text, size_t n, const char *name,
                     struct ek_err *err) EK_MUST_USE;
void ek_history_release(struct ek_history *h); /* may be zeroed */

/* NULL when it has none of that name. */
const struct ek_history_curve *ek_history_find(const struct ek_history *h,
                                               const char *name);

#endif
