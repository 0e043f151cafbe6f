/* checkpoint_int.h - a checkpoint's parts; private to train/.
 *
 * checkpoint.c         the order of things: what is written and read when
 * checkpoint_manifest.c    manifest.json
 * checkpoint_tensors.c     the two safetensors files
 */
#ifndef EVENKEEL_TRAIN_CHECKPOINT_INT_H
#define EVENKEEL_TRAIN_CHECKPOINT_INT_H

#include "base/file.h"
#include "data/safetensors.h"
#include "train/checkpoint.h"

#define EK_CHECKPOINT_MANIFEST  "manifest.json"
#define EK_CHECKPOINT_CONFIG    "config.json"
#define EK_CHECKPOINT_MODEL     "model.safetensors"
#define EK_CHECKPOINT_OPTIMIZER "optimizer.safetensors"

#define EK_CHECKPOINT_PATH     4400       /* of a file: a folder's path and a name */
#define EK_CHECKPOINT_TEXT_MAX (16 << 20) /* of config.json and of the manifest */

/* What the manifest says of a file; absent: name is NULL. */
struct ek_checkpoint_file {
    const char *name; /* one of the three above */
    uint64_t bytes;
    uint32_t crc;
};

struct ek_manifest {
    struct ek_train_progress progress;
    char *data;          /* owned */
    int64_t adamw_steps; /* -1: no state of adamw is there */
    struct ek_checkpoint_file config, model, optimizer;
    uint32_t crc; /* its own: tells one manifest from another */
};

/* "folder/name" into out. */
const char *ek_checkpoint_path(char out[EK_CHECKPOINT_PATH], const char *folder,
                               const char *name);

int ek_manifest_write(const char *folder, const struct ek_manifest *m, const char *data,
                      struct ek_err *err) EK_MUST_USE;

/* Of a folder, or of text[0,n), named `path` in errors. Errors as ek_checkpoint_peek's;
 * m is then released. */
int ek_manifest_read(struct ek_manifest *m, const char *folder,
                     struct ek_err *err) EK_MUST_USE;
int ek_manifest_parse(struct ek_manifest *m, const char *path, const char *text,
                      size_t n, struct ek_err *err) EK_MUST_USE;
void ek_manifest_release(struct ek_manifest *m); /* may be zeroed */

/* The tensors of one file and where their numbers live in this process. */
struct ek_state {
    struct ek_tensors tensors; /* items owned; data and names borrowed from the two: */
    float **values;            /* owned */
    char (*names)[96];         /* owned */
};

/* is_model: the parameters; else the state of the optimizers that are there. Errors:
 * EK_ENOMEM. */
int ek_state_init(struct ek_state *s, const struct ek_checkpoint *c, bool is_model,
                  struct ek_err *err) EK_MUST_USE;
void ek_state_release(struct ek_state *s); /* may be zeroed */

/* Writes it to folder/file->name and sets the file's size and digest. */
int ek_state_write(const struct ek_state *s, const char *folder,
                   struct ek_checkpoint_file *file, struct ek_err *err) EK_MUST_USE;

/* A file that its manifest describes: its size and digest are checked by open. */
struct ek_state_in {
    char path[EK_CHECKPOINT_PATH];
    struct ek_file map;          /* owned */
    struct ek_safetensors *read; /* owned; borrows the map */
};

int ek_state_open(struct ek_state_in *in, const char *folder,
                  const struct ek_checkpoint_file *file,
                  struct ek_err *err) EK_MUST_USE;
void ek_state_close(struct ek_state_in *in); /* may be zeroed */

/* EK_EFORMAT unless the file has every tensor of s in its shape, and, with is_exact, no
 * other. */
int ek_state_check(const struct ek_state *s, const struct ek_state_in *in,
                   bool is_exact, struct ek_err *err) EK_MUST_USE;

/* Takes the numbers of a file that was checked. */
void ek_state_take(const struct ek_state *s, const struct ek_state_in *in);

#endif
