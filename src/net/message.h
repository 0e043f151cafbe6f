/* message.h - the head of a request or an answer, of any version of HTTP: slices into
 * memory that somebody else owns. What one connection parses another one writes.
 */
#ifndef EVENKEEL_NET_MESSAGE_H
#define EVENKEEL_NET_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct ek_text {
    const char *p; /* not NUL-terminated; NULL: absent */
    size_t n;
};

struct ek_field {
    struct ek_text name;  /* a token, in the case it came in */
    struct ek_text value; /* trimmed, without NUL, CR and LF */
};

enum { EK_HEAD_MAX_FIELDS = 100 }; /* browsers send about 20 */

struct ek_head {
    /* A request. */
    struct ek_text method;
    struct ek_text scheme;    /* "http" or "https" */
    struct ek_text authority; /* Host, :authority; absent in HTTP/1.0 */
    struct ek_text path;      /* raw, with its query; begins with '/', or is "*" */
    /* An answer. */
    int status; /* 100..599; 0: a request */
    /* Both. */
    const struct ek_field *fields; /* end to end: those of one connection (Connection
                                      and what it names, Keep-Alive, Transfer-Encoding,
                                      Upgrade, TE but "trailers", Host) are not here */
    size_t n_fields;
    int64_t body_bytes; /* what Content-Length says, -1: nothing; the field is there,
                            too */
    bool is_websocket;  /* a request: wants a WebSocket (RFC 6455 or 8441). An answer
                            of status 101: is one from here on. Its handshake fields
                            Sec-WebSocket-Key and -Accept are not among the fields */
    bool expects_continue;
    struct ek_text websocket_key; /* what a client of RFC 6455 sent; else absent */
};

static inline struct ek_text ek_text_of(const char *p, size_t n)
{
    return (struct ek_text){p, n};
}

/* Is t the n bytes of word, which is in lower case, but for ASCII's case? */
bool ek_text_is_word(struct ek_text t, const char *word, size_t n);
/* Likewise; word ends with NUL, and its length is known where this is compiled, as most
 * words are told apart by that. */
static inline bool ek_text_is(struct ek_text t, const char *word)
{
    size_t n = strlen(word);
    return t.n == n && ek_text_is_word(t, word, n);
}
bool ek_text_same(struct ek_text a, struct ek_text b);  /* but for ASCII's case */
bool ek_text_equal(struct ek_text a, struct ek_text b); /* to the byte */

/* The next member of a comma-separated list (RFC 9110 5.6.1), empty ones skipped; list
 * moves behind it. False at the end. */
bool ek_text_next_member(struct ek_text *list, struct ek_text *member);
bool ek_text_has_member(struct ek_text list, const char *word);

/* Only visible ASCII, and none of `refused`. */
bool ek_text_is_visible(struct ek_text t, const char *refused);

/* What two readers of a request could take for two things is refused in every version
 * of HTTP. path: from '/' on, or "*" of OPTIONS; authority: HOST or HOST:PORT, may be
 * empty. */
bool ek_text_is_path(struct ek_text path, struct ek_text method);
bool ek_text_is_authority(struct ek_text authority);

/* Content-Length, Transfer-Encoding, Host; and a name that is one of them to a backend
 * that turns names into variables: Content_Length. */
bool ek_text_is_framing(struct ek_text name);
bool ek_text_is_disguised(struct ek_text name);

/* First field of that (lower case) name, or NULL. */
const struct ek_field *ek_head_field(const struct ek_head *h, const char *name);

#endif
