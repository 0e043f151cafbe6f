#include "data/intern.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"

#include <string.h>

static uint64_t new_key(void)
{
    uint64_t key;
    if (ek_rng_secret(&key, sizeof key)) /* none to be had: harder to guess than none */
        key = (uint64_t)ek_clock_us() ^ (uint64_t)(uintptr_t)&key << 20;
    return key;
}

void ek_intern_init(struct ek_intern *t, int64_t max)
{
    *t = (struct ek_intern){.max = max, .key = new_key()};
}

void ek_intern_release(struct ek_intern *t)
{
    ek_free(t->slots);
    ek_free(t->offsets);
    ek_free(t->bytes);
    *t = (struct ek_intern){.max = t->max, .key = t->key};
}

static bool is_name(const struct ek_intern *t, int32_t id, const char *s, size_t n)
{
    int64_t from = t->offsets[id];
    return (size_t)(t->offsets[id + 1] - from) == n &&
           (n == 0 || memcmp(t->bytes + from, s, n) == 0);
}

/* The slot that has the name, or the empty one where it would go; cap > 0. */
static size_t find(const struct ek_intern *t, const char *s, size_t n, uint64_t hash)
{
    size_t i = (hash >> 32) & (t->cap - 1);
    for (;; i = (i + 1) & (t->cap - 1)) {
        const struct ek_intern_slot *slot = &t->slots[i];
        if (slot->id < 0 ||
            (slot->hash == (uint32_t)hash && is_name(t, slot->id, s, n)))
            return i;
    }
}

/* The slot number needs bits that the slot does not keep, so growing hashes anew. */
static int grow_slots(struct ek_intern *t)
{
    size_t cap = t->cap ? 2 * t->cap : 64;
    struct ek_intern_slot *slots = ek_alloc_array(cap, sizeof *slots);
    if (!slots)
        return EK_ENOMEM;
    memset(slots, 0xff, cap * sizeof *slots);
    ek_free(t->slots);
    t->slots = slots;
    t->cap = cap;
    for (int64_t id = 0; id < t->n; id++) {
        int64_t from = t->offsets[id];
        uint64_t hash =
            ek_hash(t->bytes + from, (size_t)(t->offsets[id + 1] - from), t->key);
        size_t i = (hash >> 32) & (cap - 1);
        while (slots[i].id >= 0)
            i = (i + 1) & (cap - 1);
        slots[i] = (struct ek_intern_slot){(uint32_t)hash, (int32_t)id};
    }
    return 0;
}

static int make_room(struct ek_intern *t, size_t n)
{
    if (t->n + 2 > t->cap_offsets) {
        int64_t cap = t->cap_offsets ? 2 * t->cap_offsets : 64;
        void *p = ek_realloc_array(t->offsets, (size_t)cap, sizeof *t->offsets);
        if (!p)
            return EK_ENOMEM;
        t->offsets = p;
        t->cap_offsets = cap;
        t->offsets[t->n] = (int64_t)t->n_bytes;
    }
    if (n > t->cap_bytes - t->n_bytes || !t->bytes) {
        size_t cap = 2 * t->cap_bytes + n + 256;
        void *p = ek_realloc_array(t->bytes, cap, 1);
        if (!p)
            return EK_ENOMEM;
        t->bytes = p;
        t->cap_bytes = cap;
    }
    return t->cap < 2 * ((size_t)t->n + 1) ? grow_slots(t) : 0;
}

int ek_intern_put(struct ek_intern *t, const char *s, size_t n, int32_t *id)
{
    uint64_t hash = ek_hash(s, n, t->key);
    size_t i = t->cap ? find(t, s, n, hash) : 0;
    if (t->cap && t->slots[i].id >= 0) {
        *id = t->slots[i].id;
        return 0;
    }
    if (t->n >= t->max)
        return EK_ELIMIT;
    int rc = make_room(t, n);
    if (rc)
        return rc;
    i = find(t, s, n, hash);
    if (n)
        memcpy(t->bytes + t->n_bytes, s, n);
    t->n_bytes += n;
    *id = (int32_t)t->n;
    t->slots[i] = (struct ek_intern_slot){(uint32_t)hash, *id};
    t->offsets[++t->n] = (int64_t)t->n_bytes;
    return 0;
}

int32_t ek_intern_get(const struct ek_intern *t, const char *s, size_t n)
{
    return t->cap ? t->slots[find(t, s, n, ek_hash(s, n, t->key))].id : -1;
}

struct ek_names ek_intern_names(const struct ek_intern *t)
{
    static const int64_t none[1];
    return (struct ek_names){t->n, t->n ? t->offsets : none, t->bytes ? t->bytes : ""};
}

int ek_names_twin(int64_t *twin, const struct ek_names *names)
{
    size_t cap = 64;
    while (cap < 2 * (size_t)names->n)
        cap *= 2;
    struct ek_intern_slot *slots = ek_alloc_array(cap, sizeof *slots);
    if (!slots)
        return EK_ENOMEM;
    memset(slots, 0xff, cap * sizeof *slots);
    uint64_t key = new_key();
    *twin = names->n;
    for (int64_t id = 0; id < names->n && *twin == names->n; id++) {
        size_t n, other_n;
        const char *s = ek_names_get(names, id, &n);
        uint64_t hash = ek_hash(s, n, key);
        size_t i = (hash >> 32) & (cap - 1);
        for (; slots[i].id >= 0; i = (i + 1) & (cap - 1)) {
            const char *other = ek_names_get(names, slots[i].id, &other_n);
            if (slots[i].hash == (uint32_t)hash && other_n == n &&
                memcmp(other, s, n) == 0)
                *twin = id;
        }
        slots[i] = (struct ek_intern_slot){(uint32_t)hash, (int32_t)id};
    }
    ek_free(slots);
    return 0;
}
