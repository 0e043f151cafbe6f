#include "base/arena.h"

#include "base/mem.h"

#include <stdalign.h>
#include <stdbool.h>
#include <string.h>

#define ALIGN     16
#define BLOCK_MIN 4096 /* bytes of the first block; each next one is twice the last */
#define BLOCK_MAX (1 << 20) /* up to this */

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

/* A block with room for `need`. One that the request fills by more than half is its
 * own and stands behind the head, which stays open for small requests. */
static struct ek_arena_block *add_block(struct ek_arena *a, size_t need)
{
    struct ek_arena_block *head = a->head;
    size_t cap = head ? head->cap * 2 : BLOCK_MIN;
    if (cap > BLOCK_MAX)
        cap = BLOCK_MAX;
    bool is_own = need > cap / 2;
    if (is_own)
        cap = need;
    size_t bytes;
    if (!ek_add_size(&bytes, cap, sizeof *head))
        return NULL;
    struct ek_arena_block *b = ek_alloc(bytes);
    if (!b)
        return NULL;
    b->used = 0;
    b->cap = cap;
    if (is_own && head) {
        b->next = head->next;
        head->next = b;
    } else {
        b->next = head;
        a->head = b;
    }
    return b;
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
    if (!b || padded > b->cap - b->used)
        b = add_block(a, padded);
    if (!b)
        return NULL;
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
