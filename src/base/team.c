/* A run is one generation of two gates: `start` lets the members out, the closing
 * barrier brings them back. Both gates are the same thing: a counter that moves when
 * the gate opens, and a futex for those who waited longer than the spin.
 *
 *     caller            members
 *     fn, arg =
 *     open(start) ----> wait(start)
 *     fn(arg, 0, n)     fn(arg, i, n)
 *     barrier <-------> barrier          the last to arrive opens the gate
 *
 * Arriving counts in two stages once a team is large: members in eights, then the last
 * of each eight, so that 64 cores do not queue for one cache line.
 *
 * Memory order. Opening a gate is a read-modify-write that releases, looking is a load
 * that acquires: what was written before opening is visible behind the gate. Arriving
 * at the barrier is acquire-release on each counter, so the last to arrive has seen the
 * writes of all and hands them on when it opens. The sleeper count needs more: the
 * opener writes `moved` and reads `sleepers`, the sleeper writes `sleepers` and reads
 * `moved`; at least one must see the other's write, which only sequential consistency
 * of these four accesses gives. */
#include "base/team.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/team_int.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_THREADS 256
#define LINE        64 /* bytes of a cache line */
#define FAN         8  /* members that count on one line before the others are told */

/* How long to look at a gate before sleeping: past the serial work between two layers
 * and most of that between two steps of an engine. With more members than processors
 * the one waited for may need this very processor: only a few looks then. */
#define SPIN_US         200
#define LOOKS_A_READING 64 /* between readings of the clock: about 1 to 3 us */
#define CROWDED_LOOKS   16

struct gate {
    alignas(LINE) atomic_uint moved; /* times opened, wrapping; the futex word */
    atomic_uint sleepers;            /* members in or about to enter the futex */
};

struct count {
    alignas(LINE) atomic_int n; /* arrived, this generation */
};

struct member {
    struct ek_team *team;
    int index;
    pthread_t thread;
};

