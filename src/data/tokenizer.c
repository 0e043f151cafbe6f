#include "data/tokenizer.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer_int.h"

#include <assert.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

void ek_ids_init(struct ek_ids *l, size_t max)
{
    *l = (struct ek_ids){.max = max};
}

void ek_ids_release(struct ek_ids *l)
{
    ek_free(l->ids);
    ek_ids_init(l, l->max);
}

int ek_ids_add(struct ek_ids *l, int32_t id)
{
    if (l->n == l->max)
        return EK_ELIMIT;
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        cap = cap < l->max ? cap : l->max;
        void *p = ek_realloc_array(l->ids, cap, sizeof *l->ids);
        if (!p)
            return EK_ENOMEM;
        l->ids = p;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return 0;
}

static const struct ek_tok_token *token_at(const struct ek_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_tokens ? &t->tokens[id] : NULL;
}

struct ek_str ek_tokenizer_piece(const struct ek_tokenizer *t, int32_t id,
                                 bool with_special)
{
    const struct ek_tok_token *k = token_at(t, id);
    if (!k || (k->is_special && !with_special))
        return (struct ek_str){"", 0};
    return k->bytes;
}

/* The piece at its place in a sequence: the space that encoding put before the first
 * word is taken away again. */
static struct ek_str placed_piece(const struct ek_tokenizer *t, int32_t id,
                                  bool with_special, bool *is_start)
{
    struct ek_str s = ek_tokenizer_piece(t, id, with_special);
    if (*is_start && t->strips_first_space && s.n && s.p[0] == ' ' &&
        !t->tokens[id].is_special) {
        s.p++;
        s.n--;
        *is_start = false;
    } else if (s.n) {
        *is_start = false;
    }
    return s;
}

int ek_tokenizer_decode(const struct ek_tokenizer *t, struct ek_buf *out,
                        const int32_t *ids, size_t n, bool with_special)
{
    size_t len_before = out->len;
    bool is_start = true;
    for (size_t i = 0; i < n; i++) {
        struct ek_str s = placed_piece(t, ids[i], with_special, &is_start);
        int rc = ek_buf_add(out, s.p, s.n);
        if (rc) {
            out->len = len_before;
            if (out->data)
                out->data[len_before] = 0;
            return rc;
        }
    }
    return 0;
}

int32_t ek_tokenizer_size(const struct ek_tokenizer *t)
{
    return t->n_tokens;
}

int32_t ek_tokenizer_bos(const struct ek_tokenizer *t)
{
    return t->bos;
}

int32_t ek_tokenizer_eos(const struct ek_tokenizer *t)
{
    return t->eos;
}

bool ek_tokenizer_adds_bos(const struct ek_tokenizer *t)
{
    return t->adds_bos && t->bos >= 0;
}

bool ek_tokenizer_is_special(const struct ek_tokenizer *t, int32_t id)
{
    const struct ek_tok_token *k = token_at(t, id);
    return k && k->is_special;
}

bool ek_tokenizer_is_end(const struct ek_tokenizer *t, int32_t id)
{
    const struct ek_tok_token *k = token_at(t, id);
    return k && (k->is_end || id == t->eos);
}

const char *ek_tokenizer_kind(const struct ek_tokenizer *t)
{
    return t->label;
}

int32_t ek_tokenizer_find(const struct ek_tokenizer *t, const char *s, size_t n)
{
    uint64_t id;
    if (ek_map_get(&t->others, s, n, &id) || ek_map_get(&t->ordinary, s, n, &id))
        return (int32_t)id;
    return -1;
}

void ek_detok_init(struct ek_detok *d, const struct ek_tokenizer *t, bool is_start,
                   bool with_special)
{
    *d = (struct ek_detok){.t = t, .is_start = is_start, .with_special = with_special};
}

/* The held bytes and then the piece's, as one text. */
struct joined {
    const char *held;
    size_t n_held;
    struct ek_str piece;
};

/* The bytes from i on, at most four: one character always fits. */
static size_t window(char w[4], const struct joined *t, size_t i)
{
    size_t n = 0;
    for (; n < 4 && i + n < t->n_held + t->piece.n; n++)
        w[n] = i + n < t->n_held ? t->held[i + n] : t->piece.p[i + n - t->n_held];
    return n;
}

/* Appends what is decided and puts the rest, less than a character, into held. No
 * allocation of its own: it runs for every token. */
static int add_decided(struct ek_buf *out, const struct joined *t, char held[4],
                       uint8_t *n_held)
{
    char w[4];
    size_t i = 0, n = 0;
    int rc = 0;
    while (!rc && (n = window(w, t, i)) > 0) {
        uint32_t c;
        size_t len = ek_utf8_decode(&c, w, n);
        if (len > 0) {
            rc = ek_buf_add(out, w, len);
        } else if (n < 4 && ek_utf8_whole_prefix(w, n) == 0) {
            break;
        } else {
            len = ek_utf8_bad_length(w, n);
            rc = ek_buf_add(out, REPLACEMENT, 3);
        }
        i += len;
    }
    if (!rc) {
        memcpy(held, w, n);
        *n_held = (uint8_t)n;
    }
    return rc;
}

int ek_detok_feed(struct ek_detok *d, struct ek_buf *out, int32_t id)
{
    bool is_start = d->is_start;
    char held[4];
    size_t len_before = out->len;
    struct joined text = {held, d->n_held,
                          placed_piece(d->t, id, d->with_special, &is_start)};
    memcpy(held, d->held, sizeof held);
    int rc = add_decided(out, &text, d->held, &d->n_held);
    if (rc)
        out->len = len_before;
    else
        d->is_start = is_start;
    return rc;
}

int ek_detok_finish(struct ek_detok *d, struct ek_buf *out)
{
    int rc = d->n_held ? ek_buf_add(out, REPLACEMENT, 3) : 0;
    if (!rc)
        d->n_held = 0;
    return rc;
}
