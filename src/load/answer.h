/* answer.h - a streamed answer as a client sees it: server-sent events in, times and
 * counts out. No sockets; bytes may be cut anywhere.
 *
 * A token is seen when an event brings text that is not empty: `delta.content`,
 * `delta.reasoning_content`, `delta.reasoning` (chat) or `text` (completions) of the
 * first choice. The first event of many servers only tells the role; it is no token.
 */
#ifndef EVENKEEL_LOAD_ANSWER_H
#define EVENKEEL_LOAD_ANSWER_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define EK_ANSWER_LINE_MAX                                                             \
    ((size_t)4 << 20) /* one event; logprobs of 20 fit 500 times */

struct ek_answer {
    void (*on_gap)(void *arg, int64_t us); /* between two events with text; or NULL */
    void *arg;
    struct ek_buf line; /* bytes of a line whose end has not come */
    /* Times are the caller's now_us; 0: has not happened. */
    int64_t first_event_us; /* any event with a choice */
    int64_t first_text_us;
    int64_t last_text_us;
    int64_t done_us;  /* [DONE] */
    uint64_t n_texts; /* events with text */
    /* From `usage`; -1: not told. */
    int64_t n_prompt, n_output, n_cached;
    bool has_finish; /* a finish_reason came */
};

void ek_answer_init(struct ek_answer *a);
void ek_answer_reset(
    struct ek_answer *a); /* for the next answer; on_gap and arg stay */
void ek_answer_release(struct ek_answer *a);

/* Takes p[0,n), which arrived at now_us > 0. What comes behind [DONE] is passed over.
 * Errors: EK_EFORMAT an event that is no JSON object; EK_EIO the server's own error,
 * its words in err; EK_ELIMIT a line over EK_ANSWER_LINE_MAX; EK_ENOMEM. */
int ek_answer_feed(struct ek_answer *a, const char *p, size_t n, int64_t now_us,
                   struct ek_err *err) EK_MUST_USE;

/* At the end of the body: is the answer whole? Errors: EK_EFORMAT when no event came;
 * EK_EIO when neither [DONE] nor a finish_reason did. */
int ek_answer_end(const struct ek_answer *a, struct ek_err *err) EK_MUST_USE;

#endif
