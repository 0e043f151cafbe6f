#include "train/checkpoint.h"

#include "base/folder.h"
#include "base/mem.h"
#include "train/checkpoint_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

/* A reader may meet a writer's exchange between two files: then it begins anew. */
#define TRIES 5

/* The folder that a checkpoint lies in is the run's, and may be new. */
static int make_parent(const char *folder, struct ek_err *err)
{
    char path[4096];
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    while (n && folder[n - 1] != '/')
        n--;
    while (n > 1 && folder[n - 1] == '/')
        n--;
    if (!n || n >= sizeof path)
        return 0; /* here, or too long: begin says so */
    memcpy(path, folder, n);
    path[n] = 0;
    if (mkdir(path, 0755) && errno != EEXIST)
        return ek_err_set(err, errno == ENOENT ? EK_ENOENT : EK_EIO, "%s: %s", path,
                          strerror(errno));
    return 0;
}

static int write_config(const char *folder, const char *config,
                        struct ek_checkpoint_file *file, struct ek_err *err)
{
    char path[EK_CHECKPOINT_PATH];
    file->bytes = strlen(config);
    file->crc = (uint32_t)crc32_z(0, (const unsigned char *)config, file->bytes);
    return ek_file_write(ek_checkpoint_path(path, folder, file->name), config,
                         file->bytes, err);
}

static int write_state(const char *folder, const struct ek_checkpoint *c, bool is_model,
                       struct ek_checkpoint_file *file, struct ek_err *err)
{
    struct ek_state s;
    int rc = ek_state_init(&s, c, is_model, err);
    if (!rc)
        rc = ek_state_write(&s, folder, file, err);
    ek_state_release(&s);
    return rc;
}

static int write_all(const char *folder, const struct ek_checkpoint *c,
                     struct ek_err *err)
{
    bool has_optimizer = c->adamw || c->adagrad;
    struct ek_manifest m = {
        .progress = c->progress,
        .adamw_steps = c->adamw ? ek_adamw_steps(c->adamw) : -1,
        .config.name = EK_CHECKPOINT_CONFIG,
        .model.name = EK_CHECKPOINT_MODEL,
        .optimizer.name = has_optimizer ? EK_CHECKPOINT_OPTIMIZER : NULL,
    };
    int rc = write_config(folder, c->config ? c->config : "{}\n", &m.config, err);
    if (!rc)
        rc = write_state(folder, c, true, &m.model, err);
    if (!rc && has_optimizer)
        rc = write_state(folder, c, false, &m.optimizer, err);
    if (!rc)
        rc = ek_manifest_write(folder, &m, c->data ? c->data : "", err);
    return rc;
}

int ek_checkpoint_save(const char *folder, const struct ek_checkpoint *c,
                       struct ek_err *err)
{
    struct ek_folder_out f = {.path = folder};
    int rc = make_parent(folder, err);
    if (!rc)
        rc = ek_folder_out_begin(&f, folder, err);
    if (!rc)
        rc = write_all(f.aside, c, err);
    if (!rc)
        rc = ek_folder_out_end(&f, true, EK_CHECKPOINT_MANIFEST, err);
    ek_folder_out_cancel(&f);
    return rc;
}

static bool has_manifest(char out[4096], const char *folder)
{
    char path[EK_CHECKPOINT_PATH];
    struct stat st;
    ek_folder_find(out, folder);
    return !stat(ek_checkpoint_path(path, out, EK_CHECKPOINT_MANIFEST), &st);
}

int ek_checkpoint_find(char out[4096], const char *folder, struct ek_err *err)
{
    static const char *const places[] = {"", "/checkpoints/best", "/checkpoints/last"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char path[4096], found[4096];
        snprintf(path, sizeof path, "%.4000s%s", folder, places[i]);
        if (has_manifest(found, path)) {
            memcpy(out, found, sizeof found);
            return 0;
        }
    }
    return ek_err_set(err, EK_ENOENT,
                      "%s: no checkpoint: neither " EK_CHECKPOINT_MANIFEST
                      " nor checkpoints/best or checkpoints/last is in it",
                      folder);
}

static int check_size(const char *folder, const struct ek_checkpoint_file *f,
                      struct ek_err *err)
{
    char path[EK_CHECKPOINT_PATH];
    struct stat st;
    if (!f->name)
        return 0;
    if (stat(ek_checkpoint_path(path, folder, f->name), &st))
        return ek_err_set(err, errno == ENOENT ? EK_EFORMAT : EK_EIO, "%s: %s", path,
                          strerror(errno));
    if ((uint64_t)st.st_size != f->bytes)
        return ek_err_set(
            err, EK_EFORMAT,
            "%s: has %lld bytes; the manifest says %llu: truncated, or of "
            "another checkpoint",
            path, (long long)st.st_size, (unsigned long long)f->bytes);
    return 0;
}

/* A file whole into *text, which the caller owns. */
static int read_text(char **text, const char *folder,
                     const struct ek_checkpoint_file *f, struct ek_err *err)
{
    char path[EK_CHECKPOINT_PATH];
    struct ek_buf b;
    ek_buf_init(&b, EK_CHECKPOINT_TEXT_MAX);
    int rc = ek_file_read(&b, ek_checkpoint_path(path, folder, f->name), err);
    if (!rc && (b.len != f->bytes ||
                crc32_z(0, (const unsigned char *)b.data, b.len) != f->crc))
        rc = ek_err_set(err, EK_EFORMAT,
                        "%s: is not what the manifest describes: damaged", path);
    if (!rc) {
        *text = b.len ? ek_buf_take(&b, NULL) : ek_strndup("", 0);
        if (!*text)
            rc = ek_err_set(err, EK_ENOMEM, "%s: %s", path, ek_status_text(EK_ENOMEM));
    }
    ek_buf_release(&b);
    return rc;
}

