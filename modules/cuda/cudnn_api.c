/* cudnn_api.c: cuDNN, opened when it is first asked for. */
#include "cudnn_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static attn_cudnn opened;

static const char *find_all(attn_cudnn *c)
{
    const struct {
        const char *name;
        void *place;
    } symbols[] = {{"cudnnGetVersion", &c->version},
                   {"cudnnCreate", &c->create},
                   {"cudnnSetStream", &c->set_stream},
                   {"cudnnGetErrorString", &c->error_string},
                   {"cudnnGetLastErrorString", &c->last_error},
                   {"cudnnBackendCreateDescriptor", &c->new_descriptor},
                   {"cudnnBackendDestroyDescriptor", &c->free_descriptor},
                   {"cudnnBackendSetAttribute", &c->set},
                   {"cudnnBackendGetAttribute", &c->get},
                   {"cudnnBackendFinalize", &c->finalize},
                   {"cudnnBackendExecute", &c->execute}};
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(c->library, symbols[i].name);
        if (!address) return symbols[i].name;
        memcpy(symbols[i].place, &address, sizeof address);
    }
    return NULL;
}

static void try_open(char *why, size_t bytes)
{
    const char *path = getenv("ATTN_CUDNN_LIBRARY");
    attn_cudnn c = {0};
    if (!path || !*path) path = "libcudnn.so.9";
    c.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!c.library) {
        const char *said = dlerror();
        snprintf(why, bytes, "%.200s", said ? said : path);
        return;
    }
    const char *missing = find_all(&c);
    if (!missing) {
        opened = c; /* stays open: plans and handles live in it */
        return;
    }
    snprintf(why, bytes, "%.160s lacks %s, which cuDNN 9 has", path, missing);
    dlclose(c.library);
}

const attn_cudnn *attn_cudnn_library(char *why, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (!opened.library) try_open(why, bytes);
    pthread_mutex_unlock(&lock);
    return opened.library ? &opened : NULL;
}
