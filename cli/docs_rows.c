/* docs_rows.c: the tables of the command itself, as rows for its pages. */
#include "docs.h"

static const struct docs_command commands[] = {
#define X(name, summary) {#name, summary, &command_##name},
#include "commands.def"
#undef X
};

static const struct docs_variable variables[] = {
#define X(name, meaning, unset) {name, meaning, unset},
#include "environment.def"
#undef X
};

static const struct docs_exit exits[] = {
    {CLI_OK, "success"},
    {CLI_FAILED_CHECK, "a check failed, or a measurement is void"},
    {CLI_USAGE, "wrong usage or configuration"},
    {CLI_REFUSED, "refused: nothing can or may run it"},
    {CLI_RUNTIME, "a failure at run time or of input and output"},
    {CLI_INTERRUPTED, "interrupted"},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

const struct docs_command *docs_command_at(size_t index)
{
    return index < COUNT(commands) ? &commands[index] : NULL;
}

const struct docs_variable *docs_variable_at(size_t index)
{
    return index < COUNT(variables) ? &variables[index] : NULL;
}

const struct docs_exit *docs_exit_at(size_t index)
{
    return index < COUNT(exits) ? &exits[index] : NULL;
}
