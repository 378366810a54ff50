/* returns_null.c: the entry point returns nothing. */
#include "fixture.h"

FIXTURE_ENTRY(NULL)
