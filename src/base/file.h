/* file.h - whole files: mapped for reading, or read into a buffer with a ceiling. */
#ifndef EVENKEEL_BASE_FILE_H
#define EVENKEEL_BASE_FILE_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* A read-only mapping. A file that shrinks while mapped raises SIGBUS on access; that
 * is the operating system's contract, and the guide says so. */
struct ek_file {
    const unsigned char *data; /* mapped, owned; NULL for an empty file */
    size_t size;               /* bytes */
};

/* Maps the regular file at `path`. Errors: EK_ENOENT, EK_EPERM, EK_EINVAL (not a
 * regular file), EK_EIO, with a sentence that begins with the path; *f unchanged. */
int ek_file_open(struct ek_file *f, const char *path, struct ek_err *err) EK_MUST_USE;
void ek_file_close(struct ek_file *f); /* f may be zeroed */

/* Gives back the memory of pages that were read; the next access reads them again, as a
 * rule from the system's cache. For what is walked once and is larger than memory. */
void ek_file_forget(const struct ek_file *f);

/* Appends all of `path` ("-": standard input; pipes are fine) to `out`. Errors: as
 * above, EK_ELIMIT when the buffer's ceiling is reached, EK_ENOMEM; `out` keeps what it
 * had. */
int ek_file_read(struct ek_buf *out, const char *path, struct ek_err *err) EK_MUST_USE;

/* A file, "-" (standard input) or a pipe, read piece by piece. read stores 1..n bytes at
 * p and their number in *got, 0 at the end. Errors of both: as ek_file_open's, and
 * EK_EINVAL for a folder; the sentence begins with the name. */
struct ek_file_in {
    const char *name; /* the path, borrowed, or "standard input" */
    int fd;           /* -1: not open */
};
int ek_file_in_open(struct ek_file_in *f, const char *path,
                    struct ek_err *err) EK_MUST_USE;
int ek_file_in_read(struct ek_file_in *f, void *p, size_t n, size_t *got,
                    struct ek_err *err) EK_MUST_USE;
void ek_file_in_close(struct ek_file_in *f); /* any number of times */

/* Replaces `path` as a whole: written aside, flushed to disk, renamed. Errors: EK_EIO,
 * EK_EPERM, EK_ENOENT (no such folder), EK_EINVAL (a folder, a device, a pipe),
 * EK_ELIMIT (path too long); what is there stays. */
int ek_file_write(const char *path, const void *p, size_t n,
                  struct ek_err *err) EK_MUST_USE;

/* The same from pieces that follow one another, so that a large file needs no copy. */
struct ek_file_part {
    const void *p;
    size_t n;
};
int ek_file_write_parts(const char *path, const struct ek_file_part *parts,
                        size_t n_parts, struct ek_err *err) EK_MUST_USE;

/* A file that is written piece by piece and appears whole or not at all: begin writes
 * beside `path`, end flushes to disk and renames, cancel removes. */
struct ek_file_out {
    const char *path; /* borrowed until end or cancel */
    char aside[4096];
    int fd;         /* -1: not begun, or over */
    uint64_t bytes; /* added so far */
};

/* Errors of all three as ek_file_write's; the sentence names `path`. After an error of
 * add the rest is cancel's; end cancels itself when it fails. */
int ek_file_out_begin(struct ek_file_out *f, const char *path,
                      struct ek_err *err) EK_MUST_USE;
int ek_file_out_add(struct ek_file_out *f, const void *p, size_t n,
                    struct ek_err *err) EK_MUST_USE;
int ek_file_out_end(struct ek_file_out *f, struct ek_err *err) EK_MUST_USE;
void ek_file_out_cancel(struct ek_file_out *f); /* any number of times; not begun: -1 */

/* "97.8 MiB" into out; for messages. Returns out. */
const char *ek_format_bytes(char out[32], uint64_t bytes);

#endif
