/* current.c: the platform of the process, for callers without a context. */
#include "context.h"

#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static attn_lock lock;
static char current[64]; /* "": not found yet */

static void init(void)
{
    attn_lock_init(&lock);
}

static void keep(const char *name)
{
    pthread_once(&once, init);
    attn_lock_take(&lock);
    strncpy(current, name, sizeof current - 1);
    attn_lock_give(&lock);
}

/* The name is written before it is first given out and replaced by set_current alone, so that it may be
 * handed on. */
static const char *known(void)
{
    pthread_once(&once, init);
    attn_lock_take(&lock);
    const char *name = *current ? current : NULL;
    attn_lock_give(&lock);
    return name;
}

/* Probing happens outside the lock: it may take long and may fork. */
const char *attn_platform_current(attn_error *error)
{
    attn_context *context;
    if (known()) return known();
    if (attn_open(NULL, &context, error)) return NULL;
    keep(context->platform->name);
    attn_close(context);
    return known();
}

attn_status attn_platform_set_current(const char *name, attn_error *error)
{
    attn_context *context;
    if (!name) {
        keep("");
        return ATTN_OK;
    }
    bool known_here = attn_platform_named(name) != NULL;
    attn_options o = {.size = sizeof o, .platform = name};
    /* A module's platform is found by a context that loads modules. */
    if (!known_here) ATTN_TRY(attn_open(&o, &context, error));
    if (!known_here) attn_close(context);
    keep(name);
    return ATTN_OK;
}