struct ek_team {
    struct gate start;
    struct gate barrier;
    struct count root;                      /* members, or eights of them */
    struct count eights[MAX_THREADS / FAN]; /* of a team larger than FAN */
    /* Written by the caller before `start` opens, read by members behind it. */
    alignas(LINE) void (*fn)(void *arg, int member, int n_members); /* NULL: end */
    void *arg;
    int n;                   /* members, the caller included */
    bool is_crowded;         /* more of them than processors */
    struct ek_places places; /* processors of the members */
    struct member members[]; /* n; [0] is the caller's and has no thread */
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static void gate_open(struct gate *g)
{
    atomic_fetch_add_explicit(&g->moved, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&g->sleepers, memory_order_seq_cst))
        syscall(SYS_futex, &g->moved, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* True as soon as the gate has moved on from `seen` within n looks. */
static bool look(struct gate *g, unsigned seen, int n_looks)
{
    for (int i = 0; i < n_looks; i++) {
        if (atomic_load_explicit(&g->moved, memory_order_acquire) != seen)
            return true;
        pause_cpu();
    }
    return false;
}

static bool spin(struct gate *g, unsigned seen, bool is_crowded)
{
    if (look(g, seen, is_crowded ? CROWDED_LOOKS : LOOKS_A_READING))
        return true;
    if (is_crowded)
        return false;
    for (int64_t end = ek_clock_us() + SPIN_US; ek_clock_us() < end;) {
        if (look(g, seen, LOOKS_A_READING))
            return true;
    }
    return false;
}

/* Returns once the gate has moved on from `seen`. */
static void gate_wait(struct gate *g, unsigned seen, bool is_crowded)
{
    if (spin(g, seen, is_crowded))
        return;
    atomic_fetch_add_explicit(&g->sleepers, 1, memory_order_seq_cst);
    /* The kernel compares again under its lock; an interrupted sleep looks again. */
    while (atomic_load_explicit(&g->moved, memory_order_seq_cst) == seen)
        syscall(SYS_futex, &g->moved, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub_explicit(&g->sleepers, 1, memory_order_relaxed);
}

/* Counts one of n in; true for the last, who leaves the count at 0 for the next time:
 * nobody arrives again before the gate opens, and opening releases this store. */
static bool count_in(struct count *c, int n)
{
    if (atomic_fetch_add_explicit(&c->n, 1, memory_order_acq_rel) + 1 < n)
        return false;
    atomic_store_explicit(&c->n, 0, memory_order_relaxed);
    return true;
}

static bool is_last(struct ek_team *team, int member)
{
    if (team->n <= FAN)
        return count_in(&team->root, team->n);
    int eight = member / FAN, rest = team->n - eight * FAN;
    return count_in(&team->eights[eight], rest < FAN ? rest : FAN) &&
           count_in(&team->root, (team->n + FAN - 1) / FAN);
}

void ek_team_barrier(struct ek_team *team, int member)
{
    if (team->n == 1)
        return;
    struct gate *g = &team->barrier;
    /* Cannot move before this member arrives, so the order of this load is free. */
    unsigned seen = atomic_load_explicit(&g->moved, memory_order_relaxed);
    if (is_last(team, member))
        gate_open(g);
    else
        gate_wait(g, seen, team->is_crowded);
}

void ek_team_run(struct ek_team *team, void (*fn)(void *arg, int member, int n_members),
                 void *arg)
{
    assert(fn);
    if (team->n > 1) {
        ek_places_step_aside(&team->places);
        team->fn = fn;
        team->arg = arg;
        gate_open(&team->start);
    }
    fn(arg, 0, team->n);
    ek_team_barrier(team, 0);
}

static void *serve(void *p)
{
    const struct member *m = p;
    struct ek_team *team = m->team;
    for (unsigned seen = 0;; seen++) {
        gate_wait(&team->start, seen, team->is_crowded);
        if (!team->fn)
            return NULL;
        team->fn(team->arg, m->index, team->n);
        ek_team_barrier(team, m->index);
    }
}

/* Lets members 1..n_started end and waits for them. */
static void end_members(struct ek_team *team, int n_started)
{
    team->fn = NULL;
    gate_open(&team->start);
    for (int i = 1; i <= n_started; i++)
        pthread_join(team->members[i].thread, NULL);
}

int ek_team_new(struct ek_team **out, int n_threads, bool is_pinned, struct ek_err *err)
{
    assert(n_threads >= 0);
    if (n_threads > MAX_THREADS)
        return ek_err_set(err, EK_ELIMIT,
                          "a team of %d threads is over the limit of %d", n_threads,
                          MAX_THREADS);
    struct ek_cores cores = {0};
    int rc = 0, n_started = 0;
    if (n_threads == 0 || is_pinned)
        ek_cores_find(&cores);
    int n = n_threads ? n_threads : ek_cores_count(&cores);
    n = n > MAX_THREADS ? MAX_THREADS : n;
    size_t bytes = sizeof(struct ek_team) + (size_t)n * sizeof(struct member);
    struct ek_team *team = ek_alloc_aligned(LINE, bytes);
    if (!team) {
        rc = ek_err_set(err, EK_ENOMEM, "no memory for a team of %d threads", n);
        goto out;
    }
    memset(team, 0, bytes);
    team->n = n;
    team->is_crowded = n > ek_processors_allowed();
    for (int i = 1; i < n; i++) {
        struct member *m = &team->members[i];
        *m = (struct member){.team = team, .index = i};
        int code = pthread_create(&m->thread, NULL, serve, m);
        if (code) {
            rc = ek_err_set(err, EK_ENOMEM, "thread %d of %d could not be started: %s",
                            i, n, strerror(code));
            goto out;
        }
        n_started = i;
        if (is_pinned && n <= ek_cores_count(&cores))
            ek_cores_pin(&cores, &team->places, m->thread, i);
    }
    *out = team;
    team = NULL;
out:
    if (team)
        end_members(team, n_started);
    ek_free(team);
    ek_cores_release(&cores);
    return rc;
}

void ek_team_free(struct ek_team *team)
{
    if (!team)
        return;
    end_members(team, team->n - 1);
    ek_free(team);
}

int ek_team_size(const struct ek_team *team)
{
    return team->n;
}

void ek_team_share(int64_t *lo, int64_t *hi, int64_t n, int64_t grain, int member,
                   int n_members)
{
    assert(n >= 0 && grain >= 1 && member >= 0 && member < n_members);
    int64_t n_grains = n / grain + (n % grain != 0);
    int64_t each = n_grains / n_members, more = n_grains % n_members;
    int64_t first = member * each + (member < more ? member : more);
    int64_t last = first + each + (member < more);
    /* n_grains * grain may lie past n and past int64: clamp in grains. */
    *lo = first < n_grains ? first * grain : n;
    *hi = last < n_grains ? last * grain : n;
}
