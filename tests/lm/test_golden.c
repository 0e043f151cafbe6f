/* test_golden.c - the forward pass against the vectors that transformers computed for
 * tiny models of every family (tests/lm/golden/make_golden.py), from both containers, on
 * every ISA this CPU has, whole and in chunks. */
#include "lm/kit.h"

#include <math.h>

#define TOLERANCE 2e-4f

static const int32_t pages[] = {5, 3, 60};

static void compare(const float *got, const json_t *want, const char *what, int n)
{
    float worst = 0.0f;
    for (size_t i = 0; i < json_array_size(want); i++) {
        float d = fabsf(got[i] - (float)json_number_value(json_array_get(want, i)));
        worst = d > worst || isnan(d) ? d : worst;
    }
    if (!(worst <= TOLERANCE))
        fail_msg("%s: %d tokens: logits differ by %g", what, n, (double)worst);
}

static void check_file(const char *file, enum ek_isa isa, const json_t *entry)
{
    struct kit k;
    struct kit_options o = {
        .file = file, .isa = isa, .weights = EK_LM_WEIGHTS_F32, .n_threads = 1};
    const json_t *lengths = json_object_get(entry, "lengths");
    int32_t tokens[KIT_BATCH];
    char what[600];
    kit_tokens(tokens, entry);
    kit_open(&k, &o);
    float *whole = calloc((size_t)k.V, sizeof *whole);
    float *cut = calloc((size_t)k.V, sizeof *cut);
    snprintf(what, sizeof what, "%s on %s", file, ek_isa_name(isa));
    for (size_t i = 0; i < json_array_size(lengths); i++) {
        int32_t n = (int32_t)json_integer_value(json_array_get(lengths, i));
        kit_run(&k, whole, tokens, n, 0, pages);
        compare(whole, json_array_get(json_object_get(entry, "logits"), i), what, n);
        for (int32_t chunk = 1; chunk <= 24; chunk = chunk * 2 + 1) {
            kit_run(&k, cut, tokens, n, chunk, pages);
            assert_memory_equal(whole, cut, (size_t)k.V * sizeof *whole);
        }
    }
    free(whole);
    free(cut);
    kit_close(&k);
}

static void check_all(enum ek_isa isa)
{
    if (isa > ek_isa_best())
        skip();
    json_t *golden = kit_golden();
    for (size_t i = 0; i < json_array_size(golden); i++) {
        const json_t *entry = json_array_get(golden, i);
        const json_t *files = json_object_get(entry, "files");
        for (size_t j = 0; j < json_array_size(files); j++)
            check_file(json_string_value(json_array_get(files, j)), isa, entry);
    }
    json_decref(golden);
}

static void ref_gives_what_transformers_gives(void **state)
{
    (void)state;
    check_all(EK_ISA_REF);
}

static void avx2_gives_what_transformers_gives(void **state)
{
    (void)state;
    check_all(EK_ISA_AVX2);
}

static void avx512_gives_what_transformers_gives(void **state)
{
    (void)state;
    check_all(EK_ISA_AVX512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_gives_what_transformers_gives),
        cmocka_unit_test(avx2_gives_what_transformers_gives),
        cmocka_unit_test(avx512_gives_what_transformers_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
