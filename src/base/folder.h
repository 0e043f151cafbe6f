/* folder.h - a folder of files that appears whole or not at all. */
#ifndef EVENKEEL_BASE_FOLDER_H
#define EVENKEEL_BASE_FOLDER_H

#include "base/err.h"

#include <stdbool.h>

struct ek_folder_out {
    const char *path; /* borrowed until end or cancel */
    char aside[4096]; /* "" while not begun, or over; no slash at its end */
};

/* Makes an empty folder beside `path`; files are written into f->aside. */
int ek_folder_out_begin(struct ek_folder_out *f, const char *path,
                        struct ek_err *err) EK_MUST_USE;

/* Renames it to `path`. Where a folder is there already and `replaces`, the two change
 * places and the old one is removed: it must hold plain files only, and one named
 * `marker` among them, so that no other folder is removed by mistake. Errors: EK_EINVAL
 * it holds something else, or is there and must not be replaced; EK_EPERM, EK_EIO ...;
 * the new folder is removed then. */
int ek_folder_out_end(struct ek_folder_out *f, bool replaces, const char *marker,
                      struct ek_err *err) EK_MUST_USE;

/* Removes what was made. Any number of times. */
void ek_folder_out_cancel(struct ek_folder_out *f);

/* Whether a folder at `path` could be replaced, as above; EK_ENOENT nothing is there.
 * */
int ek_folder_check(const char *path, const char *marker,
                    struct ek_err *err) EK_MUST_USE;

#endif
