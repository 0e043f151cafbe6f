#include "data/gguf.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "data/gguf_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Real files hold a few dozen keys; the ceiling bounds what a hostile one can make us
 * allocate beyond its own size. */
#define KV_MAX 65536

/* What the format allows: "keys are at most 2^16-1 bytes". */
#define KEY_BYTES_MAX 65535

/* Shortest entry: length and one byte of key, type, one byte of value. */
#define KV_BYTES_MIN 14

#define ALIGNMENT_MAX 65536

/* Bytes of one element; 0 for those without a fixed size. */
static const unsigned char type_bytes[] = {
    [EK_GGUF_U8] = 1,  [EK_GGUF_I8] = 1,  [EK_GGUF_U16] = 2, [EK_GGUF_I16] = 2,
    [EK_GGUF_U32] = 4, [EK_GGUF_I32] = 4, [EK_GGUF_F32] = 4, [EK_GGUF_BOOL] = 1,
    [EK_GGUF_U64] = 8, [EK_GGUF_I64] = 8, [EK_GGUF_F64] = 8,
};

uint32_t ek_gguf_load_u32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t ek_gguf_load_u64(const unsigned char *p)
{
    return ek_gguf_load_u32(p) | (uint64_t)ek_gguf_load_u32(p + 4) << 32;
}

int ek_gguf_shown(struct ek_str s)
{
    return s.n < 100 ? (int)s.n : 100;
}

int ek_gguf_say(struct ek_gguf_reader *r, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ek_err_setv(r->err, status, fmt, args);
    va_end(args);
    if (r->where[0])
        ek_err_prefix(r->err, "%s", r->where);
    ek_err_prefix(r->err, "%s", r->file);
    return status;
}

int ek_gguf_take(struct ek_gguf_reader *r, const unsigned char **p, uint64_t n,
                 const char *what)
{
    size_t left = r->n - r->at;
    if (n > left)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "%s at byte %zu takes %" PRIu64
                            " bytes, but the file ends after %zu (truncated?)",
                            what, r->at, n, left);
    *p = r->p + r->at;
    r->at += (size_t)n;
    return 0;
}

int ek_gguf_u32(struct ek_gguf_reader *r, uint32_t *v, const char *what)
{
    const unsigned char *p = NULL;
    int rc = ek_gguf_take(r, &p, 4, what);
    if (!rc)
        *v = ek_gguf_load_u32(p);
    return rc;
}

int ek_gguf_u64(struct ek_gguf_reader *r, uint64_t *v, const char *what)
{
    const unsigned char *p = NULL;
    int rc = ek_gguf_take(r, &p, 8, what);
    if (!rc)
        *v = ek_gguf_load_u64(p);
    return rc;
}

int ek_gguf_str(struct ek_gguf_reader *r, struct ek_str *s, const char *what)
{
    uint64_t n = 0;
    const unsigned char *p = NULL;
    int rc = ek_gguf_u64(r, &n, what);
    if (!rc)
        rc = ek_gguf_take(r, &p, n, what);
    if (!rc)
        *s = (struct ek_str){(const char *)p, (size_t)n};
    return rc;
}

/* Reads past one string value; its text must be UTF-8, as the format says. */
static int read_text(struct ek_gguf_reader *r, uint64_t i, bool is_element)
{
    struct ek_str s;
    int rc = ek_gguf_str(r, &s, is_element ? "a string of the array" : "the string");
    if (rc || ek_utf8_is_valid(s.p, s.n))
        return rc;
    if (is_element)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "element %" PRIu64 " '%.*s' is not UTF-8; expected UTF-8",
                            i, ek_gguf_shown(s), s.p);
    return ek_gguf_fail(r, EK_EFORMAT, "value '%.*s' is not UTF-8; expected UTF-8",
                        ek_gguf_shown(s), s.p);
}

