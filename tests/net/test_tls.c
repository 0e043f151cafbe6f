/* TLS over real sockets, with certificates made here. */
#include "net/client.h"
#include "net/tls.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <sys/stat.h>

enum { BIG = 3 << 20 };

struct fixture {
    char folder[64];
    char cert[96], key[96], other_key[96], garbage[96], locked_key[96];
    struct ek_loop *loop;
    struct ek_tls_context *tls;
    struct ek_http_server *server;
    struct ek_http_exchange *held;
    char *big;
    int n_requests, n_closed, n_aborted;
    struct client c;
    SSL_CTX *ctx;
    SSL *ssl;
};

/* Certificates ----------------------------------------------------------------- */

/* passphrase NULL: an open key. */
static EVP_PKEY *write_key(const char *path, const char *passphrase)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    FILE *f = fopen(path, "w");
    assert_true(key && f);
    assert_int_equal(PEM_write_PKCS8PrivateKey(
                         f, key, passphrase ? EVP_aes_128_cbc() : NULL, passphrase,
                         passphrase ? (int)strlen(passphrase) : 0, NULL, NULL),
                     1);
    fclose(f);
    return key;
}

static void write_cert(const char *path, EVP_PKEY *key)
{
    X509 *x = X509_new();
    FILE *f = fopen(path, "w");
    assert_true(x && f);
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_NAME *name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, name);
    X509_set_pubkey(x, key);
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    assert_int_equal(PEM_write_X509(f, x), 1);
    fclose(f);
    X509_free(x);
}

