#include "net/tls.h"

#include "base/mem.h"
#include "base/shared.h"
#include "net/loop.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ALPN_MAX_BYTES = 64 };

struct ek_tls_context {
    struct ek_shared_refs refs; /* its maker and each connection */
    SSL_CTX *ctx;
    SSL_CTX **more; /* (n_more) owned: a server's further certificates, one each */
    size_t n_more;
    BIO_METHOD *socket_method; /* OpenSSL's own would raise SIGPIPE on a closed peer */
    unsigned char alpn[ALPN_MAX_BYTES]; /* as on the wire: length, name, length, ... */
    unsigned alpn_n;
};

struct ek_tls {
    struct ek_tls_context *context;
    SSL *ssl;
    int fd;         /* borrowed */
    bool is_failed; /* a fatal error: no close_notify may follow */
    bool has_met_http;
    const char *reason; /* of the failure, OpenSSL's constant; NULL: none */
};

/* Socket BIO ------------------------------------------------------------------- */

static int fd_of(BIO *b)
{
    const struct ek_tls *t = BIO_get_data(b);
    return t->fd;
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static int bio_read(BIO *b, char *p, int n)
{
    BIO_clear_retry_flags(b);
    ssize_t got = recv(fd_of(b), p, (size_t)n, 0);
    if (got < 0 && would_block())
        BIO_set_retry_read(b);
    return (int)got;
}

static int bio_write(BIO *b, const char *p, int n)
{
    BIO_clear_retry_flags(b);
    ssize_t sent = send(fd_of(b), p, (size_t)n, MSG_NOSIGNAL);
    if (sent < 0 && would_block())
        BIO_set_retry_write(b);
    return (int)sent;
}

static long bio_ctrl(BIO *b, int cmd, long n, void *p)
{
    (void)b;
    (void)n;
    (void)p;
    return cmd == BIO_CTRL_FLUSH;
}

static int bio_create(BIO *b)
{
    BIO_set_init(b, 1);
    return 1;
}

static BIO_METHOD *make_socket_method(void)
{
    /* No type of its own: OpenSSL has 127 of them to give, and contexts come anew with
     * every certificate that is renewed. */
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket");
    if (m && BIO_meth_set_read(m, bio_read) && BIO_meth_set_write(m, bio_write) &&
        BIO_meth_set_ctrl(m, bio_ctrl) && BIO_meth_set_create(m, bio_create))
        return m;
    BIO_meth_free(m);
    return NULL;
}

/* Context ---------------------------------------------------------------------- */

static const char *library_reason(void)
{
    unsigned long e = ERR_peek_last_error();
    if (ERR_SYSTEM_ERROR(e))
        return strerror((int)ERR_GET_REASON(e));
    const char *s = ERR_reason_error_string(e);
    return s ? s : "unknown reason";
}

/* OpenSSL's sentence for a file that is not there does not say so. */
static int check_readable(const char *path, const char *what, struct ek_err *err)
{
    if (access(path, R_OK) == 0)
        return 0;
    return ek_err_set(err, errno == EACCES ? EK_EPERM : EK_ENOENT,
                      "%s: the TLS %s cannot be read: %s", path, what, strerror(errno));
}

static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_n,
                       const unsigned char *in, unsigned in_n, void *arg)
{
    const struct ek_tls_context *t = arg;
    unsigned char *chosen = NULL;
    (void)ssl;
    if (t->alpn_n == 0)
        return SSL_TLSEXT_ERR_NOACK;
    /* A client that offers only what we do not speak is told so (RFC 7301 3.2). */
    if (SSL_select_next_proto(&chosen, out_n, t->alpn, t->alpn_n, in, in_n) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static bool is_named(SSL_CTX *ctx, const char *name, unsigned flags)
{
    X509 *leaf = SSL_CTX_get0_certificate(ctx);
    return leaf && X509_check_host(leaf, name, 0, flags, NULL) == 1;
}

/* The one for that very name, else the one whose wildcard takes it; NULL: none. */
static SSL_CTX *find_named(const struct ek_tls_context *t, const char *name)
{
    static const unsigned passes[] = {X509_CHECK_FLAG_NO_WILDCARDS, 0};
    for (size_t k = 0; k < sizeof passes / sizeof passes[0]; k++) {
        if (is_named(t->ctx, name, passes[k]))
            return t->ctx;
        for (size_t i = 0; i < t->n_more; i++) {
            if (is_named(t->more[i], name, passes[k]))
                return t->more[i];
        }
    }
    return NULL;
}

/* A name that no certificate has gets the first: its client says what is wrong better
 * than an alert does. */
static int choose_certificate(SSL *ssl, int *alert, void *arg)
{
    const struct ek_tls_context *t = arg;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    SSL_CTX *found = name && name[0] ? find_named(t, name) : NULL;
    (void)alert;
    if (found && found != t->ctx && !SSL_set_SSL_CTX(ssl, found))
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    return found ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

/* A key behind a passphrase: asking on the terminal would hang a server. */
static int refuse_passphrase(char *buf, int n, int rwflag, void *arg)
{
    (void)buf;
    (void)n;
    (void)rwflag;
    (void)arg;
    return 0;
}

static bool set_up(SSL_CTX *ctx)
{
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    /* A FIN without close_notify is how most clients leave; HTTP has its own framing
     * that tells a truncated message. */
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_passwd_cb(ctx, refuse_passphrase);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1;
}

static int load(SSL_CTX *ctx, const char *cert_path, const char *key_path,
                struct ek_err *err)
{
    int rc = check_readable(cert_path, "certificate", err);
    if (!rc)
        rc = check_readable(key_path, "key", err);
    if (rc)
        return rc;
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(ctx, cert_path) != 1)
        return ek_err_set(err, EK_EFORMAT, "%s: not a PEM certificate chain: %s",
                          cert_path, library_reason());
    if (SSL_CTX_use_PrivateKey_file(ctx, key_path, SSL_FILETYPE_PEM) != 1) {
        if (ERR_GET_LIB(ERR_peek_last_error()) == ERR_LIB_X509)
            return ek_err_set(err, EK_EINVAL,
                              "%s: the key does not belong to the certificate %s: %s",
                              key_path, cert_path, library_reason());
        return ek_err_set(err, EK_EFORMAT,
                          "%s: not a PEM private key without passphrase: %s", key_path,
                          library_reason());
    }
    if (SSL_CTX_check_private_key(ctx) != 1)
        return ek_err_set(err, EK_EINVAL,
                          "%s: the key does not belong to the certificate %s: %s",
                          key_path, cert_path, library_reason());
    return 0;
}

static int trust(SSL_CTX *ctx, const char *ca_path, bool skips_verify,
                 struct ek_err *err)
{
    if (skips_verify)
        return 0;
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    int rc = ca_path ? check_readable(ca_path, "CA certificate", err) : 0;
    if (rc)
        return rc;
    ERR_clear_error();
    if (ca_path && SSL_CTX_load_verify_file(ctx, ca_path) != 1)
        return ek_err_set(err, EK_EFORMAT, "%s: not a PEM file of CA certificates: %s",
                          ca_path, library_reason());
    if (!ca_path && SSL_CTX_set_default_verify_paths(ctx) != 1)
        return ek_err_set(err, EK_EIO, "TLS: the system's CA certificates: %s",
                          library_reason());
    return 0;
}

static int context_new(struct ek_tls_context **tls, const SSL_METHOD *method,
                       struct ek_err *err)
{
    struct ek_tls_context *t = ek_calloc(1, sizeof *t);
    if (!t)
        return ek_err_set(err, EK_ENOMEM, "TLS: out of memory");
    ek_shared_refs_init(&t->refs);
    t->ctx = SSL_CTX_new(method);
    t->socket_method = make_socket_method();
    if (!t->ctx || !t->socket_method || !set_up(t->ctx)) {
        int rc = ek_err_set(err, EK_ENOMEM, "TLS: %s", library_reason());
        ERR_clear_error();
        ek_tls_context_free(t);
        return rc;
    }
    *tls = t;
    return 0;
}

int ek_tls_context_new(struct ek_tls_context **tls, const char *cert_path,
                       const char *key_path, struct ek_err *err)
{
    struct ek_tls_context *t = NULL;
    int rc = context_new(&t, TLS_server_method(), err);
    if (rc)
        return rc;
    SSL_CTX_set_alpn_select_cb(t->ctx, choose_alpn, t);
    rc = ek_tls_context_set_alpn(t, "http/1.1");
    if (!rc)
        rc = load(t->ctx, cert_path, key_path, err);
    ERR_clear_error();
    if (rc) {
        ek_tls_context_free(t);
        return rc;
    }
    *tls = t;
    return 0;
}

int ek_tls_context_add(struct ek_tls_context *tls, const char *cert_path,
                       const char *key_path, struct ek_err *err)
{
    SSL_CTX **more =
        ek_realloc_array(tls->more, tls->n_more + 1, sizeof(SSL_CTX *)); /* kept */
    if (more)
        tls->more = more;
    SSL_CTX *ctx = more ? SSL_CTX_new(TLS_server_method()) : NULL;
    int rc = 0;
    if (!ctx || !set_up(ctx))
        rc = ek_err_set(err, EK_ENOMEM, "TLS: out of memory");
    if (!rc)
        rc = load(ctx, cert_path, key_path, err);
    ERR_clear_error();
    if (rc) {
        SSL_CTX_free(ctx);
        return rc;
    }
    SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, tls);
    SSL_CTX_set_tlsext_servername_callback(tls->ctx, choose_certificate);
    SSL_CTX_set_tlsext_servername_arg(tls->ctx, tls);
    tls->more[tls->n_more++] = ctx;
    return 0;
}

int ek_tls_client_context_new(struct ek_tls_context **tls, const char *ca_path,
                              bool skips_verify, struct ek_err *err)
{
    struct ek_tls_context *t = NULL;
    int rc = context_new(&t, TLS_client_method(), err);
    if (rc)
        return rc;
    rc = trust(t->ctx, ca_path, skips_verify, err);
    ERR_clear_error();
    if (rc) {
        ek_tls_context_free(t);
        return rc;
    }
    *tls = t;
    return 0;
}

int ek_tls_context_set_alpn(struct ek_tls_context *tls, const char *names)
{
    unsigned char wire[ALPN_MAX_BYTES] = {0};
    size_t n = 0;
    while (*names) {
        size_t len = strcspn(names, ",");
        if (len == 0 || n + 1 + len > sizeof wire)
            return EK_ELIMIT;
        wire[n++] = (unsigned char)len;
        memcpy(wire + n, names, len);
        n += len;
        names += len + (names[len] == ',');
    }
    memcpy(tls->alpn, wire, n);
    tls->alpn_n = (unsigned)n;
    return 0;
}

struct ek_tls_context *ek_tls_context_ref(struct ek_tls_context *tls)
{
    ek_shared_refs_take(&tls->refs);
    return tls;
}

void ek_tls_context_free(struct ek_tls_context *tls)
{
    if (!tls || !ek_shared_refs_drop(&tls->refs))
        return;
    SSL_CTX_free(tls->ctx);
    for (size_t i = 0; i < tls->n_more; i++)
        SSL_CTX_free(tls->more[i]);
    ek_free(tls->more);
    BIO_meth_free(tls->socket_method);
    ek_free(tls);
}

/* Connection ------------------------------------------------------------------- */

static int conn_new(struct ek_tls **t, struct ek_tls_context *context, int fd)
{
    struct ek_tls *v = ek_calloc(1, sizeof *v);
    if (!v)
        return EK_ENOMEM;
    v->context = ek_tls_context_ref(context);
    v->fd = fd;
    v->ssl = SSL_new(context->ctx);
    BIO *bio = v->ssl ? BIO_new(context->socket_method) : NULL;
    if (!bio) {
        ERR_clear_error();
        ek_tls_free(v);
        return EK_ENOMEM;
    }
    BIO_set_data(bio, v);
    SSL_set_bio(v->ssl, bio, bio); /* takes it */
    *t = v;
    return 0;
}

int ek_tls_new(struct ek_tls **t, struct ek_tls_context *context, int fd)
{
    struct ek_tls *v = NULL;
    int rc = conn_new(&v, context, fd);
    if (rc)
        return rc;
    SSL_set_accept_state(v->ssl);
    *t = v;
    return 0;
}

static bool is_address(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, bytes) == 1 ||
           inet_pton(AF_INET6, host, bytes) == 1;
}

