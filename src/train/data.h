/* data.h - what a configuration trains on: the log, its split, and what a model must
 * know of both. Opened the same way by train, eval and recommend.
 *
 * Owns the log; batches, models and loaders borrow it until release. Threads: read only
 * once it is open.
 */
#ifndef EVENKEEL_TRAIN_DATA_H
#define EVENKEEL_TRAIN_DATA_H

#include "data/events_split.h"
#include "train/config.h"

#define EK_TRAIN_DATA_TEXT 400

struct ek_train_data {
    struct ek_events events;
    struct ek_split split;
    int n_columns; /* of the model: the log's, in its order */
    struct ek_rec_column columns[EK_REC_COLUMNS_MAX];
    int click;              /* index of data.click among the log's columns; -1: none */
    struct ek_column *kept; /* owned: a pack's columns without data.skip; or NULL */
};

/* Reads data.path. on_progress as in events_read.h; NULL: silent. Errors: those of
 * ek_events_read and ek_events_pack_open (the file's fault); EK_EINVAL the
 * configuration wants what the log has not (key, value, what there is); EK_ENOMEM; *d
 * unchanged. *is_input (may be NULL): the file is to blame, not the configuration. */
int ek_train_data_open(struct ek_train_data *d, const struct ek_train_config *c,
                       bool (*on_progress)(void *arg, int64_t done, int64_t total),
                       void *arg, bool *is_input, struct ek_err *err) EK_MUST_USE;
void ek_train_data_release(struct ek_train_data *d); /* may be zeroed */

/* "22363 users, 12101 items, 198502 events, crc32 1f2e3d4c of ...": the same for the
 * same sequences of the same items, whatever file they came from. Returns out. */
const char *ek_train_data_text(char out[EK_TRAIN_DATA_TEXT],
                               const struct ek_train_data *d);

/* Buffers of max_rows for what a batch does not hold itself; NULL: the model has no use
 * for it. */
struct ek_train_extra {
    int64_t *next_times;
    float *clicks;
};

/* The model's view of a loader's batch, without negatives. Every row has one behind it
 * in the log: the next input, or the target. */
void ek_train_bind_batch(struct ek_rec_batch *out, const struct ek_batch *batch,
                         const struct ek_train_data *d, struct ek_train_extra *extra);

#endif
