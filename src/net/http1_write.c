/* http1_write.c - heads and trailers of HTTP/1.1 written out; WebSocket's keys. */
/* SHA1_Init and what belongs to it: EVP looks its algorithm up at each call, which was
 * half of what the proxy itself computes for a handshake. */
#define OPENSSL_API_COMPAT 0x10100000L
#include "net/http1.h"
#include "net/http1_message.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/random.h>

static int add_text(struct ek_buf *out, struct ek_text t)
{
    return ek_buf_add(out, t.p, t.n);
}

static struct ek_text text_of(const char *s)
{
    return ek_text_of(s, strlen(s));
}

/* A word between constant ones: printf would cost more than all else here. */
static int add_line(struct ek_buf *out, const char *before, struct ek_text t,
                    const char *after)
{
    int rc = ek_buf_add_str(out, before);
    if (!rc && t.n > 0)
        rc = add_text(out, t);
    return rc ? rc : ek_buf_add_str(out, after);
}

static int add_status_line(struct ek_buf *out, int status)
{
    const char digits[] = {(char)('0' + status / 100 % 10),
                           (char)('0' + status / 10 % 10), (char)('0' + status % 10)};
    const char *reason =
        status == 101 ? "Switching Protocols" : ek_http1_reason(status);
    int rc = add_line(out, "HTTP/1.1 ", ek_text_of(digits, sizeof digits), " ");
    return rc ? rc : add_line(out, reason, ek_text_of(NULL, 0), "\r\n");
}

static int add_fields(struct ek_buf *out, const struct ek_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int rc = add_text(out, fields[i].name);
        if (!rc)
            rc = ek_buf_add(out, ": ", 2);
        if (!rc)
            rc = add_text(out, fields[i].value);
        if (!rc)
            rc = ek_buf_add(out, "\r\n", 2);
        if (rc)
            return rc;
    }
    return 0;
}

/* Room for all of it at once: heads are small and short-lived. */
static int reserve(struct ek_buf *out, const struct ek_head *h)
{
    size_t n = 256 + h->method.n + h->path.n + h->authority.n;
    for (size_t i = 0; i < h->n_fields; i++)
        n += h->fields[i].name.n + h->fields[i].value.n + 4;
    return ek_buf_reserve(out, n);
}

/* A body that may be there and is not: its length must be said. */
static bool needs_length(const struct ek_head *h, const struct ek_http1_form *f)
{
    if (f->framing != EK_HTTP1_NO_BODY || h->body_bytes >= 0)
        return false;
    if (h->status == 0)
        return ek_text_is(h->method, "post") || ek_text_is(h->method, "put") ||
               ek_text_is(h->method, "patch");
    return h->status >= 200 && h->status != 204 && h->status != 304 &&
           !f->is_head_method;
}

int ek_http1_write_request(struct ek_buf *out, const struct ek_head *h,
                           const struct ek_http1_form *f)
{
    int rc = reserve(out, h);
    if (!rc)
        rc = add_line(out, "", h->method, " ");
    if (!rc)
        rc = add_line(out, "", h->path, " HTTP/1.1\r\n");
    if (!rc)
        rc = add_line(out, "Host: ", h->authority, "\r\n");
    if (!rc)
        rc = add_fields(out, h->fields, h->n_fields);
    if (!rc && f->websocket_key)
        rc = add_line(out,
                      "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                      "Sec-WebSocket-Key: ",
                      text_of(f->websocket_key), "\r\n");
    else if (!rc && !f->is_keep_alive)
        rc = ek_buf_add_str(out, "Connection: close\r\n");
    if (!rc && needs_length(h, f))
        rc = ek_buf_add_str(out, "Content-Length: 0\r\n");
    if (!rc && f->framing == EK_HTTP1_CHUNKED)
        rc = ek_buf_add_str(out, "Transfer-Encoding: chunked\r\n");
    return rc ? rc : ek_buf_add(out, "\r\n", 2);
}

int ek_http1_write_answer(struct ek_buf *out, const struct ek_head *h,
                          const struct ek_http1_form *f)
{
    int rc = reserve(out, h);
    if (!rc)
        rc = add_status_line(out, h->status);
    if (!rc)
        rc = add_fields(out, h->fields, h->n_fields);
    if (!rc && f->websocket_accept)
        rc = add_line(out,
                      "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                      "Sec-WebSocket-Accept: ",
                      text_of(f->websocket_accept), "\r\n");
    else if (!rc && h->status >= 200 && !f->is_keep_alive)
        rc = ek_buf_add_str(out, "Connection: close\r\n");
    else if (!rc && h->status >= 200 && f->minor == 0)
        rc = ek_buf_add_str(out, "Connection: keep-alive\r\n");
    if (!rc && needs_length(h, f))
        rc = ek_buf_add_str(out, "Content-Length: 0\r\n");
    if (!rc && f->framing == EK_HTTP1_CHUNKED)
        rc = ek_buf_add_str(out, "Transfer-Encoding: chunked\r\n");
    return rc ? rc : ek_buf_add(out, "\r\n", 2);
}

int ek_http1_write_trailers(struct ek_buf *out, const struct ek_field *fields, size_t n)
{
    int rc = ek_buf_add_str(out, "0\r\n");
    if (!rc)
        rc = add_fields(out, fields, n);
    return rc ? rc : ek_buf_add(out, "\r\n", 2);
}

/* WebSocket ---------------------------------------------------------------- */

int ek_websocket_accept(char accept[29], const char *key, size_t n)
{
    static const char magic[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[24 + sizeof magic];
    unsigned char sum[SHA_DIGEST_LENGTH];
    SHA_CTX c;
    if (n > 24)
        return EK_EINVAL;
    memcpy(text, key, n);
    memcpy(text + n, magic, sizeof magic - 1);
    if (!SHA1_Init(&c) || !SHA1_Update(&c, text, n + sizeof magic - 1) ||
        !SHA1_Final(sum, &c))
        return EK_ENOMEM;
    EVP_EncodeBlock((unsigned char *)accept, sum, sizeof sum);
    return 0;
}

static bool is_base64(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           c == '+' || c == '/';
}

bool ek_websocket_is_key(struct ek_text key)
{
    for (size_t i = 0; i < 22 && i < key.n; i++) {
        if (!is_base64(key.p[i]))
            return false;
    }
    return key.n == 24 && key.p[22] == '=' && key.p[23] == '=';
}

int ek_websocket_key(char key[25])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return EK_EIO;
    EVP_EncodeBlock((unsigned char *)key, bytes, sizeof bytes);
    return 0;
}
