/* resident.h - memory that this process holds, as Linux counts it: what a plan of
 * memory is held against. */
#ifndef EVENKEEL_TRAIN_RESIDENT_H
#define EVENKEEL_TRAIN_RESIDENT_H

#include <stdint.h>

/* Resident bytes now; 0 where they cannot be read. */
int64_t ek_resident_bytes(void);

/* The most that was resident since the mark (without one, or where none can be set,
 * since the process began); 0 where it cannot be read. */
int64_t ek_resident_peak(void);

/* From here on a new peak. For the whole process. Cannot fail. */
void ek_resident_mark(void);

#endif
