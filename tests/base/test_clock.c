#include "base/clock.h"
#include "testkit.h"

#include <time.h>
#include <unistd.h>

static void monotonic_time_never_steps_back_and_counts_microseconds(void **state)
{
    (void)state;
    int64_t start = ek_clock_us(), last = start;
    for (int i = 0; i < 1000; i++) {
        int64_t now = ek_clock_us();
        assert_true(now >= last);
        last = now;
    }
    usleep(5000);
    int64_t spent = ek_clock_us() - last;
    assert_in_range(spent, 5000, 10000000); /* a loaded machine may take long */
}

static void wall_time_is_unix_time(void **state)
{
    (void)state;
    int64_t before = (int64_t)time(NULL), now = ek_clock_wall_us() / 1000000;
    assert_in_range(now, before - 1, before + 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(monotonic_time_never_steps_back_and_counts_microseconds),
        cmocka_unit_test(wall_time_is_unix_time),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
