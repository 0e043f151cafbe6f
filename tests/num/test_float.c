/* Every code of every short format against its definition: sign, exponent and mantissa
 * taken apart and the value computed in f64. From f32, rounding is checked at each code,
 * at each point half way between two neighbours, one f32 step to either side of it, and
 * over a sweep of all f32 bit patterns. */
#include "num/float.h"
#include "num_test.h"

enum top {
    IEEE,
    E4M3FN
}; /* the last exponent: infinity and NaN, or numbers and a NaN */

struct format {
    const char *name;
    int n_bits, n_mantissa, bias;
    enum top top;
    int is_saturating;
};

static const struct format bf16 = {"bf16", 16, 7, 127, IEEE, 0};
static const struct format f16 = {"f16", 16, 10, 15, IEEE, 0};
static const struct format e4m3 = {"e4m3", 8, 3, 7, E4M3FN, 1};
static const struct format e5m2 = {"e5m2", 8, 2, 15, IEEE, 1};

/* The definition. */
static double value_of(const struct format *f, uint32_t code)
{
    int n_exp = f->n_bits - 1 - f->n_mantissa;
    uint32_t m = code & ((1u << f->n_mantissa) - 1);
    uint32_t e = code >> f->n_mantissa & ((1u << n_exp) - 1);
    double sign = code >> (f->n_bits - 1) ? -1 : 1;
    if (f->top == IEEE && e == (1u << n_exp) - 1)
        return m ? (double)NAN : sign * HUGE_VAL;
    if (f->top == E4M3FN && (code & 0x7f) == 0x7f)
        return (double)NAN;
    double fraction = ldexp((double)m, -f->n_mantissa);
    return sign *
           (e ? ldexp(1 + fraction, (int)e - f->bias) : ldexp(fraction, 1 - f->bias));
}

static float to_f32(const struct format *f, uint32_t code)
{
    return f == &bf16   ? ek_bf16_to_f32((uint16_t)code)
           : f == &f16  ? ek_f16_to_f32((uint16_t)code)
           : f == &e4m3 ? ek_e4m3_to_f32((uint8_t)code)
                        : ek_e5m2_to_f32((uint8_t)code);
}

static uint32_t from_f32(const struct format *f, float x)
{
    return f == &bf16   ? ek_f32_to_bf16(x)
           : f == &f16  ? ek_f32_to_f16(x)
           : f == &e4m3 ? ek_f32_to_e4m3(x)
                        : ek_f32_to_e5m2(x);
}

static const struct format *const formats[] = {&bf16, &f16, &e4m3, &e5m2};

static void every_code_has_its_defined_value(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(formats); i++) {
        const struct format *f = formats[i];
        for (uint32_t code = 0; code < 1u << f->n_bits; code++) {
            double want = value_of(f, code);
            float got = to_f32(f, code);
            int is_same = isnan(want) ? isnan(got) : (double)got == want;
            if (!is_same || !signbit(got) != !(code >> (f->n_bits - 1)))
                fail_msg("%s 0x%x: %g, expected %g", f->name, code, (double)got, want);
        }
    }
}

static void e8m0_is_a_power_of_two_for_every_code(void **state)
{
    (void)state;
    for (int code = 0; code < 255; code++) {
        float x = ek_e8m0_to_f32((uint8_t)code);
        assert_true((double)x == ldexp(1, code - 127));
        assert_int_equal(ek_f32_to_e8m0(x), code);
    }
    assert_true(isnan(ek_e8m0_to_f32(255)));
    assert_int_equal(ek_f32_to_e8m0(NAN), 255);
    assert_int_equal(ek_f32_to_e8m0(INFINITY), 255);
    assert_int_equal(ek_f32_to_e8m0(-1), 255);
    assert_int_equal(ek_f32_to_e8m0(0), 0);
    assert_int_equal(ek_f32_to_e8m0(-0.0f), 0);
    assert_int_equal(ek_f32_to_e8m0(0x1p-149f), 0);
    assert_int_equal(ek_f32_to_e8m0(3.4e38f), 254);
}

static void e8m0_rounds_to_the_nearest_power_ties_to_the_even_code(void **state)
{
    (void)state;
    for (int code = 0; code < 254; code++) {
        float tie = (float)ldexp(1.5, code - 127);
        assert_int_equal(ek_f32_to_e8m0(tie), code + code % 2);
        assert_int_equal(ek_f32_to_e8m0(nextafterf(tie, 0)), code);
        assert_int_equal(ek_f32_to_e8m0(nextafterf(tie, INFINITY)), code + 1);
    }
}

