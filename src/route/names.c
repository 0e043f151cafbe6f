#include "route/names.h"

#include "base/mem.h"
#include "net/address.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Threads that ask at once: so many names may hang until the time is over before one
 * that would be answered is not asked for. */
enum { AT_ONCE = 64 };

struct asking {
    ek_resolve_fn ask;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    size_t n_begun, n_done; /* of names: asked for; answered */
    size_t n_running;       /* threads that still look at this */
    bool is_orphan; /* nobody waits any more: the last thread frees all of this */
    struct asked {
        struct ek_name name; /* its text is its own */
        bool is_done;
    } * names; /* (n) */
    size_t n;
};

static void destroy(struct asking *a)
{
    for (size_t i = 0; a->names && i < a->n; i++) {
        ek_free((void *)(uintptr_t)a->names[i].name.text);
        ek_free(a->names[i].name.list);
    }
    ek_free(a->names);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    ek_free(a);
}

static void ask_one(const struct asking *a, struct ek_name *name)
{
    struct ek_err err = EK_ERR_INIT;
    if (a->ask(&name->list, &name->n, name->text, false, &err))
        snprintf(name->why, sizeof name->why, "%.*s", EK_NAME_WHY_BYTES - 1, err.text);
}

static void *run(void *arg)
{
    struct asking *a = arg;
    pthread_mutex_lock(&a->lock);
    while (a->n_begun < a->n && !a->is_orphan) {
        struct asked *next = &a->names[a->n_begun++];
        pthread_mutex_unlock(&a->lock);
        ask_one(a, &next->name);
        pthread_mutex_lock(&a->lock);
        next->is_done = true;
        a->n_done++;
        pthread_cond_signal(&a->changed);
    }
    bool is_last = --a->n_running == 0 && a->is_orphan;
    pthread_mutex_unlock(&a->lock);
    if (is_last)
        destroy(a);
    return NULL;
}

static struct asking *make(const struct ek_name *names, size_t n, ek_resolve_fn ask)
{
    pthread_condattr_t attr;
    struct asking *a = ek_calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->ask = ask ? ask : ek_address_resolve_all;
    a->n = n;
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->changed, &attr);
    pthread_condattr_destroy(&attr);
    a->names = ek_calloc(n, sizeof *a->names);
    bool is_whole = a->names != NULL;
    for (size_t i = 0; is_whole && i < n; i++) {
        a->names[i].name.text = ek_strndup(names[i].text, strlen(names[i].text));
        is_whole = a->names[i].name.text != NULL;
    }
    if (is_whole)
        return a;
    destroy(a);
    return NULL;
}

/* Returns how many there are: fewer do, where the system gives no more. a->lock is
 * held. */
static size_t start_threads(struct asking *a, pthread_t threads[AT_ONCE])
{
    size_t n = 0, wanted = a->n < AT_ONCE ? a->n : AT_ONCE;
    while (n < wanted && pthread_create(&threads[n], NULL, run, a) == 0)
        n++;
    a->n_running = n;
    return n;
}

static struct timespec in_us(int64_t us)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)(us / 1000000);
    t.tv_nsec += (long)(us % 1000000) * 1000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

/* What there is by now, and the threads on their own if that is not all. a->lock is
 * held. */
static void take_answers(struct asking *a, struct ek_name *names, int64_t limit_us)
{
    for (size_t i = 0; i < a->n; i++) {
        struct ek_name *name = &a->names[i].name;
        if (a->names[i].is_done) {
            names[i].list = name->list;
            names[i].n = name->n;
            memcpy(names[i].why, name->why, EK_NAME_WHY_BYTES);
            name->list = NULL;
        } else {
            snprintf(names[i].why, EK_NAME_WHY_BYTES,
                     "%.200s: the resolver did not answer within %.1f s", names[i].text,
                     (double)limit_us / 1e6);
        }
    }
    a->is_orphan = a->n_done < a->n;
}

int ek_names_ask(struct ek_name *names, size_t n, ek_resolve_fn ask, int64_t limit_us)
{
    const struct timespec end = in_us(limit_us);
    pthread_t threads[AT_ONCE];
    int e = 0;
    if (n == 0)
        return 0;
    struct asking *a = make(names, n, ask);
    if (!a)
        return EK_ENOMEM;
    pthread_mutex_lock(&a->lock);
    size_t n_threads = start_threads(a, threads);
    while (n_threads > 0 && a->n_done < a->n && e != ETIMEDOUT)
        e = pthread_cond_timedwait(&a->changed, &a->lock, &end);
    if (n_threads > 0)
        take_answers(a, names, limit_us);
    bool is_orphan = a->is_orphan;
    pthread_mutex_unlock(&a->lock);
    for (size_t i = 0; i < n_threads; i++) {
        if (is_orphan)
            pthread_detach(threads[i]); /* a may be gone already; the thread may not */
        else
            pthread_join(threads[i], NULL);
    }
    if (!is_orphan)
        destroy(a);
    return n_threads > 0 ? 0 : EK_EIO;
}
