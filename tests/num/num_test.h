/* num_test.h - cmocka and a comparison of doubles, for the tests of num/. */
#ifndef EVENKEEL_TESTS_NUM_NUM_TEST_H
#define EVENKEEL_TESTS_NUM_NUM_TEST_H

#include <math.h>
#include <stdint.h>
#include <string.h>
/* cmocka.h needs the ones before it */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
/* clang-format on */

#define COUNT(a) (sizeof(a) / sizeof *(a))

#endif
