/* machine.h: what a report says about the machine it was made on. */
#ifndef ATTN_CLI_MACHINE_H
#define ATTN_CLI_MACHINE_H

#include <stddef.h>

const char *machine_libc(void); /* "glibc 2.36" */

/* CPUs that this process may run on, at least 1. */
int machine_cpus(void);

/* Physical memory that is free now, or infinity when the system does not say. */
double machine_memory_free(void);

/* Bytes of the largest cache that sysfs names, or 0. */
size_t machine_cache_bytes(void);

/* Seconds in which all processes together kept the cores busy (and other machines took them away) since
 * start-up; -1 when /proc/stat cannot be read. */
double machine_busy_seconds(void);
/* CPU seconds that this process used. */
double machine_own_seconds(void);

#endif
