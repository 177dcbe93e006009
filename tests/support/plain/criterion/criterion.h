/* Stands in for Criterion in sanitizer builds: its inheritable arena wants
 * addresses that ThreadSanitizer keeps for itself, and a leak that is found
 * when a test's process ends does not fail the test. The same test sources compile against this
 * header and runner.c, which gives each test a process of its own as Criterion does. Only what our
 * tests use is here. */
#ifndef DL_TESTS_SUPPORT_PLAIN_CRITERION_H
#define DL_TESTS_SUPPORT_PLAIN_CRITERION_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plain_test {
    void (*init)(void);
    void (*fini)(void);
    const char *description;
    double timeout;
    int signal, exit_code;
    bool disabled;
    /* private */
    const char *suite, *name;
    void (*run)(void);
    struct plain_test *next;
};

void plain_test_add(struct plain_test *test); /* run NULL: the suite's own entry */
void plain_failed(bool fatal, const char *file, int line, const char *what, const char *format,
                  ...);
_Noreturn void plain_skip(const char *format, ...);

#define Test(suite_, name_, ...)                                                                   \
    static void suite_##_##name_##_impl(void);                                                     \
    static struct plain_test suite_##_##name_##_test = {                                           \
        .suite = #suite_, .name = #name_, .run = suite_##_##name_##_impl, __VA_ARGS__};            \
    __attribute__((constructor)) static void suite_##_##name_##_add(void)                          \
    {                                                                                              \
        plain_test_add(&suite_##_##name_##_test);                                                  \
    }                                                                                              \
    static void suite_##_##name_##_impl(void)
#define TestSuite(suite_, ...)                                                                     \
    static struct plain_test suite_##_suite = {.suite = #suite_, __VA_ARGS__};                     \
    __attribute__((constructor)) static void suite_##_suite_add(void)                              \
    {                                                                                              \
        plain_test_add(&suite_##_suite);                                                           \
    }                                                                                              \
    _Static_assert(1, "")

#define plain_check(fatal, condition, what, ...)                                                   \
    ((condition) ? (void)0 : plain_failed(fatal, __FILE__, __LINE__, what, "" __VA_ARGS__))
#define plain_near(a, b, epsilon) (fabs((double)(a) - (double)(b)) <= (double)(epsilon))

#define cr_assert(x, ...) plain_check(true, x, #x, __VA_ARGS__)
#define cr_assert_not(x, ...) plain_check(true, !(x), "not " #x, __VA_ARGS__)
#define cr_assert_eq(a, b, ...) plain_check(true, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) plain_check(true, (a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) plain_check(true, (a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) plain_check(true, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) plain_check(true, (a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) plain_check(true, (a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_assert_null(x, ...) plain_check(true, (x) == NULL, #x " is NULL", __VA_ARGS__)
#define cr_assert_not_null(x, ...) plain_check(true, (x) != NULL, #x " is not NULL", __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...)                                                                \
    plain_check(true, strcmp(a, b) == 0, #a " is the text " #b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...)                                                               \
    plain_check(true, strcmp(a, b) != 0, #a " is not the text " #b, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...)                                                          \
    plain_check(true, memcmp(a, b, size) == 0, #a " has the bytes of " #b, __VA_ARGS__)
#define cr_assert_float_eq(a, b, epsilon, ...)                                                     \
    plain_check(true, plain_near(a, b, epsilon), #a " is near " #b, __VA_ARGS__)
#define cr_assert_fail(...) plain_check(true, false, "reached", __VA_ARGS__)

#define cr_expect(x, ...) plain_check(false, x, #x, __VA_ARGS__)
#define cr_expect_not(x, ...) plain_check(false, !(x), "not " #x, __VA_ARGS__)
#define cr_expect_eq(a, b, ...) plain_check(false, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...) plain_check(false, (a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) plain_check(false, (a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) plain_check(false, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...) plain_check(false, (a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...) plain_check(false, (a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_expect_null(x, ...) plain_check(false, (x) == NULL, #x " is NULL", __VA_ARGS__)
#define cr_expect_not_null(x, ...) plain_check(false, (x) != NULL, #x " is not NULL", __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...)                                                                \
    plain_check(false, strcmp(a, b) == 0, #a " is the text " #b, __VA_ARGS__)
#define cr_expect_arr_eq(a, b, size, ...)                                                          \
    plain_check(false, memcmp(a, b, size) == 0, #a " has the bytes of " #b, __VA_ARGS__)
#define cr_expect_float_eq(a, b, epsilon, ...)                                                     \
    plain_check(false, plain_near(a, b, epsilon), #a " is near " #b, __VA_ARGS__)

#define cr_skip(...) plain_skip("" __VA_ARGS__)
#define cr_skip_test(...) plain_skip("" __VA_ARGS__)
#define cr_log_info(...) (fprintf(stderr, __VA_ARGS__), (void)fputc('\n', stderr))
#define cr_log_warn(...) (fprintf(stderr, __VA_ARGS__), (void)fputc('\n', stderr))
#define cr_log_error(...) (fprintf(stderr, __VA_ARGS__), (void)fputc('\n', stderr))

#endif
