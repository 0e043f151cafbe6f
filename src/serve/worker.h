/* worker.h - an engine on a thread of its own.
 *
 *      loop thread                    ring                engine thread
 *      submit, cancel, give_back  --- commands --->  applied before each step
 *      next                       <-- news ---------  deltas, figures
 *
 * Each object has one owner at a time, and passing a ring passes it on: a request is
 * the engine's from submit to its last delta, a delta the reader's from next to
 * give_back.
 * Neither thread waits for the other; the rings are sized so that they cannot fill.
 * The engine sleeps on an eventfd while it has nothing to do, until the next deadline.
 */
#ifndef EVENKEEL_SERVE_WORKER_H
#define EVENKEEL_SERVE_WORKER_H

#include "serve/engine.h"

struct ek_worker;

/* max_choices: choices that may be in the engine at once, waiting ones included.
 * on_news is called on the engine's thread when `next` has something; it must be
 * thread-safe and short (ek_loop_wake). Errors: EK_ENOMEM, EK_EIO. */
int ek_worker_new(struct ek_worker **w, int32_t max_choices, void (*on_news)(void *arg),
                  void *arg, struct ek_err *err) EK_MUST_USE;

/* The engine's on_delta, with the worker as its arg. */
void ek_worker_on_delta(void *worker, struct ek_delta *delta);

/* Starts the thread; the engine is the worker's until ek_worker_free, which frees it
 * too. Errors: EK_EIO. */
int ek_worker_start(struct ek_worker *w, struct ek_engine *e,
                    struct ek_err *err) EK_MUST_USE;

/* Ends the thread. No request may be in the engine (every last delta was seen). NULL is
 * fine. */
void ek_worker_free(struct ek_worker *w);

/* ---- the loop's thread ---- */

/* Errors: EK_EBUSY max_choices would be passed; the request stays the caller's. */
int ek_worker_submit(struct ek_worker *w, struct ek_request *r) EK_MUST_USE;

/* Once a request, between submit and its last delta. */
void ek_worker_cancel(struct ek_worker *w, struct ek_request *r);
void ek_worker_give_back(struct ek_worker *w, struct ek_delta *delta);

/* The next delta, or NULL. */
struct ek_delta *ek_worker_next(struct ek_worker *w);

/* Choices in the engine, as the loop knows it. */
int32_t ek_worker_choices(const struct ek_worker *w);

/* The engine's figures as last reported: at most 50 ms old while it works. */
const struct ek_engine_stats *ek_worker_stats(const struct ek_worker *w);

#endif
