#include "serve/pace.h"

#include <math.h>
#include <stdbool.h>

#define LEAST_STEP 0.1  /* of an error that a step corrects */
#define LEAST_US   1e-6 /* a factor stays positive */
#define FIRST      8    /* steps whose scale may still be far too large */

/* Of SmolLM2-135M on two cores, in prompt tokens. Only their proportions count, and
 * those only until steps of different make have been seen. */
static const double first[EK_PACE_COUNT_OF] = {
    [EK_PACE_STEP] = 2,          [EK_PACE_PROMPT] = 1,       [EK_PACE_ANSWER] = 1.4,
    [EK_PACE_SEEN] = 1.0 / 2500, [EK_PACE_READ] = 1.0 / 500,
};

void ek_pace_init(struct ek_pace *p)
{
    p->n_steps = 0;
    for (int i = 0; i < EK_PACE_COUNT_OF; i++)
        p->us[i] = first[i];
}

void ek_pace_add_prompt(struct ek_pace_work *w, int32_t pos0, int32_t n)
{
    w->n[EK_PACE_PROMPT] += n;
    w->n[EK_PACE_SEEN] += n * (pos0 + 0.5 * n);
}

void ek_pace_add_answer(struct ek_pace_work *w, int32_t pos)
{
    w->n[EK_PACE_ANSWER] += 1;
    w->n[EK_PACE_READ] += pos;
}

double ek_pace_us(const struct ek_pace *p, const struct ek_pace_work *w)
{
    double us = 0;
    for (int i = 0; i < EK_PACE_COUNT_OF; i++)
        us += p->us[i] * w->n[i];
    return us;
}

double ek_pace_prompt_us(const struct ek_pace *p, int32_t pos0, int32_t n)
{
    return n * (p->us[EK_PACE_PROMPT] + p->us[EK_PACE_SEEN] * (pos0 + 0.5 * n));
}

/* us = a n^2 + b n, solved for n. */
int32_t ek_pace_prompt_tokens(const struct ek_pace *p, int32_t pos0, double us,
                              int32_t most)
{
    double a = 0.5 * p->us[EK_PACE_SEEN];
    double b = p->us[EK_PACE_PROMPT] + p->us[EK_PACE_SEEN] * pos0;
    if (us <= 0)
        return 0;
    double n = 2 * us / (b + sqrt(b * b + 4 * a * us));
    return n < most ? (int32_t)n : most;
}

void ek_pace_learn(struct ek_pace *p, const struct ek_pace_work *w, double us)
{
    double foretold = ek_pace_us(p, w);
    if (us <= 0 || foretold <= 0)
        return;
    double error = us / foretold - 1;
    bool is_first = p->n_steps++ == 0;
    if (is_first || (p->n_steps <= FIRST && error < -0.5)) {
        for (int i = 0; i < EK_PACE_COUNT_OF; i++)
            p->us[i] *= 1 + error;
        return;
    }
    error = error > 1 ? 1 : error < -0.5 ? -0.5 : error;
    double share[EK_PACE_COUNT_OF], sum = 0;
    for (int i = 0; i < EK_PACE_COUNT_OF; i++) {
        share[i] = p->us[i] * w->n[i] / foretold;
        sum += share[i] * share[i];
    }
    /* What is foretold moves by sum(share * change) of itself: divided by the squares,
     * that is the error, times how far to go. */
    double rate = 1.0 / (double)p->n_steps;
    rate = rate > LEAST_STEP ? rate : LEAST_STEP;
    for (int i = 0; i < EK_PACE_COUNT_OF; i++) {
        p->us[i] *= 1 + rate * error * share[i] / sum;
        p->us[i] = p->us[i] > LEAST_US ? p->us[i] : LEAST_US;
    }
}
