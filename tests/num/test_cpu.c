/* The choice of an ISA and what is read of the machine. */
#include "num/cpu.h"
#include "num_test.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static void an_unset_or_empty_choice_is_the_best(void **state)
{
    (void)state;
    enum ek_isa isa = EK_ISA_COUNT;
    unsetenv("EK_ISA");
    assert_int_equal(ek_isa_choose(&isa, NULL), 0);
    assert_int_equal(isa, ek_isa_best());
    setenv("EK_ISA", "", 1);
    isa = EK_ISA_COUNT;
    assert_int_equal(ek_isa_choose(&isa, NULL), 0);
    assert_int_equal(isa, ek_isa_best());
}

static void what_the_cpu_can_is_taken_and_what_it_lacks_refused(void **state)
{
    (void)state;
    for (int i = 0; i < EK_ISA_COUNT; i++) {
        struct ek_err err = EK_ERR_INIT;
        enum ek_isa isa = EK_ISA_COUNT;
        setenv("EK_ISA", ek_isa_name((enum ek_isa)i), 1);
        int status = ek_isa_choose(&isa, &err);
        if (i <= (int)ek_isa_best()) {
            assert_int_equal(status, 0);
            assert_int_equal(isa, i);
        } else {
            assert_int_equal(status, EK_EUNSUP);
            assert_int_equal(isa, EK_ISA_COUNT);
            assert_non_null(strstr(err.text, ek_isa_name((enum ek_isa)i)));
            assert_non_null(strstr(err.text, ek_isa_name(ek_isa_best())));
        }
    }
}

static void an_unknown_choice_is_named(void **state)
{
    (void)state;
    static const char *const bad[] = {"avx", "AVX2", "avx512 ", "sse"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct ek_err err = EK_ERR_INIT;
        enum ek_isa isa = EK_ISA_COUNT;
        setenv("EK_ISA", bad[i], 1);
        assert_int_equal(ek_isa_choose(&isa, &err), EK_EINVAL);
        assert_int_equal(isa, EK_ISA_COUNT);
        assert_non_null(strstr(err.text, bad[i]));
        assert_non_null(strstr(err.text, "avx512"));
    }
    assert_string_equal(ek_isa_name(EK_ISA_COUNT), "?");
}

/* Whether the kernel lists every word of `need` among the first CPU's flags. */
static int cpuinfo_has(const char *const *need, size_t n)
{
    static char line[16384];
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f)
        return -1;
    size_t found = 0;
    int has_flags = 0;
    while (!has_flags && fgets(line, sizeof line, f)) {
        if (strncmp(line, "flags", 5))
            continue;
        has_flags = 1;
        line[strcspn(line, "\n")] = ' ';
        for (size_t i = 0; i < n; i++) {
            char word[32];
            snprintf(word, sizeof word, " %s ", need[i]);
            found += strstr(line, word) != NULL;
        }
    }
    fclose(f);
    return has_flags ? found == n : -1;
}

static void the_best_isa_is_what_the_kernel_reports(void **state)
{
    (void)state;
    static const char *const avx2[] = {"avx2", "fma", "f16c", "bmi2"};
    static const char *const avx512[] = {
        "avx2",     "fma",      "f16c",        "bmi2",        "avx512f",   "avx512bw",
        "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512vbmi"};
    int has_avx2 = cpuinfo_has(avx2, COUNT(avx2));
    int has_avx512 = cpuinfo_has(avx512, COUNT(avx512));
    if (has_avx2 < 0 || has_avx512 < 0)
        skip(); /* no /proc here */
    assert_int_equal(ek_isa_best() >= EK_ISA_AVX2, has_avx2);
    assert_int_equal(ek_isa_best() >= EK_ISA_AVX512, has_avx512);
}

static void the_topology_is_plausible(void **state)
{
    (void)state;
    struct ek_topology t;
    assert_int_equal(ek_topology_read(&t, NULL), 0);
    assert_true(t.n_cores >= 1 && t.n_threads >= t.n_cores);
    assert_true(t.l2_bytes == 0 || (t.l2_bytes >= 1 << 15 && t.l2_bytes < 1u << 30));
    assert_true(memchr(t.model, 0, sizeof t.model) != NULL);
}

static void the_topology_counts_only_what_the_process_may_use(void **state)
{
    (void)state;
    cpu_set_t before, one;
    if (sched_getaffinity(0, sizeof before, &before))
        skip();
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one))
        skip();
    struct ek_topology t;
    int status = ek_topology_read(&t, NULL);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(status, 0);
    assert_int_equal(t.n_threads, 1);
    assert_int_equal(t.n_cores, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unset_or_empty_choice_is_the_best),
        cmocka_unit_test(what_the_cpu_can_is_taken_and_what_it_lacks_refused),
        cmocka_unit_test(an_unknown_choice_is_named),
        cmocka_unit_test(the_best_isa_is_what_the_kernel_reports),
        cmocka_unit_test(the_topology_is_plausible),
        cmocka_unit_test(the_topology_counts_only_what_the_process_may_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
