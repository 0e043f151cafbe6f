/* checkpoint_manifest.c - manifest.json: what a checkpoint is, and the digests by which
 * its files belong together. Its last member is the CRC32 of all bytes before it. */
#include "base/json.h"
#include "base/mem.h"
#include "train/checkpoint_int.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define TAIL_HEAD  ",\n  \"crc32\": \""
#define TAIL_END   "\"\n}\n"
#define COUNT_MAX  (INT64_C(1) << 53) /* may still be counted on */
#define FLOPS_MAX  (INT64_C(1) << 62) /* the same */
#define TAIL_BYTES (sizeof TAIL_HEAD - 1 + 8 + sizeof TAIL_END - 1)

const char *ek_checkpoint_path(char out[EK_CHECKPOINT_PATH], const char *folder,
                               const char *name)
{
    snprintf(out, EK_CHECKPOINT_PATH, "%.4096s/%s", folder, name);
    return out;
}

/* One of each kind that progress has; JSON has no NaN, and no unsigned 64 bits. */
static int add_int(struct ek_buf *b, const char *key, int64_t v)
{
    return ek_buf_addf(b, ",\n    \"%s\": %" PRId64, key, v);
}

static int add_double(struct ek_buf *b, const char *key, double v)
{
    int rc = ek_buf_addf(b, ",\n    \"%s\": ", key);
    if (rc)
        return rc;
    return isfinite(v) ? ek_json_add_double(b, v) : ek_buf_add_str(b, "null");
}

/* The log's interval: its line must be that of a run that was never stopped. */
static int add_interval(struct ek_buf *b, const struct ek_train_sums *s)
{
    int rc = ek_buf_add_str(b, ",\n    \"interval\": {");
    if (!rc)
        rc =
            ek_buf_addf(b,
                        "\"steps\": %" PRId64 ", \"sequences\": %" PRId64
                        ", \"tokens\": %" PRId64 ", \"flops\": %" PRId64 ", \"loss\": ",
                        s->steps, s->sequences, s->tokens, s->flops);
    if (!rc)
        rc = ek_json_add_double(b, s->loss);
    if (!rc)
        rc = ek_buf_add_str(b, ", \"seconds\": ");
    if (!rc)
        rc = ek_json_add_double(b, s->seconds);
    return rc ? rc : ek_buf_add_char(b, '}');
}

static int add_progress(struct ek_buf *b, const struct ek_train_progress *p)
{
    int rc =
        ek_buf_addf(b, "  \"progress\": {\n    \"seed\": \"%" PRIu64 "\"", p->seed);
    if (!rc)
        rc = add_int(b, "epoch", p->epoch);
    if (!rc)
        rc = add_int(b, "step", p->step);
    if (!rc)
        rc = add_int(b, "steps", p->steps);
    if (!rc)
        rc = add_int(b, "sequences", p->sequences);
    if (!rc)
        rc = add_int(b, "tokens", p->tokens);
    if (!rc)
        rc = add_double(b, "best", p->best);
    if (!rc)
        rc = add_int(b, "best_step", p->best_step);
    if (!rc)
        rc = add_int(b, "evals_since_best", p->evals_since_best);
    if (!rc)
        rc = add_double(b, "seconds", p->seconds);
    if (!rc)
        rc = add_int(b, "eval_due", p->eval_due);
    if (!rc)
        rc = add_interval(b, &p->interval);
    return rc ? rc : ek_buf_add_str(b, "\n  },\n");
}

static int add_file(struct ek_buf *b, const struct ek_checkpoint_file *f, bool is_first)
{
    if (!f->name)
        return 0;
    return ek_buf_addf(b,
                       "%s\n    \"%s\": {\"bytes\": %" PRIu64 ", \"crc32\": \"%08x\"}",
                       is_first ? "" : ",", f->name, f->bytes, (unsigned)f->crc);
}

