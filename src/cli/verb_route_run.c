#include "cli/verb_route_run.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/notify.h"
#include "route/inherit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { WORDS_BYTES = 1 << 20 };

/* A configuration that was read again; the proxy says when it needs it no more. */
struct reading {
    struct ek_route_config c; /* first: what the proxy knows of it */
    struct ek_arena arena;    /* holds what c points at */
};

/* A signal handler has no argument of its own: the one proxy of this process. */
static struct ek_route *running;
static volatile sig_atomic_t last_signal;

static void on_signal(int sig)
{
    int saved = errno;
    if (sig == SIGHUP && running) {
        ek_route_reload(running);
    } else if (sig == SIGUSR2 && running) {
        ek_route_upgrade(running);
    } else if (sig == SIGTERM || sig == SIGINT) {
        last_signal = sig;
        if (running)
            ek_route_stop(running);
    }
    errno = saved;
}

static void catch_signals(void)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR2};
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &act, NULL);
}

/* What the proxy asks for more. */
struct asked {
    struct ek_route_words words;
    const struct ek_route_config *first; /* the caller's */
};

static int read_again(void *arg, const struct ek_route_config **c, struct ek_err *err)
{
    const struct ek_route_words *words = &((const struct asked *)arg)->words;
    struct reading *r = ek_calloc(1, sizeof *r);
    if (!r)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    ek_arena_init(&r->arena, EK_ROUTE_ARENA_BYTES);
    int rc = words->read(&r->c, words->argc, words->argv, &r->arena, err);
    if (rc) {
        ek_arena_release(&r->arena);
        ek_free(r);
        return rc;
    }
    *c = &r->c;
    return 0;
}

static void forget(void *arg, const struct ek_route_config *c)
{
    const struct asked *asked = arg;
    if (c == asked->first)
        return;
    struct reading *r = (struct reading *)(uintptr_t)c;
    ek_arena_release(&r->arena);
    ek_free(r);
}

/* The words that this process was started with, and NULL; ek_free. NULL: not known. */
static char **own_words(struct ek_buf *text)
{
    char bytes[4096];
    size_t got, n = 0;
    FILE *f = fopen("/proc/self/cmdline", "r");
    if (!f)
        return NULL;
    int rc = 0;
    while (!rc && (got = fread(bytes, 1, sizeof bytes, f)) > 0)
        rc = ek_buf_add(text, bytes, got);
    fclose(f);
    char **words = rc ? NULL : ek_calloc(text->len + 1, sizeof(char *));
    for (size_t at = 0; words && at < text->len; at += strlen(text->data + at) + 1)
        words[n++] = text->data + at;
    return words;
}

/* Whoever hears of it may send the next signal at once: they are caught by now. */
static void on_ready(void *arg, struct ek_route *r)
{
    const struct ek_route_config *c = ((const struct asked *)arg)->first;
    bool takes_over = c->inherited->ready_fd >= 0;
    char status[64];
    snprintf(status, sizeof status, "%zu backends", c->n_backends);
    /* Before the old process hears of it: that may end soon after, and until then is
     * the one that is watched. */
    ek_notify_ready(takes_over, status);
    size_t n_left = ek_inherited_end(c->inherited, NULL);
    if (n_left > 0)
        ek_log(EK_LOG_WARN, "sockets_not_used", "n=%zu", n_left);
    ek_log(EK_LOG_INFO, "ready", "listen=%s admin=%s backends=%zu policy=%s threads=%d",
           ek_route_address(r), ek_route_admin(r), c->n_backends,
           ek_policy_name(c->pool.policy), c->threads);
}

static int route(const struct ek_route_config *c, const struct ek_route_host *host,
                 struct ek_err *err)
{
    struct ek_route *r = NULL;
    int rc = ek_route_new(&r, c, err);
    if (rc)
        return rc;
    ek_route_set_host(r, host);
    running = r;
    catch_signals();
    rc = ek_route_run(r, err);
    running = NULL;
    ek_route_free(r);
    return rc;
}

int ek_verb_route_run(const struct ek_route_config *c,
                      const struct ek_route_words *words, int *code, struct ek_err *err)
{
    struct asked asked = {.words = *words, .first = c};
    struct ek_buf text;
    ek_buf_init(&text, WORDS_BYTES);
    char **argv = own_words(&text);
    const struct ek_route_host host = {.read = read_again,
                                       .forget = forget,
                                       .on_ready = on_ready,
                                       .arg = &asked,
                                       .argv = argv && argv[0] ? argv : NULL};
    int rc = route(c, &host, err);
    ek_free(argv);
    ek_buf_release(&text);
    *code = last_signal == SIGINT ? EK_EXIT_INTERRUPTED : EK_EXIT_OK;
    return rc;
}
