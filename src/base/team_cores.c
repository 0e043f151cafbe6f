#include "base/team_int.h"

#include <fcntl.h>
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

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

int ek_quota_parse(const char *text)
{
    long long quota, period;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return 0;
    long long n = quota / period + (quota % period != 0);
    return n < CPU_SETSIZE ? (int)n : 0;
}

/* The limit of the group at the root of what this process sees, which in a container is
 * its own. Read without the heap: the file holds one short line. */
static int read_quota(void)
{
    char text[64];
    int fd = open("/sys/fs/cgroup/cpu.max", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return ek_quota_parse(text);
}

int ek_processors_allowed(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int n = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
    int quota = read_quota();
    if (quota > 0 && quota < n)
        n = quota;
    return n > 0 ? n : 1;
}
