/* library.h: a vendor's library, opened when it is asked for. */
#ifndef ATTN_PLATFORM_LIBRARY_H
#define ATTN_PLATFORM_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* One symbol to find and where to put its address: a pointer to a function pointer. */
typedef struct attn_symbol {
    const char *name;
    void *place;
} attn_symbol;

/* Opens the first file that loads and finds every symbol; else NULL, with one sentence in why. */
void *attn_library_open(const char *const *files, const attn_symbol *symbols, char *why, size_t bytes);
void attn_library_close(void *library);

#endif