static void write_files(struct fixture *f)
{
    snprintf(f->folder, sizeof f->folder, "/tmp/ek_tls_XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->cert, sizeof f->cert, "%s/cert.pem", f->folder);
    snprintf(f->key, sizeof f->key, "%s/key.pem", f->folder);
    snprintf(f->other_key, sizeof f->other_key, "%s/other.pem", f->folder);
    snprintf(f->garbage, sizeof f->garbage, "%s/garbage.pem", f->folder);
    snprintf(f->locked_key, sizeof f->locked_key, "%s/locked.pem", f->folder);
    EVP_PKEY *key = write_key(f->key, NULL);
    write_cert(f->cert, key);
    EVP_PKEY_free(key);
    EVP_PKEY_free(write_key(f->other_key, NULL));
    EVP_PKEY_free(write_key(f->locked_key, "secret"));
    FILE *g = fopen(f->garbage, "w");
    assert_non_null(g);
    fputs("-----BEGIN CERTIFICATE-----\nnonsense\n", g);
    fclose(g);
}

static void remove_files(const struct fixture *f)
{
    unlink(f->cert);
    unlink(f->key);
    unlink(f->other_key);
    unlink(f->garbage);
    unlink(f->locked_key);
    rmdir(f->folder);
}

/* Server ----------------------------------------------------------------------- */

static void on_request(void *arg, struct ek_http_exchange *x)
{
    struct fixture *f = arg;
    const struct ek_http_request *r = ek_http_get_request(x);
    f->n_requests++;
    if (strcmp(r->path, "/hold") == 0)
        f->held = x;
    else if (strcmp(r->path, "/big") == 0)
        assert_int_equal(ek_http_respond(x, 200, "text/plain", f->big, BIG), 0);
    else
        assert_int_equal(ek_http_respond(x, 200, "text/plain", r->body, r->body_n), 0);
}

static void on_closed(void *arg, struct ek_http_exchange *x, bool is_aborted)
{
    struct fixture *f = arg;
    (void)x;
    f->n_closed++;
    f->n_aborted += is_aborted;
    f->held = NULL;
}

static int setup(void **state)
{
    struct fixture *f = ek_calloc(1, sizeof *f);
    struct ek_err err = EK_ERR_INIT;
    struct ek_http_limits limits;
    assert_non_null(f);
    struct ek_http_handler h = {
        .on_request = on_request, .on_closed = on_closed, .arg = f};
    ek_http_limits_default(&limits);
    limits.max_unsent_bytes = (size_t)16 << 20;
    limits.send_timeout_us = (int64_t)3600 * 1000000; /* a slow machine's turns */
    write_files(f);
    f->big = ek_alloc(BIG);
    for (size_t i = 0; i < BIG; i++)
        f->big[i] = (char)(i * 31 + i / 997);
    assert_int_equal(ek_loop_new(&f->loop, &err), 0);
    assert_int_equal(ek_tls_context_new(&f->tls, f->cert, f->key, &err), 0);
    assert_int_equal(ek_http_server_new(&f->server, f->loop, "127.0.0.1:0", f->tls,
                                        &limits, &h, &err),
                     0);
    client_open(&f->c, ek_http_server_address(f->server));
    f->ctx = SSL_CTX_new(TLS_client_method());
    f->ssl = SSL_new(f->ctx);
    SSL_set_fd(f->ssl, f->c.fd);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    SSL_free(f->ssl);
    SSL_CTX_free(f->ctx);
    client_close(&f->c);
    ek_http_server_free(f->server);
    ek_tls_context_free(f->tls);
    ek_loop_free(f->loop);
    assert_int_equal(f->n_requests, f->n_closed);
    remove_files(f);
    ek_free(f->big);
    ek_free(f);
    return 0;
}

/* Client ----------------------------------------------------------------------- */

static void set_nonblocking(struct fixture *f)
{
    assert_int_equal(fcntl(f->c.fd, F_SETFL, O_NONBLOCK), 0);
}

/* 1: agreed, 0: refused. */
static int shake_hands(struct fixture *f)
{
    set_nonblocking(f);
    for (int i = 0; i < 2000; i++) {
        ERR_clear_error();
        int ret = SSL_connect(f->ssl);
        if (ret == 1)
            return 1;
        int e = SSL_get_error(f->ssl, ret);
        if (e != SSL_ERROR_WANT_READ && e != SSL_ERROR_WANT_WRITE)
            return 0;
        run_for(f->loop, 200);
    }
    return 0;
}

static void tls_send(struct fixture *f, const char *p, size_t n)
{
    size_t at = 0;
    for (int i = 0; i < 100000 && at < n; i++) {
        size_t sent = 0;
        ERR_clear_error();
        if (SSL_write_ex(f->ssl, p + at, n - at, &sent) == 1)
            at += sent;
        else
            run_for(f->loop, 200);
    }
    assert_int_equal(at, n);
}

static void tls_take(struct fixture *f)
{
    char buf[16384];
    size_t n;
    ERR_clear_error();
    while (SSL_read_ex(f->ssl, buf, sizeof buf, &n) == 1)
        assert_int_equal(ek_buf_add(&f->c.got, buf, n), 0);
}

/* Runs until `len` bytes came. */
static void tls_wait(struct fixture *f, size_t len)
{
    int64_t end = ek_clock_us() + 120 * 1000000;
    while (f->c.got.len < len && ek_clock_us() < end) {
        run_for(f->loop, 200);
        tls_take(f);
    }
    assert_true(f->c.got.len >= len);
}

static size_t whole_length(const struct fixture *f, size_t body_n)
{
    char *end = memmem(f->c.got.data, f->c.got.len, "\r\n\r\n", 4);
    assert_non_null(end);
    return (size_t)(end + 4 - f->c.got.data) + body_n;
}

static void a_request_over_tls_is_answered(void **state)
{
    struct fixture *f = *state;
    static const char text[] =
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    assert_int_equal(shake_hands(f), 1);
    for (int i = 0; i < 2; i++) {
        ek_buf_reset(&f->c.got);
        tls_send(f, text, sizeof text - 1);
        tls_wait(f, 1);
        tls_wait(f, whole_length(f, 5));
        assert_true(client_has(&f->c, "\r\n\r\nhello"));
    }
    assert_true(SSL_version(f->ssl) >= TLS1_3_VERSION);
}

static void tls_12_is_spoken_and_tls_11_refused(void **state)
{
    struct fixture *f = *state;
    SSL_set_max_proto_version(f->ssl, TLS1_2_VERSION);
    assert_int_equal(shake_hands(f), 1);
    SSL_free(f->ssl);
    client_close(&f->c);
    client_open(&f->c, ek_http_server_address(f->server));
    f->ssl = SSL_new(f->ctx);
    SSL_set_fd(f->ssl, f->c.fd);
    SSL_set_security_level(f->ssl, 0);
    SSL_set_min_proto_version(f->ssl, TLS1_VERSION);
    SSL_set_max_proto_version(f->ssl, TLS1_1_VERSION);
    assert_int_equal(shake_hands(f), 0);
}

static void alpn_chooses_http_11_and_refuses_what_is_not_spoken(void **state)
{
    struct fixture *f = *state;
    const unsigned char *chosen;
    unsigned n;
    SSL_set_alpn_protos(f->ssl, (const unsigned char *)"\x02h2\x08http/1.1", 12);
    assert_int_equal(shake_hands(f), 1);
    SSL_get0_alpn_selected(f->ssl, &chosen, &n);
    assert_int_equal(n, 8);
    assert_memory_equal(chosen, "http/1.1", 8);
    SSL_free(f->ssl);
    client_close(&f->c);
    client_open(&f->c, ek_http_server_address(f->server));
    f->ssl = SSL_new(f->ctx);
    SSL_set_fd(f->ssl, f->c.fd);
    SSL_set_alpn_protos(f->ssl, (const unsigned char *)"\x02h2", 3);
    assert_int_equal(shake_hands(f), 0);
}

static void large_bodies_cross_whole_both_ways(void **state)
{
    struct fixture *f = *state;
    char head[128];
    assert_int_equal(shake_hands(f), 1);
    tls_send(f, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n", 30);
    tls_wait(f, BIG);
    tls_wait(f, whole_length(f, BIG));
    assert_memory_equal(f->c.got.data + whole_length(f, 0), f->big, BIG);
    ek_buf_reset(&f->c.got);
    int n = snprintf(head, sizeof head,
                     "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", BIG);
    tls_send(f, head, (size_t)n);
    tls_send(f, f->big, BIG);
    tls_wait(f, BIG);
    tls_wait(f, whole_length(f, BIG));
    assert_memory_equal(f->c.got.data + whole_length(f, 0), f->big, BIG);
}

/* Writes that block are tried again later, when the buffer has grown and moved. */
static void a_stream_that_waits_for_its_reader_arrives_whole(void **state)
{
    struct fixture *f = *state;
    const size_t piece = 1000, n = 12000, wrap = BIG / piece;
    int small = 65536;
    setsockopt(f->c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(shake_hands(f), 1);
    tls_send(f, "GET /hold HTTP/1.0\r\nHost: h\r\n\r\n", 31);
    for (int i = 0; i < 1000 && !f->held; i++)
        run_for(f->loop, 500);
    assert_non_null(f->held);
    assert_int_equal(ek_http_begin(f->held, 200, "text/plain"), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ek_http_send(f->held, f->big + i % wrap * piece, piece), 0);
        if (i % 10 == 0)
            run_for(f->loop, 0);
    }
    assert_int_equal(ek_http_end(f->held), 0);
    tls_wait(f, n * piece);
    tls_wait(f, whole_length(f, n * piece));
    const char *body = f->c.got.data + whole_length(f, 0);
    for (size_t i = 0; i < n; i++)
        assert_memory_equal(body + i * piece, f->big + i % wrap * piece, piece);
}

/* Two requests in one record: the second lies decrypted in the library, and the socket
 * will never again say that it is readable. */
static void requests_sent_ahead_in_one_record_are_answered(void **state)
{
    struct fixture *f = *state;
    struct ek_buf many;
    ek_buf_init(&many, 100000);
    /* More than one read of the server, less than one record. */
    assert_int_equal(ek_buf_add_str(&many, "POST / HTTP/1.1\r\nHost: h\r\nX: y\r\n"
                                           "Content-Length: 10000\r\n\r\n"),
                     0);
    assert_int_equal(ek_buf_add(&many, f->big, 10000), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(ek_buf_add_str(&many, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"),
                         0);
    assert_true(many.len < 16384);
    assert_int_equal(shake_hands(f), 1);
    tls_send(f, many.data, many.len);
    for (int i = 0; i < 10000 && f->n_closed < 101; i++) {
        run_for(f->loop, 1000);
        tls_take(f);
    }
    assert_int_equal(f->n_closed, 101);
    ek_buf_release(&many);
}

static void a_client_that_leaves_while_held_aborts(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(shake_hands(f), 1);
    tls_send(f, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n", 31);
    for (int i = 0; i < 1000 && !f->held; i++)
        run_for(f->loop, 500);
    assert_non_null(f->held);
    SSL_shutdown(f->ssl);
    client_close(&f->c);
    run_for(f->loop, 0);
    run_for(f->loop, 0);
    assert_int_equal(f->n_aborted, 1);
}

static void plain_http_is_told_to_use_https(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(client_wait(&f->c, f->loop, NULL));
    assert_true(client_has(&f->c, "HTTP/1.1 400 Bad Request\r\n"));
    char *end = strstr(f->c.got.data, "\r\n\r\n") + 4;
    char length[64];
    snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(end));
    assert_true(client_has(&f->c, length));
    assert_int_equal(f->n_requests, 0);
}

static void garbage_and_silence_do_no_harm(void **state)
{
    struct fixture *f = *state;
    for (int kind = 0; kind < 3; kind++) {
        struct client c;
        client_open(&c, ek_http_server_address(f->server));
        if (kind == 0)
            client_send_bytes(&c, f->big, 2000);
        if (kind == 1)
            client_send_bytes(&c, "\x16\x03\x01\x02\x00\x01", 6);
        run_for(f->loop, 2000);
        client_close(&c);
        run_for(f->loop, 2000);
    }
    a_request_over_tls_is_answered(state);
}

static void a_handshake_has_the_head_timeout(void **state)
{
    struct fixture *f = *state;
    struct ek_http_limits limits;
    struct ek_http_handler h = {
        .on_request = on_request, .on_closed = on_closed, .arg = f};
    struct ek_http_server *s = NULL;
    struct client c;
    ek_http_limits_default(&limits);
    limits.head_timeout_us = 20000;
    assert_int_equal(
        ek_http_server_new(&s, f->loop, "127.0.0.1:0", f->tls, &limits, &h, NULL), 0);
    client_open(&c, ek_http_server_address(s));
    assert_true(client_wait(&c, f->loop, NULL));
    client_close(&c);
    ek_http_server_free(s);
}

/* Our own client ---------------------------------------------------------------- */

/* 0: agreed, EK_ECLOSED: not; *t is the connection in any case. */
static int connect_ours(struct fixture *f, struct ek_tls **t,
                        struct ek_tls_context *context, const char *host)
{
    int want = 0, rc = EK_EAGAIN;
    set_nonblocking(f);
    assert_int_equal(ek_tls_connect_new(t, context, f->c.fd, host), 0);
    for (int i = 0; i < 2000 && rc == EK_EAGAIN; i++) {
        rc = ek_tls_handshake(*t, &want);
        run_for(f->loop, 200);
    }
    return rc;
}

static void reconnect(struct fixture *f)
{
    client_close(&f->c);
    client_open(&f->c, ek_http_server_address(f->server));
}

static void our_client_verifies_certificate_and_name(void **state)
{
    struct fixture *f = *state;
    static const struct {
        bool has_ca, skips;
        const char *host, *reason; /* NULL: agreed */
    } cases[] = {
        {true, false, "localhost", NULL},
        {true, false, "elsewhere", "hostname mismatch"},
        {true, false, "127.0.0.1", "IP address mismatch"},
        {false, false, "localhost", "self-signed certificate"},
        {false, true, "elsewhere", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ek_tls_context *context = NULL;
        struct ek_tls *t = NULL;
        reconnect(f);
        assert_int_equal(ek_tls_client_context_new(&context,
                                                   cases[i].has_ca ? f->cert : NULL,
                                                   cases[i].skips, NULL),
                         0);
        int rc = connect_ours(f, &t, context, cases[i].host);
        assert_int_equal(rc, cases[i].reason ? EK_ECLOSED : 0);
        assert_string_equal(ek_tls_reason(t), cases[i].reason ? cases[i].reason : "");
        ek_tls_free(t);
        ek_tls_context_free(context);
    }
}

static void our_client_and_server_agree_on_the_dearest_protocol(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *server, *client, *agreed; /* NULL: refused */
    } cases[] = {
        {"h2,http/1.1", "h2,http/1.1", "h2"},
        {"http/1.1,h2", "h2,http/1.1", "http/1.1"},
        {"http/1.1", "h2,http/1.1", "http/1.1"},
        {"h2", "http/1.1", NULL},
        {"h2", "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ek_tls_context *context = NULL;
        struct ek_tls *t = NULL;
        reconnect(f);
        assert_int_equal(ek_tls_context_set_alpn(f->tls, cases[i].server), 0);
        assert_int_equal(ek_tls_client_context_new(&context, f->cert, false, NULL), 0);
        assert_int_equal(ek_tls_context_set_alpn(context, cases[i].client), 0);
        int rc = connect_ours(f, &t, context, "localhost");
        assert_int_equal(rc, cases[i].agreed ? 0 : EK_ECLOSED);
        for (size_t k = 0; cases[i].agreed && k < 2; k++) {
            const char *name = k ? "http/1.1" : "h2";
            assert_int_equal(ek_tls_has_alpn(t, name),
                             strcmp(name, cases[i].agreed) == 0);
        }
        ek_tls_free(t);
        ek_tls_context_free(context);
    }
    assert_int_equal(ek_tls_context_set_alpn(f->tls, "h2,,h2"), EK_ELIMIT);
}

/* Files ------------------------------------------------------------------------ */

static void assert_refused(const char *cert, const char *key, int status,
                           const char *text)
{
    struct ek_tls_context *t = NULL;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_tls_context_new(&t, cert, key, &err), status);
    assert_null(t);
    if (!strstr(err.text, text))
        fail_msg("'%s' is not in: %s", text, err.text);
}

static void bad_files_are_refused_with_a_sentence_naming_them(void **state)
{
    struct fixture *f = *state;
    char text[256];
    assert_refused("/nowhere/c.pem", f->key, EK_ENOENT,
                   "/nowhere/c.pem: the TLS certificate cannot be read: No such file");
    assert_refused(f->cert, "/nowhere/k.pem", EK_ENOENT,
                   "/nowhere/k.pem: the TLS key cannot be read: No such file");
    snprintf(text, sizeof text, "%s: not a PEM certificate chain: ", f->garbage);
    assert_refused(f->garbage, f->key, EK_EFORMAT, text);
    assert_refused(f->key, f->key, EK_EFORMAT, "not a PEM certificate chain");
    snprintf(text, sizeof text, "%s: not a PEM private key", f->cert);
    assert_refused(f->cert, f->cert, EK_EFORMAT, text);
    snprintf(text, sizeof text, "%s: the key does not belong to the certificate %s",
             f->other_key, f->cert);
    assert_refused(f->cert, f->other_key, EK_EINVAL, text);
    assert_refused(f->cert, f->locked_key, EK_EFORMAT, "without passphrase");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_request_over_tls_is_answered),
        T(tls_12_is_spoken_and_tls_11_refused),
        T(alpn_chooses_http_11_and_refuses_what_is_not_spoken),
        T(large_bodies_cross_whole_both_ways),
        T(a_stream_that_waits_for_its_reader_arrives_whole),
        T(requests_sent_ahead_in_one_record_are_answered),
        T(a_client_that_leaves_while_held_aborts),
        T(plain_http_is_told_to_use_https),
        T(garbage_and_silence_do_no_harm),
        T(a_handshake_has_the_head_timeout),
        T(our_client_verifies_certificate_and_name),
        T(our_client_and_server_agree_on_the_dearest_protocol),
        T(bad_files_are_refused_with_a_sentence_naming_them),
    };
    return cmocka_run_group_tests_name("net/tls", tests, NULL, NULL);
}
