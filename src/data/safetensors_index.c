/* safetensors_index.c - model.safetensors.index.json: which tensor lies in which shard.
 * The index is believed in nothing: shards are opened, and both must say the same. */
#include "base/mem.h"
#include "base/utf8.h"
#include "data/json_pull.h"
#include "data/safetensors_int.h"

#include <stdlib.h>
#include <string.h>

/* Each is a mapping; the largest published models have about 200. */
#define SHARDS_MAX 4096

struct entry {
    const char *tensor; /* both in the arena */
    const char *shard;
    size_t at; /* index of its shard */
};

struct index {
    struct ek_safetensors *s;
    const char *path;
    struct entry *entries; /* (n) owned; by shard once read */
    size_t n, cap;
    struct ek_buf text; /* scratch */
    struct ek_err *err;
};

static int out_of_memory(struct index *x)
{
    return ek_err_set(x->err, EK_ENOMEM, "%s: out of memory", x->path);
}

static int in_index(struct index *x, int rc)
{
    if (rc < 0)
        ek_err_prefix(x->err, "%s", x->path);
    return rc;
}

static int take_string(struct index *x, struct ek_json_pull *j, const char **out)
{
    int rc = in_index(x, ek_json_pull_str(j, &x->text));
    if (rc)
        return rc;
    if (x->text.len && memchr(x->text.data, 0, x->text.len))
        return ek_err_set(x->err, EK_EFORMAT,
                          "%s: weight_map: '%.100s' holds a NUL; expected none",
                          x->path, x->text.data);
    char *copy = ek_arena_strndup(&x->s->arena, x->text.data, x->text.len);
    if (!copy)
        return out_of_memory(x);
    *out = copy;
    return 0;
}

static int read_pair(struct index *x, struct ek_json_pull *j)
{
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 64;
        void *entries = ek_realloc_array(x->entries, cap, sizeof *x->entries);
        if (!entries)
            return out_of_memory(x);
        x->entries = entries;
        x->cap = cap;
    }
    struct entry *e = &x->entries[x->n];
    *e = (struct entry){0};
    int rc = take_string(x, j, &e->tensor);
    if (!rc)
        rc = in_index(x, ek_json_pull_expect(j, ':'));
    if (!rc)
        rc = take_string(x, j, &e->shard);
    if (rc)
        return rc;
    x->n++;
    /* A link inside the folder may point anywhere; a name may not. */
    bool is_plain = e->shard[0] && !strchr(e->shard, '/') &&
                    strcmp(e->shard, ".") != 0 && strcmp(e->shard, "..") != 0;
    if (!is_plain)
        return ek_err_set(x->err, EK_EFORMAT,
                          "%s: weight_map '%.100s': '%.100s' is not in the index's "
                          "folder; expected a file name without '/'",
                          x->path, e->tensor, e->shard);
    return 0;
}

static int read_map(struct index *x, struct ek_json_pull *j)
{
    size_t n = 0;
    int rc = in_index(x, ek_json_pull_expect(j, '{'));
    while (!rc && (rc = in_index(x, ek_json_pull_more(j, '}', &n))) > 0)
        rc = read_pair(x, j);
    return rc;
}

static int read_json(struct index *x, const char *p, size_t n)
{
    struct ek_json_pull j;
    size_t count = 0, n_maps = 0;
    ek_json_pull_init(&j, p, n, x->err);
    int rc = in_index(x, ek_json_pull_expect(&j, '{'));
    while (!rc && (rc = in_index(x, ek_json_pull_more(&j, '}', &count))) > 0) {
        rc = in_index(x, ek_json_pull_str(&j, &x->text));
        bool is_map =
            !rc && x->text.len == 10 && !memcmp(x->text.data, "weight_map", 10);
        if (!rc)
            rc = in_index(x, ek_json_pull_expect(&j, ':'));
        if (!rc && is_map && ++n_maps == 1)
            rc = read_map(x, &j);
        else if (!rc)
            rc = in_index(x, ek_json_pull_skip(&j, &x->text, 64));
    }
    if (!rc)
        rc = in_index(x, ek_json_pull_end(&j));
    if (!rc && n_maps != 1)
        rc = ek_err_set(x->err, EK_EFORMAT, "%s: %s 'weight_map'; expected one",
                        x->path, n_maps ? "more than one" : "no");
    return rc;
}

static int by_shard(const void *a, const void *b)
{
    const struct entry *e = a, *f = b;
    return strcmp(e->shard, f->shard);
}

