/* report.c - names to figures, numbers, base64; which form a header has. */
#include "route/report.h"

#include "route/report_int.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static const char *const default_names[EK_REPORT_N_NAMES] = {
    [EK_REPORT_ACTIVE] = "active_sessions",
    [EK_REPORT_COST] = "session_cost",
    [EK_REPORT_CAPACITY] = "effective_capacity",
    [EK_REPORT_REMAINING] = "remaining_sessions",
    [EK_REPORT_YOUNG] = "young_sessions",
    [EK_REPORT_YOUNG_WEIGHT] = "young_weight",
    [EK_REPORT_FACTOR] = "safety_factor",
};

static bool is_word(struct ek_text t, const char *word)
{
    return t.n == strlen(word) && !memcmp(t.p, word, t.n);
}

void ek_report_set(struct ek_report_making *m, struct ek_text name, double v)
{
    struct ek_load_report *r = &m->r;
    const struct {
        const char *name, *camel; /* as protobuf's JSON writes it */
        uint32_t bit;
        double *at;
    } fields[] = {
        {"cpu_utilization", "cpuUtilization", EK_LOAD_CPU, &r->cpu_utilization},
        {"mem_utilization", "memUtilization", EK_LOAD_MEMORY, &r->mem_utilization},
        {"application_utilization", "applicationUtilization", EK_LOAD_APPLICATION,
         &r->application_utilization},
        {"rps_fractional", "rpsFractional", EK_LOAD_RPS, &r->rps},
        {"eps", "eps", EK_LOAD_EPS, &r->eps},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (is_word(name, fields[i].name) || is_word(name, fields[i].camel)) {
            r->has |= fields[i].bit;
            *fields[i].at = v;
            return;
        }
    }
}

void ek_report_set_named(struct ek_report_making *m, struct ek_text name, double v)
{
    struct ek_load_report *r = &m->r;
    const struct {
        uint32_t bit;
        double *at;
    } fields[EK_REPORT_N_NAMES] = {
        [EK_REPORT_ACTIVE] = {EK_LOAD_ACTIVE, &r->active_sessions},
        [EK_REPORT_COST] = {EK_LOAD_COST, &r->session_cost},
        [EK_REPORT_CAPACITY] = {EK_LOAD_CAPACITY, &r->effective_capacity},
        [EK_REPORT_REMAINING] = {EK_LOAD_REMAINING, &r->remaining_sessions},
        [EK_REPORT_YOUNG] = {EK_LOAD_YOUNG, &r->young_sessions},
        [EK_REPORT_YOUNG_WEIGHT] = {EK_LOAD_YOUNG_WEIGHT, &r->young_weight},
        [EK_REPORT_FACTOR] = {EK_LOAD_FACTOR, &r->safety_factor},
    };
    for (size_t i = 0; i < EK_REPORT_N_NAMES; i++) {
        const char *word =
            m->names && m->names->at[i] ? m->names->at[i] : default_names[i];
        if (is_word(name, word)) {
            r->has |= fields[i].bit;
            *fields[i].at = v;
            return;
        }
    }
}

/* Digits from t.p[*i] on; false when there is none. */
static bool skip_digits(struct ek_text t, size_t *i)
{
    size_t start = *i;
    while (*i < t.n && t.p[*i] >= '0' && t.p[*i] <= '9')
        ++*i;
    return *i > start;
}

/* The value of mantissa * 10^exponent: exact enough for loads, and no locale. */
static double scale(double mantissa, int exponent)
{
    return exponent < -600  ? 0
           : exponent > 600 ? HUGE_VAL
                            : mantissa * pow(10, exponent);
}

