/* The memory that is there for a process, from folders of made files. */
#include "base/proc.h"
#include "testkit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

/* `name` may lie in folders, which are made. */
static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (char *s = path + strlen(dir) + 1; (s = strchr(s, '/')); *s++ = '/') {
        *s = 0;
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void drop(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(unlink(path), 0);
}

/* Cgroups /a and /a/b, the process's, below the folder `cg`, whose own is the root. */
static int make(void **state)
{
    char mounts[160];
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/evenkeel-proc-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    put("self/cgroup", "0::/a/b\n");
    snprintf(mounts, sizeof mounts, "30 23 0:26 / %s/cg rw - cgroup2 cgroup2 rw\n",
             dir);
    put("self/mountinfo", mounts);
    put("meminfo",
        "MemTotal:       2000 kB\nMemFree:  5 kB\nMemAvailable:   1000 kB\n");
    put("cg/cgroup.procs", "");
    put("cg/a/cgroup.procs", "");
    put("cg/a/b/cgroup.procs", "1\n");
    return 0;
}

static int clean(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command); /* NOLINT: our own folder */
}

static void without_a_limit_the_machine_says(void **state)
{
    (void)state;
    assert_int_equal(ek_memory_available(dir), 1000 * 1024);
    put("cg/a/b/memory.max", "max\n");
    put("cg/a/b/memory.current", "700\n");
    assert_int_equal(ek_memory_available(dir), 1000 * 1024);
}

static void the_least_room_up_the_tree_counts(void **state)
{
    (void)state;
    put("cg/a/b/memory.max", "1000\n");
    put("cg/a/b/memory.current", "700\n");
    assert_int_equal(ek_memory_available(dir), 300);
    put("cg/a/memory.max", "5000\n");
    put("cg/a/memory.current", "4900\n");
    assert_int_equal(ek_memory_available(dir), 100);
    put("cg/a/memory.current", "5001\n"); /* over it: none is left */
    assert_int_equal(ek_memory_available(dir), 0);
    put("cg/a/memory.max", "max\n");
    assert_int_equal(ek_memory_available(dir), 300);
    put("cg/memory.max", "10\n"); /* as a container's root has it */
    put("cg/memory.current", "4\n");
    assert_int_equal(ek_memory_available(dir), 6);
    drop("cg/memory.max");
    put("meminfo", "MemAvailable: 0 kB\n");
    assert_int_equal(ek_memory_available(dir), 0);
    put("meminfo", "MemAvailable:   1000 kB\n");
}

static void pages_of_files_are_free(void **state)
{
    (void)state;
    put("cg/a/b/memory.max", "1000\n");
    put("cg/a/b/memory.current", "700\n");
    put("cg/a/b/memory.stat", "anon 100\nfile 600\ninactive_anon 9\n"
                              "inactive_file 500\nactive_file 100\n");
    assert_int_equal(ek_memory_available(dir), 900);
    put("cg/a/b/memory.stat",
        "inactive_file 500\nactive_file 400\n"); /* read a moment later */
    assert_int_equal(ek_memory_available(dir), 1000);
    put("cg/a/b/memory.stat", "slab 600\nslab_reclaimable 500\n");
    assert_int_equal(ek_memory_available(dir), 800);
    put("cg/a/b/memory.stat", "inactive_file x\n");
    assert_int_equal(ek_memory_available(dir), 300);
    drop("cg/a/b/memory.stat");
}

static void what_cannot_be_read_is_no_limit(void **state)
{
    (void)state;
    assert_true(ek_memory_available("/nowhere") == INT64_MAX);
    static const char *const bad[] = {"", "x\n", "-5\n", "99999999999999999999\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("cg/a/b/memory.max", bad[i]);
        assert_int_equal(ek_memory_available(dir), 1000 * 1024);
    }
    put("cg/a/b/memory.max", "1000\n");
    drop("cg/a/b/memory.current");
    assert_int_equal(ek_memory_available(dir), 1000 * 1024);
    put("meminfo", "MemTotal: 5 kB\nMemAvailable: x kB\n");
    assert_true(ek_memory_available(dir) == INT64_MAX);
    put("meminfo", "MemAvailable: 9223372036854775807 kB\n"); /* no wrap in bytes */
    assert_true(ek_memory_available(dir) == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_limit_the_machine_says),
        cmocka_unit_test(the_least_room_up_the_tree_counts),
        cmocka_unit_test(pages_of_files_are_free),
        cmocka_unit_test(what_cannot_be_read_is_no_limit),
    };
    return cmocka_run_group_tests_name("proc", tests, make, clean);
}
