/* twin_a.c: one of two modules that offer an implementation of the same name. */
#include "fixture.h"

static const attn_impl impl = {FIXTURE_IMPL("twin_plain")};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("twin_a", impls)};

FIXTURE_ENTRY(&module)