static int read_string_array(struct ek_gguf_reader *r, struct ek_gguf_kv *kv)
{
    size_t left = r->n - r->at;
    if (kv->n > left / 8)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "count %" PRIu64
                            " of strings is a lie: the file ends after %zu bytes and "
                            "each takes 8 or more (truncated?)",
                            kv->n, left);
    uint64_t *offsets = ek_alloc_array((size_t)kv->n, sizeof *offsets);
    if (!offsets)
        return ek_gguf_fail(r, EK_ENOMEM, "out of memory");
    kv->str_offsets = offsets;
    for (uint64_t i = 0; i < kv->n; i++) {
        offsets[i] = (uint64_t)(r->p + r->at - kv->data);
        int rc = read_text(r, i, true);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_array(struct ek_gguf_reader *r, struct ek_gguf_kv *kv)
{
    uint32_t elem = 0;
    int rc = ek_gguf_u32(r, &elem, "the array's element type");
    if (!rc)
        rc = ek_gguf_u64(r, &kv->n, "the array's count");
    if (rc)
        return rc;
    if (elem == EK_GGUF_ARRAY)
        return ek_gguf_fail(r, EK_EUNSUP,
                            "is an array of arrays; expected an array of numbers, "
                            "bools or strings");
    if (elem > EK_GGUF_F64)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "element type %" PRIu32 " is unknown; expected 0 to 12",
                            elem);
    kv->elem = (enum ek_gguf_type)elem;
    kv->data = r->p + r->at;
    if (elem == EK_GGUF_STR)
        return read_string_array(r, kv);
    size_t left = r->n - r->at, width = type_bytes[elem];
    if (kv->n > left / width)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "count %" PRIu64 " of %zu-byte elements is a lie: the file "
                            "ends after %zu bytes (truncated?)",
                            kv->n, width, left);
    r->at += (size_t)kv->n * width;
    return 0;
}

static int read_key(struct ek_gguf_reader *r, struct ek_str *key)
{
    int rc = ek_gguf_str(r, key, "the key");
    if (rc)
        return rc;
    if (key->n == 0 || key->n > KEY_BYTES_MAX)
        return ek_gguf_fail(r, EK_EFORMAT, "key of %zu bytes; expected 1 to %d", key->n,
                            KEY_BYTES_MAX);
    if (!ek_utf8_is_valid(key->p, key->n) || memchr(key->p, 0, key->n))
        return ek_gguf_fail(r, EK_EFORMAT,
                            "key '%.*s' is not text; expected UTF-8 without NUL",
                            ek_gguf_shown(*key), key->p);
    return 0;
}

static int read_kv(struct ek_gguf_reader *r, struct ek_gguf_kv *kv)
{
    uint32_t type = 0;
    int rc = read_key(r, &kv->key);
    if (rc)
        return rc;
    snprintf(r->where, sizeof r->where, "key '%.*s'", ek_gguf_shown(kv->key),
             kv->key.p);
    rc = ek_gguf_u32(r, &type, "the value's type");
    if (rc)
        return rc;
    if (type > EK_GGUF_F64)
        return ek_gguf_fail(
            r, EK_EFORMAT, "value type %" PRIu32 " is unknown; expected 0 to 12", type);
    kv->type = kv->elem = (enum ek_gguf_type)type;
    kv->n = 1;
    kv->data = r->p + r->at;
    if (type == EK_GGUF_ARRAY)
        return read_array(r, kv);
    if (type == EK_GGUF_STR)
        return read_text(r, 0, false);
    const unsigned char *p;
    return ek_gguf_take(r, &p, type_bytes[type], "the value");
}

static int compare_str(struct ek_str a, struct ek_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.p, b.p, n) : 0;
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static int by_key(const void *a, const void *b, void *items)
{
    const struct ek_gguf_kv *kv = items;
    const uint32_t *i = a, *j = b;
    return compare_str(kv[*i].key, kv[*j].key);
}

