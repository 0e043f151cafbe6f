#include "base/team_int.h"

#include <hwloc.h>
#include <sched.h>

void ek_cores_find(struct ek_cores *cores)
{
    *cores = (struct ek_cores){0};
    hwloc_topology_t t;
    if (hwloc_topology_init(&t))
        return;
    if (hwloc_topology_load(t)) {
        hwloc_topology_destroy(t);
        return;
    }
    /* The administrator's limits are in the topology already; taskset's are not. The
     * caller's binding counts, which the members inherit. */
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (bound && hwloc_get_cpubind(t, bound, HWLOC_CPUBIND_THREAD) == 0 &&
        !hwloc_bitmap_iszero(bound))
        hwloc_topology_restrict(t, bound, 0);
    hwloc_bitmap_free(bound);
    cores->topology = t;
}

void ek_cores_release(struct ek_cores *cores)
{
    if (cores->topology)
        hwloc_topology_destroy(cores->topology);
    *cores = (struct ek_cores){0};
}

int ek_cores_count(const struct ek_cores *cores)
{
    int n =
        cores->topology ? hwloc_get_nbobjs_by_type(cores->topology, HWLOC_OBJ_CORE) : 0;
    return n > 0 ? n : ek_processors_allowed();
}

/* One processor of a core, or -1. */
static int find_processor(const struct ek_cores *cores, int index)
{
    hwloc_topology_t t = cores->topology;
    hwloc_obj_t core =
        t ? hwloc_get_obj_by_type(t, HWLOC_OBJ_CORE, (unsigned)index) : NULL;
    int cpu = core ? hwloc_bitmap_first(core->cpuset) : -1;
    return cpu < CPU_SETSIZE ? cpu : -1;
}

void ek_cores_pin(const struct ek_cores *cores, struct ek_places *places,
                  pthread_t thread, int index)
{
    int cpu = find_processor(cores, index), home = find_processor(cores, 0);
    cpu_set_t one;
    if (cpu < 0 || home < 0)
        return;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (pthread_setaffinity_np(thread, sizeof one, &one))
        return;
    CPU_SET(cpu, &places->taken);
    CPU_SET(home, &places->home);
}

void ek_places_step_aside(const struct ek_places *places)
{
    int cpu = sched_getcpu();
    if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &places->taken))
        return;
    cpu_set_t mine, both;
    if (sched_getaffinity(0, sizeof mine, &mine))
        return;
    CPU_AND(&both, &mine, &places->home);
    /* A caller that may not go home was bound elsewhere on purpose. */
    if (CPU_COUNT(&both) == 0 || sched_setaffinity(0, sizeof both, &both))
        return;
    (void)sched_setaffinity(0, sizeof mine, &mine);
}

int ek_processors_allowed(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int n = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
    return n > 0 ? n : 1;
}
