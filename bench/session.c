/* session.c - cost of counting a session: a begin and its end.
 *
 *   bench_session [--rounds N]
 *
 * One thread, with and without sessions open beside it; then threads that all begin and
 * end at once on one tracker. Each round is a batch of pairs; best and median. Wall
 * clock, since the threads wait for each other in the cache. */
#include "args.h"

#include <evenkeel/session.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

enum { PAIRS = 20000, MAX_OPEN = 10000, MAX_THREADS = 2 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pairs(struct ek_tracker *t)
{
    for (int i = 0; i < PAIRS; i++) {
        struct ek_session s;
        if (ek_session_begin(t, &s) || !ek_session_end(&s)) {
            fputs("bench_session: a session was not counted\n", stderr);
            exit(1);
        }
    }
}

struct crew {
    struct ek_tracker *tracker;
    pthread_barrier_t start, end;
    int n_rounds;
};

static void *member(void *arg)
{
    struct crew *c = arg;
    for (int r = 0; r < c->n_rounds; r++) {
        pthread_barrier_wait(&c->start);
        pairs(c->tracker);
        pthread_barrier_wait(&c->end);
    }
    return NULL;
}

static struct ek_tracker *new_tracker(void)
{
    struct ek_tracker_options o;
    struct ek_tracker *t;
    char why[256];
    ek_tracker_options_init(&o, sizeof o);
    if (ek_tracker_new(&t, &o, why, sizeof why)) {
        fprintf(stderr, "bench_session: %s\n", why);
        exit(1);
    }
    return t;
}

static void show(const char *name, double *seconds, int n_rounds, double n)
{
    bench_sort(seconds, (size_t)n_rounds);
    printf("%-44s %8.1f %8.1f\n", name, 1e9 * seconds[0] / n,
           1e9 * seconds[n_rounds / 2] / n);
}

static void run_alone(int n_open, const char *name, int n_rounds)
{
    static double seconds[BENCH_MAX_ROUNDS];
    struct ek_tracker *t = new_tracker();
    for (int i = 0; i < n_open; i++) {
        struct ek_session s;
        (void)ek_session_begin(t, &s);
    }
    for (int r = 0; r < n_rounds; r++) {
        double start = now_s();
        pairs(t);
        seconds[r] = now_s() - start;
    }
    show(name, seconds, n_rounds, PAIRS);
    ek_tracker_free(t);
}

static void run_crew(int n_rounds)
{
    static double seconds[BENCH_MAX_ROUNDS];
    struct crew c = {.tracker = new_tracker(), .n_rounds = n_rounds};
    pthread_t threads[MAX_THREADS];
    pthread_barrier_init(&c.start, NULL, MAX_THREADS + 1);
    pthread_barrier_init(&c.end, NULL, MAX_THREADS + 1);
    for (int i = 0; i < MAX_THREADS; i++) {
        if (pthread_create(&threads[i], NULL, member, &c))
            exit(1);
    }
    for (int r = 0; r < n_rounds; r++) {
        double start = now_s(); /* the others wait for this thread already */
        pthread_barrier_wait(&c.start);
        pthread_barrier_wait(&c.end);
        seconds[r] = now_s() - start;
    }
    for (int i = 0; i < MAX_THREADS; i++)
        pthread_join(threads[i], NULL);
    show("a pair, 2 threads at once", seconds, n_rounds, (double)PAIRS * MAX_THREADS);
    ek_tracker_free(c.tracker);
}

static void run_reads(int n_open, const char *name, int n_rounds)
{
    enum { READS = 20 };
    static double seconds[BENCH_MAX_ROUNDS];
    struct ek_tracker *t = new_tracker();
    for (int i = 0; i < n_open; i++) {
        struct ek_session s;
        (void)ek_session_begin(t, &s);
    }
    for (int r = 0; r < n_rounds; r++) {
        double start = now_s();
        for (int i = 0; i < READS; i++) {
            char text[EK_TRACKER_ENCODED_MAX];
            size_t len;
            (void)ek_tracker_encode(t, EK_TRACKER_ORCA_TEXT, text, sizeof text, &len);
        }
        seconds[r] = now_s() - start;
    }
    show(name, seconds, n_rounds, READS);
    ek_tracker_free(t);
}

int main(int argc, char **argv)
{
    struct bench_args args = {.n_rounds = 201};
    if (!bench_take(&args, argc, argv) || args.json) {
        fprintf(stderr, "usage: bench_session [--rounds N]   (1 to %d)\n",
                BENCH_MAX_ROUNDS);
        return 2;
    }
    printf("%-44s %8s %8s   ns\n", "", "best", "median");
    run_alone(0, "a pair, nothing else open", args.n_rounds);
    run_alone(MAX_OPEN, "a pair, 10,000 sessions open", args.n_rounds);
    run_crew(args.n_rounds);
    run_reads(0, "a report as an ORCA header", args.n_rounds);
    run_reads(MAX_OPEN, "a report, 10,000 sessions open", args.n_rounds);
    return 0;
}
