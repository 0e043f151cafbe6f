/* static.h - the pages embedded in the binary: the table is generated from web/ by
 * cmake/embed.cmake when the program is built. */
#ifndef EVENKEEL_SERVE_STATIC_H
#define EVENKEEL_SERVE_STATIC_H

#include <stddef.h>

struct ek_static_file {
    const char *path; /* "/chat.js"; index.html also answers "/" */
    const char *type; /* content type */
    const unsigned char *data;
    size_t n;
};

extern const struct ek_static_file ek_static_files[]; /* ends with {0} */

/* The file for a request's path, or NULL. */
const struct ek_static_file *ek_static_find(const char *path);

#endif
