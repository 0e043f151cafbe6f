/* probe_scalars.c - writes an event file and prints its path:
 *   probe_scalars FOLDER FROM TO    steps FROM .. TO - 1 of two tags, resumed at FROM
 *   probe_scalars full FOLDER       until the file may not grow: prints the error
 */
#include "train/scalars.h"

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define LONG_TAG_BYTES EK_SCALARS_TAG_MAX

static int write_steps(struct ek_scalars *s, int64_t from, int64_t to,
                       struct ek_err *err)
{
    char tag[LONG_TAG_BYTES + 1];
    memset(tag, 't', LONG_TAG_BYTES);
    tag[LONG_TAG_BYTES] = 0;
    int rc = 0;
    for (int64_t i = from; i < to && !rc; i++) {
        rc = ek_scalars_add(s, "train/loss", i, 1.0 / (double)(i + 1), err);
        if (!rc)
            rc = ek_scalars_add(s, "valid/ndcg@10 \xc3\xa9", i * 1000000007,
                                -0.5 * (double)i, err);
    }
    if (!rc)
        rc = ek_scalars_add(s, tag, INT64_MAX, (double)NAN, err);
    return rc;
}

/* Points until one is refused: with nothing on the disk that is flush's to say. */
static int fill(struct ek_scalars *s, struct ek_err *err)
{
    int rc = 0;
    for (int64_t i = 0; i < 1000 && !rc; i++) {
        rc = ek_scalars_add(s, "train/loss", i, 0, err);
        if (!rc)
            rc = ek_scalars_flush(s, err);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_scalars *s = NULL;
    bool is_full = argc == 3 && !strcmp(argv[1], "full");
    if (!is_full && argc != 4)
        return 2;
    if (is_full) {
        struct rlimit small = {4000, 4000};
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &small))
            return 77;
    }
    int64_t from = is_full ? 0 : strtoll(argv[2], NULL, 10);
    int rc = ek_scalars_open(&s, is_full ? argv[2] : argv[1], from, &err);
    if (!rc && is_full)
        rc = fill(s, &err);
    else if (!rc)
        rc = write_steps(s, from, strtoll(argv[3], NULL, 10), &err);
    if (!rc)
        puts(ek_scalars_path(s));
    struct ek_err close_err = EK_ERR_INIT;
    int close_rc = ek_scalars_close(s, rc ? &close_err : &err);
    if (rc || close_rc)
        fprintf(stderr, "%s\n", err.text);
    return rc || close_rc;
}
