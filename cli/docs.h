/* docs.h: reference pages, each a function that prints the program's own tables as Markdown. */
#ifndef ATTN_CLI_DOCS_H
#define ATTN_CLI_DOCS_H

#include <attn/attn.h>
#include <stdio.h>

#include "cli.h"

/* context: the built-in parts on platform cpu, whatever the machine is; pages hold facts of the build only.
 */
#define X(name, function, title) void function(FILE *out, const attn_context *context);
#include "docs.def"
#undef X

/* The man page, in troff. */
void docs_man(FILE *out);

/* Rows that both the Markdown pages and the man page print. */
struct docs_command {
    const char *name, *summary;
    const struct cli_command *command;
};
const struct docs_command *docs_command_at(size_t index); /* NULL past the end */

struct docs_variable {
    const char *name, *meaning, *unset;
};
const struct docs_variable *docs_variable_at(size_t index); /* NULL past the end */

struct docs_exit {
    int code;
    const char *meaning;
};
const struct docs_exit *docs_exit_at(size_t index); /* NULL past the end */

#endif