/* Numbers the shards in the order of their names. */
static int number_shards(struct index *x)
{
    size_t n = 0;
    if (x->n)
        qsort(x->entries, x->n, sizeof *x->entries, by_shard);
    for (size_t i = 0; i < x->n; i++) {
        n += i == 0 || strcmp(x->entries[i - 1].shard, x->entries[i].shard) != 0;
        x->entries[i].at = n - 1;
    }
    if (n == 0 || n > SHARDS_MAX)
        return ek_err_set(x->err, n ? EK_ELIMIT : EK_EFORMAT,
                          "%s: weight_map names %zu shards; expected 1 to %d", x->path,
                          n, SHARDS_MAX);
    x->s->shards = ek_calloc(n, sizeof *x->s->shards);
    if (!x->s->shards)
        return out_of_memory(x);
    x->s->n_shards = n;
    return 0;
}

static int open_shard(struct index *x, struct ek_safetensors_shard *shard,
                      const char *file)
{
    const char *slash = strrchr(x->path, '/');
    int folder = slash ? (int)(slash + 1 - x->path) : 0;
    struct ek_buf path;
    ek_buf_init(&path, SIZE_MAX / 2);
    int rc = ek_buf_addf(&path, "%.*s%s", folder, x->path, file);
    if (rc) {
        rc = out_of_memory(x);
        goto out;
    }
    rc = ek_file_open(&shard->map, path.data, x->err);
    shard->first = x->s->tensors.n;
    if (!rc)
        rc = ek_safetensors_read(x->s, shard->map.data, shard->map.size, path.data,
                                 x->err);
    shard->n = x->s->tensors.n - shard->first;
out:
    ek_buf_release(&path);
    return rc;
}

/* Each entry's tensor lies in its shard, and each tensor has exactly one entry. */
static int check_entries(struct index *x, unsigned char *seen)
{
    const struct ek_tensors *all = &x->s->tensors;
    for (size_t i = 0; i < x->n; i++) {
        const struct entry *e = &x->entries[i];
        const struct ek_tensor *t = ek_tensors_find(all, e->tensor);
        size_t at = t ? (size_t)(t - all->items) : 0;
        const struct ek_safetensors_shard *shard = &x->s->shards[e->at];
        if (!t || at < shard->first || at >= shard->first + shard->n)
            return ek_err_set(x->err, EK_EFORMAT,
                              "%s: weight_map '%.100s': '%.100s' does not hold that "
                              "tensor%s",
                              x->path, e->tensor, e->shard,
                              t ? "; another shard does" : "; no shard does");
        if (seen[at]++)
            return ek_err_set(x->err, EK_EFORMAT,
                              "%s: weight_map '%.100s' is there twice; expected once",
                              x->path, e->tensor);
    }
    for (size_t i = 0; i < all->n; i++) {
        if (!seen[i])
            return ek_err_set(x->err, EK_EFORMAT,
                              "%s: weight_map lacks tensor '%.100s', which a shard "
                              "holds; expected all of them",
                              x->path, all->items[i].name);
    }
    return 0;
}

static int open_shards(struct index *x)
{
    int rc = 0;
    for (size_t i = 0; i < x->n && !rc; i++) {
        if (i == 0 || x->entries[i].at != x->entries[i - 1].at)
            rc = open_shard(x, &x->s->shards[x->entries[i].at], x->entries[i].shard);
    }
    if (!rc)
        rc = ek_safetensors_index_names(x->s, x->path, x->err);
    if (rc)
        return rc;
    unsigned char *seen = ek_calloc(x->s->tensors.n, 1);
    rc = seen ? check_entries(x, seen) : out_of_memory(x);
    ek_free(seen);
    return rc;
}

int ek_safetensors_read_index(struct ek_safetensors *s, const char *path,
                              struct ek_err *err)
{
    struct index x = {.s = s, .path = path, .err = err};
    struct ek_file file = {0};
    int rc = ek_file_open(&file, path, err);
    if (rc)
        return rc;
    const char *text = file.size ? (const char *)file.data : "";
    ek_buf_init(&x.text, file.size);
    /* A pair's shortest JSON is 8 bytes ("":"a",) and takes 32 of the arena. */
    s->arena.max_bytes += 8 * file.size + 65536;
    if (file.size > EK_SAFETENSORS_HEADER_MAX)
        rc = ek_err_set(err, EK_ELIMIT, "%s: %zu bytes; expected at most %d", path,
                        file.size, EK_SAFETENSORS_HEADER_MAX);
    else if (!ek_utf8_is_valid(text, file.size))
        rc = ek_err_set(err, EK_EFORMAT, "%s: is not UTF-8; expected JSON", path);
    if (!rc)
        rc = read_json(&x, text, file.size);
    if (!rc)
        rc = number_shards(&x);
    if (!rc)
        rc = open_shards(&x);
    ek_buf_release(&x.text);
    ek_free(x.entries);
    ek_file_close(&file);
    return rc;
}
