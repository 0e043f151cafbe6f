/* resolve.h - the backends' names, asked for again and again: a resolver may take
 * seconds, so a thread of its own asks, and the main thread takes what came.
 *
 *   IDLE ──due──> ASKED (the thread has the names) ──> DONE ──taken──> IDLE
 *
 * What a name says anew holds for new connections; what is open stays where it is. A
 * name that is not resolved keeps the addresses it had, or has none and its backend is
 * down. Owner thread: the main thread's.
 */
#ifndef EVENKEEL_ROUTE_RESOLVE_H
#define EVENKEEL_ROUTE_RESOLVE_H

#include "route/run.h"

struct ek_resolver;

/* Starts the thread. Errors: EK_ENOMEM, EK_EIO. */
int ek_resolver_new(struct ek_resolver **s, struct ek_route *r) EK_MUST_USE;
/* Waits for no answer: a thread that still does frees what is left, later. */
void ek_resolver_free(struct ek_resolver *s); /* NULL is fine */

/* Asks for all names and waits for the answers: before sessions come. Errors:
 * EK_ENOMEM; a name that is not resolved is none. */
int ek_resolver_ask_now(struct ek_resolver *s) EK_MUST_USE;
/* A backend came whose names were not resolved yet: work has them asked for next. */
void ek_resolver_hurry(struct ek_resolver *s); /* NULL is fine */
/* Takes answers, and has the thread ask when that is due; called now and then. True: it
 * is asking. */
bool ek_resolver_work(struct ek_resolver *s);

#endif
