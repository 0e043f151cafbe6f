/* report_agent.c - the line of HAProxy's agent-check: words behind blanks or commas.
 *
 *   75%  weight:75%     share of the configured weight
 *   weight:20           the weight itself
 *   maxconn:30          sessions this proxy may have there
 *   ready drain maint   administration
 *   up | down failed stopped [#why]     health
 */
#include "route/report_int.h"

#include <string.h>

#define LINE_MAX_BYTES 1024
#define NUMBER_MAX     1000000

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == ',';
}

static bool take_whole(double *v, struct ek_text t)
{
    *v = 0;
    if (t.n == 0)
        return false;
    for (size_t i = 0; i < t.n; i++) {
        if (t.p[i] < '0' || t.p[i] > '9')
            return false;
        *v = 10 * *v + (t.p[i] - '0');
        if (*v > NUMBER_MAX)
            return false;
    }
    return true;
}

static bool take_weight(struct ek_load_report *r, struct ek_text t)
{
    bool is_share = t.n > 0 && t.p[t.n - 1] == '%';
    double v;
    t.n -= is_share;
    if (!take_whole(&v, t) || (!is_share && v > 256))
        return false;
    r->has |= EK_LOAD_WEIGHT;
    r->weight = is_share ? v / 100 : v;
    r->is_whole_weight = !is_share;
    return true;
}

static bool starts(struct ek_text *t, const char *prefix)
{
    size_t n = strlen(prefix);
    if (t->n < n || memcmp(t->p, prefix, n) != 0)
        return false;
    *t = ek_text_of(t->p + n, t->n - n);
    return true;
}

static bool take_word(struct ek_load_report *r, struct ek_text t)
{
    static const struct {
        const char *word;
        enum ek_load_state state;
        enum ek_load_health health;
    } words[] = {
        {"ready", EK_LOAD_SAYS_READY, EK_LOAD_HEALTH_UNSAID},
        {"drain", EK_LOAD_SAYS_DRAIN, EK_LOAD_HEALTH_UNSAID},
        {"maint", EK_LOAD_SAYS_MAINT, EK_LOAD_HEALTH_UNSAID},
        {"up", EK_LOAD_SAYS_NOTHING, EK_LOAD_IS_UP},
        {"down", EK_LOAD_SAYS_NOTHING, EK_LOAD_IS_DOWN},
        {"failed", EK_LOAD_SAYS_NOTHING, EK_LOAD_IS_DOWN},
        {"stopped", EK_LOAD_SAYS_NOTHING, EK_LOAD_IS_DOWN},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!ek_text_is(t, words[i].word))
            continue;
        if (words[i].state != EK_LOAD_SAYS_NOTHING)
            r->state = words[i].state;
        if (words[i].health != EK_LOAD_HEALTH_UNSAID)
            r->health = words[i].health;
        return true;
    }
    if (starts(&t, "weight:"))
        return take_weight(r, t);
    if (starts(&t, "maxconn:")) {
        r->has |= EK_LOAD_LIMIT;
        return take_whole(&r->limit, t);
    }
    return t.p[t.n - 1] == '%' && take_weight(r, t);
}

int ek_report_agent(struct ek_load_report *r, const char *text, size_t n)
{
    struct ek_load_report made = {0};
    size_t len = 0, n_words = 0;
    while (len < n && text[len] != '\r' && text[len] != '\n')
        len++;
    if (len > LINE_MAX_BYTES)
        return EK_ELIMIT;
    for (size_t i = 0; i < len && text[i] != '#';) {
        size_t start = i;
        while (i < len && text[i] != '#' && !is_blank(text[i]))
            i++;
        if (i > start) {
            if (!take_word(&made, ek_text_of(text + start, i - start)))
                return EK_EFORMAT;
            n_words++;
        } else {
            i++;
        }
    }
    if (n_words == 0)
        return EK_EFORMAT;
    *r = made;
    return 0;
}
