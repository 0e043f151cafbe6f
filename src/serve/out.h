/* out.h - text written in many small steps with one check at the end: the first failure
 * stays, what follows it is not written. */
#ifndef EVENKEEL_SERVE_OUT_H
#define EVENKEEL_SERVE_OUT_H

#include "base/buf.h"

struct ek_out {
    struct ek_buf *buf; /* borrowed */
    int rc;             /* 0, or the first failure of an append */
};

void ek_out_add(struct ek_out *o, const char *p, size_t n);
void ek_out_str(struct ek_out *o, const char *s);
void ek_out_printf(struct ek_out *o, const char *fmt, ...) EK_PRINTF(2, 3);

/* As JSON: a string with quotes, a number. */
void ek_out_json(struct ek_out *o, const char *p, size_t n);
void ek_out_number(struct ek_out *o, double v);

#endif
