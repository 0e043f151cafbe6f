/* fuzz_http1.c - the HTTP/1 request parser.
 *
 * The first byte chooses where the rest is cut. Whole and cut must agree; what a
 * handler would get must hold what http.h promises. */
#include "base/buf.h"
#include "net/http1.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEAD = 600, MAX_BODY = 300 };

static void require(int is_true)
{
    if (!is_true)
        abort();
}

/* Feeds p[0,n) from fresh memory, so that one byte read too many is seen. */
static size_t feed_piece(struct ek_http1 *p, const uint8_t *data, size_t n)
{
    size_t used = 0;
    char *copy = malloc(n ? n : 1);
    if (!copy)
        exit(1);
    memcpy(copy, data, n);
    require(ek_http1_feed(p, copy, n, &used) == 0);
    require(used == n || p->phase >= EK_HTTP1_DONE);
    free(copy);
    return used;
}

/* Feeds in pieces of `size` bytes (0: all at once); returns the bytes taken. */
static size_t feed_all(struct ek_http1 *p, const uint8_t *data, size_t n, size_t size)
{
    size_t at = 0, used = 0;
    while (at < n && p->phase < EK_HTTP1_DONE) {
        size_t piece = size && size < n - at ? size : n - at;
        used += feed_piece(p, data + at, piece);
        at += piece;
    }
    return used;
}

static void require_promises(const struct ek_http1 *p)
{
    const struct ek_http_request *r = &p->request;
    require(r->method && r->path && r->query && r->body);
    require(r->path[0] == '/' || strcmp(r->path, "*") == 0);
    require(r->n_headers <= EK_HTTP1_MAX_HEADERS && r->body_n <= MAX_BODY);
    for (size_t i = 0; i < r->n_headers; i++) {
        const struct ek_http_header *h = &r->headers[i];
        size_t n = strlen(h->value);
        require(ek_http1_is_token(h->name, strlen(h->name)));
        require(ek_http1_is_value(h->value, n));
        require(n == 0 || (h->value[0] > ' ' || h->value[0] < 0));
        require(n == 0 || (h->value[n - 1] > ' ' || h->value[n - 1] < 0));
    }
    if (p->minor == 1)
        require(ek_http_header_get(r, "host") != NULL);
    if (ek_http_header_get(r, "transfer-encoding"))
        require(!ek_http_header_get(r, "content-length"));
}

static void require_same(const struct ek_http1 *a, const struct ek_http1 *b)
{
    require(a->phase == b->phase && a->code == b->code && a->reason == b->reason);
    if (a->phase != EK_HTTP1_DONE)
        return;
    const struct ek_http_request *r = &a->request, *s = &b->request;
    require(strcmp(r->method, s->method) == 0 && strcmp(r->path, s->path) == 0 &&
            strcmp(r->query, s->query) == 0);
    require(r->n_headers == s->n_headers && r->body_n == s->body_n);
    require(memcmp(r->body, s->body, r->body_n) == 0);
    for (size_t i = 0; i < r->n_headers; i++)
        require(strcmp(r->headers[i].name, s->headers[i].name) == 0 &&
                strcmp(r->headers[i].value, s->headers[i].value) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct ek_http1 a, b;
    size_t cut = data[0], n = size - 1;
    const uint8_t *text = data + 1;
    ek_http1_init(&a, MAX_HEAD, MAX_BODY);
    ek_http1_init(&b, MAX_HEAD, MAX_BODY);
    /* Requests sent ahead follow on the same parser, as on a connection. */
    for (int i = 0; i < 4 && n > 0; i++) {
        size_t used = feed_all(&a, text, n, 0);
        require(used == feed_all(&b, text, n, 1 + cut % 32) ||
                a.phase == EK_HTTP1_FAILED);
        require_same(&a, &b);
        if (a.phase != EK_HTTP1_DONE)
            break;
        require_promises(&a);
        text += used;
        n -= used;
        ek_http1_reset(&a);
        ek_http1_reset(&b);
    }
    ek_http1_release(&a);
    ek_http1_release(&b);
    return 0;
}
