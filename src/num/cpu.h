/* cpu.h - what this processor can do, and how its cores and caches lie. */
#ifndef EVENKEEL_NUM_CPU_H
#define EVENKEEL_NUM_CPU_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* The kernel variants, each needing all features of its line:
 *   avx2    AVX2, FMA, F16C, BMI2
 *   avx512  the above and AVX-512 F, BW, DQ, VL, VNNI, BF16, VBMI */
enum ek_isa { EK_ISA_REF, EK_ISA_AVX2, EK_ISA_AVX512, EK_ISA_COUNT };

const char *ek_isa_name(enum ek_isa isa); /* "ref", "avx2", "avx512" */

/* Best ISA of this CPU and operating system (XCR0 included). Threads: any. */
enum ek_isa ek_isa_best(void);

/* The ISA to use: the environment's EK_ISA where set, else the best one. Errors:
 * EK_EINVAL an unknown name, EK_EUNSUP this CPU lacks it; the sentence names both. */
int ek_isa_choose(enum ek_isa *isa, struct ek_err *err) EK_MUST_USE;

struct ek_topology {
    int n_cores;     /* physical cores this process may use */
    int n_threads;   /* hardware threads it may use */
    size_t l2_bytes; /* of one core; 0 unknown */
    size_t l3_bytes; /* of one package; 0 unknown */
    char model[128]; /* "AMD EPYC 9R14" */
};

/* Reads the machine through hwloc. Errors: EK_ENOMEM, EK_EIO. */
int ek_topology_read(struct ek_topology *t, struct ek_err *err) EK_MUST_USE;

#endif
