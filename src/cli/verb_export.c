/* verb_export.c - keel export: a trained model as two files that anything can read. */
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/data.h"
#include "cli/verb.h"
#include "data/safetensors.h"
#include "train/trained.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES  (1 << 20)
#define OUTPUT_BYTES (1 << 16)
#define JSON_BYTES   ((size_t)1 << 36) /* names of 2^31 items */
#define FORMAT       1
#define MODEL_JSON   "model.json"

struct settings {
    const char *out;
    bool force, json;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "out",
     .letter = 'o',
     .type = EK_OPT_STR,
     .offset = AT(out),
     .value = "DIR",
     .help = "the new folder"},
    {.name = "force",
     .type = EK_OPT_FLAG,
     .offset = AT(force),
     .help = "replace DIR when it is an earlier export"},
    EK_VERB_JSON(AT(json)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "export",
    .summary = "write a trained model as safetensors and JSON",
    .arguments = "CHECKPOINT --out DIR",
    .details =
        "CHECKPOINT is a folder that keel train wrote: a run (then its best state), or "
        "one of its checkpoints. DIR gets\n\n"
        "  model.safetensors   every parameter, f32, by its name\n"
        "  model.json          format, kind, dim, blocks, heads, max_length, "
        "similarity,\n"
        "                      items (names, row by row of the parameter items),\n"
        "                      columns, steps, trained_on, and config, all of it\n\n"
        "docs/guide/train.md has the few lines of Python that recommend with them.",
    .examples = "keel export runs/beauty-sasrec --out beauty\n"
                "keel export runs/ml/checkpoints/last --out ml --force",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

/* Everything an export holds; closed whole. */
struct work {
    struct ek_trained t;
    struct ek_tensor *tensors; /* (n) owned; names and data are the parameters' */
    size_t n, bytes;
    struct ek_buf json;
    struct ek_folder_out folder;
};

static int add_string(struct ek_buf *b, const char *key, const char *s)
{
    int rc = ek_buf_addf(b, ",\n  \"%s\": ", key);
    return rc ? rc : ek_json_add_str(b, s, strlen(s));
}

static int add_columns(struct ek_buf *b, const struct ek_vocab *v)
{
    int rc = ek_buf_add_str(b, ",\n  \"columns\": [");
    for (int i = 0; i < v->n_columns && !rc; i++) {
        const struct ek_rec_column *c = &v->columns[i];
        rc = ek_buf_add_str(b, i ? ", {\"name\": " : "{\"name\": ");
        if (!rc)
            rc = ek_json_add_str(b, c->name, strlen(c->name));
        if (!rc)
            rc = ek_buf_addf(b, ", \"of\": \"%s\", \"levels\": %d}",
                             c->is_user ? "user" : "event", (int)c->levels);
    }
    return rc ? rc : ek_buf_add_char(b, ']');
}

static int add_items(struct ek_buf *b, const struct ek_names *items)
{
    int rc = ek_buf_add_str(b, ",\n  \"items\": [");
    for (int64_t i = 0; i < items->n && !rc; i++) {
        size_t n;
        const char *s = ek_names_get(items, i, &n);
        rc = ek_buf_add_str(b, i ? ",\n    " : "\n    ");
        if (!rc)
            rc = ek_json_add_str(b, s, n);
    }
    return rc ? rc : ek_buf_add_str(b, "\n  ]");
}

static int add_json(struct ek_buf *b, const struct ek_trained *t)
{
    const struct ek_rec_config *c = &t->rec;
    int rc =
        ek_buf_addf(b,
                    "{\n  \"format\": %d,\n  \"kind\": \"%s\",\n"
                    "  \"dim\": %" PRId64 ",\n  \"blocks\": %d,\n  \"heads\": %d,\n"
                    "  \"max_length\": %" PRId64 ",\n  \"similarity\": \"%s\",\n"
                    "  \"steps\": %" PRId64,
                    FORMAT, ek_rec_kind_name(c->kind), c->dim, c->blocks, c->heads,
                    c->max_length, c->is_cosine ? "cosine" : "dot", t->steps);
    if (!rc)
        rc = add_string(b, "trained_on", t->trained_on);
    if (!rc)
        rc = ek_buf_add_str(b, ",\n  \"config\": ");
    if (!rc)
        rc = ek_train_config_json(b, &t->config);
    if (!rc)
        rc = add_columns(b, &t->vocab);
    if (!rc)
        rc = add_items(b, &t->items);
    return rc ? rc : ek_buf_add_str(b, "\n}\n");
}

static int take_tensors(struct work *w)
{
    w->n = (size_t)ek_params_count(w->t.params);
    w->tensors = ek_calloc(w->n, sizeof *w->tensors);
    if (!w->tensors)
        return EK_ENOMEM;
    for (size_t i = 0; i < w->n; i++) {
        const struct ek_param *p = ek_params_get(w->t.params, (int)i);
        w->tensors[i] =
            (struct ek_tensor){.name = p->name,
                               .dtype = EK_DTYPE_F32,
                               .n_dims = 2,
                               .shape = {p->rows, p->cols},
                               .data = p->value,
                               .bytes = (size_t)(p->rows * p->cols) * sizeof(float)};
        w->bytes += w->tensors[i].bytes;
    }
    return 0;
}

static int write_files(struct work *w, struct ek_err *err)
{
    const struct ek_tensors tensors = {w->tensors, w->n, NULL};
    char path[4200];
    snprintf(path, sizeof path, "%s/model.safetensors", w->folder.aside);
    int rc = ek_safetensors_write(path, &tensors, NULL, 0, err);
    if (rc)
        return rc;
    snprintf(path, sizeof path, "%s/" MODEL_JSON, w->folder.aside);
    return ek_file_write(path, w->json.data, w->json.len, err);
}

/* *is_input: the checkpoint is to blame. */
static int export(struct work *w, const char *folder, const struct settings *set,
                  bool *is_input, struct ek_err *err)
{
    const struct ek_trained_options o = {.part = EK_PART_TRAIN, .threads = 1};
    *is_input = true;
    int rc = ek_trained_open(&w->t, folder, &o, err);
    if (rc)
        return rc;
    *is_input = false;
    rc = take_tensors(w);
    if (!rc)
        rc = add_json(&w->json, &w->t);
    if (rc)
        return ek_err_set(err, rc, "%s: %s", set->out, ek_status_text(rc));
    rc = ek_folder_out_begin(&w->folder, set->out, err);
    if (!rc)
        rc = write_files(w, err);
    return rc ? rc : ek_folder_out_end(&w->folder, set->force, MODEL_JSON, err);
}

static int report(struct ek_buf *b, const struct work *w, const struct settings *set)
{
    char size[32];
    const char *kind = ek_rec_kind_name(w->t.rec.kind);
    if (!set->json)
        return ek_buf_addf(b,
                           "%s: %s after %" PRId64 " steps, %" PRId64
                           " items, %zu parameters of %s\n",
                           set->out, kind, w->t.steps, w->t.items.n, w->n,
                           ek_format_bytes(size, w->bytes));
    int rc = ek_buf_add_str(b, "{\"out\": ");
    if (!rc)
        rc = ek_json_add_str(b, set->out, strlen(set->out));
    return rc ? rc
              : ek_buf_addf(b,
                            ", \"kind\": \"%s\", \"steps\": %" PRId64
                            ", \"items\": %" PRId64
                            ", \"tensors\": %zu, \"bytes\": %zu}\n",
                            kind, w->t.steps, w->t.items.n, w->n, w->bytes);
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_buf out;
    struct ek_err err = EK_ERR_INIT;
    struct work w = {.n = 0};
    bool is_input = false;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    ek_buf_init(&out, OUTPUT_BYTES);
    ek_buf_init(&w.json, JSON_BYTES);
    if (!ek_verb_options(&ek_verb_export, &set, &args, argc, argv, &arena, &code))
        goto out;
    if (!set.out) {
        fprintf(stderr, "keel export: expected --out DIR, the new folder\n");
        code = EK_EXIT_USAGE;
        goto out;
    }
    if (export(&w, args.args[0], &set, &is_input, &err))
        code = ek_verb_fail(&ek_verb_export, &err, is_input);
    else
        code = ek_data_print(&ek_verb_export, &out, report(&out, &w, &set));
out:
    ek_folder_out_cancel(&w.folder);
    ek_trained_release(&w.t);
    ek_free(w.tensors);
    ek_buf_release(&w.json);
    ek_buf_release(&out);
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_export = {&table, run};
