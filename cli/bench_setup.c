/* bench_setup.c: what holds for a whole run of measurements. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cli.h"
#include "machine.h"

attn_status bench_begin(struct bench_setup *setup, int rounds, attn_error *error)
{
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(setup->set.contexts[0], &info);
    setup->threads = info.threads;
    setup->device = (DLDevice){kDLCPU, 0};
    /* More threads than CPUs take turns; the machine's ceiling is that of its CPUs. */
    int together = info.threads < machine_cpus() ? info.threads : machine_cpus();
    setup->rounds = rounds;
    setup->cache_bytes = machine_cache_bytes();
    setup->ceiling = calloc(1, sizeof *setup->ceiling);
    if (!setup->ceiling || ceiling_open(setup->ceiling, together) ||
        ceiling_settle(setup->ceiling, cli_interrupted) || ceiling_measure_read(setup->ceiling))
        return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                        "no memory or threads to measure the machine's ceiling");
    return ATTN_OK;
}

attn_status bench_begin_device(struct bench_setup *setup, DLDevice device, int rounds, attn_error *error)
{
    attn_context_info info = {.size = sizeof info};
    attn_device_limits limits = {.size = sizeof limits};
    attn_status status = attn_device_get_limits(setup->set.contexts[0], device, &limits, error);
    if (status) return status;
    attn_context_get_info(setup->set.contexts[0], &info);
    setup->threads = info.threads;
    setup->rounds = rounds;
    setup->device = device;
    setup->cache_bytes = (size_t)limits.cache_bytes;
    setup->memory_free = limits.memory_free;
    memcpy(setup->device_name, limits.name, sizeof setup->device_name);
    return ATTN_OK;
}

void bench_end(struct bench_setup *setup)
{
    contenders_close(&setup->set);
    if (setup->ceiling) ceiling_close(setup->ceiling);
    free(setup->ceiling);
}
