/* cmocka.h: what tests/unit/kernels.c needs of cmocka, for targets that the library is not installed for. The
 * first failure ends the program. */
#ifndef STAND_IN_CMOCKA_H
#define STAND_IN_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(f)                                                                                  \
    {                                                                                                        \
#f, f                                                                                                \
    }
#define fail_msg(...)      (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), puts(""), exit(1))
#define assert_true(x)     ((x) ? (void)0 : (void)fail_msg("%s does not hold", #x))
#define assert_false(x)    assert_true(!(x))
#define assert_null(x)     assert_true(!(x))
#define assert_non_null(x) assert_true((x) != NULL)

#define assert_int_equal(a, b)          assert_true((a) == (b))
#define assert_string_equal(a, b)       assert_true(strcmp(a, b) == 0)
#define assert_in_range(x, least, most) assert_true((x) >= (least) && (x) <= (most))

#define cmocka_run_group_tests(tests, setup, teardown) run_all(tests, sizeof(tests) / sizeof *(tests))

static int run_all(const struct CMUnitTest *tests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *state = NULL;
        printf("%s\n", tests[i].name);
        fflush(stdout);
        tests[i].run(&state);
    }
    printf("%zu passed, 0 failed\n", count);
    return 0;
}

#endif
