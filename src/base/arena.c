#include "base/arena.h"

#include "base/mem.h"

#include <stdalign.h>
#include <string.h>

#define ALIGN     16
#define BLOCK_MIN 4096

struct ek_arena_block {
    struct ek_arena_block *next;
    size_t used, cap;
    alignas(ALIGN) char data[];
};

void ek_arena_init(struct ek_arena *a, size_t max_bytes)
{
    *a = (struct ek_arena){.max_bytes = max_bytes};
}

static void free_blocks(struct ek_arena_block *b)
{
    while (b) {
        struct ek_arena_block *next = b->next;
        ek_free(b);
        b = next;
    }
}

void ek_arena_release(struct ek_arena *a)
{
    free_blocks(a->head);
    ek_arena_init(a, a->max_bytes);
}

void ek_arena_reset(struct ek_arena *a)
{
    if (!a->head)
        return;
    free_blocks(a->head->next);
    a->head->next = NULL;
    a->head->used = 0;
    a->used_bytes = 0;
}

void *ek_arena_alloc(struct ek_arena *a, size_t size)
{
    size_t padded;
    if (!ek_add_size(&padded, size ? size : 1, ALIGN - 1))
        return NULL;
    padded &= ~(size_t)(ALIGN - 1);
    if (padded > a->max_bytes - a->used_bytes)
        return NULL;
    struct ek_arena_block *b = a->head;
    if (!b || padded > b->cap - b->used) {
        size_t cap = b ? b->cap * 2 : BLOCK_MIN;
        if (cap > 1 << 20)
            cap = 1 << 20;
        if (cap < padded)
            cap = padded;
        size_t bytes;
        if (!ek_add_size(&bytes, cap, sizeof *b))
            return NULL;
        struct ek_arena_block *fresh = ek_alloc(bytes);
        if (!fresh)
            return NULL;
        fresh->next = b;
        fresh->used = 0;
        fresh->cap = cap;
        a->head = b = fresh;
    }
    void *p = b->data + b->used;
    b->used += padded;
    a->used_bytes += padded;
    return p;
}

void *ek_arena_calloc(struct ek_arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (!ek_mul_size(&bytes, n, size))
        return NULL;
    void *p = ek_arena_alloc(a, bytes);
    if (p)
        memset(p, 0, bytes);
    return p;
}

char *ek_arena_strndup(struct ek_arena *a, const char *s, size_t n)
{
    size_t bytes;
    if (!ek_add_size(&bytes, n, 1))
        return NULL;
    char *p = ek_arena_alloc(a, bytes);
    if (!p)
        return NULL;
    if (n)
        memcpy(p, s, n);
    p[n] = 0;
    return p;
}
