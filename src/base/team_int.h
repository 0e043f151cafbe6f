/* team_int.h - the cores a team may stand on; shared by the team's files only. */
#ifndef EVENKEEL_BASE_TEAM_INT_H
#define EVENKEEL_BASE_TEAM_INT_H

#include <pthread.h>
#include <sched.h>

/* hwloc's view of the machine, cut down to what this process may use. */
struct ek_cores {
    void *topology; /* hwloc_topology_t, owned; NULL when hwloc cannot tell */
};

void ek_cores_find(struct ek_cores *cores);
void ek_cores_release(struct ek_cores *cores);

/* Physical cores, no more than ek_processors_allowed; at least 1. */
int ek_cores_count(const struct ek_cores *cores);

/* Where a team stands. Written while it is made, then read only. */
struct ek_places {
    cpu_set_t home;  /* core 0, the caller's; empty when nobody is pinned */
    cpu_set_t taken; /* processors that members are bound to */
};

/* Binds `thread` to one processor of core `index` < count and notes it. A refusal is
 * not an error: the thread then runs where the system puts it. */
void ek_cores_pin(const struct ek_cores *cores, struct ek_places *places,
                  pthread_t thread, int index);

/* The calling thread leaves a processor that a member is bound to: both would wait for
 * each other there, and the system is slow to see it. Its affinity stays as it was.
 * Cost: nanoseconds, unless it must move. */
void ek_places_step_aside(const struct ek_places *places);

/* Processors (hardware threads) this process may use: its affinity, and the CPU time
 * its control group gets, as containers are given it; at least 1. */
int ek_processors_allowed(void);

/* "200000 100000" (a cpu.max file: quota and period) -> 2; rounded up; 0 no limit. */
int ek_quota_parse(const char *text);

#endif
