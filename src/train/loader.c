/* loader.c - the maker's batches, one at a time or ahead of time.
 *
 *   rooms   [ held by the caller ][ ready ][ ready ][ being made ]
 *             taken                ^ first  n_ready
 *
 * The thread fills room (first + n_ready) while n_ready < n_rooms - 1; the caller's
 * room is the one before first. The maker is the thread's while it runs.
 */
#include "train/loader.h"

#include "base/mem.h"
#include "train/loader_int.h"

#include <string.h>

struct ek_loader {
    struct ek_maker maker;
    int64_t n_steps;
    struct ek_batch_room rooms[EK_LOADER_AHEAD_MAX + 1];
    int n_rooms; /* n_ahead + 1 */

    pthread_t thread;
    bool is_running;      /* the thread exists; the caller's */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    int first, n_ready;
    bool is_stopping;
};

static void *work(void *arg)
{
    struct ek_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->is_stopping) {
        if (l->n_ready == l->n_rooms - 1) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        struct ek_batch_room *room = &l->rooms[(l->first + l->n_ready) % l->n_rooms];
        pthread_mutex_unlock(&l->lock);
        ek_maker_next(&l->maker, room);
        pthread_mutex_lock(&l->lock);
        l->n_ready++;
        pthread_cond_signal(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static int start(struct ek_loader *l, struct ek_err *err)
{
    l->first = l->n_ready = 0;
    l->is_stopping = false;
    if (l->n_rooms == 1)
        return 0;
    int code = pthread_create(&l->thread, NULL, work, l);
    if (code)
        return ek_err_set(err, EK_ENOMEM, "loader: no thread: %s", strerror(code));
    l->is_running = true;
    return 0;
}

static void stop(struct ek_loader *l)
{
    if (!l->is_running)
        return;
    pthread_mutex_lock(&l->lock);
    l->is_stopping = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    l->is_running = false;
}

int ek_loader_new(struct ek_loader **loader, const struct ek_events *events,
                  const struct ek_split *split, const struct ek_loader_options *o,
                  struct ek_err *err)
{
    struct ek_loader *l = ek_calloc(1, sizeof *l);
    if (!l)
        return ek_err_set(err, EK_ENOMEM, "loader: %s", ek_status_text(EK_ENOMEM));
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    int rc = ek_maker_init(&l->maker, events, split, o, err);
    l->n_rooms = rc ? 0 : o->n_ahead + 1;
    for (int i = 0; i < l->n_rooms && !rc; i++) {
        rc = ek_batch_room_init(&l->rooms[i], &l->maker);
        if (rc)
            ek_err_set(err, rc, "loader: %s", ek_status_text(rc));
    }
    if (!rc) {
        l->n_steps = ek_maker_steps(&l->maker);
        rc = start(l, err);
    }
    if (rc) {
        ek_loader_free(l);
        return rc;
    }
    *loader = l;
    return 0;
}

int ek_loader_measure(struct ek_loader_size *size, const struct ek_events *events,
                      const struct ek_split *split, const struct ek_loader_options *o,
                      struct ek_err *err)
{
    struct ek_maker m = {0};
    size_t room = 0, bytes = 0;
    int rc = ek_maker_init(&m, events, split, o, err);
    if (rc)
        return rc;
    if (!ek_batch_room_bytes(&room, &m) ||
        !ek_mul_size(&bytes, room, (size_t)o->n_ahead + 1) ||
        !ek_add_size(&bytes, bytes, m.bytes))
        rc = ek_err_set(err, EK_ELIMIT,
                        "loader: batches of %lld rows take more bytes than a number "
                        "can tell",
                        (long long)m.max_rows);
    else
        *size = (struct ek_loader_size){.max_sequences = m.max_sequences,
                                        .max_rows = m.max_rows,
                                        .n_samples = m.n_samples,
                                        .n_micro = m.o.n_micro,
                                        .bytes = bytes};
    ek_maker_release(&m);
    return rc;
}

void ek_loader_free(struct ek_loader *l)
{
    if (!l)
        return;
    stop(l);
    for (int i = 0; i < l->n_rooms; i++)
        ek_batch_room_release(&l->rooms[i]);
    ek_maker_release(&l->maker);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    ek_free(l);
}

/* Waits for a room that is ready and takes it; the one taken before is free again. */
static struct ek_batch_room *take(struct ek_loader *l)
{
    pthread_mutex_lock(&l->lock);
    while (l->n_ready == 0)
        pthread_cond_wait(&l->changed, &l->lock);
    struct ek_batch_room *room = &l->rooms[l->first];
    l->first = (l->first + 1) % l->n_rooms;
    l->n_ready--;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return room;
}

bool ek_loader_next(struct ek_loader *l, struct ek_batch *batch)
{
    struct ek_batch_room *room = &l->rooms[0];
    if (l->is_running)
        room = take(l);
    else
        ek_maker_next(&l->maker, room);
    if (room->is_end)
        return false;
    *batch = room->batch;
    return true;
}

int ek_loader_seek(struct ek_loader *l, int64_t epoch, int64_t step, struct ek_err *err)
{
    stop(l);
    ek_maker_seek(&l->maker, epoch, step);
    return start(l, err);
}

int64_t ek_loader_samples(const struct ek_loader *l)
{
    return l->maker.n_samples;
}

int64_t ek_loader_targets(const struct ek_loader *l)
{
    return l->maker.n_targets;
}

int64_t ek_loader_steps(const struct ek_loader *l)
{
    return l->n_steps;
}

void ek_loader_ceiling(const struct ek_loader *l, int64_t *sequences, int64_t *rows)
{
    *sequences = l->maker.max_sequences;
    *rows = l->maker.max_rows;
}
