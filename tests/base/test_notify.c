#include "base/clock.h"
#include "base/notify.h"
#include "testkit.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { HEARD_BYTES = 4096 };

/* A socket as systemd's, at this name; $NOTIFY_SOCKET names it. */
static int open_socket(const char *name)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    memcpy(sa.sun_path, name, n);
    if (name[0] == '@')
        sa.sun_path[0] = 0;
    socklen_t sa_n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&sa, sa_n), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    return fd;
}

/* The next message; "": none came. */
static const char *hear(int fd, char text[HEARD_BYTES])
{
    ssize_t n = recv(fd, text, HEARD_BYTES - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return text;
}

static void path_of(char *out, size_t cap, const char *kind)
{
    snprintf(out, cap, "%sevenkeel-notify-%lld", kind, (long long)getpid());
}

static void each_message_is_one_datagram_at_a_path_or_an_abstract_name(void **state)
{
    (void)state;
    static const char *const kinds[] = {"/tmp/", "@"};
    for (int i = 0; i < 2; i++) {
        char name[64], text[HEARD_BYTES], want[128];
        path_of(name, sizeof name, kinds[i]);
        int fd = open_socket(name);
        assert_true(ek_notify_ready(false, "3 backends"));
        assert_string_equal(hear(fd, text), "READY=1\nSTATUS=3 backends");
        assert_true(ek_notify_ready(true, "x"));
        snprintf(want, sizeof want, "READY=1\nMAINPID=%lld\nSTATUS=x",
                 (long long)getpid());
        assert_string_equal(hear(fd, text), want);
        assert_true(ek_notify_stopping("2 sessions"));
        assert_string_equal(hear(fd, text), "STOPPING=1\nSTATUS=2 sessions");
        assert_string_equal(hear(fd, text), "");
        close(fd);
        unlink(name);
    }
}

static void a_reload_says_its_monotonic_time(void **state)
{
    (void)state;
    char name[64], text[HEARD_BYTES];
    path_of(name, sizeof name, "@");
    int fd = open_socket(name);
    int64_t before = ek_clock_us();
    assert_true(ek_notify_reloading());
    int64_t after = ek_clock_us();
    static const char start[] = "RELOADING=1\nMONOTONIC_USEC=";
    assert_memory_equal(hear(fd, text), start, sizeof start - 1);
    char *end;
    int64_t at = strtoll(text + sizeof start - 1, &end, 10);
    assert_true(at >= before && at <= after);
    assert_memory_equal(end, "\nSTATUS=", 8);
    close(fd);
}

static void a_status_is_one_line_and_a_long_one_is_cut(void **state)
{
    (void)state;
    char name[64], text[HEARD_BYTES], *status = malloc(HEARD_BYTES);
    assert_non_null(status);
    path_of(name, sizeof name, "@");
    int fd = open_socket(name);
    assert_true(ek_notify_ready(false, "a\nMAINPID=1\r\tb"));
    assert_string_equal(hear(fd, text), "READY=1\nSTATUS=a MAINPID=1  b");
    memset(status, 'x', HEARD_BYTES - 1);
    status[HEARD_BYTES - 1] = 0;
    assert_true(ek_notify_ready(false, status));
    assert_true(strlen(hear(fd, text)) >= EK_NOTIFY_STATUS_MAX);
    assert_true(strlen(text) < HEARD_BYTES - 1);
    free(status);
    close(fd);
}

static void without_a_socket_that_can_be_reached_nothing_happens(void **state)
{
    (void)state;
    static const char *const names[] = {"",         "/",         "@",
                                        "relative", "vsock:2:1", "/nowhere/at/all"};
    char text[256];
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    assert_false(ek_notify_ready(false, ""));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(setenv("NOTIFY_SOCKET", names[i], 1), 0);
        assert_false(ek_notify_ready(false, ""));
    }
    memset(text, 'x', sizeof text - 1);
    text[0] = '/';
    text[sizeof text - 1] = 0;
    assert_int_equal(setenv("NOTIFY_SOCKET", text, 1), 0);
    assert_false(ek_notify_stopping(""));
}

static void a_socket_that_takes_no_more_does_not_block(void **state)
{
    (void)state;
    char name[64];
    path_of(name, sizeof name, "@");
    int fd = open_socket(name);
    bool was_sent = true;
    for (int i = 0; i < 100000 && was_sent; i++)
        was_sent = ek_notify_ready(false, "");
    assert_false(was_sent);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_is_one_datagram_at_a_path_or_an_abstract_name),
        cmocka_unit_test(a_reload_says_its_monotonic_time),
        cmocka_unit_test(a_status_is_one_line_and_a_long_one_is_cut),
        cmocka_unit_test(without_a_socket_that_can_be_reached_nothing_happens),
        cmocka_unit_test(a_socket_that_takes_no_more_does_not_block),
    };
    return cmocka_run_group_tests_name("notify", tests, NULL, NULL);
}
