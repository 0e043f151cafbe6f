#include "data/events.h"

#include "base/mem.h"
#include "data/events_int.h"

#include <assert.h>
#include <string.h>

void ek_events_own(struct ek_events_store *s, void *p)
{
    assert(s->n_owned < (int)(sizeof s->owned / sizeof s->owned[0]));
    if (p)
        s->owned[s->n_owned++] = p;
}

void ek_events_release(struct ek_events *e)
{
    struct ek_events_store *s = e->store;
    if (s) {
        for (int i = 0; i < s->n_owned; i++)
            ek_free(s->owned[i]);
        ek_file_close(&s->file);
        ek_free(s);
    }
    *e = (struct ek_events){0};
}

const struct ek_column *ek_events_column(const struct ek_events *e, const char *name)
{
    for (int i = 0; i < e->n_columns; i++) {
        if (!strcmp(e->columns[i].name, name))
            return &e->columns[i];
    }
    return NULL;
}
