#include "net/message.h"

#include <string.h>

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

bool ek_text_is_word(struct ek_text t, const char *word, size_t n)
{
    for (size_t i = 0; i < t.n && t.n == n; i++) {
        if (lower(t.p[i]) != word[i])
            return false;
    }
    return t.p && t.n == n;
}

bool ek_text_same(struct ek_text a, struct ek_text b)
{
    for (size_t i = 0; i < a.n && a.n == b.n; i++) {
        if (lower(a.p[i]) != lower(b.p[i]))
            return false;
    }
    return a.n == b.n;
}

bool ek_text_equal(struct ek_text a, struct ek_text b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

bool ek_text_next_member(struct ek_text *list, struct ek_text *member)
{
    const char *s = list->p, *end = s + list->n;
    while (s < end && (is_space(*s) || *s == ','))
        s++;
    if (s == end)
        return false;
    const char *comma = memchr(s, ',', (size_t)(end - s));
    const char *last = comma ? comma : end;
    *list = ek_text_of(last, (size_t)(end - last));
    while (is_space(last[-1]))
        last--;
    *member = ek_text_of(s, (size_t)(last - s));
    return true;
}

bool ek_text_has_member(struct ek_text list, const char *word)
{
    struct ek_text member;
    while (ek_text_next_member(&list, &member)) {
        if (ek_text_is(member, word))
            return true;
    }
    return false;
}

bool ek_text_is_visible(struct ek_text t, const char *refused)
{
    for (size_t i = 0; i < t.n; i++) {
        unsigned char c = (unsigned char)t.p[i];
        if (c <= 0x20 || c >= 0x7f || strchr(refused, c))
            return false;
    }
    return true;
}

bool ek_text_is_path(struct ek_text path, struct ek_text method)
{
    bool is_star = path.n == 1 && path.p[0] == '*' &&
                   ek_text_equal(method, ek_text_of("OPTIONS", 7));
    return is_star || (path.n > 0 && path.p[0] == '/' && ek_text_is_visible(path, "#"));
}

bool ek_text_is_authority(struct ek_text authority)
{
    return ek_text_is_visible(authority, "/?#@\\\"<>,");
}

bool ek_text_is_framing(struct ek_text name)
{
    return ek_text_is(name, "content-length") ||
           ek_text_is(name, "transfer-encoding") || ek_text_is(name, "host");
}

bool ek_text_is_disguised(struct ek_text name)
{
    char plain[20];
    if (name.n >= sizeof plain || !memchr(name.p, '_', name.n))
        return false;
    for (size_t i = 0; i < name.n; i++)
        plain[i] = name.p[i] == '_' ? '-' : name.p[i];
    return ek_text_is_framing(ek_text_of(plain, name.n));
}

const struct ek_field *ek_head_field(const struct ek_head *h, const char *name)
{
    for (size_t i = 0; i < h->n_fields; i++) {
        if (ek_text_is(h->fields[i].name, name))
            return &h->fields[i];
    }
    return NULL;
}
