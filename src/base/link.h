/* link.h - a circular list with a head, the links inside what is listed: nothing is
 * allocated, and leaving a list needs no search.
 *
 * Invariant: a link that is in no list points at itself, so removing it is harmless.
 */
#ifndef EVENKEEL_BASE_LINK_H
#define EVENKEEL_BASE_LINK_H

#include <stdbool.h>
#include <stddef.h>

struct ek_link {
    struct ek_link *prev, *next;
};

/* The struct of this type whose `member` is at `link`. */
#define EK_LINK_OWNER(link, type, member)                                              \
    ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void ek_link_init(struct ek_link *l)
{
    l->prev = l->next = l;
}

static inline void ek_link_remove(struct ek_link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    ek_link_init(l);
}

static inline void ek_link_append(struct ek_link *list, struct ek_link *l)
{
    l->prev = list->prev;
    l->next = list;
    list->prev->next = l;
    list->prev = l;
}

static inline bool ek_link_is_alone(const struct ek_link *l)
{
    return l->next == l;
}

#endif
