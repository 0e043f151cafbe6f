/* events_pack.h - a log as one file that is mapped and used as it lies there.
 *
 *   header     64 bytes: "EKEVENTS", version, sections, size of the file, rows, users,
 *              items, columns, CRC of the directory, CRC of the header
 *   directory  32 bytes a section: kind, column, place, size, CRC
 *   sections   each at a multiple of 64, in a fixed order: offsets, items, times (if
 *              any), names of users and of items, source; per column its head, values
 *              and level names
 *
 * Numbers are little-endian, CRCs CRC-32 (zlib's). src/data/events_pack_int.h has the
 * details. A file is written aside, flushed and renamed: it is there whole or not at
 * all. Reading checks every CRC and every promise of events.h but that names differ,
 * once, at about 1 GB/s.
 */
#ifndef EVENKEEL_DATA_EVENTS_PACK_H
#define EVENKEEL_DATA_EVENTS_PACK_H

#include "data/events.h"

#include <stddef.h>
#include <stdint.h>

#define EK_EVENTS_PACK_VERSION 1

/* *bytes (may be NULL): the file's size. Errors: those of ek_file_write. */
int ek_events_pack_write(const struct ek_events *e, const char *path, uint64_t *bytes,
                         struct ek_err *err) EK_MUST_USE;

/* Errors: EK_EFORMAT (no pack, truncated, damaged; what and where), EK_EUNSUP a newer
 * version, EK_ENOMEM, those of ek_file_open; *e unchanged. */
int ek_events_pack_open(struct ek_events *e, const char *path,
                        struct ek_err *err) EK_MUST_USE;

/* The same over bytes in memory, aligned to 8 and borrowed until release. */
int ek_events_pack_parse(struct ek_events *e, const char *name, const void *p, size_t n,
                         struct ek_err *err) EK_MUST_USE;

#endif
