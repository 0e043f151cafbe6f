/* report_text.c - ORCA as text: name=number, name=number ... (gRFC A51; older Envoys
 * write a colon for the sign of equality). */
#include "route/report_int.h"

#include <string.h>

static struct ek_text trim(struct ek_text t)
{
    while (t.n > 0 && (*t.p == ' ' || *t.p == '\t'))
        t = ek_text_of(t.p + 1, t.n - 1);
    while (t.n > 0 && (t.p[t.n - 1] == ' ' || t.p[t.n - 1] == '\t'))
        t.n--;
    return t;
}

/* The part before the first `c`, or all; t moves behind it. */
static struct ek_text cut(struct ek_text *t, char c)
{
    const char *at = memchr(t->p, c, t->n);
    size_t n = at ? (size_t)(at - t->p) : t->n;
    struct ek_text part = ek_text_of(t->p, n);
    *t = ek_text_of(t->p + n + (at ? 1 : 0), t->n - n - (at ? 1 : 0));
    return part;
}

static bool drop_prefix(struct ek_text *t, const char *prefix)
{
    size_t n = strlen(prefix);
    if (t->n < n || memcmp(t->p, prefix, n) != 0)
        return false;
    *t = ek_text_of(t->p + n, t->n - n);
    return true;
}

static int take_pair(struct ek_report_making *m, struct ek_text name, struct ek_text v)
{
    double number;
    if (name.n == 0 || !ek_report_number(&number, v))
        return EK_EFORMAT;
    if (drop_prefix(&name, "named_metrics."))
        ek_report_set_named(m, name, number);
    else if (!drop_prefix(&name, "utilization.") &&
             !drop_prefix(&name, "request_cost."))
        ek_report_set(m, name, number);
    return name.n > 0 ? 0 : EK_EFORMAT;
}

int ek_report_orca_text(struct ek_report_making *m, struct ek_text t)
{
    struct ek_text seen[EK_REPORT_KEYS_MAX];
    size_t n_seen = 0;
    t = trim(t);
    if (t.n == 0)
        return EK_EFORMAT;
    for (bool is_last = false; !is_last;) {
        is_last = !memchr(t.p, ',', t.n);
        struct ek_text v = trim(cut(&t, ','));
        struct ek_text name = trim(cut(&v, memchr(v.p, '=', v.n) ? '=' : ':'));
        if (n_seen == EK_REPORT_KEYS_MAX)
            return EK_ELIMIT;
        for (size_t i = 0; i < n_seen; i++) {
            if (ek_text_equal(seen[i], name))
                return EK_EFORMAT;
        }
        seen[n_seen++] = name;
        int rc = take_pair(m, name, trim(v));
        if (rc)
            return rc;
    }
    return 0;
}
