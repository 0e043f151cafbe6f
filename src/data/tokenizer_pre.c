#include "data/tokenizer_pre.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

void ek_tok_pre_release(struct ek_tok_pre *pre)
{
    for (int i = 0; i < pre->n_steps; i++)
        ek_tok_regex_free(pre->steps[i].regex);
    *pre = (struct ek_tok_pre){0};
}

void ek_tok_pre_work_release(struct ek_tok_pre_work *work)
{
    ek_free(work->now.items);
    ek_free(work->next.items);
    ek_tok_regex_work_free(work->regex);
    *work = (struct ek_tok_pre_work){0};
}

int ek_tok_pre_add(struct ek_tok_pre *pre, const char *pattern, size_t n,
                   enum ek_tok_cut cut, bool is_inverted, struct ek_err *err)
{
    if (pre->n_steps == EK_TOK_PRE_STEPS)
        return ek_err_set(err, EK_EUNSUP, "more than %d pre-tokenizer steps",
                          EK_TOK_PRE_STEPS);
    struct ek_tok_step *step = &pre->steps[pre->n_steps];
    *step = (struct ek_tok_step){NULL, cut, is_inverted};
    int rc = ek_tok_regex_new(&step->regex, pattern, n, err);
    if (!rc)
        pre->n_steps++;
    return rc;
}

static int add_span(struct ek_tok_spans *s, size_t lo, size_t hi)
{
    if (lo == hi)
        return 0;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        void *p = ek_realloc_array(s->items, cap, sizeof *s->items);
        if (!p)
            return EK_ENOMEM;
        s->items = p;
        s->cap = cap;
    }
    s->items[s->n++] = (struct ek_tok_span){(uint32_t)lo, (uint32_t)hi};
    return 0;
}

/* Runs of whole characters, and each stretch that is none. */
static int split_valid(struct ek_tok_spans *out, const char *p, size_t n)
{
    size_t start = 0, i = 0;
    int rc = 0;
    while (!rc && i < n) {
        uint32_t c;
        size_t len = (unsigned char)p[i] < 0x80 ? 1 : ek_utf8_decode(&c, p + i, n - i);
        if (len) {
            i += len;
            continue;
        }
        size_t bad = ek_utf8_bad_length(p + i, n - i);
        rc = add_span(out, start, i);
        if (!rc)
            rc = add_span(out, i, i + bad);
        i += bad;
        start = i;
    }
    return rc ? rc : add_span(out, start, n);
}

/* One step over one piece, as a small machine: `open` is where the piece in the making
 * begins. Every stretch, match or not, comes here in order. */
struct cutter {
    struct ek_tok_spans *out;
    enum ek_tok_cut cut;
    size_t open;
    bool was_match;
};

static int take_stretch(struct cutter *c, size_t lo, size_t hi, bool is_match)
{
    int rc = 0;
    if (lo == hi)
        return 0;
    switch (c->cut) {
    case EK_TOK_CUT_ISOLATED:
        rc = add_span(c->out, lo, hi);
        c->open = hi;
        break;
    case EK_TOK_CUT_REMOVED:
        if (!is_match)
            rc = add_span(c->out, lo, hi);
        c->open = hi;
        break;
    case EK_TOK_CUT_TO_PREVIOUS:
        if (is_match) {
            rc = add_span(c->out, c->open, hi);
            c->open = hi;
        }
        break;
    case EK_TOK_CUT_TO_NEXT:
        if (is_match) {
            rc = add_span(c->out, c->open, lo);
            c->open = lo;
        }
        break;
    case EK_TOK_CUT_CONTIGUOUS:
        if (is_match != c->was_match) {
            rc = add_span(c->out, c->open, lo);
            c->open = lo;
        }
        break;
    }
    c->was_match = is_match;
    return rc;
}

static int run_step(const struct ek_tok_step *step, struct ek_tok_pre_work *work,
                    const char *p, struct ek_tok_span piece, uint64_t *steps)
{
    const char *s = p + piece.lo;
    size_t n = piece.hi - piece.lo, at = 0, lo, hi;
    struct cutter c = {&work->next, step->cut, piece.lo, false};
    uint32_t first;
    if (!ek_utf8_decode(&first, s, n))
        return add_span(&work->next, piece.lo, piece.hi);
    int found = 0;
    while (at < n) {
        found = ek_tok_regex_find(step->regex, work->regex, &lo, &hi, s, n, at);
        ++*steps;
        if (found <= 0)
            break;
        int rc = take_stretch(&c, piece.lo + at, piece.lo + lo, step->is_inverted);
        if (!rc)
            rc = take_stretch(&c, piece.lo + lo, piece.lo + hi, !step->is_inverted);
        if (rc)
            return rc;
        at = hi;
    }
    if (found < 0)
        return found;
    int rc = take_stretch(&c, piece.lo + at, piece.hi, step->is_inverted);
    return rc ? rc : add_span(&work->next, c.open, piece.hi);
}

int ek_tok_pre_run(const struct ek_tok_pre *pre, struct ek_tok_pre_work *work,
                   const char *p, size_t n, uint64_t *steps)
{
    int rc = 0;
    work->now.n = 0;
    if (pre->n_steps == 0)
        return add_span(&work->now, 0, n);
    if (!work->regex)
        rc = ek_tok_regex_work_new(&work->regex);
    if (!rc)
        rc = split_valid(&work->now, p, n);
    *steps += n;
    for (int i = 0; !rc && i < pre->n_steps; i++) {
        work->next.n = 0;
        for (size_t k = 0; !rc && k < work->now.n; k++)
            rc = run_step(&pre->steps[i], work, p, work->now.items[k], steps);
        struct ek_tok_spans swap = work->now;
        work->now = work->next;
        work->next = swap;
    }
    return rc;
}
