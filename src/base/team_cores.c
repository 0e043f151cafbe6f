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

void ek_cores_pin(const struct ek_cores *cores, pthread_t thread, int index)
{
    hwloc_topology_t t = cores->topology;
    int n = t ? hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE) : 0;
    if (n <= 0)
        return;
    hwloc_obj_t core = hwloc_get_obj_by_type(t, HWLOC_OBJ_CORE, (unsigned)(index % n));
    hwloc_bitmap_t one = core ? hwloc_bitmap_dup(core->cpuset) : NULL;
    if (!one)
        return;
    hwloc_bitmap_singlify(one);
    (void)hwloc_set_thread_cpubind(t, thread, one, 0);
    hwloc_bitmap_free(one);
}

int ek_processors_allowed(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int n = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
    return n > 0 ? n : 1;
}
