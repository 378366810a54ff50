/* memory.c: memory, copies and time of CUDA devices, for the library and its callers. */
#include "impls.h"
#include "saturate.h"

#include <stdio.h>

static const char who[] = "cuda memory";

/* Runs one expression of the runtime on a device and turns what it says into a status. */
#define ON_DEVICE(device, doing, expression)                                                                 \
    do {                                                                                                     \
        int before;                                                                                          \
        attn_status entered = attn_cuda_enter(device, who, &before, error);                                  \
        if (entered) return entered;                                                                         \
        cudaError_t code = expression;                                                                       \
        attn_cuda_leave(before);                                                                             \
        return code ? attn_cuda_fail(code, who, doing, error) : ATTN_OK;                                     \
    } while (0)

/* An allocation is no part of a graph that the thread may be capturing. */
static cudaError_t allocate(void **memory, size_t bytes)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t code = cudaThreadExchangeStreamCaptureMode(&mode);
    if (code) return code;
    code = cudaMalloc(memory, bytes ? bytes : 1);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return code;
}

static attn_status dev_alloc(int32_t device, size_t bytes, void **memory, attn_error *error)
{
    ON_DEVICE(device, "asking for memory", allocate(memory, bytes));
}

static void dev_release(int32_t device, void *memory)
{
    int before;
    if (attn_cuda_enter(device, who, &before, NULL)) return;
    if (cudaFree(memory)) cudaGetLastError();
    attn_cuda_leave(before);
}

/* A captured copy reads its source when the graph runs, and ordinary memory of the host may be gone by then.
 */
static cudaError_t refuse_captured_host(const void *from, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capture;
    struct cudaPointerAttributes about;
    cudaError_t code = cudaStreamIsCapturing(stream, &capture);
    if (code || capture == cudaStreamCaptureStatusNone) return code;
    code = cudaPointerGetAttributes(&about, from);
    if (code) return code;
    return about.type == cudaMemoryTypeUnregistered ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

static cudaError_t copy_rows(void *to, int64_t to_pitch, const void *from, int64_t from_pitch, size_t width,
                             int64_t rows, cudaStream_t stream)
{
    cudaError_t code = refuse_captured_host(from, stream);
    if (code) return code;
    if (rows == 1) return cudaMemcpyAsync(to, from, width, cudaMemcpyDefault, stream);
    return cudaMemcpy2DAsync(to, (size_t)to_pitch, from, (size_t)from_pitch, width, (size_t)rows,
                             cudaMemcpyDefault, stream);
}

static attn_status dev_copy(int32_t device, void *to, int64_t to_pitch, const void *from, int64_t from_pitch,
                            size_t width, int64_t rows, void *stream, attn_error *error)
{
    ON_DEVICE(device, "copying", copy_rows(to, to_pitch, from, from_pitch, width, rows, stream));
}

static attn_status dev_fill(int32_t device, void *to, int byte, size_t bytes, void *stream, attn_error *error)
{
    ON_DEVICE(device, "filling memory", cudaMemsetAsync(to, byte, bytes, stream));
}

static attn_status dev_wait(int32_t device, void *stream, attn_error *error)
{
    ON_DEVICE(device, "waiting for a stream", cudaStreamSynchronize(stream));
}

static cudaError_t record(void **mark, cudaStream_t stream)
{
    cudaEvent_t event = *mark;
    cudaError_t code = event ? cudaSuccess : cudaEventCreate(&event);
    if (code) return code;
    *mark = event;
    return cudaEventRecord(event, stream);
}

static attn_status dev_mark(int32_t device, void *stream, void **mark, attn_error *error)
{
    ON_DEVICE(device, "marking a stream", record(mark, stream));
}

static cudaError_t elapsed(void *from, void *to, double *seconds)
{
    float ms = 0;
    cudaError_t code = cudaEventSynchronize(from);
    if (!code) code = cudaEventSynchronize(to);
    if (!code) code = cudaEventElapsedTime(&ms, from, to);
    *seconds = 1e-3 * (double)ms;
    return code;
}

static attn_status dev_seconds(int32_t device, void *from, void *to, double *seconds, attn_error *error)
{
    ON_DEVICE(device, "timing", elapsed(from, to, seconds));
}

static void dev_unmark(int32_t device, void *mark)
{
    int before;
    if (attn_cuda_enter(device, who, &before, NULL)) return;
    cudaEventDestroy(mark);
    attn_cuda_leave(before);
}

static cudaError_t read_limits(int32_t device, attn_device_limits *limits)
{
    struct cudaDeviceProp properties;
    size_t available = 0, total = 0;
    cudaError_t code = cudaGetDeviceCount(&limits->count);
    if (!code) code = cudaGetDeviceProperties(&properties, device);
    if (!code) code = cudaMemGetInfo(&available, &total);
    if (code) return code;
    snprintf(limits->name, sizeof limits->name, "%.127s", properties.name);
    limits->cache_bytes = properties.l2CacheSize;
    limits->memory_free = (int64_t)available;
    limits->memory_total = (int64_t)total;
    return cudaSuccess;
}

static attn_status dev_limits(int32_t device, attn_device_limits *limits, attn_error *error)
{
    ON_DEVICE(device, "asking for its limits", read_limits(device, limits));
}

static attn_status dev_saturate(int32_t device, attn_dtype dtype, void *stream, double *flop,
                                attn_error *error)
{
    if (dtype != ATTN_F16 && dtype != ATTN_BF16)
        return attn_fail(error, ATTN_KIND_DTYPE_UNSUPPORTED,
                         "the matrix ceiling is measured for f16 and bf16, not %s; leave it out",
                         attn_dtype_name(dtype));
    ON_DEVICE(device, "multiplying", attn_cuda_saturate(device, dtype == ATTN_BF16, stream, flop));
}

const attn_device attn_cuda_device = {.size = sizeof(attn_device),
                                      .device_type = kDLCUDA,
                                      .platform = "cuda",
                                      .alloc = dev_alloc,
                                      .release = dev_release,
                                      .copy = dev_copy,
                                      .fill = dev_fill,
                                      .wait = dev_wait,
                                      .mark = dev_mark,
                                      .seconds = dev_seconds,
                                      .unmark = dev_unmark,
                                      .limits = dev_limits,
                                      .saturate = dev_saturate};
