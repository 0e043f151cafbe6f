/* probe_checkpoint.c - saves states to be killed at, and tells whose state one is:
 *   probe_checkpoint save FOLDER FIRST [two]   states FIRST, FIRST+1 ... until killed;
 *                                              "two": renames cannot exchange
 *   probe_checkpoint load FOLDER               prints the step that it is, or fails
 */
#include "checkpointkit.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ROWS 3000

/* From here on renameat2 with flags fails as on a file system that has none. */
static bool forbid_exchange(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int save(struct kit *k, const char *folder, int64_t step)
{
    struct ek_err err = EK_ERR_INIT;
    for (;; step++) {
        if (kit_save(k, folder, step, &err)) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        printf("%" PRId64 "\n", step);
        fflush(stdout);
    }
}

static int load(struct kit *k, const char *folder)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_checkpoint c = kit_checkpoint(k, 0);
    if (ek_checkpoint_load(folder, &c, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int64_t step = c.progress.steps, differ = kit_each(k, step, false);
    if (differ || ek_adamw_steps(k->adamw) != step) {
        fprintf(stderr, "step %" PRId64 ": %" PRId64 " numbers are another's\n", step,
                differ);
        return 1;
    }
    printf("%" PRId64 "\n", step);
    return 0;
}

int main(int argc, char **argv)
{
    struct kit k;
    bool saves = argc >= 4 && !strcmp(argv[1], "save");
    if (!saves && !(argc == 3 && !strcmp(argv[1], "load")))
        return 2;
    if (!kit_init(&k, ROWS))
        return 1;
    if (argc > 4 && !forbid_exchange())
        return 77;
    int rc = saves ? save(&k, argv[2], strtoll(argv[3], NULL, 10)) : load(&k, argv[2]);
    kit_release(&k);
    return rc;
}
