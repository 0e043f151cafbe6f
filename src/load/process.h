/* process.h - what other processes of this machine used, by /proc: a proxy while it is
 * loaded. */
#ifndef EVENKEEL_LOAD_PROCESS_H
#define EVENKEEL_LOAD_PROCESS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EK_PROCESSES_MAX = 32 };

struct ek_processes {
    int pids[EK_PROCESSES_MAX];
    size_t n; /* 0: none are looked at */
};

/* "123" or "123,456". Errors: EK_EINVAL. */
int ek_processes_parse(struct ek_processes *p, const char *text,
                       struct ek_err *err) EK_MUST_USE;

/* Sums over all of them; all 0 for none. */
struct ek_process_use {
    int64_t cpu_us; /* user and system, of all threads, those that ended, too */
    int64_t bytes;  /* written memory: heap, stacks, shared memory; pages that several
                        processes hold count by their share. Code is not in it */
};

/* Memory costs the kernel a walk over the process, CPU does not: it is read alone where
 * has_memory is false. Errors: EK_EIO (one has ended, or may not be looked at). */
int ek_processes_read(struct ek_process_use *u, const struct ek_processes *p,
                      bool has_memory, struct ek_err *err) EK_MUST_USE;

int64_t ek_process_own_cpu_us(void);

#endif
