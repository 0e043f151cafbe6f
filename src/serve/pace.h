/* pace.h - what a step will take, learned from the steps before it. An answer waits for
 * all of a step, so the scheduler asks here how many prompt tokens fit beside the
 * answers' own. Nothing that is computed depends on it, only in which step it comes.
 *
 *   us = step + prompt * P + answer * A + seen * S + read * R
 *
 *   P  prompt tokens in the step      S  positions they attend to, together
 *   A  answers' tokens                R  positions those attend to, together
 *
 * On a CPU a step of more than a few rows is bound by arithmetic: time is a line in its
 * rows and small chunks cost next to nothing. What is not linear (a format's dots below
 * 16 rows, another load on the machine) is followed: every step corrects the factors.
 */
#ifndef EVENKEEL_SERVE_PACE_H
#define EVENKEEL_SERVE_PACE_H

#include <stdint.h>

enum ek_pace_term {
    EK_PACE_STEP,   /* 1 in every step */
    EK_PACE_PROMPT, /* P */
    EK_PACE_ANSWER, /* A */
    EK_PACE_SEEN,   /* S */
    EK_PACE_READ,   /* R */
    EK_PACE_COUNT_OF
};

/* What a step has of each. Starts as {{1}}. */
struct ek_pace_work {
    double n[EK_PACE_COUNT_OF];
};

struct ek_pace {
    double us[EK_PACE_COUNT_OF]; /* of one of each; > 0 */
    int64_t n_steps;             /* learned from; 0: the factors have no scale yet */
};

/* Factors in the proportions of a small model, until the first step sets the scale. */
void ek_pace_init(struct ek_pace *p);

/* n tokens of a prompt from pos0 on; one token of an answer at that position. */
void ek_pace_add_prompt(struct ek_pace_work *w, int32_t pos0, int32_t n);
void ek_pace_add_answer(struct ek_pace_work *w, int32_t pos);

/* What the work should take, microseconds. */
double ek_pace_us(const struct ek_pace *p, const struct ek_pace_work *w);

/* The same of n prompt tokens from pos0 on, beside other work. */
double ek_pace_prompt_us(const struct ek_pace *p, int32_t pos0, int32_t n);

/* Most prompt tokens from pos0 on, up to `most`, that take no more than us beside other
 * work; 0 with us <= 0. */
int32_t ek_pace_prompt_tokens(const struct ek_pace *p, int32_t pos0, double us,
                              int32_t most);

/* The work took us; does nothing with us <= 0. The first step sets the scale, and one
 * of the next seven that takes less than half of what was foretold sets it again: the
 * first may have met cold memory. Each factor
 * then moves by its share of what was foretold, so that the step's error shrinks by
 * a half, a third, ... and at last a tenth. A step of more than twice or less than half
 * of what was foretold counts as twice or half: another program may have done it. */
void ek_pace_learn(struct ek_pace *p, const struct ek_pace_work *w, double us);

#endif