/* Whether another checkpoint is there since: seen is of the one that failed to read. */
static bool has_changed(const char *folder, uint32_t seen)
{
    char at[4096];
    struct ek_manifest m = {0};
    bool has_read =
        !ek_checkpoint_find(at, folder, NULL) && !ek_manifest_read(&m, at, NULL);
    bool is_other = has_read && m.crc != seen;
    ek_manifest_release(&m);
    return is_other;
}

struct peeked {
    char **config, **data;
    struct ek_train_progress *progress;
};

static int peek_once(const char *folder, void *arg, uint32_t *seen, struct ek_err *err)
{
    struct peeked *out = arg;
    struct ek_manifest m = {0};
    char at[4096];
    int rc = ek_checkpoint_find(at, folder, err);
    if (!rc)
        rc = ek_manifest_read(&m, at, err);
    if (rc)
        return rc;
    *seen = m.crc;
    rc = check_size(at, &m.model, err);
    if (!rc)
        rc = check_size(at, &m.optimizer, err);
    if (!rc)
        rc = read_text(out->config, at, &m.config, err);
    if (!rc) {
        *out->progress = m.progress;
        *out->data = m.data;
        m.data = NULL;
    }
    ek_manifest_release(&m);
    return rc;
}

/* What the optimizers need of a manifest. */
static int check_optimizer(const char *folder, const struct ek_manifest *m,
                           const struct ek_checkpoint *c, struct ek_err *err)
{
    if ((c->adamw || c->adagrad) &&
        (!m->optimizer.name || (c->adamw && m->adamw_steps < 0)))
        return ek_err_set(err, EK_EFORMAT,
                          "%s: has no state of the optimizer: expected one that was "
                          "saved while training",
                          folder);
    return 0;
}

/* One of the two files and where its numbers go. */
struct half {
    struct ek_state state;
    struct ek_state_in in;
};

static int open_half(struct half *h, const char *at, const struct ek_checkpoint *c,
                     const struct ek_checkpoint_file *file, bool is_exact,
                     struct ek_err *err)
{
    bool is_model = !strcmp(file->name, EK_CHECKPOINT_MODEL);
    int rc = ek_state_init(&h->state, c, is_model, err);
    if (!rc)
        rc = ek_state_open(&h->in, at, file, err);
    return rc ? rc : ek_state_check(&h->state, &h->in, is_exact, err);
}

static void close_half(struct half *h)
{
    ek_state_close(&h->in);
    ek_state_release(&h->state);
}

/* Both files are checked whole before a number of either is taken. */
static int load_state(const char *at, const struct ek_manifest *m,
                      struct ek_checkpoint *c, struct ek_err *err)
{
    bool has_optimizer = c->adamw || c->adagrad;
    struct half model = {0}, optimizer = {0};
    int rc = open_half(&model, at, c, &m->model, true, err);
    if (!rc && has_optimizer)
        rc = open_half(&optimizer, at, c, &m->optimizer, c->adamw && c->adagrad, err);
    if (rc)
        goto out;
    ek_state_take(&model.state, &model.in);
    if (has_optimizer)
        ek_state_take(&optimizer.state, &optimizer.in);
    if (c->adamw)
        ek_adamw_set_steps(c->adamw, m->adamw_steps);
    c->progress = m->progress;
out:
    close_half(&model);
    close_half(&optimizer);
    return rc;
}

static int load_once(const char *folder, void *arg, uint32_t *seen, struct ek_err *err)
{
    struct ek_checkpoint *c = arg;
    struct ek_manifest m = {0};
    char at[4096];
    int rc = ek_checkpoint_find(at, folder, err);
    if (!rc)
        rc = ek_manifest_read(&m, at, err);
    if (rc)
        return rc;
    *seen = m.crc;
    rc = check_optimizer(at, &m, c, err);
    if (!rc)
        rc = load_state(at, &m, c, err);
    ek_manifest_release(&m);
    return rc;
}

/* Until it reads, or fails of a checkpoint that nobody has replaced meanwhile. */
static int retry(int (*once)(const char *, void *, uint32_t *, struct ek_err *),
                 const char *folder, void *arg, struct ek_err *err)
{
    int rc = 0;
    for (int i = 0; i < TRIES; i++) {
        uint32_t seen = 0;
        rc = once(folder, arg, &seen, err);
        bool may_be_raced = rc == EK_EFORMAT || rc == EK_ENOENT;
        if (!may_be_raced || !has_changed(folder, seen))
            break;
    }
    return rc;
}

int ek_checkpoint_peek(const char *folder, char **config, char **data,
                       struct ek_train_progress *progress, struct ek_err *err)
{
    struct peeked out = {config, data, progress};
    return retry(peek_once, folder, &out, err);
}

int ek_checkpoint_load(const char *folder, struct ek_checkpoint *c, struct ek_err *err)
{
    return retry(load_once, folder, c, err);
}
