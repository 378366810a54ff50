/* docs_man.c: the man page, from the same tables as the other pages. */
#include <string.h>

#include "docs.h"
#include "problem.h"

/* Text for troff: backslashes and hyphens are escaped, and a line must not begin with a control character. */
static void put(FILE *out, const char *text, size_t length)
{
    int start = 1;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (start && (c == '.' || c == '\'')) fputs("\\&", out);
        start = c == '\n';
        if (c == '\\')
            fputs("\\e", out);
        else if (c == '-')
            fputs("\\-", out);
        else
            fputc(c, out);
    }
}

static void puts_text(FILE *out, const char *text)
{
    put(out, text, strlen(text));
}

static void item(FILE *out, const char *name, const char *argument, const char *text)
{
    fputs(".TP\n.B ", out);
    puts_text(out, name);
    puts_text(out, argument);
    fputs("\n", out);
    puts_text(out, text);
    fputs("\n", out);
}

static void put_option(FILE *out, const struct option_row *row)
{
    const char *argument = row->argument ? row->argument : "";
    fputs(".TP\n.B ", out);
    if (row->short_name) {
        fputs("\\-", out);
        puts_text(out, row->short_name);
        fputs(", ", out);
    }
    fputs("\\-\\-", out);
    puts_text(out, row->name);
    if (*argument) fputs(*argument == '[' || row->name[strlen(row->name) - 1] == '.' ? "" : " ", out);
    puts_text(out, argument);
    fputs("\n", out);
    puts_text(out, row->help);
    fputs("\n", out);
}

/* The lines of a block as they are, empty ones left out. */
static void put_lines(FILE *out, const char *text)
{
    fputs(".PP\n.nf\n", out);
    while (*text) {
        text += strspn(text, " ");
        size_t n = strcspn(text, "\n");
        if (n) {
            fputs("    ", out);
            put(out, text, n);
            fputs("\n", out);
        }
        text += n + (text[n] == '\n');
    }
    fputs(".fi\n", out);
}

static void put_command(FILE *out, const struct docs_command *row)
{
    const struct cli_command *command = row->command;
    fprintf(out, ".SS attn %s\n.B attn %s\n", row->name, row->name);
    puts_text(out, command->usage);
    fputs("\n.PP\n", out);
    puts_text(out, command->text && command->text[0] ? command->text : row->summary);
    fputs("\n", out);
    for (const struct option_row *option = command->options; option->kind != OPTION_END; option++) {
        if (option->kind == OPTION_HEADING) {
            fputs(".PP\n.I ", out);
            puts_text(out, option->help);
            fputs("\n", out);
        } else {
            put_option(out, option);
        }
    }
    if (command->examples && command->examples[0]) put_lines(out, command->examples);
}

static void put_problems(FILE *out)
{
    struct problem_key_info key;
    fputs(".SH PROBLEM STRINGS\nOne attention problem as one word:\n.PP\n.nf\n"
          "    b N h N [kvh N] s N [x N] d N [v N] : dtype { : key[=value] }\n.fi\n.PP\n"
          "without blanks, for example b1h24s4096d128:bf16 or b8h32kvh8s1x4096d128:bf16:causal. A number may "
          "be a list\n"
          "64,72,80 or a range 512\\-4096*2; the word then stands for every combination. Keys:\n",
          out);
    for (size_t i = 0; problem_key_at(i, &key); i++) item(out, key.name, key.argument, key.help);
}

void docs_man(FILE *out)
{
    const struct docs_command *command;
    const struct docs_variable *variable;
    const struct docs_exit *row;
    fprintf(out, ".TH ATTN 1 \"\" \"libattn %d.%d.%d\" \"User Commands\"\n", ATTN_VERSION_MAJOR,
            ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
    fputs(".SH NAME\nattn \\- choose, run and measure attention\n.SH SYNOPSIS\n.B attn\n.I "
          "COMMAND\n[OPTION]...\n"
          ".SH DESCRIPTION\nThe command of libattn, a library that chooses and runs attention for diffusion, "
          "video and\n"
          "multimodal transformers. Every command has \\-\\-help.\n",
          out);
    for (size_t i = 0; (command = docs_command_at(i)); i++) item(out, command->name, "", command->summary);
    fputs(".SH COMMANDS\n", out);
    for (size_t i = 0; (command = docs_command_at(i)); i++) put_command(out, command);
    put_problems(out);
    fputs(".SH ENVIRONMENT\n", out);
    for (size_t i = 0; (variable = docs_variable_at(i)); i++)
        item(out, variable->name, "", variable->meaning);
    fputs(".SH EXIT STATUS\n", out);
    for (size_t i = 0; (row = docs_exit_at(i)); i++) {
        fprintf(out, ".TP\n.B %d\n", row->code);
        puts_text(out, row->meaning);
        fputs("\n", out);
    }
}
