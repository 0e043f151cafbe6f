/* cpu.h - CPU used so far, and the cores that may be used: of the process, of its
 * cgroup v2, of the machine.
 *
 * Files are opened at each reading: a reading comes a few times a second, and a kept
 * descriptor would be the application's to lose. Threads: any; nothing is kept.
 */
#ifndef EVENKEEL_SESSION_CPU_H
#define EVENKEEL_SESSION_CPU_H

#include "base/proc.h"

#include <stddef.h>
#include <stdint.h>

/* usage_usec of cpu.stat. Errors: EK_EIO. */
int ek_cgroup_used(const char *dir, int64_t *us) EK_MUST_USE;

/* Cores that the least cpu.max of `dir` and the cgroups above it allows; infinite: no
 * quota. Cannot fail: what cannot be read is no quota. */
double ek_cgroup_quota(const char *dir);

/* Errors: EK_EIO. */
int ek_cpu_used(int64_t *us) EK_MUST_USE;

/* Cores this process may run on. */
double ek_cpu_affinity(void);

/* Of the whole machine: time its cores were not idle, and how many there are. Steal
 * counts: others have it. Errors: EK_EIO. */
int ek_cpu_host(const char *proc_dir, int64_t *busy_us, double *cores) EK_MUST_USE;

#endif
