#include "base/date.h"

/* A run of exactly n digits at *p, in lo..hi; *p moves behind it. */
static bool take_digits(int *out, const char **p, const char *end, int n, int lo,
                        int hi)
{
    int v = 0;
    for (int i = 0; i < n; i++, ++*p) {
        if (*p == end || **p < '0' || **p > '9')
            return false;
        v = 10 * v + (**p - '0');
    }
    *out = v;
    return v >= lo && v <= hi;
}

static bool take_char(const char **p, const char *end, char c)
{
    if (*p == end || **p != c)
        return false;
    ++*p;
    return true;
}

/* Days since 1970-01-01 in the Gregorian calendar: years begin in March here, so that
 * the leap day ends them, and 400 of them have 146097 days. */
static int64_t days_of(int year, int month, int day)
{
    int y = month > 2 ? year : year - 1;
    int since_march = (month + 9) % 12;
    int day_of_year = (153 * since_march + 2) / 5 + day - 1;
    int of_era = y % 400;
    return (int64_t)(y / 400) * 146097 + of_era * 365 + of_era / 4 - of_era / 100 +
           day_of_year - 719468;
}

bool ek_date_take_day(int64_t *us, const char **p, const char *end)
{
    int year, month, day;
    if (!take_digits(&year, p, end, 4, 1970, 9999) || !take_char(p, end, '-') ||
        !take_digits(&month, p, end, 2, 1, 12) || !take_char(p, end, '-') ||
        !take_digits(&day, p, end, 2, 1, 31))
        return false;
    *us = days_of(year, month, day) * 86400 * 1000000;
    return true;
}

/* ".6805900" in microseconds; nothing there is 0. */
static bool take_fraction(int64_t *us, const char **p, const char *end)
{
    int64_t unit = 1000000;
    *us = 0;
    if (!take_char(p, end, '.'))
        return true;
    const char *digits = *p;
    for (; *p < end && **p >= '0' && **p <= '9'; ++*p) {
        unit /= 10;
        *us += (**p - '0') * unit;
    }
    return *p > digits;
}

/* Z, +02:00 or -0530 as microseconds east of UTC; nothing there is 0. */
static bool take_zone(int64_t *us, const char **p, const char *end)
{
    int hour, minute;
    *us = 0;
    if (take_char(p, end, 'Z') || *p == end || (**p != '+' && **p != '-'))
        return true;
    int64_t sign = *(*p)++ == '-' ? -1 : 1;
    if (!take_digits(&hour, p, end, 2, 0, 23))
        return false;
    (void)take_char(p, end, ':');
    if (!take_digits(&minute, p, end, 2, 0, 59))
        return false;
    *us = sign * (hour * 60 + minute) * INT64_C(60000000);
    return true;
}

bool ek_date_take(int64_t *us, const char **p, const char *end)
{
    int64_t day, fraction, zone;
    int hour, minute, second;
    if (!ek_date_take_day(&day, p, end) ||
        !(take_char(p, end, ' ') || take_char(p, end, 'T')) ||
        !take_digits(&hour, p, end, 2, 0, 23) || !take_char(p, end, ':') ||
        !take_digits(&minute, p, end, 2, 0, 59) || !take_char(p, end, ':') ||
        !take_digits(&second, p, end, 2, 0, 60) || !take_fraction(&fraction, p, end) ||
        !take_zone(&zone, p, end))
        return false;
    *us =
        day + ((hour * 60 + minute) * INT64_C(60) + second) * 1000000 + fraction - zone;
    return true;
}
