/* json_int.h - the grammar without the limits; json.c is the door. */
#ifndef EVENKEEL_BASE_JSON_INT_H
#define EVENKEEL_BASE_JSON_INT_H

#include "base/json.h"

/* Recurses once a level: the caller has bounded the depth. Errors: EK_EFORMAT,
 * EK_ENOMEM; *out untouched. */
int ek_json_parse_text(json_t **out, const char *text, size_t n,
                       struct ek_err *err) EK_MUST_USE;

#endif
