#include "net/address.h"
#include "testkit.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void names_are_told_from_addresses(void **state)
{
    (void)state;
    static const char *const names[] = {"a:1", "voice.example:443", "1.2.3.4.5:6"};
    static const char *const others[] = {"127.0.0.1:80", "[::1]:80",    "unix:/run/x",
                                         "no port",      "127.0.0.1:p", ":80"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_true(ek_address_is_name(names[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(ek_address_is_name(others[i]));
}

static void an_address_is_a_list_of_one(void **state)
{
    (void)state;
    static const char *const texts[] = {"127.0.0.1:80", "[::1]:80", "unix:/run/x"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct ek_address *list, one;
        size_t n;
        assert_int_equal(ek_address_resolve_all(&list, &n, texts[i], true, NULL), 0);
        assert_int_equal(ek_address_resolve(&one, texts[i], NULL), 0);
        assert_int_equal(n, 1);
        assert_true(ek_address_equal(&list[0], &one));
        ek_free(list);
    }
}

static void what_is_no_address_is_refused(void **state)
{
    (void)state;
    struct ek_address *list;
    size_t n;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_address_resolve_all(&list, &n, "no port", true, &err),
                     EK_EINVAL);
    assert_int_equal(ek_address_resolve_all(&list, &n, "a:1", true, &err), EK_EIO);
    assert_int_equal(ek_address_resolve_all(&list, &n, "unix:", true, &err), EK_EINVAL);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_address *list = NULL;
        size_t n;
        ek_assert_rc(ek_address_resolve_all(&list, &n, "127.0.0.1:80", true, NULL));
        ek_free(list);
    }
}

static int listen_here(struct ek_address *at)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof sa;
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, n), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
    *at = (struct ek_address){.n = n};
    memcpy(&at->storage, &sa, n);
    return fd;
}

/* Packets that left for a connection, its first bytes and their echo; they all cross. */
static uint32_t packets_of(int listener, const struct ek_address *at, bool speaks_first)
{
    struct tcp_info info;
    socklen_t n = sizeof info;
    struct pollfd ready = {.events = POLLOUT};
    char got[8];
    assert_int_equal(ek_address_connect(&ready.fd, at, speaks_first), 0);
    assert_int_equal(poll(&ready, 1, 20000), 1);
    assert_int_equal(send(ready.fd, "request", 7, MSG_NOSIGNAL), 7);
    assert_int_equal(getsockopt(ready.fd, IPPROTO_TCP, TCP_INFO, &info, &n), 0);
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(peer >= 0);
    assert_int_equal(recv(peer, got, sizeof got, 0), 7);
    assert_int_equal(send(peer, got, 7, MSG_NOSIGNAL), 7);
    ready.events = POLLIN;
    assert_int_equal(poll(&ready, 1, 20000), 1);
    assert_int_equal(recv(ready.fd, got, sizeof got, 0), 7);
    assert_memory_equal(got, "request", 7);
    close(peer);
    close(ready.fd);
    return info.tcpi_segs_out;
}

static void who_speaks_first_connects_with_a_packet_less(void **state)
{
    (void)state;
    struct ek_address at;
    int listener = listen_here(&at);
    uint32_t least = UINT32_MAX, other = UINT32_MAX;
    /* The least: the system sends what is late, on a machine that stands still. */
    for (int i = 0; i < 20; i++) {
        uint32_t a = packets_of(listener, &at, true);
        uint32_t b = packets_of(listener, &at, false);
        least = a < least ? a : least;
        other = b < other ? b : other;
    }
    assert_int_equal(least, 2); /* SYN; the bytes */
    assert_int_equal(other, 3);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_told_from_addresses),
        cmocka_unit_test(an_address_is_a_list_of_one),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(who_speaks_first_connects_with_a_packet_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
