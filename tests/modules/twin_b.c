/* twin_b.c: one of two modules that offer an implementation of the same name. */
#include "fixture.h"

static const attn_impl impl = {FIXTURE_IMPL("twin_plain")};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("twin_b", impls)};

FIXTURE_ENTRY(&module)
