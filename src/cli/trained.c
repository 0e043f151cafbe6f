/* trained.c - a trained model opened under a line of progress. */
#include "cli/trained.h"

#include "cli/progress.h"

static bool on_read(void *arg, int64_t done, int64_t total)
{
    ek_progress_bytes(arg, done, total);
    return !ek_interrupt_seen();
}

int ek_verb_trained_open(struct ek_trained *t, const char *folder,
                         struct ek_trained_options o, struct ek_err *err)
{
    struct ek_progress reading;
    o.on_progress = on_read;
    o.arg = &reading;
    ek_progress_begin(&reading, "reading", true);
    int rc = ek_trained_open(t, folder, &o, err);
    ek_progress_end(&reading);
    return rc;
}
