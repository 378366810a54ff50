/* plugin_new.h: the first file of a sparse plugin. */
#ifndef ATTN_CLI_PLUGIN_NEW_H
#define ATTN_CLI_PLUGIN_NEW_H

#include <attn/attn.h>

/* Writes NAME.c or NAME.cpp into the current folder and prints the commands that build, check and use it.
 * form: one of PLUGIN_NEW_FORMS. A file that is there stays as it is. Fails: unknown_name, invalid_value,
 * io. */
attn_status plugin_new(const char *name, const char *form, attn_error *error);

#define PLUGIN_NEW_FORMS "selector, kernel or cpp"

#endif