bool ek_report_number(double *v, struct ek_text t)
{
    size_t i = 0, dot = 0;
    bool is_negative = t.n > 0 && t.p[0] == '-';
    double mantissa = 0;
    int exponent = 0, shift = 0;
    if (t.n > 64)
        return false;
    i += is_negative;
    if (!skip_digits(t, &i))
        return false;
    if (i < t.n && t.p[i] == '.') {
        dot = i++;
        if (!skip_digits(t, &i))
            return false;
        shift = (int)(i - dot - 1);
    }
    for (size_t k = is_negative; k < i; k++) {
        if (t.p[k] != '.')
            mantissa = 10 * mantissa + (t.p[k] - '0');
    }
    if (i < t.n && (t.p[i] == 'e' || t.p[i] == 'E')) {
        bool is_down = ++i < t.n && t.p[i] == '-';
        i += i < t.n && (t.p[i] == '-' || t.p[i] == '+');
        size_t first = i;
        if (!skip_digits(t, &i))
            return false;
        for (size_t k = first; k < i && exponent < 1000; k++)
            exponent = 10 * exponent + (t.p[k] - '0');
        exponent = is_down ? -exponent : exponent;
    }
    mantissa = mantissa == 0 ? 0 : scale(mantissa, exponent - shift);
    *v = is_negative ? -mantissa : mantissa;
    return i == t.n && isfinite(*v);
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static int from_base64(unsigned char *out, size_t *len, struct ek_text t)
{
    uint32_t bits = 0;
    size_t n_bits = 0, n = t.n;
    *len = 0;
    for (int pad = 0; pad < 2 && n > 0 && t.n % 4 == 0 && t.p[n - 1] == '='; pad++)
        n--;
    if (n % 4 == 1)
        return EK_EFORMAT;
    for (size_t i = 0; i < n; i++) {
        int digit = base64_digit(t.p[i]);
        if (digit < 0)
            return EK_EFORMAT;
        bits = bits << 6 | (uint32_t)digit;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[(*len)++] = (unsigned char)(bits >> n_bits);
        }
    }
    return bits & ((1u << n_bits) - 1) ? EK_EFORMAT : 0; /* bits behind the last byte */
}

static int decode_base64(struct ek_report_making *m, struct ek_text t)
{
    unsigned char bytes[EK_REPORT_BYTES_MAX / 4 * 3];
    size_t n;
    int rc = from_base64(bytes, &n, t);
    return rc ? rc : ek_report_orca_proto(m, bytes, n);
}

static int finish(struct ek_load_report *r, const struct ek_report_making *m, int rc)
{
    if (!rc)
        *r = m->r;
    return rc;
}

int ek_report_trailer(struct ek_load_report *r, const char *text, size_t n,
                      const struct ek_report_names *names)
{
    struct ek_report_making m = {.names = names};
    if (n > EK_REPORT_BYTES_MAX)
        return EK_ELIMIT;
    return finish(r, &m, decode_base64(&m, ek_text_of(text, n)));
}

int ek_report_proto(struct ek_load_report *r, const void *bytes, size_t n,
                    const struct ek_report_names *names)
{
    struct ek_report_making m = {.names = names};
    if (n > EK_REPORT_BYTES_MAX)
        return EK_ELIMIT;
    return finish(r, &m, ek_report_orca_proto(&m, bytes, n));
}

int ek_report_header(struct ek_load_report *r, const char *text, size_t n,
                     const struct ek_report_names *names)
{
    static const struct {
        char word[6];
        int (*decode)(struct ek_report_making *m, struct ek_text t);
    } forms[] = {{"TEXT ", ek_report_orca_text},
                 {"JSON ", ek_report_orca_json},
                 {"BIN ", decode_base64}};
    struct ek_report_making m = {.names = names};
    if (n > EK_REPORT_BYTES_MAX)
        return EK_ELIMIT;
    for (size_t i = 0; i < 3; i++) {
        size_t len = strlen(forms[i].word);
        if (n >= len && !memcmp(text, forms[i].word, len))
            return finish(r, &m, forms[i].decode(&m, ek_text_of(text + len, n - len)));
    }
    return EK_EFORMAT;
}