/* Largest code that holds a finite number. */
static uint32_t last_finite(const struct format *f)
{
    uint32_t code = (1u << (f->n_bits - 1)) - 1;
    while (!isfinite(value_of(f, code)))
        code--;
    return code;
}

static void expect_code(const struct format *f, float x, uint32_t want)
{
    uint32_t sign = 1u << (f->n_bits - 1);
    if (from_f32(f, x) != want || from_f32(f, -x) != (want | sign))
        fail_msg("%s of +-%.9g: 0x%x and 0x%x, expected 0x%x", f->name, (double)x,
                 from_f32(f, x), from_f32(f, -x), want);
}

static void a_code_survives_f32_and_half_way_goes_to_even(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(formats); i++) {
        const struct format *f = formats[i];
        for (uint32_t code = 0; code <= last_finite(f); code++) {
            expect_code(f, (float)value_of(f, code), code);
            if (code == last_finite(f))
                break;
            double mid = (value_of(f, code) + value_of(f, code + 1)) / 2;
            float tie = (float)mid;
            assert_true((double)tie == mid);
            expect_code(f, tie, code + code % 2);
            expect_code(f, nextafterf(tie, 0), code);
            expect_code(f, nextafterf(tie, INFINITY), code + 1);
        }
    }
}

/* The code that the definition calls nearest, by bisection over the ordered codes. */
static uint32_t nearest(const struct format *f, double x)
{
    uint32_t lo = 0, hi = last_finite(f);
    if (x >= value_of(f, hi))
        return hi;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (value_of(f, mid) <= x)
            lo = mid;
        else
            hi = mid;
    }
    double below = x - value_of(f, lo), above = value_of(f, hi) - x;
    return below < above || (below == above && lo % 2 == 0) ? lo : hi;
}

static void a_sweep_of_f32_finds_the_nearest_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(formats); i++) {
        const struct format *f = formats[i];
        double end = value_of(f, last_finite(f));
        for (uint64_t bits = 0; bits < 0x7f800000; bits += 40009) {
            float x = ek_f32_of_bits((uint32_t)bits);
            if ((double)x <= end)
                expect_code(f, x, nearest(f, (double)x));
            else if (f->is_saturating)
                expect_code(f, x, last_finite(f));
        }
    }
}

static void beyond_the_range_saturates_or_becomes_infinite(void **state)
{
    (void)state;
    assert_true(ek_e4m3_to_f32((uint8_t)last_finite(&e4m3)) == 448);
    assert_true(ek_e5m2_to_f32((uint8_t)last_finite(&e5m2)) == 57344);
    static const float large[] = {448.1f, 464, 480, 1e4f, 6e4f, 3e38f, INFINITY};
    for (size_t i = 0; i < COUNT(large); i++)
        expect_code(&e4m3, large[i], 0x7e);
    static const float larger[] = {57345, 61440, 61441, 65536, 3e38f, INFINITY};
    for (size_t i = 0; i < COUNT(larger); i++)
        expect_code(&e5m2, larger[i], 0x7b);
    expect_code(&f16, 65519.996f, 0x7bff); /* below half way to 65536 */
    expect_code(&f16, 65520, 0x7c00);
    expect_code(&f16, INFINITY, 0x7c00);
    expect_code(&bf16, ek_f32_of_bits(0x7f7f7fff), 0x7f7f);
    expect_code(&bf16, ek_f32_of_bits(0x7f7f8000), 0x7f80);
    expect_code(&bf16, INFINITY, 0x7f80);
}

static void nan_stays_nan_with_its_sign(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7fc00000, 0x7f800001, 0x7fffffff,
                                    0x7f80ffff, 0x7fbfffff, 0x7f801000};
    for (size_t i = 0; i < COUNT(formats) * COUNT(nans) * 2; i++) {
        const struct format *f = formats[i / 2 / COUNT(nans)];
        uint32_t bits = nans[i / 2 % COUNT(nans)] | (i % 2 ? 0x80000000u : 0);
        uint32_t code = from_f32(f, ek_f32_of_bits(bits));
        assert_true(isnan(value_of(f, code)));
        assert_int_equal(code >> (f->n_bits - 1), i % 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_defined_value),
        cmocka_unit_test(e8m0_is_a_power_of_two_for_every_code),
        cmocka_unit_test(e8m0_rounds_to_the_nearest_power_ties_to_the_even_code),
        cmocka_unit_test(a_code_survives_f32_and_half_way_goes_to_even),
        cmocka_unit_test(a_sweep_of_f32_finds_the_nearest_code),
        cmocka_unit_test(beyond_the_range_saturates_or_becomes_infinite),
        cmocka_unit_test(nan_stays_nan_with_its_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
