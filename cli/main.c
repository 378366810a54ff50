/* main.c: the command attn: which command, what comes of its output. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "report.h"

static const struct {
    const char *name;
    const struct cli_command *command;
} commands[] = {
#define X(name, summary) {#name, &command_##name},
#include "commands.def"
#undef X
};

static void print_help(void)
{
    const char *name, *summary;
    puts("Usage: attn COMMAND [OPTION]...\n"
         "Chooses, runs and measures attention for diffusion, video and multimodal transformers.\n");
    for (size_t i = 0; options_command_at(i, &name, &summary); i++) printf("  %-10s %s\n", name, summary);
    puts("\n  --help     this text; attn COMMAND --help tells about a command\n"
         "  --version  version of the library\n\n"
         "Examples:\n"
         "  attn run --problem b1h12s1024d64:f32\n"
         "  attn run --q q.npy --k k.npy --v v.npy --out out.npy --causal\n"
         "  attn compare --problem b1h12s1024d64:bf16:mask=key --max-rel-l2 0.01\n"
         "  attn check --quick");
}

static int unknown_command(const char *word)
{
    const char *names[sizeof commands / sizeof *commands + 1] = {NULL};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) names[i] = commands[i].name;
    const char *near = cli_nearest(word, names);
    report_error("unknown %s \"%s\"%s%s; see attn --help", word[0] == '-' ? "option" : "command", word,
                 near ? "; the nearest is " : "", near ? near : "");
    return CLI_USAGE;
}

/* `attn help run` is read as `attn run --help`. */
static int run_help(int argc, char **argv)
{
    if (argc < 3) {
        print_help();
        return CLI_OK;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, argv[2]) != 0) continue;
        options_help(commands[i].name, commands[i].command);
        return CLI_OK;
    }
    return unknown_command(argv[2]);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        report_error("no command given; see attn --help");
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return CLI_OK;
    }
    if (strcmp(argv[1], "help") == 0) return run_help(argc, argv);
    if (strcmp(argv[1], "--version") == 0)
        return printf("attn %s\n", attn_version()) < 0 ? CLI_RUNTIME : CLI_OK;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, argv[1]) != 0) continue;
        report_command(commands[i].name);
        return commands[i].command->run(argc - 1, argv + 1);
    }
    return unknown_command(argv[1]);
}

/* Why standard output cannot be written, 0 when that is not known any more: the write that failed may lie
 * far back and errno be another's by now. A pipe without a reader and a full device say it again. */
static int write_failure(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (fflush(stdout)) return errno;
    if (poll(&out, 1, 0) == 1 && out.revents & POLLERR) return EPIPE;
    return write(STDOUT_FILENO, "", 0) < 0 ? errno : 0;
}

/* A result that could not be written is a failure, however well it was computed. A reader that has gone, as
 * head does, wants no more words. */
static int finish(int code)
{
    int failed = ferror(stdout), reason = write_failure();
    if (!failed && !ferror(stdout)) return code;
    if (reason != EPIPE)
        report_error("standard output could not be written: %s",
                     reason ? strerror(reason) : "an earlier write failed");
    return CLI_RUNTIME;
}

int main(int argc, char **argv)
{
    /* Writes past a closed pipe or a file size limit then fail with an error that is reported, instead of
     * ending the process in the middle of a file. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    cli_catch_interrupt();
    return finish(dispatch(argc, argv));
}
