/* impls.h: the implementations of this module. */
#ifndef ATTN_CUDA_IMPLS_H
#define ATTN_CUDA_IMPLS_H

#include "device.h"

extern const attn_impl attn_cuda_reference;
extern const attn_impl attn_cuda_flash, attn_cuda_flash_sm90;
extern const attn_impl attn_cuda_cudnn;

/* memory.c */
extern const attn_device attn_cuda_device;

#endif
