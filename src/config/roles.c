/* roles.c: from a role to what the user asked for, and by whose word. */
#include "config/spec.h"

#include <stdio.h>
#include <string.h>

/* Writes a role as the contract does, a Python string literal. Cut text stays terminated. */
static void quote(char *to, size_t bytes, const char *text)
{
    char mark = strchr(text, '\'') && !strchr(text, '"') ? '"' : '\'';
    size_t used = (size_t)snprintf(to, bytes, "%c", mark);
    for (const char *p = text; *p && used + 6 < bytes; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '\n' || c == '\t' || c == '\r')
            used += (size_t)snprintf(to + used, bytes - used, "\\%c",
                                     c == '\n'   ? 'n'
                                     : c == '\t' ? 't'
                                                 : 'r');
        else if (c < 0x20 || c == 0x7f)
            used += (size_t)snprintf(to + used, bytes - used, "\\x%02x", c);
        else
            used += (size_t)snprintf(to + used, bytes - used,
                                     c == '\\' || c == (unsigned char)mark ? "\\%c" : "%c", c);
    }
    snprintf(to + used, bytes - used, "%c", mark);
}

json_t *attn_config_lookup(const attn_config *c, const char *role, const char *category,
                           char source[ATTN_SOURCE_TEXT])
{
    char quoted[ATTN_SOURCE_TEXT - 64];
    json_t *spec = json_object_get(c->roles, role);
    if (spec) {
        quote(quoted, sizeof quoted, role);
        snprintf(source, ATTN_SOURCE_TEXT, "attention_config.per_role[%s]", quoted);
        return spec;
    }
    spec = category ? json_object_get(c->roles, category) : NULL;
    if (spec) {
        quote(quoted, sizeof quoted, category);
        snprintf(source, ATTN_SOURCE_TEXT, "attention_config.per_role[%s] (role_category fallback)", quoted);
        return spec;
    }
    snprintf(source, ATTN_SOURCE_TEXT, "%s",
             c->default_spec ? "attention_config.default" : "platform default");
    return c->default_spec;
}
