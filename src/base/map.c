#include "base/map.h"

#include "base/mem.h"
#include "base/rng.h"

#include <string.h>

uint64_t ek_hash(const void *p, size_t n, uint64_t seed)
{
    const unsigned char *b = p;
    uint64_t h = ek_mix64(seed ^ 0x9e3779b97f4a7c15u ^ n);
    for (; n >= 8; n -= 8, b += 8) {
        uint64_t w;
        memcpy(&w, b, 8);
        h = ek_mix64(h ^ w);
    }
    if (n) {
        uint64_t w = 0;
        memcpy(&w, b, n);
        h = ek_mix64(h ^ w);
    }
    return h;
}

void ek_map_init(struct ek_map *m, size_t max, uint64_t seed)
{
    *m = (struct ek_map){.max = max, .seed = seed};
}

void ek_map_release(struct ek_map *m)
{
    ek_free(m->slots);
    ek_map_init(m, m->max, m->seed);
}

/* The slot that holds the key, or the empty one where it would go. */
static struct ek_map_slot *find(struct ek_map_slot *slots, size_t cap, const char *key,
                                size_t len, uint64_t hash)
{
    size_t i = hash & (cap - 1);
    for (;; i = (i + 1) & (cap - 1)) {
        struct ek_map_slot *s = &slots[i];
        if (!s->key)
            return s;
        if (s->hash == hash && s->len == len &&
            (len == 0 || memcmp(s->key, key, len) == 0)) /* key may then be NULL */
            return s;
    }
}

static int grow(struct ek_map *m, size_t cap)
{
    struct ek_map_slot *slots = ek_calloc(cap, sizeof *slots);
    if (!slots)
        return EK_ENOMEM;
    for (size_t i = 0; i < m->cap; i++) {
        const struct ek_map_slot *s = &m->slots[i];
        if (s->key)
            *find(slots, cap, s->key, s->len, s->hash) = *s;
    }
    ek_free(m->slots);
    m->slots = slots;
    m->cap = cap;
    return 0;
}

int ek_map_reserve(struct ek_map *m, size_t n)
{
    if (n > m->max)
        return EK_ELIMIT;
    size_t cap = m->cap ? m->cap : 16;
    while (n > cap / 4 * 3) {
        if (!ek_mul_size(&cap, cap, 2))
            return EK_ENOMEM;
    }
    return cap == m->cap ? 0 : grow(m, cap);
}

int ek_map_put(struct ek_map *m, const char *key, size_t len, uint64_t value,
               bool *was_there)
{
    static const char empty_key[1];
    uint64_t hash = ek_hash(key, len, m->seed);
    struct ek_map_slot *s = m->cap ? find(m->slots, m->cap, key, len, hash) : NULL;
    bool is_there = s && s->key;
    if (!is_there) {
        int rc = m->n == m->max ? EK_ELIMIT : ek_map_reserve(m, m->n + 1);
        if (rc)
            return rc;
        s = find(m->slots, m->cap, key, len, hash);
        s->key = key ? key : empty_key;
        s->len = len;
        s->hash = hash;
        m->n++;
    }
    s->value = value;
    if (was_there)
        *was_there = is_there;
    return 0;
}

bool ek_map_get(const struct ek_map *m, const char *key, size_t len, uint64_t *value)
{
    if (!m->cap)
        return false;
    const struct ek_map_slot *s =
        find(m->slots, m->cap, key, len, ek_hash(key, len, m->seed));
    if (!s->key)
        return false;
    if (value)
        *value = s->value;
    return true;
}
