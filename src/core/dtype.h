/* dtype.h: names that messages use. */
#ifndef ATTN_CORE_DTYPE_H
#define ATTN_CORE_DTYPE_H

#include <attn/attn.h>

/* The field's word in messages: fp32, fp16, bf16, bool, ... */
const char *attn_dtype_word(attn_dtype dtype);
/* "fp32, fp16, bf16" of a set of bits (1 << dtype). Returns text. */
const char *attn_dtype_words(uint64_t set, char *text, size_t bytes);
/* "f16", "kDLComplex/64", ... for any DLPack type. Returns text. */
const char *attn_dl_word(DLDataType type, char *text, size_t bytes);

#endif
