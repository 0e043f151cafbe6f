/* scalars.h - scalars over steps as the event files that TensorBoard reads.
 *
 *   record  = length u64 | masked crc32c of it u32 | Event | masked crc32c of it u32
 *   Event   = protobuf: wall_time, step, and file_version "brain.Event:2" (the first
 *             record), a session's start, or a summary of one tag and value
 *
 * A file belongs to one process: a run that is resumed writes another into the same
 * folder, which begins with the step it goes on from; TensorBoard then drops what an
 * earlier file has at or behind it. Records reach the file whole at each flush.
 *
 * Threads: one owner. Source: TFRecord in TensorFlow's "TFRecord and tf.train.Example"
 * guide; event.proto and summary.proto of TensorFlow.
 */
#ifndef EVENKEEL_TRAIN_SCALARS_H
#define EVENKEEL_TRAIN_SCALARS_H

#include "base/err.h"

#include <stdint.h>

#define EK_SCALARS_TAG_MAX 200 /* bytes of a tag */

struct ek_scalars;

/* Begins a file in `folder`, which is made when it is not there (its parent is). step:
 * where the run goes on from, 0 of a new one. Errors: EK_ENOENT, EK_EPERM, EK_EIO; and
 * EK_ELIMIT a path too long, EK_ENOMEM. */
int ek_scalars_open(struct ek_scalars **s, const char *folder, int64_t step,
                    struct ek_err *err) EK_MUST_USE;

/* One point: tag "train/loss", UTF-8, 1 to EK_SCALARS_TAG_MAX bytes; step >= 0; value
 * is kept as f32. Errors: EK_EIO. */
int ek_scalars_add(struct ek_scalars *s, const char *tag, int64_t step, double value,
                   struct ek_err *err) EK_MUST_USE;

/* What was added is in the file, for whoever looks. Errors: EK_EIO (disk full). */
int ek_scalars_flush(struct ek_scalars *s, struct ek_err *err) EK_MUST_USE;

/* Flushes and frees, whatever comes out; s may be NULL. Errors: EK_EIO. */
int ek_scalars_close(struct ek_scalars *s, struct ek_err *err) EK_MUST_USE;

const char *ek_scalars_path(const struct ek_scalars *s);

#endif
