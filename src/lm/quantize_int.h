/* quantize_int.h - what the files of quantize share: quantize_plan.c decides what each
 * tensor becomes, quantize_rows.c rounds rows, quantize_folder.c writes config.json and
 * the files beside it, quantize.c writes. */
#ifndef EVENKEEL_LM_QUANTIZE_INT_H
#define EVENKEEL_LM_QUANTIZE_INT_H

#include "lm/quantize.h"
#include "lm/source.h"

enum ek_made { /* what a tensor becomes */
               EK_MADE_COPY,
               EK_MADE_BF16,
               EK_MADE_Q8_0,
               EK_MADE_Q4_0,
               EK_MADE_Q4_1,
               EK_MADE_FP8,
               EK_MADE_SYM,  /* compressed-tensors without zero points */
               EK_MADE_ZERO, /* with */
               EK_MADE_COUNT
};

enum ek_role { EK_ROLE_OTHER, EK_ROLE_MATRIX, EK_ROLE_EMBED, EK_ROLE_HEAD };

enum ek_made_part { EK_PART_CODES, EK_PART_ZERO, EK_PART_SCALE, EK_PART_SHAPE };
#define EK_MADE_PARTS 4

/* One source and the tensors it becomes. */
struct ek_quantize_item {
    struct ek_source src;
    const char
        *name; /* ends in ".weight" where it is a matrix; in the report's arena */
    enum ek_role role;
    enum ek_made made;
    const char *why;                      /* not what was asked for, or NULL */
    int32_t layer;                        /* of a block's matrix */
    enum ek_calibration_input input;      /* likewise */
    struct ek_tensor part[EK_MADE_PARTS]; /* name NULL: has none; data NULL: computed */
};

struct ek_quantize_plan {
    const struct ek_quantize *job;
    struct ek_arena *arena; /* the report's */
    struct ek_quantize_item *items;
    size_t n_items;
    struct ek_tensor *tensors; /* (n_tensors) of the output, in its order */
    size_t n_tensors;
    size_t n_first; /* of them the ones that stand before the items' own: i64 shapes */
    size_t *order;  /* (n_items) in which the items' other tensors follow */
    int64_t total_in, total_out; /* bytes */
};

/* Fills p->items, order and tensors. */
int ek_quantize_plan(struct ek_quantize_plan *p, struct ek_err *err) EK_MUST_USE;

/* The name of a format, as the report gives it. */
const char *ek_made_name(enum ek_made made);
const char *ek_source_name(const struct ek_source *s);

/* What rows of an item are rounded into. */
struct ek_slab {
    const struct ek_quantize_item *item;
    const float *weights;        /* (K) of the item's columns, or NULL */
    int64_t r0, r1;              /* rows at hand */
    unsigned char *codes;        /* of rows [r0,r1), part CODES */
    unsigned char *zero;         /* all of part ZERO */
    unsigned char *scale;        /* all of part SCALE */
    double *sums;                /* (r1-r0, 4) error, norm, weighted error and norm */
    float *scratch;              /* members * ek_slab_scratch(K) */
    const struct ek_tensor *bad; /* part with a number that is not finite, or NULL */
    size_t bad_at;
};

#define EK_SLAB_GRAIN 128 /* rows of a slab, and of a member's share, come in these */

size_t ek_slab_scratch(int64_t K); /* floats a member */

/* Rounds the rows of z, all members of the team together. */
void ek_slab_round(struct ek_slab *z, struct ek_team *team);

/* config.json with its quantization_config and the tokenizer's files into `folder`,
 * which is there. */
int ek_quantize_files(const struct ek_quantize_plan *p, const char *folder,
                      struct ek_err *err) EK_MUST_USE;

#endif
