/* device.c: devices, and the one place where CUDA's errors become ours. */
#include "device.h"

#include <string.h>

enum { ARCH_MIN = 80 }; /* of the oldest code in the fat binary */

static attn_kind kind_of(cudaError_t code)
{
    switch (code) {
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorSystemDriverMismatch:
        return ATTN_KIND_PACKAGE_MISSING;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidDeviceFunction:
        return ATTN_KIND_CAPABILITY_UNSUPPORTED;
    case cudaErrorMemoryAllocation:
        return ATTN_KIND_OUT_OF_MEMORY;
    case cudaErrorInvalidDevice:
        return ATTN_KIND_DEVICE_MISMATCH;
    case cudaErrorStreamCaptureUnsupported:
        return ATTN_KIND_FEATURE_UNSUPPORTED;
    default:
        return ATTN_KIND_INTERNAL;
    }
}

static const char *way_out(attn_kind kind)
{
    switch (kind) {
    case ATTN_KIND_PACKAGE_MISSING:
        return "install NVIDIA's driver for a GPU of this machine, or run on the host with device cpu";
    case ATTN_KIND_CAPABILITY_UNSUPPORTED:
        return "this module holds code for compute capability 8.0 and later";
    case ATTN_KIND_OUT_OF_MEMORY:
        return "free memory of the device";
    case ATTN_KIND_FEATURE_UNSUPPORTED:
        return "do it before the capture, or run without one";
    case ATTN_KIND_DEVICE_MISMATCH:
        return "open the layer for a device that is there";
    default:
        return "an earlier failure of the device may show here; check the stream before the call";
    }
}

attn_status attn_cuda_fail(cudaError_t code, const char *who, const char *doing, attn_error *error)
{
    attn_kind kind = kind_of(code);
    cudaGetLastError();
    return attn_fail(error, kind, "%s: CUDA says %s (%s) when %s; %s", who, cudaGetErrorName(code),
                     cudaGetErrorString(code), doing, way_out(kind));
}

void attn_cuda_judge_device(int32_t index, const char *who, attn_reasons *reasons)
{
    int count = 0, major = 0, minor = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (!code && index >= count) code = cudaErrorInvalidDevice;
    if (!code) code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
    if (!code) code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
    if (!code && major * 10 + minor < ARCH_MIN)
        attn_reason(reasons, ATTN_KIND_CAPABILITY_UNSUPPORTED,
                    "%s needs compute capability 8.0, device %d has %d.%d", who, index, major, minor);
    if (!code) return;
    cudaGetLastError();
    attn_reason(reasons, kind_of(code), "%s finds no CUDA device %d: %s; %s", who, index,
                cudaGetErrorString(code), way_out(kind_of(code)));
}

attn_status attn_cuda_enter(int32_t index, const char *who, int *before, attn_error *error)
{
    cudaError_t code = cudaGetDevice(before);
    if (!code && *before != index) code = cudaSetDevice(index);
    return code ? attn_cuda_fail(code, who, "choosing the device", error) : ATTN_OK;
}

void attn_cuda_leave(int before)
{
    int now;
    if (!cudaGetDevice(&now) && now != before) cudaSetDevice(before);
}

static void fill_map(const attn_block_lists *l, attn_cuda_map *to)
{
    to->counts = l->counts, to->blocks = l->blocks;
    memcpy(to->count_stride, l->count_stride, sizeof to->count_stride);
    memcpy(to->block_stride, l->block_stride, sizeof to->block_stride);
    to->capacity = l->capacity;
    to->block_q = l->block_q, to->block_k = l->block_k;
    to->q_blocks = l->q_blocks, to->kv_blocks = l->kv_blocks;
}

attn_status attn_cuda_call_fill(const attn_call *call, const char *who, attn_cuda_call *to, attn_error *error)
{
    if (call->span_count > ATTN_CUDA_SPANS || call->query_range_count > ATTN_CUDA_RANGES)
        return attn_fail(error, ATTN_KIND_FEATURE_UNSUPPORTED,
                         "%s takes at most %d spans and %d query ranges, not %u and %u; pass a mask instead",
                         who, ATTN_CUDA_SPANS, ATTN_CUDA_RANGES, call->span_count, call->query_range_count);
    memset(to, 0, sizeof *to);
    to->p = *call->problem;
    to->q = call->q, to->k = call->k, to->v = call->v;
    to->out = call->out, to->lse = call->lse;
    to->mask = call->mask, to->key_mask = call->key_mask, to->sinks = call->sinks;
    to->kv_lengths = call->kv_lengths, to->cu_q = call->cu_q, to->cu_k = call->cu_k;
    to->query_start = call->query_start;
    to->span_count = call->span_count, to->range_count = call->query_range_count;
    fill_map(&call->blocks, &to->map);
    if (call->span_count) memcpy(to->spans, call->spans, call->span_count * sizeof *to->spans);
    if (call->query_range_count)
        memcpy(to->ranges, call->query_ranges, call->query_range_count * sizeof *to->ranges);
    return ATTN_OK;
}

attn_status attn_cuda_check_addresses(const attn_call *call, int align, const char *who, attn_error *error)
{
    uintptr_t all = (uintptr_t)call->q | (uintptr_t)call->k | (uintptr_t)call->v | (uintptr_t)call->out;
    if (all % (uintptr_t)align == 0) return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_FEATURE_UNSUPPORTED,
        "%s needs q, k, v and out at addresses that are multiples of %d; align them or choose TORCH_SDPA",
        who, align);
}
