/* tokenizer.h - text to token ids and back.
 *
 * Kinds: byte-level BPE (GGUF "gpt2", tokenizer.json BPE with ByteLevel) and
 * SentencePiece-style BPE with byte fallback (GGUF "llama", tokenizer.json BPE with
 * byte_fallback). Text is bytes: invalid UTF-8 and NUL are encoded, never refused, and
 * decode(encode(x)) == x for byte-level vocabularies that hold all 256 bytes and whose
 * model does not normalize (Qwen 2 and others put text into NFC first). A byte that the
 * vocabulary lacks is dropped, as the reference does.
 * Threads: a tokenizer is immutable after load; any number of threads may use it.
 */
#ifndef EVENKEEL_DATA_TOKENIZER_H
#define EVENKEEL_DATA_TOKENIZER_H

#include "base/err.h"
#include "data/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ek_tokenizer;

/* A growing list of ids with a ceiling. */
struct ek_ids {
    int32_t *ids; /* heap, owned */
    size_t n, cap, max;
};
void ek_ids_init(struct ek_ids *l, size_t max);
void ek_ids_release(struct ek_ids *l);
int ek_ids_add(struct ek_ids *l, int32_t id) EK_MUST_USE; /* EK_ELIMIT, EK_ENOMEM */

int ek_tokenizer_from_gguf(struct ek_tokenizer **t, const struct ek_gguf *g,
                           struct ek_err *err) EK_MUST_USE;

/* tokenizer.json of Hugging Face tokenizers; config: tokenizer_config.json's text or
 * NULL (bos/eos, add_bos_token); `name` is for messages. */
int ek_tokenizer_from_json(struct ek_tokenizer **t, const char *json, size_t n,
                           const char *config, size_t config_n, const char *name,
                           struct ek_err *err) EK_MUST_USE;
void ek_tokenizer_free(struct ek_tokenizer *t);

/* How special tokens in the text are read: control tokens, and the user-defined ones
 * that are words of a protocol (<tool_call>, <|...|>, [INST], <think>). The other
 * user-defined tokens (runs of spaces, HTML tags) are read wherever they stand. */
enum ek_specials {
    EK_SPECIALS_PLAIN, /* as ordinary text: what users send */
    EK_SPECIALS_PARSE, /* as the special tokens: what templates write */
};

/* Appends the ids of text[0,n).
 *   is_plain  (n) or NULL: bytes with is_plain[i] != 0 came from a user; with
 *             EK_SPECIALS_PARSE a special token is recognised only where none of its
 *             bytes is plain, so user text never becomes a special token
 *   add_bos   puts the BOS id first where the model's metadata asks for one
 * Cost: O(n log n) whatever the text, one 1 MiB line included.
 * Errors: EK_ELIMIT out's ceiling, text over 512 MiB, a model's regular expression that
 * gives up backtracking; EK_ENOMEM; out is cut back to what it was. */
int ek_tokenizer_encode(const struct ek_tokenizer *t, struct ek_ids *out,
                        const char *text, size_t n, const uint8_t *is_plain,
                        enum ek_specials specials, bool add_bos) EK_MUST_USE;

/* The bytes a token stands for, borrowed; a special token yields its text when
 * `with_special`, else nothing. id out of range: nothing. */
struct ek_str ek_tokenizer_piece(const struct ek_tokenizer *t, int32_t id,
                                 bool with_special);

/* Appends the text of ids as one sequence (SentencePiece: the leading space rule). */
int ek_tokenizer_decode(const struct ek_tokenizer *t, struct ek_buf *out,
                        const int32_t *ids, size_t n, bool with_special) EK_MUST_USE;

int32_t ek_tokenizer_size(const struct ek_tokenizer *t);
int32_t ek_tokenizer_bos(const struct ek_tokenizer *t); /* -1: none */
int32_t ek_tokenizer_eos(const struct ek_tokenizer *t); /* -1: none */
bool ek_tokenizer_adds_bos(const struct ek_tokenizer *t);
bool ek_tokenizer_is_special(const struct ek_tokenizer *t, int32_t id);
const char *ek_tokenizer_kind(const struct ek_tokenizer *t); /* "bpe smollm", "spm" */

/* True for every token that ends a turn: eos, and the vocabulary's <|im_end|>,
 * <|eot_id|>, <end_of_turn> and their kin where they are control tokens. */
bool ek_tokenizer_is_end(const struct ek_tokenizer *t, int32_t id);

/* Id of the token whose text is s, or -1. Ordinary tokens of byte-level vocabularies
 * are asked by their bytes (" the"), SentencePiece's as written (with U+2581). */
int32_t ek_tokenizer_find(const struct ek_tokenizer *t, const char *s, size_t n);

/* Streaming: feed ids one by one, take whole characters. Holds at most the bytes of an
 * unfinished character; a byte that can never become one leaves as U+FFFD. */
struct ek_detok {
    const struct ek_tokenizer *t; /* borrowed */
    char held[4];                 /* bytes of an unfinished character */
    uint8_t n_held;
    bool is_start; /* SentencePiece drops the first space */
    bool with_special;
};
void ek_detok_init(struct ek_detok *d, const struct ek_tokenizer *t, bool is_start,
                   bool with_special);
int ek_detok_feed(struct ek_detok *d, struct ek_buf *out, int32_t id) EK_MUST_USE;
int ek_detok_finish(struct ek_detok *d,
                    struct ek_buf *out) EK_MUST_USE; /* U+FFFD if held */

#endif
