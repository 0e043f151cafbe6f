/* quantize.c - the output, tensor by tensor: a slab of rows is rounded by the team,
 * then written; scales and zero points follow their matrix. */
#include "lm/quantize.h"

#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "data/gguf_write.h"
#include "lm/quantize_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SLAB_BYTES   ((int64_t)32 << 20) /* of rounded rows, about */
#define HEADER_BYTES ((size_t)1 << 30)
#define ARENA_BYTES  ((size_t)1 << 30)

struct writer {
    const struct ek_quantize *job;
    struct ek_quantize_report *r;
    struct ek_quantize_plan plan;
    struct ek_file_out file;
    int64_t done; /* bytes of input behind us */
    int64_t kept; /* of them those whose pages were given back */
};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat s, t;
    return !stat(a, &s) && !stat(b, &t) && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

/* That the path fits the container, and is not the input. */
static int check_path(const struct ek_quantize *job, struct ek_err *err)
{
    const struct ek_modelfile *m = job->m;
    bool is_gguf = m->gguf != NULL, exists = is_same_file(job->path, job->path);
    if (is_gguf != ends_with(job->path, ".gguf"))
        return ek_err_set(err, EK_EINVAL, "%s: %s is %s, and stays one: expected %s",
                          job->path, m->path,
                          is_gguf ? "a GGUF file" : "a Hugging Face folder",
                          is_gguf ? "a name that ends in .gguf" : "a folder's name");
    if (!is_gguf && ends_with(job->path, ".safetensors"))
        return ek_err_set(err, EK_EINVAL,
                          "%s: expected a folder's name: config.json and the tokenizer "
                          "go with the weights",
                          job->path);
    if (!is_gguf && !m->config)
        return ek_err_set(err, EK_EINVAL, "%s: no config.json beside it", m->path);
    if (is_same_file(job->path, m->path) ||
        (m->folder[0] && is_same_file(job->path, m->folder)) ||
        (!is_gguf && !m->folder[0] && is_same_file(job->path, ".")))
        return ek_err_set(err, EK_EINVAL, "%s: is the input: expected another place",
                          job->path);
    if (exists && !job->overwrites)
        return ek_err_set(err, EK_EINVAL,
                          "%s: is there already: expected a new place, or --force",
                          job->path);
    return exists && !is_gguf ? ek_folder_check(job->path, "config.json", err) : 0;
}

static int check_formats(const struct ek_quantize *job, struct ek_err *err)
{
    const char *wrong = NULL;
    if (job->to == EK_QUANTIZE_FP8 && job->m->gguf)
        return ek_err_set(err, EK_EUNSUP,
                          "%s: GGUF has no FP8 type: quantise a Hugging Face folder, "
                          "or let --weights fp8 round this file when it is loaded",
                          job->path);
    for (int i = 0; i < 2 && !job->m->gguf; i++) {
        enum ek_quantize_wide w = i ? job->head : job->embed;
        if (w == EK_QUANTIZE_WIDE_INT4 || w == EK_QUANTIZE_WIDE_INT8)
            wrong = i ? "head" : "embedding";
    }
    if (wrong)
        return ek_err_set(err, EK_EUNSUP,
                          "%s: no loader knows a folder whose %s is quantised: "
                          "expected auto, keep or bf16",
                          job->path, wrong);
    if (job->head != EK_QUANTIZE_AUTO && job->p->is_tied)
        return ek_err_set(err, EK_EINVAL,
                          "%s: the head is the embedding, which its own option is for",
                          job->m->path);
    return 0;
}

static int step(struct writer *w, size_t bytes, struct ek_err *err)
{
    const struct ek_quantize *job = w->job;
    w->done += (int64_t)bytes;
    if (w->done - w->kept > SLAB_BYTES) {
        ek_modelfile_forget(job->m);
        w->kept = w->done;
    }
    if (job->on_progress && !job->on_progress(job->arg, w->done, w->plan.total_in))
        return ek_err_set(err, EK_ECANCELED, "%s: stopped", job->path);
    return 0;
}

static int write_header(struct writer *w, struct ek_err *err)
{
    /* llama.cpp's numbers: what most tensors are. */
    static const uint32_t file_types[EK_MADE_COUNT] = {
        [EK_MADE_BF16] = 32, [EK_MADE_Q4_0] = 2, [EK_MADE_Q4_1] = 3};
    static const char *const meta[][2] = {{"format", "pt"}};
    const struct ek_quantize_plan *p = &w->plan;
    struct ek_tensors tensors = {.items = p->tensors, .n = p->n_tensors};
    enum ek_made made = w->job->to == EK_QUANTIZE_BF16 ? EK_MADE_BF16
                        : w->job->is_symmetric         ? EK_MADE_Q4_0
                                                       : EK_MADE_Q4_1;
    const struct ek_gguf_set sets[] = {{"general.file_type", file_types[made]},
                                       {"general.quantization_version", 2}};
    struct ek_buf b;
    int rc;
    ek_buf_init(&b, HEADER_BYTES);
    if (w->job->m->gguf)
        rc = ek_gguf_header(&b, w->job->path, w->job->m->gguf, sets, 2, &tensors, err);
    else
        rc = ek_safetensors_header(&b, w->job->path, &tensors, meta, 1, err);
    if (!rc)
        rc = ek_file_out_add(&w->file, b.data, b.len, err);
    ek_buf_release(&b);
    return rc;
}

