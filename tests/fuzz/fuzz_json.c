/* fuzz_json.c - any bytes as a JSON body: refused with a sentence, or values that are
 * those of jansson's own reader and the same after being written and read again. The
 * first byte chooses an allocation to fail: then the answer is EK_ENOMEM or the same as
 * without. */
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fact)
{
    if (!fact)
        abort();
}

static int write_value(struct ek_buf *b, json_t *v);

static int write_members(struct ek_buf *b, json_t *object)
{
    const char *key, *join = "{";
    size_t n;
    json_t *v;
    int rc = 0;
    json_object_keylen_foreach(object, key, n, v)
    {
        must(ek_utf8_is_valid(key, n));
        if (!rc)
            rc = ek_buf_add_str(b, join);
        if (!rc)
            rc = ek_json_add_str(b, key, n);
        if (!rc)
            rc = ek_buf_add_char(b, ':');
        if (!rc)
            rc = write_value(b, v);
        join = ",";
    }
    if (!rc && *join == '{')
        rc = ek_buf_add_char(b, '{');
    return rc ? rc : ek_buf_add_char(b, '}');
}

static int write_items(struct ek_buf *b, json_t *array)
{
    int rc = ek_buf_add_char(b, '[');
    for (size_t i = 0; !rc && i < json_array_size(array); i++) {
        if (i)
            rc = ek_buf_add_char(b, ',');
        if (!rc)
            rc = write_value(b, json_array_get(array, i));
    }
    return rc ? rc : ek_buf_add_char(b, ']');
}

static int write_value(struct ek_buf *b, json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return write_members(b, v);
    case JSON_ARRAY:
        return write_items(b, v);
    case JSON_STRING:
        must(ek_utf8_is_valid(json_string_value(v), json_string_length(v)));
        return ek_json_add_str(b, json_string_value(v), json_string_length(v));
    case JSON_INTEGER:
        return ek_buf_addf(b, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    case JSON_REAL:
        must(isfinite(json_real_value(v)));
        return ek_json_add_double(b, json_real_value(v));
    default:
        return ek_buf_add_str(b, json_is_true(v)    ? "true"
                                 : json_is_false(v) ? "false"
                                                    : "null");
    }
}

/* Numbers may change their type on the way (2.0 is written as 2): text is compared. */
static void check_round_trip(json_t *root)
{
    struct ek_buf once, twice;
    struct ek_err err = EK_ERR_INIT;
    json_t *again = NULL;
    ek_buf_init(&once, 1 << 24);
    ek_buf_init(&twice, 1 << 24);
    must(write_value(&once, root) == 0);
    int rc = ek_json_parse(&again, once.data, once.len, NULL, &err);
    must(rc == 0);
    must(write_value(&twice, again) == 0);
    must(once.len == twice.len && !memcmp(once.data, twice.data, once.len));
    json_decref(again);
    ek_buf_release(&once);
    ek_buf_release(&twice);
}

/* jansson's own reader must agree on what is JSON and what it says. It is asked with
 * whole memory only: without, it is not safe; and not about raw NUL, which it passes
 * over behind a number. */
static void check_against_jansson(const json_t *root, int rc, const char *text,
                                  size_t n)
{
    json_error_t at;
    if (memchr(text, 0, n))
        return;
    json_t *peer = json_loadb(
        text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &at);
    must((peer != NULL) == (rc == 0));
    must(!peer || json_equal(peer, root));
    json_decref(peer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ek_json_limits limits = {.max_bytes = 1 << 16,
                                                 .max_values = 2000};
    if (size == 0)
        return 0;
    struct ek_err err = EK_ERR_INIT;
    json_t *root = NULL, *other = NULL;
    const char *text = (const char *)data + 1;
    int rc = ek_json_parse(&root, text, size - 1, &limits, &err);
    must(rc == 0 || rc == EK_EFORMAT || rc == EK_ELIMIT);
    must((rc == 0) == (root != NULL) && (rc == 0 || err.text[0]));
    ek_mem_fail_at(data[0]);
    int drive = ek_json_parse(&other, text, size - 1, &limits, NULL);
    must(drive == (ek_mem_failed() ? EK_ENOMEM : rc));
    ek_mem_fail_at(0);
    if (rc != EK_ELIMIT)
        check_against_jansson(root, rc, text, size - 1);
    if (root)
        check_round_trip(root);
    json_decref(root);
    json_decref(other);
    return 0;
}
