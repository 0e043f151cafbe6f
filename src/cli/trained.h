/* trained.h - a trained model opened for a verb: what is read of its log is a line of
 * progress, and an interrupt ends it. */
#ifndef EVENKEEL_CLI_TRAINED_H
#define EVENKEEL_CLI_TRAINED_H

#include "train/trained.h"

/* As ek_trained_open; o->on_progress and o->arg are set here. Errors: its;
 * EK_ECANCELED. */
int ek_verb_trained_open(struct ek_trained *t, const char *folder,
                         struct ek_trained_options o, struct ek_err *err) EK_MUST_USE;

#endif
