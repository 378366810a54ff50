/* bench_setup.c: what holds for a whole run of measurements. */
#include <stdlib.h>

#include "bench.h"
#include "cli.h"
#include "machine.h"

attn_status bench_begin(struct bench_setup *setup, int rounds, attn_error *error)
{
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(setup->set.contexts[0], &info);
    setup->threads = info.threads;
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

void bench_end(struct bench_setup *setup)
{
    contenders_close(&setup->set);
    if (setup->ceiling) ceiling_close(setup->ceiling);
    free(setup->ceiling);
}
