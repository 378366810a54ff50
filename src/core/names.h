/* names.h: what is a public backend name. The rows, and this function, are the registry's. */
#ifndef ATTN_CORE_NAMES_H
#define ATTN_CORE_NAMES_H

#include <stdbool.h>

/* The name under which sparse plugins are dispatched to. */
#define ATTN_DISPATCHER "SPARSE_ATTN"

/* Of domain diffusion, whatever its case; names that modules bring are none. */
bool attn_backend_is_built_in(const char *name);

#endif