static bool name_peer(SSL *ssl, const char *host)
{
    if (is_address(host))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    /* OpenSSL reads the name; its macro casts the const away, which clang refuses. */
    union {
        const char *in;
        char *out;
    } name = {.in = host};
    return SSL_set_tlsext_host_name(ssl, name.out) == 1 &&
           SSL_set1_host(ssl, host) == 1;
}

int ek_tls_connect_new(struct ek_tls **t, struct ek_tls_context *context, int fd,
                       const char *host)
{
    struct ek_tls *v = NULL;
    int rc = conn_new(&v, context, fd);
    if (rc)
        return rc;
    SSL_set_connect_state(v->ssl);
    if (!name_peer(v->ssl, host) ||
        (context->alpn_n > 0 &&
         SSL_set_alpn_protos(v->ssl, context->alpn, context->alpn_n) != 0)) {
        ERR_clear_error();
        ek_tls_free(v);
        return EK_ENOMEM;
    }
    *t = v;
    return 0;
}

void ek_tls_free(struct ek_tls *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    ek_tls_context_free(t->context);
    ek_free(t);
}

/* A certificate that was not accepted says more than the error it led to. */
static const char *failure_reason(const SSL *ssl)
{
    long verdict = SSL_get_verify_result(ssl);
    if (verdict != X509_V_OK)
        return X509_verify_cert_error_string(verdict);
    return ERR_peek_error() ? library_reason() : NULL;
}

