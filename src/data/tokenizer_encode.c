#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer_int.h"

#include <assert.h>
#include <string.h>

/* Offsets inside a fragment are 32 bits; normalizing can triple it. */
#define TEXT_MAX (512u * 1024u * 1024u)

static int add_unknown(struct ek_tok_work *w, bool *was_unknown)
{
    bool is_repeat = *was_unknown && w->t->fuses_unk;
    *was_unknown = true;
    /* A vocabulary without the byte and without an unknown token drops it. */
    if (w->t->unk < 0 || is_repeat)
        return 0;
    return ek_ids_add(w->out, w->t->unk);
}

static bool has_bytes(const struct ek_tokenizer *t, const char *p, size_t n)
{
    if (t->kind == EK_TOK_BYTE_LEVEL)
        return false;
    for (size_t i = 0; i < n; i++)
        if (t->byte_ids[(unsigned char)p[i]] < 0)
            return false;
    return true;
}

static int put_symbols(struct ek_tok_work *w, const char *p)
{
    const struct ek_tok_symbol *symbols = w->merger.symbols;
    bool was_unknown = false;
    int rc = 0;
    for (int32_t i = 0; !rc && i >= 0; i = symbols[i].next) {
        const struct ek_tok_symbol *s = &symbols[i];
        if (s->id >= 0) {
            rc = ek_ids_add(w->out, s->id);
            was_unknown = false;
        } else if (has_bytes(w->t, p + s->start, s->n)) {
            for (uint32_t k = 0; !rc && k < s->n; k++)
                rc = ek_ids_add(w->out, w->t->byte_ids[(unsigned char)p[s->start + k]]);
            was_unknown = false;
        } else {
            rc = add_unknown(w, &was_unknown);
        }
    }
    return rc;
}

static int encode_piece(struct ek_tok_work *w, const char *p, size_t n)
{
    const struct ek_tokenizer *t = w->t;
    uint64_t id;
    if (t->ignores_merges && n <= t->max_key_n && ek_map_get(&t->ordinary, p, n, &id))
        return ek_ids_add(w->out, (int32_t)id);
    int rc = ek_tok_merger_run(&w->merger, t, p, n, &w->steps);
    return rc ? rc : put_symbols(w, p);
}

static int encode_fragment(struct ek_tok_work *w, const char *p, size_t n,
                           bool is_first)
{
    const struct ek_tok_norm *norm = &w->t->norm;
    int rc = 0;
    if (n == 0)
        return 0;
    if (norm->is_nfc || norm->escapes_space || norm->prefix != EK_TOK_PREFIX_NONE) {
        ek_buf_reset(&w->normal);
        rc = ek_tok_normalize(norm, &w->normal, p, n, is_first);
        p = w->normal.data;
        n = w->normal.len;
    }
    if (!rc)
        rc = ek_tok_pre_run(&w->t->pre, &w->pre, p, n, &w->steps);
    for (size_t i = 0; !rc && i < w->pre.now.n; i++) {
        struct ek_tok_span s = w->pre.now.items[i];
        rc = encode_piece(w, p + s.lo, s.hi - s.lo);
    }
    return rc;
}

/* Tokens of trie[level] in [lo,hi), and between them the next level. */
static int encode_level(struct ek_tok_work *w, const struct ek_tok_text *text,
                        size_t lo, size_t hi, int level)
{
    struct ek_tok_hit hit;
    int rc = 0;
    if (level == 2)
        return encode_fragment(w, text->p + lo, hi - lo, lo == 0);
    while (!rc && lo < hi &&
           ek_tok_trie_find(&w->t->trie[level], &hit, text, lo, hi, &w->steps)) {
        rc = encode_level(w, text, lo, hit.lo, level + 1);
        if (!rc)
            rc = ek_ids_add(w->out, hit.id);
        lo = hit.hi;
    }
    return rc ? rc : encode_level(w, text, lo, hi, level + 1);
}

static int put_head(struct ek_tok_work *w)
{
    const struct ek_tokenizer *t = w->t;
    int rc = 0;
    for (int i = 0; !rc && i < t->n_head; i++)
        rc = ek_ids_add(w->out, t->head[i]);
    if (!t->n_head && t->bos >= 0)
        rc = ek_ids_add(w->out, t->bos);
    return rc;
}

int ek_tok_encode_counted(const struct ek_tokenizer *t, struct ek_ids *out,
                          const char *text, size_t n, const uint8_t *is_plain,
                          enum ek_specials specials, bool add_bos, uint64_t *steps)
{
    if (n > TEXT_MAX)
        return EK_ELIMIT;
    struct ek_tok_work w = {.t = t, .out = out};
    struct ek_tok_text all = {text, n, is_plain, specials == EK_SPECIALS_PARSE};
    size_t n_before = out->n;
    ek_buf_init(&w.normal, (size_t)4 * TEXT_MAX - 1);
    int rc = add_bos && t->adds_bos ? put_head(&w) : 0;
    if (!rc)
        rc = encode_level(&w, &all, 0, n, 0);
    if (rc)
        out->n = n_before;
    *steps += w.steps + n;
    ek_tok_merger_release(&w.merger);
    ek_tok_pre_work_release(&w.pre);
    ek_buf_release(&w.normal);
    return rc;
}

int ek_tokenizer_encode(const struct ek_tokenizer *t, struct ek_ids *out,
                        const char *text, size_t n, const uint8_t *is_plain,
                        enum ek_specials specials, bool add_bos)
{
    uint64_t steps = 0;
    return ek_tok_encode_counted(t, out, text, n, is_plain, specials, add_bos, &steps);
}
