/* inspect.h - what keel inspect knows about a model file, and its two ways to say it.
 * Shared by verb_inspect.c and inspect_*.c alone. */
#ifndef EVENKEEL_CLI_INSPECT_H
#define EVENKEEL_CLI_INSPECT_H

#include "base/buf.h"
#include "data/modelfile.h"

#define EK_INSPECT_NOTES 4

struct ek_inspect {
    struct ek_modelfile m; /* owned, open */
    char arch[64];         /* general.architecture or model_type; "" unknown */
    uint64_t n_params;     /* elements of all tensors */
    size_t bytes;          /* of all tensors */
    struct {
        size_t n; /* tensors */
        uint64_t n_params;
        size_t bytes;
    } types[EK_DTYPE_COUNT];
    bool has_tokenizer;
    char tokenizer[64]; /* its kind, as the tokenizer or the file calls it */
    int64_t n_tokens;   /* vocabulary; 0 unknown */
    int64_t context;    /* positions; 0 unknown */
    bool has_template;
    size_t template_bytes;
    int64_t kv_elems;                      /* values of KV one token takes; 0 unknown */
    struct ek_err notes[EK_INSPECT_NOTES]; /* what could not be said, and why */
    int n_notes;
};

/* Opens and reads. Errors: those of ek_modelfile_open. What a part of the file spoils
 * (its tokenizer, its shapes) becomes a note instead; *f needs a release then too. */
int ek_inspect_open(struct ek_inspect *f, const char *path,
                    struct ek_err *err) EK_MUST_USE;
void ek_inspect_release(struct ek_inspect *f);

/* Appends the page for a person, or one JSON object (docs/guide/inspect.md).
 * Errors: those of ek_buf_add. */
int ek_inspect_text(struct ek_buf *out, const struct ek_inspect *f,
                    bool has_tensors) EK_MUST_USE;
int ek_inspect_json(struct ek_buf *out, const struct ek_inspect *f,
                    bool has_tensors) EK_MUST_USE;

/* Appends a number that reads back as the same f32, or f64: no digits beyond. */
int ek_inspect_add_real(struct ek_buf *out, double v, bool is_f32) EK_MUST_USE;

#endif
