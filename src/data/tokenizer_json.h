/* tokenizer_json.h - what the two halves of the tokenizer.json loader share: the model
 * with its tokens (tokenizer_json.c), and the steps around it (tokenizer_steps.c). */
#ifndef EVENKEEL_DATA_TOKENIZER_JSON_H
#define EVENKEEL_DATA_TOKENIZER_JSON_H

#include "data/tokenizer_int.h"

#include <jansson.h>

struct ek_tok_json {
    struct ek_tokenizer *t;
    const char *name; /* the file, for messages */
    struct ek_err *err;
    struct ek_map by_text; /* text -> id, for the time of loading */
    bool is_mapped; /* a ByteLevel step came: what follows would see its alphabet */
    json_t *root, *config; /* owned; config may be NULL */
};

/* The member `key` of `object`, NULL when it is absent or null. */
const json_t *ek_tok_json_get(const json_t *object, const char *key);

/* A member that must be of the type when it is there; `where` names the object. */
int ek_tok_json_bool(struct ek_tok_json *j, bool *out, const json_t *object,
                     const char *key, const char *where) EK_MUST_USE;
int ek_tok_json_str(struct ek_tok_json *j, struct ek_str *out, const json_t *object,
                    const char *key, const char *where) EK_MUST_USE;

/* "NAME: WHERE: WHAT" as EK_EFORMAT or EK_EUNSUP. */
int ek_tok_json_fail(struct ek_tok_json *j, int status, const char *where,
                     const char *what);

/* True when the pre-tokenizer or the decoder works on the byte alphabet. */
bool ek_tok_json_is_byte_level(const json_t *root);

/* normalizer, pre_tokenizer, decoder, post_processor -> norm, pre, adds_bos, bos. */
int ek_tok_json_steps(struct ek_tok_json *j) EK_MUST_USE;

#endif
