/* tiles.c: the blocks of cpu_flash: every width and cache has some, and they fit what the kernels can take.
 */
#include "support.h"

#include "backends/flash.h"

#include <string.h>

static void every_width_has_legal_blocks(void **state)
{
    (void)state;
    static const int64_t caches[] = {1, 256, 512, 1024, 1280, 2048, 3072, 1 << 20}, panels[] = {4, 8, 16, 32};
    for (int64_t width = 2; width <= 2048; width++)
        for (int c = 0; c < 8; c++)
            for (int i = 0; i < 4; i++) {
                flash_caps caps = flash_caps_of(width, caches[c], panels[i]);
                assert_in_range(caps.rows, 1, 96);
                assert_in_range(caps.keys, 2 * panels[i], ATTN_KEYS_MAX);
                assert_int_equal(caps.keys % panels[i], 0);
            }
}

/* More cache never means smaller blocks, wider heads never larger ones. */
static void blocks_follow_cache_and_width(void **state)
{
    (void)state;
    static const int64_t caches[] = {256, 512, 1024, 2048};
    for (int64_t width = 2; width < 2048; width++)
        for (int c = 0; c < 4; c++) {
            flash_caps here = flash_caps_of(width, caches[c], 32),
                       wide = flash_caps_of(width + 1, caches[c], 32);
            assert_true(wide.rows <= here.rows && wide.keys <= here.keys);
            if (c == 0) continue;
            flash_caps less = flash_caps_of(width, caches[c - 1], 32);
            assert_true(less.rows <= here.rows && less.keys <= here.keys);
        }
}

/* The plan of a problem names blocks that do not depend on the machine: those of a cache of 1 MiB. */
static void plans_take_the_default_rows(void **state)
{
    (void)state;
    static const struct {
        int64_t head_dim;
        const char *tiles;
    } expected[] = {{64, "tiles 96x384"},  {128, "tiles 96x384"}, {192, "tiles 96x320"},
                    {256, "tiles 96x256"}, {320, "tiles 96x192"}, {512, "tiles 96x128"},
                    {1024, "tiles 48x64"}};
    for (int i = 0; i < 7; i++) {
        test_call c;
        int64_t d = expected[i].head_dim;
        size_t bytes;
        attn_layer_info info = {.size = sizeof info};
        call_make(&c, "FLASH_ATTN", ATTN_F32, (dims){1, 3, 5, 1, 1, d, d});
        attn_context *context = context_open(&c.options);
        attn_layer *layer = layer_open(context, &c.layer);
        if (attn_workspace_size(layer, &c.args, &bytes, &c.error)) fail_msg("%s", c.error.text);
        attn_layer_get_info(layer, &info);
        text_has(info.plan, expected[i].tiles);
        attn_layer_close(layer);
        attn_close(context);
        call_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_has_legal_blocks),
        cmocka_unit_test(blocks_follow_cache_and_width),
        cmocka_unit_test(plans_take_the_default_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
