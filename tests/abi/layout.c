/* layout.c: sizes and offsets of the public structs are what they were. */
#include "support.h"

#include <attn/module.h>
#include <string.h>

typedef struct row {
    const char *owner, *field; /* field NULL: the struct's size */
    size_t found, expected, bytes, align;
} row;

static const row rows[] = {
#define SIZE(owner, expected) {#owner, NULL, sizeof(owner), expected, 0, _Alignof(owner)},
#define FIELD(owner, field, expected)                                                                        \
    {#owner,                                                                                                 \
     #field,                                                                                                 \
     offsetof(owner, field),                                                                                 \
     expected,                                                                                               \
     sizeof(((owner *)0)->field),                                                                            \
     _Alignof(__typeof__(((owner *)0)->field))},
#include "abi.def"
#undef SIZE
#undef FIELD
};
enum { ROWS = sizeof rows / sizeof *rows };

static void places_are_pinned(void **state)
{
    int moved = 0;
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].found == rows[i].expected) continue;
        print_error("%s%s%s is %zu, was %zu\n", rows[i].owner, rows[i].field ? "." : " size",
                    rows[i].field ? rows[i].field : "", rows[i].found, rows[i].expected);
        moved++;
    }
    assert_int_equal(moved, 0);
}

static size_t rounded(size_t offset, size_t align)
{
    return (offset + align - 1) / align * align;
}

/* Between two rows lies nothing but padding, so that no field is without a row. */
static void every_field_has_a_row(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS;) {
        size_t end = 0, size = rows[i].found, align = rows[i].align;
        const char *owner = rows[i++].owner;
        for (; i < ROWS && rows[i].field; i++) {
            assert_string_equal(rows[i].owner, owner);
            if (rounded(end, rows[i].align) != rows[i].found)
                fail_msg("%s: something without a row lies before %s", owner, rows[i].field);
            end = rows[i].found + rows[i].bytes;
        }
        if (rounded(end, align) != size) fail_msg("%s: something without a row lies at its end", owner);
    }
}

/* The problem is a key that is compared bytewise: no padding at all. */
static void the_problem_has_no_padding(void **state)
{
    size_t bytes = 0;
    (void)state;
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].owner, "attn_problem")) bytes += rows[i].bytes;
    assert_int_equal(bytes, sizeof(attn_problem));
}

/* Every struct that starts with its size does so in four bytes at its very start. */
static void sizes_come_first(void **state)
{
    (void)state;
    int sized = 0;
    for (int i = 0; i < ROWS; i++) {
        if (!rows[i].field || strcmp(rows[i].field, "size")) continue;
        assert_int_equal(rows[i].found, 0);
        assert_int_equal(rows[i].bytes, 4);
        sized++;
    }
    assert_true(sized >= 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_pinned),
        cmocka_unit_test(every_field_has_a_row),
        cmocka_unit_test(the_problem_has_no_padding),
        cmocka_unit_test(sizes_come_first),
    };
    if (sizeof(void *) != 8) return 0; /* the table speaks of LP64 */
    return cmocka_run_group_tests_name("struct layout", tests, NULL, NULL);
}
