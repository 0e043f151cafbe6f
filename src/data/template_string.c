#include "base/utf8.h"
#include "data/template_int.h"

#include <string.h>

/* Strings with provenance, and the stack on which new ones are built. */

bool ek_tpl_str_is(const struct ek_tpl_str *s, const char *text)
{
    size_t n = strlen(text);
    return s->n == n && memcmp(s->p, text, n) == 0;
}

size_t ek_tpl_count_chars(const char *p, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)p[i] & 0xc0) != 0x80;
    return chars;
}

int ek_tpl_str_new(struct ek_tpl_rt *rt, struct ek_tpl_val *out, const char *p,
                   size_t n, bool is_plain)
{
    struct ek_tpl_str *s = ek_tpl_alloc(rt, 1, sizeof *s);
    if (!s)
        return ek_tpl_no_memory(rt);
    *s = (struct ek_tpl_str){.p = p, .n = n, .is_plain = is_plain};
    s->n_chars = ek_tpl_count_chars(p, n);
    *out = (struct ek_tpl_val){.kind = EK_TPL_STR, .is_plain = is_plain, .new_s = s};
    return 0;
}

int ek_tpl_str_text(struct ek_tpl_rt *rt, struct ek_tpl_val *out, const char *text)
{
    return ek_tpl_str_new(rt, out, text, strlen(text), false);
}

int ek_tpl_str_sub(struct ek_tpl_rt *rt, struct ek_tpl_val *out,
                   const struct ek_tpl_str *s, size_t from, size_t to)
{
    if (to < from)
        to = from;
    int rc = ek_tpl_str_new(rt, out, s->p + from, to - from, s->is_plain);
    if (rc)
        return rc;
    struct ek_tpl_str *sub = out->new_s;
    sub->mark = s->mark ? s->mark + from : NULL;
    sub->is_markup = s->is_markup;
    return 0;
}

size_t ek_tpl_str_offset(const struct ek_tpl_str *s, size_t at)
{
    if (s->n_chars == s->n)
        return at;
    size_t i = 0;
    while (i < s->n && at > 0) {
        uint32_t c;
        i += ek_tpl_char(s, i, &c);
        at--;
    }
    return i;
}

size_t ek_tpl_char(const struct ek_tpl_str *s, size_t i, uint32_t *c)
{
    size_t len = ek_utf8_decode(c, s->p + i, s->n - i);
    if (len == 0) { /* cannot be: sources and JSON are checked */
        *c = (unsigned char)s->p[i];
        len = 1;
    }
    return len;
}

size_t ek_tpl_char_before(const struct ek_tpl_str *s, size_t i, uint32_t *c)
{
    size_t from = i - 1;
    while (from > 0 && i - from < 4 && ((unsigned char)s->p[from] & 0xc0) == 0x80)
        from--;
    struct ek_tpl_str part = {.p = s->p + from, .n = i - from};
    size_t len = ek_tpl_char(&part, 0, c);
    return len == i - from ? len : 1;
}

bool ek_tpl_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool ek_tpl_plain_at(const struct ek_tpl_str *s, size_t i)
{
    return s->mark ? s->mark[i] : s->is_plain;
}

bool ek_tpl_str_find(const struct ek_tpl_str *s, const struct ek_tpl_str *what,
                     size_t from, size_t *at)
{
    if (from > s->n)
        return false;
    if (what->n == 0) {
        *at = from;
        return true;
    }
    const char *p = memmem(s->p + from, s->n - from, what->p, what->n);
    if (p)
        *at = (size_t)(p - s->p);
    return p != NULL;
}

size_t ek_tpl_begin(struct ek_tpl_rt *rt)
{
    return rt->scratch.len;
}

/* What an append to one of the buffers of the rendering failed with. */
static int put_fail(struct ek_tpl_rt *rt, int rc)
{
    if (rc == EK_ELIMIT)
        rt->is_over_memory = true;
    return rc ? ek_tpl_no_memory(rt) : 0;
}

static int put_room(struct ek_tpl_rt *rt, size_t n)
{
    int rc = ek_tpl_step(rt, n / 64);
    if (rc)
        return rc;
    rc = ek_buf_reserve(&rt->scratch, n);
    if (!rc)
        rc = ek_buf_reserve(&rt->scratch_m, n);
    return put_fail(rt, rc);
}

static int put(struct ek_tpl_rt *rt, const char *p, const uint8_t *mark, size_t n,
               bool is_plain)
{
    int rc = put_room(rt, n);
    if (rc || n == 0)
        return rc;
    memcpy(rt->scratch.data + rt->scratch.len, p, n);
    if (mark)
        memcpy(rt->scratch_m.data + rt->scratch_m.len, mark, n);
    else
        memset(rt->scratch_m.data + rt->scratch_m.len, is_plain, n);
    rt->scratch.len += n;
    rt->scratch_m.len += n;
    return 0;
}

int ek_tpl_put(struct ek_tpl_rt *rt, const char *p, size_t n, bool is_plain)
{
    return put(rt, p, NULL, n, is_plain);
}

int ek_tpl_put_text(struct ek_tpl_rt *rt, const char *text, bool is_plain)
{
    return put(rt, text, NULL, strlen(text), is_plain);
}

int ek_tpl_put_char(struct ek_tpl_rt *rt, uint32_t c, bool is_plain)
{
    char text[4];
    size_t n = ek_utf8_encode(text, c);
    return put(rt, text, NULL, n, is_plain);
}

int ek_tpl_put_sub(struct ek_tpl_rt *rt, const struct ek_tpl_str *s, size_t from,
                   size_t to)
{
    return put(rt, s->p + from, s->mark ? s->mark + from : NULL, to - from,
               s->is_plain);
}

int ek_tpl_put_escaped(struct ek_tpl_rt *rt, const struct ek_tpl_str *s)
{
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    static const char special[] = "&<>\"'";
    if (s->is_markup)
        return ek_tpl_put_sub(rt, s, 0, s->n);
    for (size_t i = 0; i < s->n; i++) {
        const char *at = s->p[i] ? strchr(special, s->p[i]) : NULL;
        int rc = at ? ek_tpl_put_text(rt, names[at - special], ek_tpl_plain_at(s, i))
                    : ek_tpl_put_sub(rt, s, i, i + 1);
        if (rc)
            return rc;
    }
    return 0;
}

int ek_tpl_str_copy(struct ek_tpl_rt *rt, struct ek_tpl_val *out, const char *p,
                    const uint8_t *mark, size_t n)
{
    char *text = ek_tpl_alloc(rt, n, 1);
    if (!text)
        return ek_tpl_no_memory(rt);
    if (n)
        memcpy(text, p, n);
    bool is_plain = n > 0 && mark[0];
    int rc = ek_tpl_str_new(rt, out, text, n, is_plain);
    if (rc || n == 0 || memchr(mark, is_plain ? 0 : 1, n) == NULL)
        return rc;
    uint8_t *m = ek_tpl_alloc(rt, n, 1);
    if (!m)
        return ek_tpl_no_memory(rt);
    memcpy(m, mark, n);
    out->new_s->mark = m;
    return 0;
}

int ek_tpl_end(struct ek_tpl_rt *rt, struct ek_tpl_val *out, size_t at)
{
    size_t n = rt->scratch.len - at;
    int rc = ek_tpl_str_copy(rt, out, n ? rt->scratch.data + at : "",
                             n ? (const uint8_t *)rt->scratch_m.data + at : NULL, n);
    rt->scratch.len = rt->scratch_m.len = at;
    return rc;
}
