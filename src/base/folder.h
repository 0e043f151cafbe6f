/* folder.h - a folder of files that appears whole or not at all.
 *
 *   PATH.<thread>.tmp    what is being written; later what was replaced, until removed
 *   PATH.replaced.tmp    only where the file system cannot exchange two folders: the
 *                        old one, from the moment it leaves PATH until it is removed
 *
 * A kill at any moment leaves PATH, or PATH.replaced.tmp, whole (ek_folder_find). What
 * a dead writer left is removed by the next one. One writer of a PATH at a time.
 */
#ifndef EVENKEEL_BASE_FOLDER_H
#define EVENKEEL_BASE_FOLDER_H

#include "base/err.h"

#include <stdbool.h>

struct ek_folder_out {
    const char *path; /* borrowed until end or cancel */
    char aside[4096]; /* "" while not begun, or over; no slash at its end */
};

/* Makes an empty folder beside `path`; files are written into f->aside. Removes the
 * asides of writers of this host that live no more. Errors: EK_ENOENT no such parent,
 * EK_EPERM, EK_EIO, EK_ELIMIT (path too long). */
int ek_folder_out_begin(struct ek_folder_out *f, const char *path,
                        struct ek_err *err) EK_MUST_USE;

/* Flushes the folder to disk (the files are their writer's: ek_file_out_end does) and
 * renames it to `path`. Where a folder is there already and `replaces`, the two change
 * places and the old one is removed: it must hold plain files only, and one named
 * `marker` among them, so that no other folder is removed by mistake. Errors: EK_EINVAL
 * it holds something else, or is there and must not be replaced; EK_EPERM, EK_EIO ...;
 * the new folder is removed then. */
int ek_folder_out_end(struct ek_folder_out *f, bool replaces, const char *marker,
                      struct ek_err *err) EK_MUST_USE;

/* Removes what was made. Any number of times. */
void ek_folder_out_cancel(struct ek_folder_out *f);

/* Removes the plain files of a folder and the folder itself; others stay, no link is
 * followed, and nothing happens where there is none. */
void ek_folder_remove(const char *path);

/* Whether a folder at `path` could be replaced, as above; EK_ENOENT nothing is
 * there. */
int ek_folder_check(const char *path, const char *marker,
                    struct ek_err *err) EK_MUST_USE;

/* Where a reader finds it: `path`, or PATH.replaced.tmp where a writer was killed
 * between two renames. Into out; cannot fail (a path too long comes back cut). */
void ek_folder_find(char out[4096], const char *path);

#endif
