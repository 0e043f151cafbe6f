/* events_synth.h - made logs: any size, lengths and items as uneven as real ones, and
 * a structure in them that a model can learn. The same options give the same log.
 *
 *   lengths      round(exp(normal(log median, sigma))), from min to max
 *   items        ranks by Zipf's law, P(k) ~ 1 / k^zipf, spread over the ids
 *   next item    with probability `follow` one of the 4 successors of the one before
 *                (fixed per item; chances 8:4:2:1), else from Zipf's law; nothing else
 *                tells it, so follow * 8/15 bounds recall@1 from above for rare items
 *   segment      a category of users, 4 levels
 *   click        0 or 1: 1 with probability click_chance = 1/(1 + exp(-z)), z = -1 plus
 *                1.5 if the item's group (id mod 4) is the user's segment, else minus
 *                0.5, plus 1 if the item is a successor of the one before: a function
 *                of user, item and history, so that no model can know more
 *   times        gaps of exp(normal(log 1 hour, 1.5)) seconds
 */
#ifndef EVENKEEL_DATA_EVENTS_SYNTH_H
#define EVENKEEL_DATA_EVENTS_SYNTH_H

#include "data/events.h"

#define EK_SYNTH_SUCCESSORS 4
#define EK_SYNTH_SEGMENTS   4

struct ek_synth_options {
    int64_t n_users, n_items;       /* >= 1, up to events.h's limits */
    double median, sigma;           /* of lengths: median >= 1, sigma >= 0 */
    int64_t min_length, max_length; /* 1 <= min <= max */
    double zipf;                    /* >= 0; 0: all items alike */
    double follow;                  /* [0,1] */
    uint64_t seed;
};

/* Errors: EK_EINVAL options out of range; EK_ELIMIT over EK_EVENTS_MAX; EK_ENOMEM. */
int ek_events_synth(struct ek_events *e, const struct ek_synth_options *o,
                    struct ek_err *err) EK_MUST_USE;

/* The best that can be said of the clicks of a made log: entropies in nats an event.
 *   entropy   of the base rate alone        bayes  mean of that of click_chance
 * A model's normalised entropy is its log loss / entropy; bayes / entropy is the least
 * one on this log, but for chance. */
struct ek_synth_clicks {
    double rate, entropy, bayes;
};
struct ek_synth_clicks ek_synth_clicks(const struct ek_events *e);

/* The planted successor `which` (0 the likeliest) of an item whose name is id + 1. */
int64_t ek_synth_successor(const struct ek_synth_options *o, int64_t id, int which);

#endif
