/* platform_detection [--fakes DIR] FILE...: runs detection vectors through the real probes, with stand-ins
 * for the vendors' libraries, and through the real arbitration. Each vector runs in a process of its own
 * whose library path holds only what the vector says is there. Prints a line per failure and closes with "N
 * passed, M failed". */
#include "platform/platform.h"
#include "registry/registry.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct vendor {
    const char *key, *variable, *file;
} vendors[] = {{"cuda", "FAKE_CUDA", "libnvidia-ml.so.1"},
               {"rocm", "FAKE_ROCM", "libamd_smi.so"},
               {"npu", "FAKE_NPU", "libascendcl.so"},
               {"xpu", "FAKE_XPU", "libze_loader.so.1"},
               {"musa", "FAKE_MUSA", "libmtml.so"}};
enum { VENDORS = sizeof vendors / sizeof *vendors, EXTERNALS = 8 };

/* ---- the parent: lays out the machine and starts the child --------------------------------------- */

static void offer(const char *fakes, const char *folder, const char *file)
{
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%s/%s", fakes, file);
    snprintf(to, sizeof to, "%s/%s", folder, file);
    if (symlink(from, to)) perror(to);
}

static int flag_at(const json_t *facts, const char *key, int otherwise)
{
    const json_t *value = json_object_get(facts, key);
    return value ? json_is_true(value) : otherwise;
}

static void lay_out(const json_t *facts, const char *fakes, const char *folder)
{
    for (int i = 0; i < VENDORS; i++) {
        char text[32];
        const json_t *value = json_object_get(facts, vendors[i].key);
        const char *word = json_string_value(value);
        if (!value) continue;
        if (word && !strcmp(word, "error")) word = "init_error";
        snprintf(text, sizeof text, "%d", json_is_true(value) ? 1 : (int)json_integer_value(value));
        setenv(vendors[i].variable, word ? word : text, 1);
        offer(fakes, folder, vendors[i].file);
    }
    /* Where a vector says nothing of collectives, both are there. */
    if (flag_at(facts, "xccl", 1)) offer(fakes, folder, "libxccl.so");
    if (flag_at(facts, "oneccl", 1)) offer(fakes, folder, "libccl.so.1");
}

static void clear(const char *folder)
{
    char command[PATH_MAX + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command)) perror(folder);
}

static int run_vector(const char *self, const char *fakes, const char *line)
{
    char folder[] = "/tmp/attn-platform-XXXXXX";
    int status = 0;
    json_t *vector = json_loads(line, 0, NULL);
    if (!vector || !mkdtemp(folder)) return 0;
    pid_t child = fork();
    if (!child) {
        lay_out(json_object_get(vector, "facts"), fakes, folder);
        setenv("LD_LIBRARY_PATH", folder, 1);
        setenv("FAKE_VECTOR", line, 1);
        execl(self, self, "--child", (char *)NULL);
        _exit(127);
    }
    json_decref(vector);
    if (child > 0) waitpid(child, &status, 0);
    clear(folder);
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- the child: one machine --------------------------------------------------------------------- */

static int says_yes(char *why, size_t bytes)
{
    snprintf(why, bytes, "an external platform that claims the machine");
    return 1;
}

static int says_no(char *why, size_t bytes)
{
    snprintf(why, bytes, "an external platform that does not");
    return 0;
}

static bool in_list(const json_t *list, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        if (!strcmp(json_string_value(item), name)) return true;
    }
    return !list || json_is_null(list);
}

/* What loading leaves of the externals, probed; the allow-list is the loader's. */
static size_t probe_externals(const json_t *vector, attn_platform *platforms, attn_probed *probed)
{
    size_t i, count = 0;
    json_t *item;
    json_array_foreach(json_object_get(vector, "oot"), i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        const char *answer = json_string_value(json_object_get(item, "probe"));
        const char *load = json_string_value(json_object_get(item, "load"));
        if (i >= EXTERNALS || !in_list(json_object_get(vector, "allow_list"), name) || !strcmp(load, "error"))
            continue;
        platforms[i] = (attn_platform){.size = sizeof *platforms, .name = name};
        if (strcmp(load, "not callable"))
            platforms[i].probe = answer && strcmp(answer, "error") ? says_yes : says_no;
        attn_probe(&platforms[i], true, &probed[count++]);
    }
    return count;
}

