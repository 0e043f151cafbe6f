/* team.h - a fixed team of threads that runs one function together, over and over.
 *
 * One team an engine. The caller is member 0; the others wait spinning for 200 us and
 * then asleep, so that a step of microseconds costs no system call and an idle engine
 * costs no CPU; with more members than processors they sleep almost at once. Members
 * 1.. are pinned with hwloc to a core each where there are enough of them. The caller
 * is left where it is: threads it starts later would inherit its pinning. Measured
 * against OpenMP in docs/principles.md.
 */
#ifndef EVENKEEL_BASE_TEAM_H
#define EVENKEEL_BASE_TEAM_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct ek_team;

/* n_threads >= 1, the caller included; 0: one a physical core this process may use
 * (affinity and container quota heeded).
 * Errors: EK_ELIMIT n_threads > 256, EK_ENOMEM (for a thread, too). */
int ek_team_new(struct ek_team **team, int n_threads, bool is_pinned,
                struct ek_err *err) EK_MUST_USE;
void ek_team_free(struct ek_team *team); /* joins; NULL is fine */
int ek_team_size(const struct ek_team *team);

/* Runs fn(arg, member, n_members) on every member and returns when all are done; what
 * they wrote is visible to the caller. Not reentrant; one caller thread at a time. */
void ek_team_run(struct ek_team *team, void (*fn)(void *arg, int member, int n_members),
                 void *arg);

/* Inside fn: waits until every member came here; all writes before are visible after.
 * Every member must call it equally often, with its own number. */
void ek_team_barrier(struct ek_team *team, int member);

/* The share [*lo,*hi) of [0,n) that falls to `member`, in multiples of `grain` but for
 * the last; shares differ by at most one grain. Same numbers, same shares. */
void ek_team_share(int64_t *lo, int64_t *hi, int64_t n, int64_t grain, int member,
                   int n_members);

#endif
