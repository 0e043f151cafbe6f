/* http1_write.c - heads and trailers of HTTP/1.1 written out; WebSocket's keys. */
#include "net/http1.h"
#include "net/http1_message.h"

#include <openssl/evp.h>
#include <string.h>
#include <sys/random.h>

static int add_text(struct ek_buf *out, struct ek_text t)
{
    return ek_buf_add(out, t.p, t.n);
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
        rc = ek_buf_addf(out, "%.*s %.*s HTTP/1.1\r\nHost: %.*s\r\n", (int)h->method.n,
                         h->method.p, (int)h->path.n, h->path.p, (int)h->authority.n,
                         h->authority.n ? h->authority.p : "");
    if (!rc)
        rc = add_fields(out, h->fields, h->n_fields);
    if (!rc && f->websocket_key)
        rc = ek_buf_addf(out,
                         "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                         "Sec-WebSocket-Key: %s\r\n",
                         f->websocket_key);
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
        rc = ek_buf_addf(out, "HTTP/1.1 %d %s\r\n", h->status,
                         h->status == 101 ? "Switching Protocols"
                                          : ek_http1_reason(h->status));
    if (!rc)
        rc = add_fields(out, h->fields, h->n_fields);
    if (!rc && f->websocket_accept)
        rc = ek_buf_addf(out,
                         "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                         "Sec-WebSocket-Accept: %s\r\n",
                         f->websocket_accept);
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
    unsigned char sum[20];
    if (n > 24)
        return EK_EINVAL;
    memcpy(text, key, n);
    memcpy(text + n, magic, sizeof magic - 1);
    if (EVP_Digest(text, n + sizeof magic - 1, sum, NULL, EVP_sha1(), NULL) != 1)
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
