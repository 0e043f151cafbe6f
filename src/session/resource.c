/* resource.c - what sessions use beside CPU, as the application tells it. */
#include "session/tracker_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int ek_tracker_add_resource(struct ek_tracker *t,
                            const struct ek_resource_options *options, int *id)
{
    struct ek_resource_options o;
    int rc = ek_resource_take_options(&o, options);
    if (rc)
        return rc;
    pthread_mutex_lock(&t->lock);
    for (int32_t i = 0; i < t->n_resources; i++) {
        if (!strcmp(t->resources[i].name, o.name))
            rc = EK_SESSION_EINVAL;
    }
    if (!rc && t->n_resources == EK_RESOURCE_MAX)
        rc = EK_SESSION_ESPACE;
    if (!rc) {
        struct ek_resource *x = &t->resources[t->n_resources];
        *x = (struct ek_resource){.o = o, .total = o.total};
        snprintf(x->name, sizeof x->name, "%s", o.name);
        *id = t->n_resources++;
    }
    pthread_mutex_unlock(&t->lock);
    return rc;
}

int ek_tracker_set_resource(struct ek_tracker *t, int id, double used, double total)
{
    if (!(used >= 0) || !(total > 0) || !isfinite(used) || !isfinite(total))
        return EK_SESSION_EINVAL;
    int rc = EK_SESSION_EINVAL;
    pthread_mutex_lock(&t->lock);
    if (id >= 0 && id < t->n_resources) {
        t->resources[id].used = used;
        t->resources[id].total = total;
        rc = 0;
    }
    pthread_mutex_unlock(&t->lock);
    return rc;
}
