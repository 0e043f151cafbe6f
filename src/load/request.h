/* request.h - the body of one request. */
#ifndef EVENKEEL_LOAD_REQUEST_H
#define EVENKEEL_LOAD_REQUEST_H

#include "load/run.h"

#define EK_REQUEST_BYTES_MAX ((size_t)64 << 20)

/* Path for the options' endpoint. */
const char *ek_request_path(const struct ek_load_options *o);

/* Replaces what is in `out` by the JSON body for an item. Errors: EK_ENOMEM, EK_ELIMIT
 * past out's ceiling. */
int ek_request_write(struct ek_buf *out, const struct ek_load_options *o,
                     const struct ek_load_item *item) EK_MUST_USE;

#endif
