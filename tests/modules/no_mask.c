/* no_mask.c: a dense implementation without masks. */
#include "fixture.h"

static const attn_impl impl = {FIXTURE_IMPL("no_mask_dense")};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("no_mask", impls)};

FIXTURE_ENTRY(&module)