/* Sorting finds duplicates and makes lookups independent of hostile keys. */
static int index_keys(struct ek_gguf *g, struct ek_gguf_reader *r)
{
    g->by_key = ek_alloc_array(g->n_kv, sizeof *g->by_key);
    if (!g->by_key)
        return ek_gguf_fail(r, EK_ENOMEM, "out of memory");
    for (size_t i = 0; i < g->n_kv; i++)
        g->by_key[i] = (uint32_t)i;
    if (g->n_kv)
        qsort_r(g->by_key, g->n_kv, sizeof *g->by_key, by_key, g->kv);
    for (size_t i = 1; i < g->n_kv; i++) {
        struct ek_str key = g->kv[g->by_key[i]].key;
        if (!compare_str(g->kv[g->by_key[i - 1]].key, key))
            return ek_gguf_fail(r, EK_EFORMAT,
                                "key '%.*s' is there twice; expected once",
                                ek_gguf_shown(key), key.p);
    }
    return 0;
}

const struct ek_gguf_kv *ek_gguf_find(const struct ek_gguf *g, const char *key)
{
    struct ek_str want = {key, strlen(key)};
    size_t lo = 0, hi = g->n_kv;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct ek_gguf_kv *kv = &g->kv[g->by_key[mid]];
        int order = compare_str(kv->key, want);
        if (order == 0)
            return kv;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static int read_kvs(struct ek_gguf *g, struct ek_gguf_reader *r, uint64_t n)
{
    size_t left = r->n - r->at;
    if (n > left / KV_BYTES_MIN)
        return ek_gguf_fail(r, EK_EFORMAT,
                            "n_kv %" PRIu64 " is a lie: the file ends after %zu bytes "
                            "and each key takes %d or more (truncated?)",
                            n, left, KV_BYTES_MIN);
    if (n > KV_MAX)
        return ek_gguf_fail(r, EK_ELIMIT, "n_kv %" PRIu64 "; expected at most %d", n,
                            KV_MAX);
    g->kv = ek_calloc((size_t)n, sizeof *g->kv);
    if (!g->kv)
        return ek_gguf_fail(r, EK_ENOMEM, "out of memory");
    for (uint64_t i = 0; i < n; i++) {
        snprintf(r->where, sizeof r->where, "key %" PRIu64 " of %" PRIu64, i + 1, n);
        g->n_kv = (size_t)i + 1;
        int rc = read_kv(r, &g->kv[i]);
        if (rc)
            return rc;
    }
    r->where[0] = 0;
    return index_keys(g, r);
}

/* What people hand us instead of a GGUF file, by its first bytes. */
static const char *guess_format(const unsigned char *p, size_t n)
{
    static const struct {
        const char *magic, *what;
    } known[] = {
        {"FUGG", "it is a big-endian GGUF"},
        {"lmgg", "it is a GGML file, older than GGUF: convert it"},
        {"fmgg", "it is a GGMF file, older than GGUF: convert it"},
        {"tjgg", "it is a GGJT file, older than GGUF: convert it"},
        {"PK\3\4", "it is a zip archive, perhaps a PyTorch checkpoint"},
        {"vers", "perhaps a Git LFS pointer: `git lfs pull` fetches the file"},
        {"<!DO", "it is a web page, not the download"},
        {"<htm", "it is a web page, not the download"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (n >= 4 && !memcmp(p, known[i].magic, 4))
            return known[i].what;
    }
    if (n > 8 && p[8] == '{' && ek_gguf_load_u64(p) < n)
        return "perhaps a safetensors file: name it .safetensors";
    return "it is something else";
}

static int read_header(struct ek_gguf_reader *r, uint64_t *n_tensors, uint64_t *n_kv)
{
    if (r->n < 4 || memcmp(r->p, "GGUF", 4) != 0) {
        size_t n = r->n < 4 ? r->n : 4;
        return ek_gguf_fail(r, EK_EFORMAT,
                            "begins with '%.*s', expected the magic 'GGUF': %s", (int)n,
                            (const char *)r->p, guess_format(r->p, r->n));
    }
    r->at = 4;
    uint32_t version = 0;
    int rc = ek_gguf_u32(r, &version, "the version");
    if (rc)
        return rc;
    if (version && (version & 0xffff) == 0)
        return ek_gguf_fail(r, EK_EUNSUP,
                            "is big-endian GGUF version %" PRIu32
                            "; expected little-endian",
                            __builtin_bswap32(version));
    /* Version 2 differs from 3 only in not knowing big-endian files. */
    if (version != 2 && version != 3)
        return ek_gguf_fail(r, EK_EUNSUP,
                            "is GGUF version %" PRIu32 "; expected 3 (or 2)", version);
    rc = ek_gguf_u64(r, n_tensors, "n_tensors");
    return rc ? rc : ek_gguf_u64(r, n_kv, "n_kv");
}

static int read_alignment(const struct ek_gguf *g, uint32_t *alignment,
                          struct ek_err *err)
{
    uint32_t a = EK_GGUF_ALIGNMENT;
    int rc = ek_gguf_get_u32(g, "general.alignment", &a, err);
    if (rc && rc != EK_ENOENT)
        return rc;
    if (a < 8 || a > ALIGNMENT_MAX || (a & (a - 1)))
        return ek_err_set(err, EK_EFORMAT,
                          "%s: key 'general.alignment': %" PRIu32
                          " is not valid; expected a power of two from 8 to %d",
                          g->name, a, ALIGNMENT_MAX);
    *alignment = a;
    return 0;
}

/* On failure g is only freeable. */
static int read_all(struct ek_gguf *g, const unsigned char *p, size_t n,
                    struct ek_err *err)
{
    struct ek_gguf_reader r = {.p = p, .n = n, .file = g->name, .err = err};
    uint64_t n_tensors = 0, n_kv = 0;
    uint32_t alignment = EK_GGUF_ALIGNMENT;
    int rc = read_header(&r, &n_tensors, &n_kv);
    if (!rc)
        rc = read_kvs(g, &r, n_kv);
    if (!rc)
        rc = read_alignment(g, &alignment, err);
    if (!rc)
        rc = ek_gguf_read_tensors(g, &r, n_tensors, alignment);
    return rc;
}

static int create(struct ek_gguf **g, const char *name, struct ek_err *err)
{
    struct ek_gguf *made = ek_calloc(1, sizeof *made);
    if (made)
        made->name = ek_strndup(name, strlen(name));
    if (!made || !made->name) {
        ek_free(made);
        return ek_err_set(err, EK_ENOMEM, "%s: out of memory", name);
    }
    *g = made;
    return 0;
}

int ek_gguf_parse(struct ek_gguf **g, const void *p, size_t n, const char *name,
                  struct ek_err *err)
{
    static const unsigned char nothing[1];
    struct ek_gguf *made = NULL;
    int rc = create(&made, name, err);
    if (!rc)
        rc = read_all(made, n ? p : nothing, n, err);
    if (rc)
        ek_gguf_free(made);
    else
        *g = made;
    return rc;
}

int ek_gguf_open(struct ek_gguf **g, const char *path, struct ek_err *err)
{
    struct ek_file file = {0};
    int rc = ek_file_open(&file, path, err);
    if (rc)
        return rc;
    struct ek_gguf *made = NULL;
    rc = ek_gguf_parse(&made, file.data, file.size, path, err);
    if (rc) {
        ek_file_close(&file);
        return rc;
    }
    made->file = file;
    *g = made;
    return 0;
}

void ek_gguf_forget(const struct ek_gguf *g)
{
    ek_file_forget(&g->file);
}

void ek_gguf_free(struct ek_gguf *g)
{
    if (!g)
        return;
    for (size_t i = 0; g->kv && i < g->n_kv; i++) {
        /* The table owns the offsets; only its readers see them const. */
        union {
            const uint64_t *in;
            void *out;
        } p = {.in = g->kv[i].str_offsets};
        ek_free(p.out);
    }
    ek_free(g->kv);
    ek_free(g->by_key);
    ek_free(g->tensors.items);
    ek_free(g->tensors.by_name);
    ek_free(g->tensor_names);
    ek_file_close(&g->file);
    ek_free(g->name);
    ek_free(g);
}
