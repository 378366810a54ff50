/* spec.c: the three sources of a configuration become one. */
#include "config/spec.h"

#include <string.h>
#include <strings.h>

bool attn_is_auto(const char *name)
{
    return !strcasecmp(name, "auto");
}

static attn_status no_memory(attn_error *error)
{
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                     "no memory for the configuration; free some and open again");
}

static void remove_role(attn_config *c, size_t at)
{
    attn_drop(c->allocator, c->roles[at].role);
    attn_drop(c->allocator, c->roles[at].backend);
    c->roles[at] = c->roles[--c->role_count];
}

static attn_status grow_roles(attn_config *c, attn_error *error)
{
    size_t bytes = (c->role_count + 1) * sizeof *c->roles;
    attn_role_entry *roles = attn_take_zeroed(c->allocator, bytes);
    if (!roles) return no_memory(error);
    if (c->roles) memcpy(roles, c->roles, c->role_count * sizeof *roles);
    attn_drop(c->allocator, c->roles);
    c->roles = roles;
    return ATTN_OK;
}

attn_status attn_config_set_role(attn_config *c, const char *role, const char *backend, attn_error *error)
{
    for (size_t i = 0; i < c->role_count; i++)
        if (!strcmp(c->roles[i].role, role)) {
            remove_role(c, i);
            break;
        }
    if (attn_is_auto(backend)) return ATTN_OK;
    ATTN_TRY(grow_roles(c, error));
    attn_role_entry entry = {attn_copy_text(c->allocator, role), attn_copy_text(c->allocator, backend)};
    c->roles[c->role_count++] = entry;
    return entry.role && entry.backend ? ATTN_OK : no_memory(error);
}

static attn_status apply_flag(attn_config *c, const char *flag, attn_error *error)
{
    if (c->default_backend)
        return attn_fail(
            error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
            "--diffusion-attention-backend (%s) and the \"default\" of --diffusion-attention-config (%s) "
            "say the same thing; give one of them",
            flag, c->default_backend);
    if (attn_is_auto(flag)) {
        c->auto_said = true;
        return ATTN_OK;
    }
    c->default_backend = attn_copy_text(c->allocator, flag);
    return c->default_backend ? ATTN_OK : no_memory(error);
}

static bool blank(const char *text)
{
    return !text || !text[strspn(text, " \t\r\n")];
}

static attn_status apply_environment(attn_config *c, const char *value, attn_error *error)
{
    if (c->default_backend || c->auto_said || blank(value) || attn_is_auto(value)) return ATTN_OK;
    c->default_backend = attn_copy_text(c->allocator, value);
    return c->default_backend ? ATTN_OK : no_memory(error);
}

static attn_status read_sources(attn_config *c, const attn_config_sources *s, attn_error *error)
{
    if (s->json) ATTN_TRY(attn_config_parse_json(c, s->json, error));
    if (s->flag_backend) ATTN_TRY(apply_flag(c, s->flag_backend, error));
    return apply_environment(c, s->environment, error);
}

attn_status attn_config_read(attn_config *c, const attn_allocator *allocator,
                             const attn_config_sources *sources, attn_error *error)
{
    memset(c, 0, sizeof *c);
    c->allocator = allocator;
    attn_status status = read_sources(c, sources, error);
    if (status) attn_config_clear(c);
    return status;
}

void attn_config_clear(attn_config *c)
{
    while (c->role_count) remove_role(c, 0);
    attn_drop(c->allocator, c->roles);
    attn_drop(c->allocator, c->default_backend);
    c->roles = NULL;
    c->default_backend = NULL;
}
