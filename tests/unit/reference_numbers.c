/* reference_numbers.c: tests of the reference's conversions over every 16-bit value. */
#include "backends/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

static double value_of(attn_dtype dtype, uint16_t bits)
{
    double value;
    reference_load(dtype, &bits, 1, 1, &value, 1);
    return value;
}

static uint16_t bits_of(attn_dtype dtype, double value)
{
    uint16_t bits = 0;
    reference_store(dtype, &bits, 1, 1, &value);
    return bits;
}

static void sixteen_bits_round_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        attn_dtype dtype;
        uint16_t infinity;
        double one_bits, smallest, largest;
    } rows[] = {{ATTN_F16, 0x7c00, 0x3c00, 0x1p-24, 65504},
                {ATTN_BF16, 0x7f80, 0x3f80, 0x1p-133, 0x1.fep127}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        attn_dtype t = rows[r].dtype;
        uint16_t infinity = rows[r].infinity;
        assert_true(value_of(t, (uint16_t)rows[r].one_bits) == 1 && value_of(t, 1) == rows[r].smallest);
        assert_true(value_of(t, infinity - 1) == rows[r].largest && value_of(t, infinity) == INFINITY);
        for (uint16_t bits = 0; bits < infinity; bits++) {
            double here = value_of(t, bits),
                   next = bits + 1 < infinity ? value_of(t, bits + 1) : 2 * here - value_of(t, bits - 1);
            double middle = here + (next - here) / 2;
            uint16_t even = bits & 1 ? bits + 1 : bits;
            assert_true(here < next);
            assert_int_equal(bits_of(t, here), bits);
            assert_int_equal(bits_of(t, -here), bits | 0x8000);
            assert_int_equal(bits_of(t, middle), even);
            assert_int_equal(bits_of(t, nextafter(middle, 0)), bits);
            assert_int_equal(bits_of(t, nextafter(middle, INFINITY)), bits + 1);
        }
        assert_int_equal(bits_of(t, 1e300), infinity);
        assert_int_equal(bits_of(t, -INFINITY), infinity | 0x8000);
        assert_int_equal(bits_of(t, 0x1p-1074), 0);
        for (uint32_t bits = infinity + 1u; bits < 0x8000; bits++) {
            assert_true(isnan(value_of(t, (uint16_t)bits)));
            assert_true(isnan(value_of(t, bits_of(t, value_of(t, (uint16_t)bits)))));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_bits_round_to_nearest_even),
    };
    return cmocka_run_group_tests_name("reference_numbers", tests, NULL, NULL);
}
