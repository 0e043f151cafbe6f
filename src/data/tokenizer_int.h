/* tokenizer_int.h - what the units of the tokenizer share and nobody else sees.
 *
 *   text -specials-> fragments -normalize-> runs -pre-tokenize-> pieces -merge-> ids
 *
 * Two loaders (tokenizer_gguf.c, tokenizer_json.c) fill one struct ek_tokenizer through
 * ek_tok_build_*; after that nothing in it changes.
 * Invariants after load: every id in a merge, a special or bos/eos/unk is < n_tokens;
 * texts are valid UTF-8 and unique unless empty; no merge yields a guarded token.
 */
#ifndef EVENKEEL_DATA_TOKENIZER_INT_H
#define EVENKEEL_DATA_TOKENIZER_INT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"
#include "data/tokenizer.h"
#include "data/tokenizer_match.h"
#include "data/tokenizer_merge.h"
#include "data/tokenizer_pre.h"

/* What GGUF's token_type says; tokenizer.json is put into the same words. */
enum ek_tok_type {
    EK_TOK_UNDEFINED,
    EK_TOK_NORMAL,
    EK_TOK_UNKNOWN,
    EK_TOK_CONTROL,
    EK_TOK_USER, /* user-defined: read whole wherever it stands, also in plain text */
    EK_TOK_UNUSED,
    EK_TOK_BYTE, /* "<0x0A>": one byte, SentencePiece kinds only */
};

struct ek_tok_token {
    struct ek_str text;  /* as in the file, owned by the arena */
    struct ek_str bytes; /* what it stands for; a special token: its text */
    float score;         /* SentencePiece: log probability; 0 elsewhere */
    uint8_t type;        /* enum ek_tok_type */
    bool is_special;     /* control or unknown: not shown */
    bool is_guarded;     /* read only where a template wrote it: special tokens, and
                            user-defined markers like <tool_call>, which are shown */
    bool is_end;         /* ends a turn */
};

enum ek_tok_kind {
    EK_TOK_BYTE_LEVEL, /* symbols are bytes, merges by rank */
    EK_TOK_SPM_SCORES, /* symbols are characters, any pair whose text is a token */
    EK_TOK_SPM_MERGES, /* symbols are characters, merges by rank */
};

/* Where the space (or its escape) is put before a fragment. */
enum ek_tok_prefix {
    EK_TOK_PREFIX_NONE,
    EK_TOK_PREFIX_ALWAYS, /* before every fragment */
    EK_TOK_PREFIX_FIRST,  /* before the one that begins the text */
};

#define EK_TOK_HEAD_MAX 4

struct ek_tok_norm {
    bool is_nfc;
    bool escapes_space;        /* " " becomes U+2581 */
    enum ek_tok_prefix prefix; /* of " ", or U+2581 where escapes_space */
    bool prefix_unless_there;  /* not before a fragment that begins with it */
};

struct ek_tokenizer {
    struct ek_arena arena; /* texts, bytes, tokens */
    struct ek_tok_token *tokens;
    int32_t n_tokens;
    enum ek_tok_kind kind;
    char label[64];        /* "bpe smollm", "spm" */
    int32_t bos, eos, unk; /* -1: none */
    bool adds_bos;
    int32_t head[EK_TOK_HEAD_MAX]; /* what add_bos puts first where a template asks for
                                      more than BOS (GLM 4: [gMASK] <sop>) */
    int n_head;                    /* 0: BOS alone */
    bool ignores_merges;     /* a piece that is a token needs no merging (llama3) */
    bool fuses_unk;          /* unknown characters in a row are one unknown token */
    bool strips_first_space; /* decoding drops the space that encoding put first */
    int32_t byte_ids[256];   /* token of one byte, -1: none */
    struct ek_map ordinary;  /* matching key -> id: bytes (byte level) or text (SPM) */
    struct ek_map others;    /* text -> id of the tokens without a key in `ordinary` */
    uint32_t max_key_n;      /* longest key of `ordinary` */
    struct ek_tok_merges merges;
    struct ek_tok_trie
        trie[2]; /* [0] first, over the whole text; [1] between its hits */
    struct ek_tok_norm norm;
    struct ek_tok_pre pre;
};

/* Work space of one encode call; `steps` counts unit operations, so that tests can tell
 * linear from quadratic without a clock. */
struct ek_tok_work {
    const struct ek_tokenizer *t;
    struct ek_ids *out;
    struct ek_tok_merger merger;
    struct ek_tok_pre_work pre;
    struct ek_buf normal; /* the normalized fragment */
    uint64_t steps;
};

int ek_tok_encode_counted(const struct ek_tokenizer *t, struct ek_ids *out,
                          const char *text, size_t n, const uint8_t *is_plain,
                          enum ek_specials specials, bool add_bos,
                          uint64_t *steps) EK_MUST_USE;

/* Building, in this order. `name` is the file for messages. */

/* An empty tokenizer with room for n tokens; max_bytes bounds its arena. */
int ek_tok_build_new(struct ek_tokenizer **t, size_t n, size_t text_bytes) EK_MUST_USE;

/* Copies the text in; the caller sets type, score. */
int ek_tok_build_token(struct ek_tokenizer *t, int32_t id, struct ek_str text,
                       const char *name, struct ek_err *err) EK_MUST_USE;

/* Decides what is special, guarded and an end; fills bytes, maps and byte_ids. A text
 * that is there twice is EK_EFORMAT; key: what to call the list in messages. */
int ek_tok_build_maps(struct ek_tokenizer *t, const char *name, const char *key,
                      struct ek_err *err) EK_MUST_USE;

/* Adds merge number `rank` of a and b; key names the list in messages. by_text holds
 * all texts. */
int ek_tok_build_merge(struct ek_tokenizer *t, const struct ek_map *by_text,
                       struct ek_str a, struct ek_str b, uint32_t rank,
                       const char *name, const char *key,
                       struct ek_err *err) EK_MUST_USE;

/* Puts every guarded and user-defined token into trie[0] (GGUF: no finer facts). */
int ek_tok_build_trie(struct ek_tokenizer *t) EK_MUST_USE;

/* text -> id over all tokens, for the time of loading. */
int ek_tok_build_texts(const struct ek_tokenizer *t, struct ek_map *by_text,
                       const char *name, const char *key,
                       struct ek_err *err) EK_MUST_USE;

/* The byte alphabet of byte-level BPE: printable Latin-1 bytes are themselves, the
 * other 68 are U+0100 and on. Byte 0..255 of character c, or -1. */
int ek_tok_byte_of_char(uint32_t c);

/* Normalizes one fragment into out (appended). */
int ek_tok_normalize(const struct ek_tok_norm *norm, struct ek_buf *out, const char *p,
                     size_t n, bool is_first) EK_MUST_USE;

#endif
