/* events_pack_int.h - the pack's bytes; private to data/. */
#ifndef EVENKEEL_DATA_EVENTS_PACK_INT_H
#define EVENKEEL_DATA_EVENTS_PACK_INT_H

#include "data/events.h"

#include <assert.h>
#include <stdint.h>

#define EK_PACK_MAGIC_BYTES                                                            \
    {                                                                                  \
        'E', 'K', 'E', 'V', 'E', 'N', 'T', 'S'                                         \
    }
#define EK_PACK_ALIGN 64

struct ek_pack_header {
    char magic[8];
    uint32_t version;
    uint32_t n_sections;
    uint64_t file_bytes;
    int64_t n, n_users, n_items;
    uint32_t n_columns;
    uint32_t flags; /* 0 */
    uint32_t directory_crc;
    uint32_t crc; /* of the 60 bytes before */
};
static_assert(sizeof(struct ek_pack_header) == 64, "the header is 64 bytes");

struct ek_pack_section {
    uint32_t kind;   /* enum ek_pack_kind */
    uint32_t column; /* of the kinds from COLUMN on; 0 */
    uint64_t offset; /* in the file; a multiple of EK_PACK_ALIGN */
    uint64_t bytes;
    uint32_t crc;
    uint32_t zero;
};
static_assert(sizeof(struct ek_pack_section) == 32, "a section's entry is 32 bytes");

/* In the order of the file; LEVEL_* only for categories, TIMES only where known. */
enum ek_pack_kind {
    EK_PACK_OFFSETS = 1,  /* int64 (n_users+1) */
    EK_PACK_ITEMS,        /* int32 (n) */
    EK_PACK_TIMES,        /* int64 (n) microseconds */
    EK_PACK_USER_OFFSETS, /* int64 (n_users+1) into the next */
    EK_PACK_USER_BYTES,
    EK_PACK_ITEM_OFFSETS, /* int64 (n_items+1) into the next */
    EK_PACK_ITEM_BYTES,
    EK_PACK_SOURCE,        /* text and a NUL */
    EK_PACK_COLUMN = 16,   /* uint32 of, uint32 kind, the name and a NUL */
    EK_PACK_VALUES,        /* f32 or int32 (n or n_users) */
    EK_PACK_LEVEL_OFFSETS, /* int64 (levels+1) into the next */
    EK_PACK_LEVEL_BYTES,
};

#define EK_PACK_SECTIONS_MAX (8 + 4 * EK_EVENTS_COLUMNS_MAX)

/* The next multiple of EK_PACK_ALIGN. */
static inline uint64_t ek_pack_align(uint64_t at)
{
    return (at + EK_PACK_ALIGN - 1) & ~(uint64_t)(EK_PACK_ALIGN - 1);
}

#endif
