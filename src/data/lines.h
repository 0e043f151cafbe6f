/* lines.h - a text file line by line, gzip or not, however large; private to data/.
 *
 * What a file is is told by its first bytes, not by its name. Several gzip members one
 * behind the other are one text, as gzip itself has it. A UTF-8 byte order mark is
 * passed over. Memory: one line and 1 MiB.
 */
#ifndef EVENKEEL_DATA_LINES_H
#define EVENKEEL_DATA_LINES_H

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ek_inflate; /* zlib's state */

struct ek_lines {
    const char *name; /* of the file; borrowed */
    uint64_t number;  /* of the line given last, from 1 */
    uint64_t bytes;   /* of text given so far, line ends included */
    uint64_t read;    /* bytes of the file taken so far */

    struct ek_file_in file; /* fd -1: the text is in memory */
    unsigned char *raw;     /* a piece of the file; owned unless is_memory */
    size_t raw_at, raw_n;
    bool is_memory, is_raw_over;

    struct ek_inflate *gzip; /* NULL: plain text */
    bool is_member_over;     /* of gzip: between two members */

    char *text; /* owned; line ends and lines not yet given: [at, n) */
    size_t at, n, cap;
    size_t max_line;
    bool is_over; /* nothing comes behind text[0,n) */
};

/* Errors: those of ek_file_in_open, EK_ENOMEM. *l is released on failure. */
int ek_lines_open(struct ek_lines *l, const char *path, size_t max_line,
                  struct ek_err *err) EK_MUST_USE;

/* The same over p[0,n), borrowed until release. */
int ek_lines_of(struct ek_lines *l, const char *name, const void *p, size_t n,
                size_t max_line, struct ek_err *err) EK_MUST_USE;
void ek_lines_release(struct ek_lines *l); /* may be zeroed */

/* The next line without its end (\n or \r\n), good until the next call; *line NULL
 * behind the last one. Errors: EK_ELIMIT a line over max_line bytes, EK_EFORMAT gzip
 * that is damaged or cut off, EK_EIO, EK_ENOMEM; sentences name file and line. */
int ek_lines_next(struct ek_lines *l, const char **line, size_t *n,
                  struct ek_err *err) EK_MUST_USE;

#endif
