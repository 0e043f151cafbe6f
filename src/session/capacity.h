/* capacity.h - the formula: what is known of a server in, effective capacity out
 * (docs/design/session.md). Pure: no clock, no state, the same for a test and a server.
 */
#ifndef EVENKEEL_SESSION_CAPACITY_H
#define EVENKEEL_SESSION_CAPACITY_H

#include <stdint.h>

/* Anything that sessions use up. For CPU: cores, smoothed. */
struct ek_capacity_resource {
    double used, total;
    double target;       /* share of total that may be used */
    double base;         /* used without sessions */
    double sessions;     /* that use it, smoothed as `used` is */
    double prior_cost;   /* of a session; 0: unknown */
    double prior_weight; /* sessions the prior counts as */
    double factor;       /* of safety */
};

struct ek_capacity_cost {
    double cost;     /* of a session; 0: unknown */
    double capacity; /* sessions in all, may be negative; infinite: not to be told */
};

/* n + (target * total - used) / (cost * factor). */
struct ek_capacity_cost ek_capacity_of(const struct ek_capacity_resource *r, double n);

/* 1 + z * cv / sqrt(max(n, 1)), within [1.1, 3]. */
double ek_capacity_factor(double z, double cv, double n);

/* n / capacity, within [0, 10]; an empty server without capacity is full: 1. */
double ek_capacity_utilization(double capacity, double n);

#endif
