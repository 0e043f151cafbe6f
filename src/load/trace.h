/* trace.h - recorded arrivals: when requests came, how long their prompts and answers
 * were, and which prompts began alike. No texts: those are made (prompt.h).
 *
 * Mooncake, a JSON object a line; hash_ids name the prompt's blocks of 512 tokens, and
 * equal ids are equal blocks behind equal blocks; other keys are passed over:
 *   {"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}
 * Azure, CSV with this header, times UTC:
 *   TIMESTAMP,ContextTokens,GeneratedTokens
 *   2023-11-16 18:15:46.6805900,374,44
 */
#ifndef EVENKEEL_LOAD_TRACE_H
#define EVENKEEL_LOAD_TRACE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define EK_TRACE_BLOCK_TOKENS 512      /* of one hash id */
#define EK_TRACE_TOKENS_MAX   10000000 /* of a prompt, of an answer */
#define EK_TRACE_ROWS_MAX     ((size_t)10 << 20)
#define EK_TRACE_HASHES_MAX   ((size_t)100 << 20)

struct ek_trace_row {
    int64_t at_us;       /* since the earliest row */
    int32_t n_in, n_out; /* tokens; 1 to EK_TRACE_TOKENS_MAX */
    uint32_t n_hashes;   /* may be 0, or fewer than the prompt has blocks */
    size_t first_hash;   /* index into the trace's hashes */
};

struct ek_trace {
    struct ek_trace_row *rows; /* owned; at_us never falls */
    size_t n;                  /* >= 1 */
    int64_t *hashes;           /* owned */
    size_t n_hashes;
};

/* Reads text[0,n); `name` is the file's, for messages. Rows out of order are put in
 * order, equal times keep the file's.
 * Errors: EK_EFORMAT (name, line, what was expected), EK_ELIMIT, EK_ENOMEM; *t is only
 * written on success. */
int ek_trace_parse(struct ek_trace *t, const char *name, const char *text, size_t n,
                   struct ek_err *err) EK_MUST_USE;

/* The same from a file. Errors: those of ek_file_open, too. */
int ek_trace_read(struct ek_trace *t, const char *path, struct ek_err *err) EK_MUST_USE;

void ek_trace_release(struct ek_trace *t); /* may be zeroed */

#endif
