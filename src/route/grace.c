#include "route/grace.h"

#include "route/reactor.h"

int64_t ek_grace_begin(struct ek_router *r)
{
    ek_counter_add(&r->generation, 1);
    for (size_t i = 0; i < r->n_reactors; i++)
        ek_loop_wake(r->reactors[i]->loop);
    return ek_counter_get(&r->generation);
}

bool ek_grace_is_over(const struct ek_router *r, int64_t generation)
{
    for (size_t i = 0; i < r->n_reactors; i++) {
        if (ek_counter_get(&r->reactors[i]->generation) < generation)
            return false;
    }
    return true;
}

void ek_grace_put(struct ek_router *r, struct ek_graced *g,
                  void (*drop)(struct ek_graced *g))
{
    g->drop = drop;
    g->generation = ek_grace_begin(r);
    ek_link_append(&r->graced, &g->link);
}

void ek_grace_work(struct ek_router *r, bool all)
{
    while (!ek_link_is_alone(&r->graced)) {
        struct ek_graced *g = EK_LINK_OWNER(r->graced.next, struct ek_graced, link);
        if (!all && !ek_grace_is_over(r, g->generation))
            return;
        ek_link_remove(&g->link);
        g->drop(g);
    }
}
