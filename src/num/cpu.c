/* cpu.c - CPU features by CPUID and XGETBV, topology by hwloc. */
#include "num/cpu.h"

#include <cpuid.h>
#include <hwloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[EK_ISA_COUNT] = {"ref", "avx2", "avx512"};

/* Register state that the operating system saves and restores (XCR0). */
#define XCR0_AVX    0x06u /* SSE, AVX */
#define XCR0_AVX512 0xe6u /* and opmask, upper halves, upper registers */

#define L1_FMA              (1u << 12) /* leaf 1 ecx */
#define L1_OSXSAVE          (1u << 27)
#define L1_F16C             (1u << 29)
#define L7_AVX2             (1u << 5) /* leaf 7.0 ebx */
#define L7_BMI2             (1u << 8)
#define L7_AVX512F_BW_DQ_VL (1u << 16 | 1u << 17 | 1u << 30 | 1u << 31)
#define L7_VBMI_VNNI        (1u << 1 | 1u << 11) /* leaf 7.0 ecx */
#define L71_BF16            (1u << 5)            /* leaf 7.1 eax */

const char *ek_isa_name(enum ek_isa isa)
{
    return (unsigned)isa < EK_ISA_COUNT ? names[isa] : "?";
}

static uint32_t xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

static bool has_all(uint32_t value, uint32_t bits)
{
    return (value & bits) == bits;
}

enum ek_isa ek_isa_best(void)
{
    uint32_t a, b, c, d, a1 = 0, b1, c1, d1;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_all(c, L1_FMA | L1_OSXSAVE | L1_F16C))
        return EK_ISA_REF;
    uint32_t state = xcr0();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_all(b, L7_AVX2 | L7_BMI2) ||
        !has_all(state, XCR0_AVX))
        return EK_ISA_REF;
    if (a >= 1)
        __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
    if (has_all(b, L7_AVX512F_BW_DQ_VL) && has_all(c, L7_VBMI_VNNI) &&
        has_all(a1, L71_BF16) && has_all(state, XCR0_AVX512))
        return EK_ISA_AVX512;
    return EK_ISA_AVX2;
}

int ek_isa_choose(enum ek_isa *isa, struct ek_err *err)
{
    enum ek_isa best = ek_isa_best();
    const char *want = getenv("EK_ISA");
    if (!want || !*want) {
        *isa = best;
        return 0;
    }
    for (int i = 0; i < EK_ISA_COUNT; i++) {
        if (strcmp(want, names[i]) != 0)
            continue;
        if (i > (int)best)
            return ek_err_set(err, EK_EUNSUP,
                              "EK_ISA=%s: this CPU lacks it, its best is '%s'", want,
                              names[best]);
        *isa = (enum ek_isa)i;
        return 0;
    }
    return ek_err_set(err, EK_EINVAL,
                      "EK_ISA=%s: unknown, expected ref, avx2 or avx512", want);
}

static size_t cache_bytes(hwloc_topology_t topo, hwloc_obj_type_t type)
{
    hwloc_obj_t obj = hwloc_get_obj_by_type(topo, type, 0);
    return obj ? (size_t)obj->attr->cache.size : 0;
}

/* Leaves out of `topo` what the affinity of this process excludes (taskset, a pinned
 * container). Where that cannot be told, the whole machine stays. */
static void keep_allowed(hwloc_topology_t topo)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set && !hwloc_get_cpubind(topo, set, HWLOC_CPUBIND_PROCESS))
        (void)hwloc_topology_restrict(topo, set, 0);
    hwloc_bitmap_free(set);
}

int ek_topology_read(struct ek_topology *t, struct ek_err *err)
{
    struct ek_topology found = {0};
    hwloc_topology_t topo;
    if (hwloc_topology_init(&topo))
        return ek_err_set(err, EK_ENOMEM, "topology: out of memory");
    if (hwloc_topology_load(topo)) {
        hwloc_topology_destroy(topo);
        return ek_err_set(err, EK_EIO, "topology: hwloc cannot read this machine");
    }
    keep_allowed(topo);
    found.n_threads = hwloc_get_nbobjs_by_type(topo, HWLOC_OBJ_PU);
    found.n_cores = hwloc_get_nbobjs_by_type(topo, HWLOC_OBJ_CORE);
    if (found.n_threads < 1)
        found.n_threads = 1;
    if (found.n_cores < 1) /* some virtual machines show no cores */
        found.n_cores = found.n_threads;
    found.l2_bytes = cache_bytes(topo, HWLOC_OBJ_L2CACHE);
    found.l3_bytes = cache_bytes(topo, HWLOC_OBJ_L3CACHE);
    hwloc_obj_t package = hwloc_get_obj_by_type(topo, HWLOC_OBJ_PACKAGE, 0);
    const char *model =
        package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    if (model)
        strncpy(found.model, model, sizeof found.model - 1);
    hwloc_topology_destroy(topo);
    *t = found;
    return 0;
}
