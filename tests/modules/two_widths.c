/* two_widths.c: an implementation for two head sizes. */
#include "fixture.h"

static const int32_t widths[] = {64, 128, 0};
static const attn_impl impl = {FIXTURE_IMPL("two_widths_dense"), .head_dims = widths};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("two_widths", impls)};

FIXTURE_ENTRY(&module)
