/* picture.h: block maps as PNG files. */
#ifndef ATTN_CLI_PICTURE_H
#define ATTN_CLI_PICTURE_H

#include <attn/attn.h>

/* Writes the lists of a sample (-1: the first) and head (-1: all, side by side) of a checked map: a square
 * for each pair of blocks, dark where it is kept. Fails: io, out_of_memory, invalid_value. */
attn_status picture_save(const char *file, const attn_block_map *map, int64_t sample, int64_t head,
                         attn_error *error);

#endif
