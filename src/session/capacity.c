#include "session/capacity.h"

#include <math.h>

#define FACTOR_MIN      1.1
#define FACTOR_MAX      3.0
#define UTILIZATION_MAX 10.0

static double cost_of(const struct ek_capacity_resource *r)
{
    /* Without a prior there is nothing to shrink to. */
    double k = r->prior_cost > 0 ? r->prior_weight : 0;
    double sessions = r->sessions + k;
    if (sessions <= 0)
        return 0;
    return (fmax(0, r->used - r->base) + k * r->prior_cost) / sessions;
}

struct ek_capacity_cost ek_capacity_of(const struct ek_capacity_resource *r, double n)
{
    struct ek_capacity_cost c = {cost_of(r), 0};
    double room = r->target * r->total - r->used;
    if (c.cost > 0)
        c.capacity = n + room / (c.cost * r->factor);
    else
        c.capacity = room > 0 ? (double)INFINITY : n;
    return c;
}

double ek_capacity_factor(double z, double cv, double n)
{
    return fmin(fmax(1 + z * cv / sqrt(fmax(n, 1)), FACTOR_MIN), FACTOR_MAX);
}

double ek_capacity_utilization(double capacity, double n)
{
    if (capacity <= 0)
        return n > 0 ? UTILIZATION_MAX : 1;
    return fmin(n / capacity, UTILIZATION_MAX);
}
