/* clock.h - monotonic time as int64 microseconds, and the wall clock for stamps. */
#ifndef EVENKEEL_BASE_CLOCK_H
#define EVENKEEL_BASE_CLOCK_H

#include <stdint.h>

int64_t ek_clock_us(void);        /* monotonic; never steps back */
int64_t ek_clock_coarse_us(void); /* the same, late by up to a tick (4 ms), cheaper */
int64_t ek_clock_wall_us(void);   /* microseconds since 1970 UTC, for people and logs */

#endif
