#include "net/address.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A stream socket bound to sa and listening, or -1 with errno. SO_REUSEADDR lets a
 * restart bind while old connections fade; SO_REUSEPORT is not set, because a second
 * server on the same port must be told so. */
static int open_listener(const struct sockaddr *sa, socklen_t len)
{
    int on = 1, off = 0;
    int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (sa->sa_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (sa->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, sa, len) || listen(fd, SOMAXCONN)) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

/* Unix sockets ------------------------------------------------------------- */

/* A socket file whose server died refuses connections; it may be replaced. */
static void remove_stale(const struct sockaddr_un *sa)
{
    struct stat st;
    if (lstat(sa->sun_path, &st) || !S_ISSOCK(st.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)sa, sizeof *sa) && errno == ECONNREFUSED)
        unlink(sa->sun_path);
    close(fd);
}

static int listen_unix(int *fd, char **unix_path, const char *path, struct ek_err *err)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof sa.sun_path)
        return ek_err_set(err, EK_EINVAL,
                          "listen: unix:%s: the path must have 1 to %zu bytes", path,
                          sizeof sa.sun_path - 1);
    char *copy = ek_strndup(path, n);
    if (!copy)
        return ek_err_set(err, EK_ENOMEM, "listen: out of memory");
    memcpy(sa.sun_path, path, n + 1);
    remove_stale(&sa);
    int got = open_listener((const struct sockaddr *)&sa, sizeof sa);
    if (got < 0) {
        int saved = errno;
        ek_free(copy);
        return ek_err_set(err, EK_EIO, "listen: unix:%s: %s", path, strerror(saved));
    }
    *fd = got;
    *unix_path = copy;
    return 0;
}

/* TCP ---------------------------------------------------------------------- */

/* Splits "HOST:PORT" or "[V6]:PORT"; host "" means every address. */
static bool split(char host[256], char port[6], const char *listen)
{
    const char *colon = strrchr(listen, ':');
    if (!colon || strlen(colon + 1) < 1 || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    if (strtol(colon + 1, NULL, 10) > 65535)
        return false;
    const char *begin = listen, *end = colon;
    if (*begin == '[') {
        if (end == begin || end[-1] != ']')
            return false;
        begin++;
        end--;
    } else if (memchr(begin, ':', (size_t)(end - begin))) {
        return false;
    }
    size_t n = (size_t)(end - begin);
    if (n >= 256)
        return false;
    memcpy(host, begin, n);
    host[n] = 0;
    memcpy(port, colon + 1, strlen(colon + 1) + 1);
    return true;
}

/* IPv6 first for "", because one such socket hears IPv4, too; where there is no IPv6
 * the next address serves. */
static int bind_first(const char *host, const char *port, const char **reason)
{
    static const int families_any[] = {AF_INET6, AF_INET};
    static const int families_named[] = {AF_UNSPEC, AF_UNSPEC};
    const int *families = host[0] ? families_named : families_any;
    int fd = -1;
    *reason = "no address";
    for (int i = 0; i < (host[0] ? 1 : 2) && fd < 0; i++) {
        struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                                 .ai_family = families[i],
                                 .ai_socktype = SOCK_STREAM};
        struct addrinfo *list = NULL;
        int rc = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);
        if (rc) {
            *reason = gai_strerror(rc);
            continue;
        }
        for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
            fd = open_listener(a->ai_addr, a->ai_addrlen);
            if (fd < 0)
                *reason = strerror(errno);
        }
        freeaddrinfo(list);
    }
    return fd;
}

static int write_address(char address[128], int fd)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;
    char host[64], port[8];
    if (getsockname(fd, (struct sockaddr *)&sa, &len) ||
        getnameinfo((struct sockaddr *)&sa, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return EK_EIO;
    snprintf(address, 128, sa.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return 0;
}

static int listen_tcp(int *fd, char address[128], const char *listen,
                      struct ek_err *err)
{
    char host[256], port[6];
    if (!split(host, port, listen))
        return ek_err_set(err, EK_EINVAL,
                          "listen: %s: not HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH",
                          listen);
    const char *reason;
    int got = bind_first(host, port, &reason);
    if (got < 0)
        return ek_err_set(err, EK_EIO, "listen: %s: %s", listen, reason);
    if (write_address(address, got)) {
        close(got);
        return ek_err_set(err, EK_EIO, "listen: %s: its address cannot be read",
                          listen);
    }
    *fd = got;
    return 0;
}

/* Handed over ---------------------------------------------------------------- */

int ek_address_of(char address[128], int fd)
{
    struct sockaddr_un sa = {0};
    socklen_t n = sizeof sa;
    int listens = 0;
    socklen_t listens_n = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_n) || !listens)
        return EK_EINVAL;
    if (getsockname(fd, (struct sockaddr *)&sa, &n))
        return EK_EIO;
    if (sa.sun_family != AF_UNIX)
        return write_address(address, fd);
    snprintf(address, 128, "unix:%.*s", (int)sizeof sa.sun_path, sa.sun_path);
    return 0;
}

