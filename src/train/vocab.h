/* vocab.h - what the numbers of a model mean: the names of its items and its columns,
 * in a text file beside the checkpoints (RUN/vocab.txt), so that a model recommends
 * without the log it learned from.
 *
 *   evenkeel vocabulary 1
 *   columns 2
 *   user 5 land              of users or events; levels of a category, 0: a number
 *   event 0 price
 *   items 3
 *   B0001                    line i is item i, as the log wrote it
 *   ...
 *   end
 *
 * In a name a backslash is written \\, a line end \n, a carriage return \r; all other
 * bytes are as they are.
 * Threads: values only.
 */
#ifndef EVENKEEL_TRAIN_VOCAB_H
#define EVENKEEL_TRAIN_VOCAB_H

#include "data/events.h"
#include "rec/model.h"

#define EK_VOCAB_FILE "vocab.txt"

struct ek_vocab {
    struct ek_names items; /* n >= 1 */
    int n_columns;
    struct ek_rec_column columns[EK_REC_COLUMNS_MAX];
    char *bytes; /* owned: names of items, then of columns */
    int64_t *offsets;
};

/* Replaces the file as a whole. Errors: those of ek_file_out_begin. */
int ek_vocab_write(const char *path, const struct ek_names *items,
                   const struct ek_rec_column *columns, int n_columns,
                   struct ek_err *err) EK_MUST_USE;

/* Errors: those of ek_file_open; EK_EFORMAT (line, what was expected), EK_EUNSUP a
 * newer format, EK_ENOMEM; *v is unchanged. */
int ek_vocab_read(struct ek_vocab *v, const char *path, struct ek_err *err) EK_MUST_USE;
int ek_vocab_parse(struct ek_vocab *v, const char *name, const char *text, size_t n,
                   struct ek_err *err) EK_MUST_USE; /* text[0,n), named in errors */
void ek_vocab_release(struct ek_vocab *v);          /* may be zeroed */

#endif