static int add_all(struct ek_buf *b, const struct ek_manifest *m, const char *data)
{
    int rc = ek_buf_addf(b, "{\n  \"format\": %d,\n", EK_CHECKPOINT_FORMAT);
    if (!rc)
        rc = add_progress(b, &m->progress);
    if (!rc)
        rc = ek_buf_addf(
            b, "  \"adamw_steps\": %" PRId64 ",\n  \"data\": ", m->adamw_steps);
    if (!rc)
        rc = ek_json_add_str(b, data, strlen(data));
    if (!rc)
        rc = ek_buf_add_str(b, ",\n  \"files\": {");
    if (!rc)
        rc = add_file(b, &m->config, true);
    if (!rc)
        rc = add_file(b, &m->model, false);
    if (!rc)
        rc = add_file(b, &m->optimizer, false);
    if (!rc)
        rc = ek_buf_add_str(b, "\n  }");
    if (rc)
        return rc;
    uint32_t crc = (uint32_t)crc32_z(0, (const unsigned char *)b->data, b->len);
    return ek_buf_addf(b, TAIL_HEAD "%08x" TAIL_END, (unsigned)crc);
}

int ek_manifest_write(const char *folder, const struct ek_manifest *m, const char *data,
                      struct ek_err *err)
{
    char path[EK_CHECKPOINT_PATH];
    struct ek_buf b;
    ek_buf_init(&b, EK_CHECKPOINT_TEXT_MAX);
    ek_checkpoint_path(path, folder, EK_CHECKPOINT_MANIFEST);
    int rc = add_all(&b, m, data);
    if (rc)
        ek_err_set(err, rc, "%s: %s", path, ek_status_text(rc));
    else
        rc = ek_file_write(path, b.data, b.len, err);
    ek_buf_release(&b);
    return rc;
}

static bool read_hex(uint32_t *out, const char *s, size_t n)
{
    uint32_t v = 0;
    for (size_t i = 0; i < 8; i++) {
        const char *digits = "0123456789abcdef";
        const char *at = i < n && s[i] ? strchr(digits, s[i]) : NULL;
        if (!at)
            return false;
        v = v << 4 | (uint32_t)(at - digits);
    }
    *out = v;
    return n == 8;
}

/* Whether the text's last member is the digest of what stands before it. */
static bool is_whole(uint32_t *crc, const char *text, size_t n)
{
    assert(text || n == 0);
    if (n < TAIL_BYTES)
        return false;
    const char *tail = text + n - TAIL_BYTES;
    size_t head = sizeof TAIL_HEAD - 1, end = sizeof TAIL_END - 1;
    return !memcmp(tail, TAIL_HEAD, head) && !memcmp(text + n - end, TAIL_END, end) &&
           read_hex(crc, tail + head, 8) &&
           *crc == crc32_z(0, (const unsigned char *)text, n - TAIL_BYTES);
}

static bool get_within(int64_t *out, const json_t *object, const char *key, int64_t min,
                       int64_t max)
{
    const json_t *v = json_object_get(object, key);
    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= min && *out <= max;
}

static bool get_int(int64_t *out, const json_t *object, const char *key, int64_t min)
{
    return get_within(out, object, key, min, COUNT_MAX);
}

static bool get_double(double *out, const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    *out = json_is_null(v) ? (double)NAN : json_number_value(v);
    return json_is_null(v) || json_is_number(v);
}

static bool get_seed(uint64_t *out, const json_t *object)
{
    const char *s = json_string_value(json_object_get(object, "seed"));
    char *end = NULL;
    *out = s ? strtoull(s, &end, 10) : 0;
    return s && *s && !*end;
}

/* Checkpoints of before these were kept have none: nothing due, an empty interval. */
static bool get_due(int64_t *due, const json_t *o)
{
    *due = 0;
    return !json_object_get(o, "eval_due") || get_within(due, o, "eval_due", 0, 1);
}

static bool get_interval(struct ek_train_sums *s, const json_t *o)
{
    *s = (struct ek_train_sums){.steps = 0};
    if (!o)
        return true;
    return get_int(&s->steps, o, "steps", 0) &&
           get_int(&s->sequences, o, "sequences", 0) &&
           get_int(&s->tokens, o, "tokens", 0) &&
           get_within(&s->flops, o, "flops", 0, FLOPS_MAX) &&
           get_double(&s->loss, o, "loss") && get_double(&s->seconds, o, "seconds");
}

