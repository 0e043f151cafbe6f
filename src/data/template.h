/* template.h - chat templates: the part of Jinja that Hugging Face templates use.
 *
 * Equal to Python's jinja2 set up as transformers does it
 * (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls, tojson
 * with ensure_ascii=False, raise_exception, strftime_now). Sandboxed by limits, without
 * access to anything but the variables given. A construct that is not known is an error
 * naming line and construct, when parsed where possible; never a silent fallback.
 *
 * Provenance: every byte of the output is known to come from the template's own text or
 * from a variable. The tokenizer reads special tokens only in the former.
 */
#ifndef EVENKEEL_DATA_TEMPLATE_H
#define EVENKEEL_DATA_TEMPLATE_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct ek_template;

struct ek_template_limits {
    size_t max_steps;        /* statements and expressions evaluated; 0: 10 million */
    size_t max_output_bytes; /* 0: 16 MiB */
    size_t max_memory_bytes; /* arena of one rendering; 0: 256 MiB */
    size_t max_depth;        /* nesting of expressions, blocks and calls; 0: 200 */
};

/* Errors: EK_EFORMAT "line 12: ...", EK_EUNSUP (known Jinja, not interpreted),
 * EK_ELIMIT, EK_ENOMEM. Immutable after; threads: any. */
int ek_template_parse(struct ek_template **t, const char *source, size_t n,
                      struct ek_err *err) EK_MUST_USE;
void ek_template_free(struct ek_template *t);

/* Renders with the variables of the JSON object `vars` (messages, tools,
 * add_generation_prompt, bos_token, eos_token, ...). Strings of the keys in
 * `trusted` (NULL-terminated list, e.g. bos_token, eos_token; may be NULL) count as the
 * template's own text. Objects keep the order of their keys.
 *   out       appended: the text
 *   is_plain  appended: one byte a byte of out, 1 where it came from a variable
 *   now_us    wall clock for strftime_now
 * Errors: EK_EINVAL raise_exception (its text is the sentence), EK_EFORMAT a type error
 * with its line, EK_EUNSUP, EK_ELIMIT, EK_ENOMEM; out and is_plain are cut back. */
int ek_template_render(const struct ek_template *t, struct ek_buf *out,
                       struct ek_buf *is_plain, const json_t *vars,
                       const char *const *trusted, int64_t now_us,
                       const struct ek_template_limits *limits,
                       struct ek_err *err) EK_MUST_USE;

#endif
