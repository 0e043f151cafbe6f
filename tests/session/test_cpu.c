#include "session/cpu.h"
#include "sessionkit.h"
#include "testkit.h"

static struct kit_dir dir;

static int make_dir(void **state)
{
    (void)state;
    kit_dir_make(&dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    kit_dir_remove(&dir);
    return 0;
}

static void find(const char *cgroup, const char *mountinfo, const char *want)
{
    char out[EK_CGROUP_PATH_MAX] = "";
    kit_write(&dir, "self/cgroup", cgroup);
    kit_write(&dir, "self/mountinfo", mountinfo);
    int rc = ek_cgroup_find(out, sizeof out, dir.path);
    assert_int_equal(rc, want ? 0 : EK_ENOENT);
    assert_string_equal(out, want ? want : "");
}

#define MOUNT(root, point)                                                             \
    "30 23 0:26 " root " " point " rw,nosuid - cgroup2 cgroup2 rw\n"

static void the_cgroup_is_found_below_its_mount(void **state)
{
    (void)state;
    const char *plain =
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" MOUNT("/", "/sys/fs/cgroup");
    find("0::/system.slice/voice.service\n", plain,
         "/sys/fs/cgroup/system.slice/voice.service");
    find("12:cpu:/v1\n0::/a\n", plain, "/sys/fs/cgroup/a"); /* hybrid */
    find("0::/\n", plain, "/sys/fs/cgroup");
    find("0::/pod/c1\n", MOUNT("/pod/c1", "/cg"), "/cg");
    find("0::/pod/c1/worker\n", MOUNT("/pod/c1", "/cg"), "/cg/worker");
    find("0::/pod/c12\n", MOUNT("/pod/c1", "/cg"), "/cg"); /* outside */
    find("0::/../other\n", MOUNT("/", "/cg"), "/cg");
}

static void without_a_cgroup_v2_there_is_none(void **state)
{
    (void)state;
    find("12:cpu:/v1\n", MOUNT("/", "/cg"), NULL);
    find("0::/a\n", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", NULL);
    find("0::/a\n", MOUNT("/", "/odd\\040place"), NULL);
    find("", "", NULL);
    char out[EK_CGROUP_PATH_MAX];
    assert_int_equal(ek_cgroup_find(out, sizeof out, "/nowhere"), EK_ENOENT);
    kit_write(&dir, "self/cgroup", "0::/a\n");
    kit_write(&dir, "self/mountinfo", MOUNT("/", "/cg"));
    assert_int_equal(ek_cgroup_find(out, 5, dir.path), EK_ELIMIT);
}

static void usage_is_read_from_cpu_stat(void **state)
{
    (void)state;
    int64_t us = 0;
    kit_write(&dir, "cpu.stat", "usage_usec 1234567\nuser_usec 1\nsystem_usec 2\n");
    assert_int_equal(ek_cgroup_used(dir.path, &us), 0);
    assert_int_equal(us, 1234567);
    static const char *const bad[] = {"",
                                      "usage_usec\n",
                                      "usage_usec x\n",
                                      "usage_usec -5\n",
                                      "user_usec 5\n",
                                      "usage_usec 99999999999999999999\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kit_write(&dir, "cpu.stat", bad[i]);
        assert_int_equal(ek_cgroup_used(dir.path, &us), EK_EIO);
    }
    assert_int_equal(ek_cgroup_used("/nowhere", &us), EK_EIO);
    assert_int_equal(us, 1234567);
}

static double quota(const char *text)
{
    kit_write(&dir, "a/b/cpu.max", text);
    return ek_cgroup_quota(kit_path(&dir, "a/b"));
}

static void the_least_quota_up_the_tree_counts(void **state)
{
    (void)state;
    kit_write(&dir, "cpu.max", "50000 100000\n"); /* above the mount: no cgroup */
    kit_write(&dir, "a/cgroup.procs", "");
    kit_write(&dir, "a/b/cgroup.procs", "1\n");
    assert_near(quota("150000 100000\n"), 1.5);
    kit_write(&dir, "a/cpu.max", "25000 50000\n");
    assert_near(quota("150000 100000\n"), 0.5);
    assert_near(quota("max 100000\n"), 0.5);
    assert_near(quota("10000 100000\n"), 0.1);
    kit_write(&dir, "a/cpu.max", "max 100000\n");
    static const char *const none[] = {"max 100000\n", "", "0 100000\n", "5 0\n",
                                       "x y"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_true(isinf(quota(none[i])));
    assert_true(isinf(ek_cgroup_quota("/nowhere")));
}

static void busy_time_of_the_machine_leaves_out_idle_and_iowait(void **state)
{
    (void)state;
    int64_t busy = 0;
    double cores = 0;
    /* user 100, nice 10, system 50, idle 1000, iowait 500, irq 1, softirq 2, steal 7;
     * guest is in user: 170 ticks of 10 ms. */
    kit_write(&dir, "stat",
              "cpu  100 10 50 1000 500 1 2 7 60 5\n"
              "cpu0 1 2 3\ncpu1 1 2 3\ncpu2 1 2 3\nintr 5\ncpu9 0\n");
    assert_int_equal(ek_cpu_host(dir.path, &busy, &cores), 0);
    assert_int_equal(busy, 1700000);
    assert_near(cores, 3);
    static const char *const bad[] = {"", "cpu  1 2 3\ncpu0 1\n",
                                      "cpu  1 2 3 4 5 6 7\n", "cpu0 1 2 3 4 5 6\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kit_write(&dir, "stat", bad[i]);
        assert_int_equal(ek_cpu_host(dir.path, &busy, &cores), EK_EIO);
    }
}

static void the_process_and_the_machine_can_be_read(void **state)
{
    (void)state;
    int64_t before, after, busy;
    double cores;
    assert_int_equal(ek_cpu_used(&before), 0);
    for (volatile int i = 0; i < 3000000; i++) {
    }
    assert_int_equal(ek_cpu_used(&after), 0);
    assert_true(after > before);
    assert_true(ek_cpu_affinity() >= 1);
    assert_int_equal(ek_cpu_host("/proc", &busy, &cores), 0);
    assert_true(busy > 0 && cores >= ek_cpu_affinity());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cgroup_is_found_below_its_mount),
        cmocka_unit_test(without_a_cgroup_v2_there_is_none),
        cmocka_unit_test(usage_is_read_from_cpu_stat),
        cmocka_unit_test(the_least_quota_up_the_tree_counts),
        cmocka_unit_test(busy_time_of_the_machine_leaves_out_idle_and_iowait),
        cmocka_unit_test(the_process_and_the_machine_can_be_read),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