/* What a call that returned ret <= 0 means. */
static int outcome(struct ek_tls *t, int ret, int *want)
{
    switch (SSL_get_error(t->ssl, ret)) {
    case SSL_ERROR_WANT_READ:
        *want = EK_READABLE;
        return EK_EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        *want = EK_WRITABLE;
        return EK_EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return EK_ECLOSED;
    default:
        t->is_failed = true;
        t->reason = failure_reason(t->ssl);
        t->has_met_http = ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST;
        ERR_clear_error();
        return EK_ECLOSED;
    }
}

int ek_tls_handshake(struct ek_tls *t, int *want)
{
    ERR_clear_error();
    int ret = SSL_do_handshake(t->ssl);
    if (ret != 1)
        return outcome(t, ret, want);
    *want = EK_READABLE;
    return 0;
}

bool ek_tls_met_http(const struct ek_tls *t)
{
    return t->has_met_http;
}

const char *ek_tls_reason(const struct ek_tls *t)
{
    return t->reason ? t->reason : "";
}

bool ek_tls_has_alpn(const struct ek_tls *t, const char *name)
{
    const unsigned char *p = NULL;
    unsigned n = 0;
    SSL_get0_alpn_selected(t->ssl, &p, &n);
    return n > 0 && n == strlen(name) && memcmp(p, name, n) == 0;
}

int ek_tls_read(struct ek_tls *t, void *p, size_t cap, size_t *got, int *want)
{
    ERR_clear_error();
    int ret = SSL_read_ex(t->ssl, p, cap, got);
    if (ret != 1)
        return outcome(t, ret, want);
    *want = EK_READABLE;
    return 0;
}

int ek_tls_write(struct ek_tls *t, const void *p, size_t n, size_t *sent, int *want)
{
    ERR_clear_error();
    int ret = SSL_write_ex(t->ssl, p, n, sent);
    if (ret != 1)
        return outcome(t, ret, want);
    *want = EK_WRITABLE;
    return 0;
}

bool ek_tls_has_pending(const struct ek_tls *t)
{
    return SSL_has_pending(t->ssl) == 1;
}

void ek_tls_end(struct ek_tls *t)
{
    if (t->is_failed || !SSL_is_init_finished(t->ssl))
        return;
    ERR_clear_error();
    SSL_shutdown(t->ssl);
    ERR_clear_error();
}