static const char *class_of(const json_t *vector, const attn_platform *platforms, const attn_platform *chosen)
{
    for (size_t i = 0; i < EXTERNALS; i++)
        if (&platforms[i] == chosen)
            return json_string_value(
                json_object_get(json_array_get(json_object_get(vector, "oot"), i), "probe"));
    return NULL;
}

static bool mentioned(const json_t *parts, const char *text)
{
    size_t i;
    json_t *part;
    json_array_foreach(parts, i, part)
    {
        if (!strstr(text, json_string_value(part))) return false;
    }
    return true;
}

static const char *compare(const json_t *vector, const attn_platform *platforms, const attn_platform *chosen,
                           const attn_error *error)
{
    const json_t *expect = json_object_get(vector, "expect"),
                 *collective = json_object_get(expect, "xpu_dist_backend");
    const char *want = json_string_value(json_object_get(expect, "platform"));
    if (!json_is_true(json_object_get(expect, "ok"))) {
        if (strcmp(attn_kind_name(error->kind), json_string_value(json_object_get(expect, "error_kind"))))
            return "error_kind";
        return mentioned(json_object_get(expect, "error_mentions"), error->text) ? "" : "error_mentions";
    }
    const char *class_path = class_of(vector, platforms, chosen);
    const char *got = !chosen ? "unspecified" : class_path ? "oot" : chosen->name;
    if (error->kind) return "ok";
    if (strcmp(want, got)) return "platform";
    if (class_path && strcmp(class_path, json_string_value(json_object_get(expect, "platform_cls"))))
        return "class";
    if (json_is_string(collective) && strcmp(json_string_value(collective), attn_platform_collective(chosen)))
        return "xpu_dist_backend";
    return "";
}

static int run_child(void)
{
    attn_platform platforms[EXTERNALS] = {{0}};
    attn_probed probed[VENDORS + EXTERNALS];
    const attn_platform *chosen;
    attn_error error = ATTN_ERROR_INIT;
    size_t count = 0;
    json_t *vector = json_loads(getenv("FAKE_VECTOR"), 0, NULL);
    for (; attn_platform_at(count); count++) attn_probe(attn_platform_at(count), false, &probed[count]);
    count += probe_externals(vector, platforms, probed + count);
    attn_arbitrate(probed, count, &chosen, &error);
    const char *wrong = compare(vector, platforms, chosen, &error);
    if (*wrong)
        printf("%s: %s differs: got %s (%s)\n", json_string_value(json_object_get(vector, "id")), wrong,
               chosen ? chosen->name : "unspecified", error.text);
    json_decref(vector);
    return *wrong != 0;
}

static int run_file(const char *self, const char *fakes, const char *path, int *passed, int *failed)
{
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "%s cannot be read\n", path);
        return -1;
    }
    while (getline(&line, &room, file) > 0)
        if (line[strspn(line, " \t\r\n")]) *(run_vector(self, fakes, line) ? passed : failed) += 1;
    free(line);
    fclose(file);
    return 0;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0, first = 1;
    char self[PATH_MAX] = "", fakes[PATH_MAX] = "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && !strcmp(argv[1], "--child")) return run_child();
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 2;
    /* The stand-ins lie beside the program unless told otherwise. */
    snprintf(fakes, sizeof fakes, "%.*s/fakes", (int)(strrchr(self, '/') - self), self);
    if (argc > 2 && !strcmp(argv[1], "--fakes")) snprintf(fakes, sizeof fakes, "%s", argv[2]), first = 3;
    for (int i = first; i < argc; i++)
        if (run_file(self, fakes, argv[i], &passed, &failed)) return 2;
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
