/* ceiling_loops.h: the loops that show what a core can do; pointers and counts only. */
#ifndef ATTN_CLI_CEILING_LOOPS_H
#define ATTN_CLI_CEILING_LOOPS_H

#include <stddef.h>
#include <stdint.h>

/* Each loop keeps enough independent accumulators in registers to hide the latency of its instruction. */
void ceiling_run_scalar(int64_t turns);
void ceiling_run_avx2(int64_t turns);
void ceiling_run_avx512(int64_t turns);
void ceiling_run_avx512_bf16(int64_t turns);

int ceiling_have_always(void);
int ceiling_have_avx2(void);
int ceiling_have_avx512(void);
int ceiling_have_avx512_bf16(void);

/* turns * CEILING_CHAIN integer additions, each of which waits for the one before: one core cycle each. */
#define CEILING_CHAIN 64
void ceiling_run_chain(int64_t turns);

/* Reads all of the memory once. bytes: a multiple of 512. The result keeps the reads from being removed. */
uint64_t ceiling_read(const void *memory, size_t bytes);

#endif