/* Bytes of a tensor that is done: zeros up to the next one's place. */
static int pad(struct writer *w, uint64_t bytes, struct ek_err *err)
{
    static const unsigned char zeros[65536];
    if (!w->job->m->gguf)
        return 0;
    size_t n = ek_gguf_padding(w->job->m->gguf, bytes);
    return ek_file_out_add(&w->file, zeros, n, err);
}

static int write_data(struct writer *w, const struct ek_tensor *t, struct ek_err *err)
{
    const unsigned char *p = t->data;
    int rc = 0;
    for (size_t at = 0; at < t->bytes && !rc; at += (size_t)SLAB_BYTES) {
        size_t left = t->bytes - at;
        size_t n = left < (size_t)SLAB_BYTES ? left : (size_t)SLAB_BYTES;
        rc = ek_file_out_add(&w->file, p + at, n, err);
        if (!rc)
            rc = step(w, n, err);
    }
    return rc ? rc : pad(w, t->bytes, err);
}

static int copy_item(struct writer *w, const struct ek_quantize_item *it,
                     struct ek_err *err)
{
    int rc = 0;
    for (int i = 0; i < EK_MADE_PARTS && !rc; i++) {
        if (it->part[i].name && it->part[i].dtype != EK_DTYPE_I64)
            rc = write_data(w, &it->part[i], err);
    }
    return rc;
}

static int bad_number(const struct writer *w, const struct ek_slab *z,
                      struct ek_err *err)
{
    return ek_err_set(err, EK_EFORMAT,
                      "%s: tensor '%s': element %zu or the scale of its block is not "
                      "finite",
                      w->job->m->path, z->bad->name, z->bad_at);
}

/* Rows of a slab: as many grains as are SLAB_BYTES, at least one. */
static int64_t slab_rows(const struct ek_quantize_item *it)
{
    int64_t row = (int64_t)it->part[EK_PART_CODES].bytes / it->src.rows;
    int64_t n = SLAB_BYTES / (row ? row : 1) / EK_SLAB_GRAIN * EK_SLAB_GRAIN;
    n = n < EK_SLAB_GRAIN ? EK_SLAB_GRAIN : n;
    return n < it->src.rows ? n : it->src.rows;
}

static int round_slabs(struct writer *w, struct ek_slab *z, int64_t rows,
                       struct ek_quantize_row *row, struct ek_err *err)
{
    const struct ek_quantize_item *it = z->item;
    size_t code_bytes = it->part[EK_PART_CODES].bytes / (size_t)it->src.rows;
    size_t source_bytes = ek_source_bytes(&it->src);
    int rc = 0;
    for (int64_t r = 0; r < it->src.rows && !rc; r += rows) {
        z->r0 = r;
        z->r1 = r + rows < it->src.rows ? r + rows : it->src.rows;
        size_t n = (size_t)(z->r1 - z->r0);
        ek_slab_round(z, w->job->team);
        if (z->bad)
            return bad_number(w, z, err);
        for (size_t i = 0; i < n; i++) {
            row->error += z->sums[4 * i];
            row->norm += z->sums[4 * i + 1];
            row->weighted += z->sums[4 * i + 2];
            row->weighted_norm += z->sums[4 * i + 3];
        }
        rc = ek_file_out_add(&w->file, z->codes, n * code_bytes, err);
        if (!rc)
            rc = step(w, source_bytes * n / (size_t)it->src.rows, err);
    }
    return rc;
}

