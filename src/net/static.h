/* static.h - pages embedded in the binary: cmake/embed.cmake makes a table of web/...
 * when the program is built, and an HTTP server answers with them. */
#ifndef EVENKEEL_NET_STATIC_H
#define EVENKEEL_NET_STATIC_H

#include "net/http.h"

struct ek_static_file {
    const char *path; /* "/chat.js"; index.html also answers "/" */
    const char *type; /* content type */
    const unsigned char *data;
    size_t n;
};

/* The tables that are built; each ends with {0}. */
extern const struct ek_static_file ek_chat_files[];  /* web/chat: keel serve */
extern const struct ek_static_file ek_board_files[]; /* web/board: keel route */

/* The file for a request's path, or NULL. */
const struct ek_static_file *ek_static_find(const struct ek_static_file *files,
                                            const char *path);

/* Headers of an answer that is such a file: the page needs nothing from elsewhere and
 * says so to the browser, nobody may frame it, and it is asked for anew each time.
 * Errors: those of ek_http_add_header. */
int ek_static_add_headers(struct ek_http_exchange *x) EK_MUST_USE;

#endif
