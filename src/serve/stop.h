/* stop.h - stop strings in a stream of text, across any boundaries.
 *
 * Text goes in as it is decoded and comes out at once, but for the bytes that could be
 * the beginning of a stop string: those are held until they are decided. The stop
 * string that completes first wins; when two complete at the same byte, the longer one.
 *
 * Each string is an automaton (Knuth, Morris, Pratt 1977): `at[i]` bytes of string i
 * are the end of the stream. Invariant: the held bytes are the first max(at) bytes of
 * that string, so nothing is stored twice and the cost is O(bytes * strings).
 */
#ifndef EVENKEEL_SERVE_STOP_H
#define EVENKEEL_SERVE_STOP_H

#include "base/arena.h"
#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

#define EK_STOP_STRINGS_MAX 16
#define EK_STOP_BYTES_MAX   256 /* of one string */

struct ek_stop_string {
    const char *text;
    uint32_t n;           /* 1..EK_STOP_BYTES_MAX */
    const uint16_t *fall; /* (n) length of the longest proper border of text[0,i] */
};

struct ek_stop {
    struct ek_stop_string strings[EK_STOP_STRINGS_MAX];
    uint16_t at[EK_STOP_STRINGS_MAX]; /* bytes of each that are matched now */
    int32_t n;                        /* strings */
    int32_t hit;                      /* the string that completed; -1: none yet */
};

void ek_stop_init(struct ek_stop *s);

/* Adds a string; text and its table are copied into the arena. Errors: EK_EINVAL empty,
 * EK_ELIMIT too long or too many, EK_ENOMEM; unchanged. */
int ek_stop_add(struct ek_stop *s, struct ek_arena *arena, const char *text,
                size_t n) EK_MUST_USE;

/* Takes text[0,n) and appends to `out` what is decided. When a string completes, s->hit
 * names it, the held bytes are dropped (`keeps_match`: appended with the match), and
 * everything after it is ignored, now and later. `is_early`: strings that complete now
 * do not count. Errors: those of ek_buf_add. */
int ek_stop_feed(struct ek_stop *s, struct ek_buf *out, const char *text, size_t n,
                 bool is_early, bool keeps_match) EK_MUST_USE;

/* The stream is over: what was held can be no stop string any more. */
int ek_stop_finish(struct ek_stop *s, struct ek_buf *out) EK_MUST_USE;

/* Bytes held now. */
size_t ek_stop_held(const struct ek_stop *s);

#endif