static int round_item(struct writer *w, const struct ek_quantize_item *it,
                      struct ek_quantize_row *row, struct ek_err *err)
{
    const struct ek_tensor *part = it->part;
    int64_t rows = slab_rows(it);
    size_t members = (size_t)ek_team_size(w->job->team), n;
    struct ek_slab z = {.item = it};
    if (w->job->calibration && it->role == EK_ROLE_MATRIX)
        z.weights = ek_calibration_get(w->job->calibration, it->layer, it->input);
    z.codes = ek_alloc((size_t)rows * (part[0].bytes / (size_t)it->src.rows));
    z.zero = ek_calloc(part[EK_PART_ZERO].bytes, 1);
    z.scale = ek_calloc(part[EK_PART_SCALE].bytes, 1);
    z.sums = ek_alloc_array((size_t)rows, 4 * sizeof *z.sums);
    if (ek_mul_size(&n, members, ek_slab_scratch(it->src.cols)))
        z.scratch = ek_alloc_array(n, sizeof *z.scratch);
    int rc = z.codes && z.zero && z.scale && z.sums && z.scratch ? 0 : EK_ENOMEM;
    if (rc)
        ek_err_set(err, rc, "%s: no memory for a slab of '%s'", w->job->path, it->name);
    if (!rc)
        rc = round_slabs(w, &z, rows, row, err);
    if (!rc)
        rc = pad(w, part[EK_PART_CODES].bytes, err);
    if (!rc)
        rc = ek_file_out_add(&w->file, z.zero, part[EK_PART_ZERO].bytes, err);
    if (!rc)
        rc = ek_file_out_add(&w->file, z.scale, part[EK_PART_SCALE].bytes, err);
    ek_free(z.scratch);
    ek_free(z.sums);
    ek_free(z.scale);
    ek_free(z.zero);
    ek_free(z.codes);
    return rc;
}

static int write_item(struct writer *w, const struct ek_quantize_item *it,
                      struct ek_err *err)
{
    bool is_copy = it->made == EK_MADE_COPY;
    struct ek_quantize_row row = {.name = it->name,
                                  .from = ek_source_name(&it->src),
                                  .to = is_copy ? ek_source_name(&it->src)
                                                : ek_made_name(it->made),
                                  .why = it->why,
                                  .bytes_in = (int64_t)ek_source_bytes(&it->src)};
    for (int i = 0; i < EK_MADE_PARTS; i++)
        row.bytes_out += it->part[i].name ? (int64_t)it->part[i].bytes : 0;
    int rc = is_copy ? copy_item(w, it, err) : round_item(w, it, &row, err);
    if (!rc && it->role != EK_ROLE_OTHER)
        w->r->rows[w->r->n++] = row;
    return rc;
}

static int write_weights(struct writer *w, const char *path, struct ek_err *err)
{
    const struct ek_quantize_plan *p = &w->plan;
    int rc = ek_file_out_begin(&w->file, path, err);
    if (rc)
        return rc;
    rc = write_header(w, err);
    for (size_t i = 0; i < p->n_first && !rc; i++)
        rc = write_data(w, &p->tensors[i], err);
    for (size_t i = 0; i < p->n_items && !rc; i++)
        rc = write_item(w, &p->items[p->order[i]], err);
    if (!rc)
        return ek_file_out_end(&w->file, err);
    ek_file_out_cancel(&w->file);
    return rc;
}

static int write_folder(struct writer *w, struct ek_err *err)
{
    struct ek_folder_out folder;
    char path[4352];
    int rc = ek_folder_out_begin(&folder, w->job->path, err);
    if (rc)
        return rc;
    snprintf(path, sizeof path, "%s/model.safetensors", folder.aside);
    rc = write_weights(w, path, err);
    if (!rc)
        rc = ek_quantize_files(&w->plan, folder.aside, err);
    if (!rc)
        return ek_folder_out_end(&folder, w->job->overwrites, "config.json", err);
    ek_folder_out_cancel(&folder);
    if (rc == EK_EIO || rc == EK_EPERM)
        ek_err_prefix(err, "%s", w->job->path);
    return rc;
}

int ek_quantize_run(struct ek_quantize_report *r, const struct ek_quantize *job,
                    struct ek_err *err)
{
    struct writer w = {.job = job, .r = r, .plan = {.job = job, .arena = &r->arena}};
    memset(r, 0, sizeof *r);
    ek_arena_init(&r->arena, ARENA_BYTES);
    int rc = check_path(job, err);
    if (!rc)
        rc = check_formats(job, err);
    if (!rc)
        rc = ek_quantize_plan(&w.plan, err);
    if (rc)
        return rc;
    r->rows = ek_arena_calloc(&r->arena, w.plan.n_items, sizeof *r->rows);
    if (!r->rows)
        return ek_err_set(err, EK_ENOMEM, "%s: no memory for the report", job->path);
    r->bytes_in = w.plan.total_in;
    r->bytes_out = w.plan.total_out;
    return job->m->gguf ? write_weights(&w, job->path, err) : write_folder(&w, err);
}

void ek_quantize_report_release(struct ek_quantize_report *r)
{
    ek_arena_release(&r->arena);
    memset(r, 0, sizeof *r);
}

double ek_quantize_rms(double error, double norm)
{
    return norm > 0 ? sqrt(error / norm) : 0;
}
