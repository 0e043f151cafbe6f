/* Times as people and files write them. */
#include "base/date.h"
#include "testkit.h"

#include <string.h>

#define HOUR INT64_C(3600000000)
#define AT   INT64_C(1700158546680590) /* 2023-11-16 18:15:46.68059 */

static bool take(int64_t *us, const char *text)
{
    const char *p = text, *end = text + strlen(text);
    return ek_date_take(us, &p, end) && p == end;
}

static void a_zone_moves_the_time_and_none_is_utc(void **state)
{
    static const struct {
        const char *text;
        int64_t us;
    } cases[] = {{"2023-11-16 18:15:46.6805900", AT},
                 {"2023-11-16T18:15:46.6805900Z", AT},
                 {"2023-11-16T18:15:46.68059+00:00", AT},
                 {"2023-11-16T20:15:46.68059+02:00", AT},
                 {"2023-11-16 12:45:46.68059-0530", AT},
                 {"2023-11-17 00:15:46.68059+06:00", AT},
                 {"1970-01-01 00:00:00", 0},
                 {"1970-01-01 00:00:00+01:00", -HOUR},
                 {"2024-02-29 00:00:00", INT64_C(19782) * 24 * HOUR}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t us = 1;
        assert_true(take(&us, cases[i].text));
        assert_int_equal(us, cases[i].us);
    }
}

static void what_is_no_time_is_refused_and_so_is_half_of_one(void **state)
{
    static const char whole[] = "2023-11-16T18:15:46.5+02:00";
    static const char *const bad[] = {
        "2023-13-16 18:15:46",       "2023-11-32 18:15:46",   "2023-11-16 24:15:46",
        "2023-11-16 18:60:46",       "2023-11-16 18:15:61",   "2023-11-16 18:15:46.",
        "2023-11-16 18:15:46+24:00", "2023-11-16 18:15:46+2", "2023-11-16 18:15:46Z1",
        "1969-11-16 18:15:46",       "2023-11-16  18:15:46",  "2023-11-16 18:15:46 UTC",
        "2023-11-16 18:15:46+02:60", "2023/11/16 18:15:46"};
    (void)state;
    int64_t us;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(take(&us, bad[i]));
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        char part[sizeof whole] = "";
        memcpy(part, whole, n);
        assert_int_equal(take(&us, part), n == 19 || n == 21); /* seconds, a fraction */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_zone_moves_the_time_and_none_is_utc),
        cmocka_unit_test(what_is_no_time_is_refused_and_so_is_half_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
