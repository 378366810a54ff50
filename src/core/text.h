/* text.h: small helpers for messages. */
#ifndef ATTN_CORE_TEXT_H
#define ATTN_CORE_TEXT_H

#include <stddef.h>

/* The word a misspelt one was probably meant to be, without regard to case; NULL when none is near. */
const char *attn_nearest(const char *word, const char *const *words, size_t count);

#endif
