/* library.c: a vendor's library, opened when it is asked for. */
#include "platform/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static bool find_all(void *library, const char *file, const attn_symbol *symbols, char *why, size_t bytes)
{
    for (const attn_symbol *s = symbols; s->name; s++) {
        void *address = dlsym(library, s->name);
        if (!address) {
            snprintf(why, bytes, "%s lacks the symbol %s", file, s->name);
            return false;
        }
        memcpy(s->place, &address, sizeof address);
    }
    return true;
}

void *attn_library_open(const char *const *files, const attn_symbol *symbols, char *why, size_t bytes)
{
    snprintf(why, bytes, "%s is not installed", files[0]);
    for (; *files; files++) {
        void *library = dlopen(*files, RTLD_NOW | RTLD_LOCAL);
        if (library && find_all(library, *files, symbols, why, bytes)) return library;
        if (library) dlclose(library);
    }
    return NULL;
}

void attn_library_close(void *library)
{
    if (library) dlclose(library);
}