static bool get_progress(struct ek_train_progress *p, const json_t *o)
{
    return get_seed(&p->seed, o) && get_int(&p->epoch, o, "epoch", 0) &&
           get_int(&p->step, o, "step", 0) && get_int(&p->steps, o, "steps", 0) &&
           get_int(&p->sequences, o, "sequences", 0) &&
           get_int(&p->tokens, o, "tokens", 0) && get_double(&p->best, o, "best") &&
           get_int(&p->best_step, o, "best_step", INT64_MIN) &&
           get_int(&p->evals_since_best, o, "evals_since_best", 0) &&
           get_double(&p->seconds, o, "seconds") && get_due(&p->eval_due, o) &&
           get_interval(&p->interval, json_object_get(o, "interval"));
}

static bool get_file(struct ek_checkpoint_file *f, const char *name,
                     const json_t *files)
{
    const json_t *o = json_object_get(files, name);
    const json_t *crc = json_object_get(o, "crc32");
    int64_t bytes;
    if (!get_int(&bytes, o, "bytes", 0) || !json_is_string(crc))
        return false;
    f->name = name;
    f->bytes = (uint64_t)bytes;
    return read_hex(&f->crc, json_string_value(crc), json_string_length(crc));
}

/* What a whole manifest of this format holds; its writer may have been another. */
static int get_all(struct ek_manifest *m, const json_t *o, const char *path,
                   struct ek_err *err)
{
    const json_t *files = json_object_get(o, "files");
    const json_t *data = json_object_get(o, "data");
    bool is_good = get_progress(&m->progress, json_object_get(o, "progress")) &&
                   get_int(&m->adamw_steps, o, "adamw_steps", -1) &&
                   json_is_string(data) &&
                   get_file(&m->config, EK_CHECKPOINT_CONFIG, files) &&
                   get_file(&m->model, EK_CHECKPOINT_MODEL, files);
    if (is_good && json_object_get(files, EK_CHECKPOINT_OPTIMIZER))
        is_good = get_file(&m->optimizer, EK_CHECKPOINT_OPTIMIZER, files);
    if (!is_good)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: lacks what format %d has, or has it in another type",
                          path, EK_CHECKPOINT_FORMAT);
    m->data = ek_strndup(json_string_value(data), json_string_length(data));
    return m->data
               ? 0
               : ek_err_set(err, EK_ENOMEM, "%s: %s", path, ek_status_text(EK_ENOMEM));
}

int ek_manifest_parse(struct ek_manifest *m, const char *path, const char *text,
                      size_t n, struct ek_err *err)
{
    const struct ek_json_limits limits = {EK_CHECKPOINT_TEXT_MAX, 1000, 8};
    json_t *o = NULL;
    int64_t format;
    *m = (struct ek_manifest){0};
    int rc = ek_json_parse(&o, text, n, &limits, err);
    if (rc) {
        ek_err_prefix(err, "%s", path);
        goto out;
    }
    /* Before the digest: a newer format may have another. */
    bool has_format = get_int(&format, o, "format", 1);
    if (has_format && format > EK_CHECKPOINT_FORMAT) {
        rc = ek_err_set(err, EK_EUNSUP,
                        "%s: format %" PRId64 "; this program reads up to %d", path,
                        format, EK_CHECKPOINT_FORMAT);
        goto out;
    }
    if (!has_format || !is_whole(&m->crc, text, n)) {
        rc =
            ek_err_set(err, EK_EFORMAT,
                       "%s: is not followed by the CRC32 of its own bytes: damaged, or "
                       "no manifest",
                       path);
        goto out;
    }
    rc = get_all(m, o, path, err);
out:
    json_decref(o);
    if (rc)
        ek_manifest_release(m);
    return rc;
}

int ek_manifest_read(struct ek_manifest *m, const char *folder, struct ek_err *err)
{
    char path[EK_CHECKPOINT_PATH];
    struct ek_buf b;
    *m = (struct ek_manifest){0};
    ek_buf_init(&b, EK_CHECKPOINT_TEXT_MAX);
    int rc =
        ek_file_read(&b, ek_checkpoint_path(path, folder, EK_CHECKPOINT_MANIFEST), err);
    if (!rc)
        rc = ek_manifest_parse(m, path, b.data ? b.data : "", b.len, err);
    ek_buf_release(&b);
    return rc;
}

void ek_manifest_release(struct ek_manifest *m)
{
    ek_free(m->data);
    *m = (struct ek_manifest){0};
}
