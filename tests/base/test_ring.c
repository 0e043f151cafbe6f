#include "base/ring.h"
#include "testkit.h"

#include <pthread.h>
#include <sched.h>

static struct ek_ring *new_ring(size_t cap)
{
    struct ek_ring *ring = NULL;
    assert_int_equal(ek_ring_new(&ring, cap), 0);
    return ring;
}

static void capacity_is_rounded_up_to_a_power_of_two(void **state)
{
    (void)state;
    static const size_t ask[] = {0, 1, 2, 3, 4, 5, 100},
                        get[] = {1, 1, 2, 4, 4, 8, 128};
    int x = 0;
    for (size_t i = 0; i < sizeof ask / sizeof ask[0]; i++) {
        struct ek_ring *ring = new_ring(ask[i]);
        size_t n = 0;
        while (ek_ring_push(ring, &x))
            n++;
        assert_int_equal(n, get[i]);
        assert_int_equal(ek_ring_count(ring), n);
        ek_ring_free(ring);
    }
}

static void entries_leave_in_the_order_they_came(void **state)
{
    (void)state;
    struct ek_ring *ring = new_ring(4);
    char cell[64];
    size_t pushed = 0, popped = 0;
    /* Fill levels 0..4 at every position of the ring. */
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < round % 6; i++) {
            bool is_in = ek_ring_push(ring, &cell[pushed % 64]);
            assert_int_equal(is_in, pushed - popped < 4);
            pushed += is_in;
        }
        assert_int_equal(ek_ring_count(ring), pushed - popped);
        for (int i = 0; i < round % 5; i++) {
            void *p = ek_ring_pop(ring);
            assert_ptr_equal(p, pushed == popped ? NULL : &cell[popped % 64]);
            popped += p != NULL;
        }
    }
    ek_ring_free(ring);
    ek_ring_free(NULL);
}

#define N_ITEMS 4000

struct item {
    int64_t number;
};

struct both {
    struct ek_ring *there, *back;
    struct item items[32];
};

/* Takes items, doubles their number and sends them back. */
static void *consume(void *arg)
{
    struct both *b = arg;
    for (int i = 0; i < N_ITEMS;) {
        struct item *item = ek_ring_pop(b->there);
        if (!item) {
            sched_yield();
            continue;
        }
        item->number *= 2;
        while (!ek_ring_push(b->back, item))
            sched_yield();
        i++;
    }
    return NULL;
}

static void what_was_written_before_push_is_seen_after_pop(void **state)
{
    (void)state;
    struct both b = {.there = new_ring(8), .back = new_ring(32)};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, consume, &b), 0);
    int64_t sent = 0, got = 0;
    while (got < N_ITEMS) {
        struct item *item = &b.items[sent % 32];
        if (sent < N_ITEMS && sent - got < 32) {
            item->number = sent;
            sent += ek_ring_push(b.there, item);
        }
        assert_true(ek_ring_count(b.there) <= 8);
        item = ek_ring_pop(b.back);
        if (item) {
            assert_int_equal(item->number, 2 * got);
            got++;
        } else {
            sched_yield();
        }
    }
    pthread_join(t, NULL);
    assert_null(ek_ring_pop(b.back));
    ek_ring_free(b.there);
    ek_ring_free(b.back);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_ring *ring = NULL;
        ek_assert_rc(ek_ring_new(&ring, 10));
        ek_ring_free(ring);
    }
    struct ek_ring *ring = NULL;
    assert_int_equal(ek_ring_new(&ring, SIZE_MAX), EK_ENOMEM);
    assert_int_equal(ek_ring_new(&ring, SIZE_MAX / 16 + 1), EK_ENOMEM);
    assert_null(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capacity_is_rounded_up_to_a_power_of_two),
        cmocka_unit_test(entries_leave_in_the_order_they_came),
        cmocka_unit_test(what_was_written_before_push_is_seen_after_pop),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
