/* cpu.c: reads the name of the processor. */
#include "core/cpu.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

void attn_cpu_name(char *text, size_t bytes)
{
    char line[512];
    struct utsname system;
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(text, bytes, "%s", uname(&system) == 0 ? system.machine : "unknown CPU");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !value) continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(text, bytes, "%s", value);
        break;
    }
    if (file) fclose(file);
}
