/* date.h - times as people and files write them, in UTC: ISO 8601 / RFC 3339. */
#ifndef EVENKEEL_BASE_DATE_H
#define EVENKEEL_BASE_DATE_H

#include <stdbool.h>
#include <stdint.h>

/* Takes "2023-11-16 18:15:46.6805900" from *p: a T for the space, a fraction and a zone
 * (Z, +02:00, -0530) behind it may be there; without a zone it is UTC. *us:
 * microseconds since 1970-01-01, finer digits cut off. False when that is not what
 * stands there; *p then points anywhere in it. Years 1970 to 9999; a leap second is the
 * next minute's first. */
bool ek_date_take(int64_t *us, const char **p, const char *end);

/* The same without a time of day: "2023-11-16", its midnight. */
bool ek_date_take_day(int64_t *us, const char **p, const char *end);

#endif
