/* team_int.h - the cores a team may stand on; shared by the team's files only. */
#ifndef EVENKEEL_BASE_TEAM_INT_H
#define EVENKEEL_BASE_TEAM_INT_H

#include <pthread.h>

/* hwloc's view of the machine, cut down to what this process may use. */
struct ek_cores {
    void *topology; /* hwloc_topology_t, owned; NULL when hwloc cannot tell */
};

void ek_cores_find(struct ek_cores *cores);
void ek_cores_release(struct ek_cores *cores);

/* Physical cores; the allowed processors where hwloc cannot tell; at least 1. */
int ek_cores_count(const struct ek_cores *cores);

/* Binds `thread` to one processor of core `index` % count. A refusal is not an error:
 * the thread then runs where the system puts it. */
void ek_cores_pin(const struct ek_cores *cores, pthread_t thread, int index);

/* Processors (hardware threads) this process may run on; at least 1. */
int ek_processors_allowed(void);

#endif
