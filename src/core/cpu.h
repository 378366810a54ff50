/* cpu.h: the name of the processor. */
#ifndef ATTN_CORE_CPU_H
#define ATTN_CORE_CPU_H

#include <stddef.h>

/* As /proc/cpuinfo has it, or the machine's architecture where it has none. Terminated. */
void attn_cpu_name(char *text, size_t bytes);

#endif
