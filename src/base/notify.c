#include "base/notify.h"

#include "base/clock.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* False: no name of a socket that this process could reach. */
static bool find_socket(struct sockaddr_un *sa, socklen_t *n)
{
    const char *name = getenv("NOTIFY_SOCKET");
    size_t len = name ? strlen(name) : 0;
    if (len < 2 || len >= sizeof sa->sun_path || (name[0] != '/' && name[0] != '@'))
        return false;
    memset(sa, 0, sizeof *sa);
    sa->sun_family = AF_UNIX;
    memcpy(sa->sun_path, name, len);
    if (name[0] == '@')
        sa->sun_path[0] = 0; /* abstract: its length ends it, not a NUL */
    *n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (name[0] == '/'));
    return true;
}

static bool send_text(const char *text, size_t n)
{
    struct sockaddr_un sa;
    socklen_t sa_n;
    if (!find_socket(&sa, &sa_n))
        return false;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    ssize_t sent = sendto(fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT,
                          (const struct sockaddr *)&sa, sa_n);
    close(fd);
    return sent == (ssize_t)n;
}

/* words: assignments of this file's, one a line. A status is one line, whatever it
 * holds: the next one would be another assignment. */
static bool say(const char *words, const char *status)
{
    char text[EK_NOTIFY_STATUS_MAX + 128];
    int n = snprintf(text, sizeof text, "%sSTATUS=", words);
    for (; *status && n < (int)sizeof text; status++)
        text[n++] = (unsigned char)*status < ' ' ? ' ' : *status;
    return send_text(text, (size_t)n);
}

bool ek_notify_ready(bool takes_over, const char *status)
{
    char words[64] = "READY=1\n";
    if (takes_over)
        snprintf(words, sizeof words, "READY=1\nMAINPID=%lld\n", (long long)getpid());
    return say(words, status);
}

bool ek_notify_reloading(void)
{
    char words[64]; /* systemd wants the time beside it */
    snprintf(words, sizeof words, "RELOADING=1\nMONOTONIC_USEC=%lld\n",
             (long long)ek_clock_us());
    return say(words, "reading the configuration again");
}

bool ek_notify_stopping(const char *status)
{
    return say("STOPPING=1\n", status);
}
