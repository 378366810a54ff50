/* isa.h: which kernel sets this CPU can run, and the set a call uses. */
#ifndef ATTN_KERNELS_ISA_H
#define ATTN_KERNELS_ISA_H

#include "kernels/kernels.h"

/* The rows of kernels.def, weakest first. *usable (may be NULL): this CPU and its operating system can run
 * the set. NULL past the end. Any thread. */
size_t attn_isa_count(void);
const char *attn_isa_at(size_t index, int *usable);

/* The best usable set that is not above the cap; NULL or "" caps nothing. NULL: the cap names no set. */
const char *attn_isa_name(const char *cap);

/* The best of those that takes tensors of the type, as a table with every slot filled. Returns 0 when the cap
 * names no set. */
int attn_isa_kernels(const char *cap, int32_t type, attn_kernels *kernels);

/* One sentence: what this CPU has and why this set. Terminated text of at most bytes. */
void attn_isa_describe(const char *cap, char *text, size_t bytes);

#endif
