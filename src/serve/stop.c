#include "serve/stop.h"

#include <assert.h>
#include <string.h>

void ek_stop_init(struct ek_stop *s)
{
    s->n = 0;
    s->hit = -1;
}

static void fill_falls(uint16_t *fall, const char *text, size_t n)
{
    size_t k = 0;
    fall[0] = 0;
    for (size_t i = 1; i < n; i++) {
        while (k > 0 && text[i] != text[k])
            k = fall[k - 1];
        k += text[i] == text[k];
        fall[i] = (uint16_t)k;
    }
}

int ek_stop_add(struct ek_stop *s, struct ek_arena *arena, const char *text, size_t n)
{
    if (n == 0)
        return EK_EINVAL;
    if (n > EK_STOP_BYTES_MAX || s->n == EK_STOP_STRINGS_MAX)
        return EK_ELIMIT;
    char *copy = ek_arena_strndup(arena, text, n);
    uint16_t *fall = ek_arena_alloc(arena, n * sizeof *fall);
    if (!copy || !fall)
        return EK_ENOMEM;
    fill_falls(fall, copy, n);
    s->at[s->n] = 0;
    s->strings[s->n++] = (struct ek_stop_string){copy, (uint32_t)n, fall};
    return 0;
}

/* The string of which most bytes are matched; -1 when nothing is. */
static int32_t longest(const struct ek_stop *s)
{
    int32_t best = -1;
    for (int32_t i = 0; i < s->n; i++) {
        if (s->at[i] > 0 && (best < 0 || s->at[i] > s->at[best]))
            best = i;
    }
    return best;
}

size_t ek_stop_held(const struct ek_stop *s)
{
    int32_t i = s->hit < 0 ? longest(s) : -1;
    return i < 0 ? 0 : s->at[i];
}

/* Moves each automaton over c. Returns the longest string that completes, or -1. */
static int32_t advance(struct ek_stop *s, char c)
{
    int32_t done = -1;
    for (int32_t i = 0; i < s->n; i++) {
        const struct ek_stop_string *t = &s->strings[i];
        uint16_t k = s->at[i];
        while (k > 0 && (k == t->n || t->text[k] != c))
            k = t->fall[k - 1];
        k = (uint16_t)(k + (t->text[k] == c));
        s->at[i] = k;
        if (k == t->n && (done < 0 || t->n > s->strings[done].n))
            done = i;
    }
    return done;
}

/* A completed string that does not count is text like any other: only what could still
 * become a match stays held. */
static void fall_back(struct ek_stop *s)
{
    for (int32_t i = 0; i < s->n; i++) {
        if (s->at[i] == s->strings[i].n)
            s->at[i] = s->strings[i].fall[s->at[i] - 1];
    }
}

/* Appends the first n bytes of (held, c). */
static int release(struct ek_buf *out, const char *held, size_t n_held, char c,
                   size_t n)
{
    size_t from_held = n < n_held ? n : n_held;
    int rc = ek_buf_add(out, held, from_held);
    if (!rc && n > n_held)
        rc = ek_buf_add_char(out, c);
    return rc;
}

int ek_stop_feed(struct ek_stop *s, struct ek_buf *out, const char *text, size_t n,
                 bool is_early, bool keeps_match)
{
    if (s->n == 0)
        return ek_buf_add(out, text, n);
    int rc = 0;
    for (size_t i = 0; !rc && s->hit < 0 && i < n; i++) {
        int32_t before = longest(s);
        const char *held = before < 0 ? "" : s->strings[before].text;
        size_t n_held = before < 0 ? 0 : s->at[before];
        int32_t done = advance(s, text[i]);
        if (is_early)
            fall_back(s);
        size_t keep = 0;
        if (done >= 0 && !is_early) {
            s->hit = done;
            keep = keeps_match ? 0 : s->strings[done].n;
        } else {
            keep = ek_stop_held(s);
        }
        assert(keep <= n_held + 1);
        rc = release(out, held, n_held, text[i], n_held + 1 - keep);
    }
    return rc;
}

int ek_stop_finish(struct ek_stop *s, struct ek_buf *out)
{
    int32_t i = s->hit < 0 ? longest(s) : -1;
    if (i < 0)
        return 0;
    size_t n = s->at[i];
    for (int32_t k = 0; k < s->n; k++)
        s->at[k] = 0;
    return ek_buf_add(out, s->strings[i].text, n);
}