static int listen_on(int *fd, char address[128], char **unix_path, const char *text,
                     struct ek_err *err)
{
    char *end, *path = NULL;
    long n = strtol(text, &end, 10);
    bool owns_file = strcmp(end, ",file") == 0;
    if (end == text || (*end && !owns_file) || n < 0 || n > INT_MAX)
        return ek_err_set(err, EK_EINVAL, "listen: fd@%s: not fd@N", text);
    int flags = fcntl((int)n, F_GETFL);
    if (flags < 0 || fcntl((int)n, F_SETFL, flags | O_NONBLOCK) ||
        ek_address_of(address, (int)n))
        return ek_err_set(err, EK_EIO, "listen: fd@%ld: no socket that listens", n);
    if (owns_file && strncmp(address, "unix:", 5) == 0) {
        path = ek_strndup(address + 5, strlen(address + 5));
        if (!path)
            return ek_err_set(err, EK_ENOMEM, "listen: out of memory");
        *unix_path = path;
    }
    *fd = (int)n;
    return 0;
}

int ek_address_listen(int *fd, char address[128], char **unix_path, const char *listen,
                      struct ek_err *err)
{
    if (strncmp(listen, "fd@", 3) == 0)
        return listen_on(fd, address, unix_path, listen + 3, err);
    if (strncmp(listen, "unix:", 5) != 0)
        return listen_tcp(fd, address, listen, err);
    snprintf(address, 128, "%s", listen);
    return listen_unix(fd, unix_path, listen + 5, err);
}

/* Connecting --------------------------------------------------------------- */

static int resolve_unix(struct ek_address *a, const char *path, struct ek_err *err)
{
    struct sockaddr_un *sa = (struct sockaddr_un *)(void *)&a->storage;
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof sa->sun_path)
        return ek_err_set(err, EK_EINVAL, "unix:%s: the path must have 1 to %zu bytes",
                          path, sizeof sa->sun_path - 1);
    memset(sa, 0, sizeof *sa);
    sa->sun_family = AF_UNIX;
    memcpy(sa->sun_path, path, n + 1);
    a->n = sizeof *sa;
    return 0;
}

/* A list of the system's, stream sockets alone; *list is NULL after an error. */
static int ask(struct addrinfo **list, const char *text, bool numeric,
               struct ek_err *err)
{
    char host[256], port[6];
    struct addrinfo hints = {.ai_flags =
                                 AI_NUMERICSERV | (numeric ? AI_NUMERICHOST : 0),
                             .ai_socktype = SOCK_STREAM};
    *list = NULL;
    if (!split(host, port, text) || !host[0])
        return ek_err_set(err, EK_EINVAL, "%s: not HOST:PORT, [IPV6]:PORT or unix:PATH",
                          text);
    int rc = getaddrinfo(host, port, &hints, list);
    return rc ? ek_err_set(err, EK_EIO, "%s: %s", text, gai_strerror(rc)) : 0;
}

static void copy(struct ek_address *a, const struct addrinfo *from)
{
    memcpy(&a->storage, from->ai_addr, from->ai_addrlen);
    a->n = from->ai_addrlen;
}

int ek_address_resolve(struct ek_address *a, const char *text, struct ek_err *err)
{
    struct addrinfo *list;
    if (strncmp(text, "unix:", 5) == 0)
        return resolve_unix(a, text + 5, err);
    int rc = ask(&list, text, false, err);
    if (rc)
        return rc;
    copy(a, list);
    freeaddrinfo(list);
    return 0;
}

int ek_address_resolve_all(struct ek_address **list, size_t *n, const char *text,
                           bool numeric, struct ek_err *err)
{
    struct addrinfo *found = NULL;
    bool is_unix = strncmp(text, "unix:", 5) == 0;
    size_t count = is_unix, k = 0;
    int rc = is_unix ? 0 : ask(&found, text, numeric, err);
    if (rc)
        return rc;
    for (struct addrinfo *i = found; i && count < EK_ADDRESS_MAX; i = i->ai_next)
        count++;
    struct ek_address *all = ek_calloc(count, sizeof *all);
    if (!all)
        rc = ek_err_set(err, EK_ENOMEM, "%s: out of memory", text);
    else if (is_unix)
        rc = resolve_unix(all, text + 5, err);
    for (struct addrinfo *i = found; i && all && k < count; i = i->ai_next)
        copy(&all[k++], i);
    if (found)
        freeaddrinfo(found);
    if (rc) {
        ek_free(all);
        return rc;
    }
    *list = all;
    *n = count;
    return 0;
}

bool ek_address_is_name(const char *text)
{
    struct ek_address *list;
    size_t n;
    char host[256];
    if (!ek_address_host(host, text))
        return false;
    if (ek_address_resolve_all(&list, &n, text, true, NULL))
        return true;
    ek_free(list);
    return false;
}

bool ek_address_equal(const struct ek_address *a, const struct ek_address *b)
{
    return a->n == b->n && memcmp(&a->storage, &b->storage, a->n) == 0;
}

bool ek_address_host(char host[256], const char *text)
{
    char port[6];
    return strncmp(text, "unix:", 5) != 0 && split(host, port, text) && host[0];
}

int ek_address_connect(int *fd, const struct ek_address *a, bool speaks_first)
{
    const struct sockaddr *sa = (const struct sockaddr *)&a->storage;
    int got = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (got < 0)
        return EK_EIO;
    int off = 0;
    if (speaks_first && sa->sa_family != AF_UNIX)
        setsockopt(got, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
    if (connect(got, sa, a->n) && errno != EINPROGRESS) {
        close(got);
        return EK_EIO;
    }
    *fd = got;
    return 0;
}
