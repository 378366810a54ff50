/* clash_builtin.c: offers an implementation under the name of a built-in one (given by the build). */
#include "fixture.h"

static const attn_impl impl = {FIXTURE_IMPL(BUILT_IN_NAME)};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("clash_builtin", impls)};

FIXTURE_ENTRY(&module)
