/* prompt.h - texts of a wanted number of tokens, for a tokenizer nobody knows here.
 *
 * A prompt is a row of English words of four letters, a space between. In the
 * vocabularies of today's models each is one token with its space; in a vocabulary of
 * bytes each is five: a prompt of w words has overhead + w * per_word tokens, and the
 * two numbers are found by asking the server twice (run.h, ek_load_calibrate).
 * Letters and spaces only: the text goes into JSON as it is.
 */
#ifndef EVENKEEL_LOAD_PROMPT_H
#define EVENKEEL_LOAD_PROMPT_H

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

/* Tokens of a prompt of w words: overhead + w * per_word. */
struct ek_prompt_scale {
    double per_word; /* > 0 */
    double overhead; /* chat template, BOS; may be below 0 */
};

struct ek_prompt_spec {
    int64_t n_tokens;      /* wanted; >= 1 */
    const int64_t *hashes; /* block i of the prompt is a function of hashes[0..i] and
                              the run's seed alone; text of its own follows them */
    size_t n_hashes;
    double block_tokens; /* of one hash */
    uint64_t seed;       /* of the run */
    uint64_t index;      /* of the request: with the seed it makes the text its own */
};

/* How many words come nearest to n_tokens; at least 1. */
int64_t ek_prompt_words(const struct ek_prompt_scale *scale, int64_t n_tokens);

/* Appends the prompt. Errors: those of ek_buf_add; `out` may then end in a part. */
int ek_prompt_add(struct ek_buf *out, const struct ek_prompt_scale *scale,
                  const struct ek_prompt_spec *spec) EK_MUST_USE;

#endif
