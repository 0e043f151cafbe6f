/* trained.h - a checkpoint made ready to run: its configuration, its model, what its
 * numbers mean, and the log if there is to be one.
 *
 * The names of items come from RUN/vocab.txt (beside the checkpoint, or in its run's
 * folder), so a model recommends without its log. With a log its items must be the
 * vocabulary's: an index that means another item would give answers that look right.
 *
 * Owns all of it until release. Threads: one owner.
 */
#ifndef EVENKEEL_TRAIN_TRAINED_H
#define EVENKEEL_TRAIN_TRAINED_H

#include "base/arena.h"
#include "train/data.h"
#include "train/evaluate.h"
#include "train/vocab.h"

struct ek_trained_options {
    bool has_data; /* open the log: data_path, or where it was in training */
    const char
        *data_path;    /* NULL: the configuration's; its format is told by its name */
    enum ek_part part; /* whose batches the model has room for, with a log; TRAIN: one
                              sequence, for ek_recommend */
    int64_t threads;   /* 0: one a physical core */
    bool (*on_progress)(void *arg, int64_t done,
                        int64_t total); /* of the log; or NULL */
    void *arg;
};

struct ek_trained {
    struct ek_train_config config; /* strings in the arena */
    struct ek_rec_config rec;
    int64_t steps;     /* of the optimizer, done */
    char *trained_on;  /* ek_train_data_text of training */
    char folder[4096]; /* of the checkpoint */
    struct ek_arena arena;
    struct ek_train_data data; /* zeroed without a log */
    struct ek_vocab vocab;     /* items.n 0: there is none */
    struct ek_names items; /* of the log, or of the vocabulary; borrowed from either */
    struct ek_team *team;
    enum ek_isa isa;
    struct ek_params *params;
    struct ek_rec *model;
    struct ek_evaluate evaluate; /* all of it, for ek_evaluate_run and ek_recommend */
};

/* Errors: those of ek_checkpoint_load and ek_train_data_open; EK_ENOENT neither a
 * vocabulary nor a log; EK_EINVAL a log of other items or columns (which, and what was
 * expected); EK_ENOMEM. On failure *t needs no release. */
int ek_trained_open(struct ek_trained *t, const char *folder,
                    const struct ek_trained_options *o, struct ek_err *err) EK_MUST_USE;
void ek_trained_release(struct ek_trained *t); /* may be zeroed */

/* Index of the name s[0,n), or -1. Cost: O(names). */
int64_t ek_names_find(const struct ek_names *names, const char *s, size_t n);

/* The name nearest to s[0,n) (fewest changed, added and dropped bytes, at most half of
 * its length), the first of several; -1: none is near. Cost: O(names n 64). */
int64_t ek_names_nearest(const struct ek_names *names, const char *s, size_t n);

#endif
