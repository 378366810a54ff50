/* fakes.c: stand-ins for the vendors' libraries, one shared object each (-DFAKE_CUDA, ...). What a library
 * reports is told by the environment variable FAKE_<PLATFORM>: a number of devices, "init_error" or
 * "count_error". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

__attribute__((unused)) static const char *script(const char *variable)
{
    const char *text = getenv(variable);
    return text ? text : "0";
}

__attribute__((unused)) static int init_code(const char *variable)
{
    return strcmp(script(variable), "init_error") ? 0 : 7;
}

__attribute__((unused)) static int count_code(const char *variable, uint32_t *count)
{
    *count = (uint32_t)atoi(script(variable));
    return strcmp(script(variable), "count_error") ? 0 : 9;
}

#ifdef FAKE_CUDA
typedef struct memory {
    unsigned long long total, free, used;
} memory;
EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned bytes);
EXPORT int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, memory *m);
EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned bytes);
EXPORT const char *nvmlErrorString(int code);

int nvmlInit_v2(void)
{
    return init_code("FAKE_CUDA");
}
int nvmlShutdown(void)
{
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *count)
{
    return count_code("FAKE_CUDA", count);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(uintptr_t)(index + 1);
    return index < (unsigned)atoi(script("FAKE_CUDA")) ? 0 : 2;
}
int nvmlDeviceGetName(void *device, char *name, unsigned bytes)
{
    (void)device;
    snprintf(name, bytes, "Fake GPU");
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    (void)device;
    *major = 9;
    *minor = 0;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, memory *m)
{
    (void)device;
    *m = (memory){1000, 400, 600};
    return 0;
}
int nvmlSystemGetDriverVersion(char *version, unsigned bytes)
{
    snprintf(version, bytes, "1.2.3");
    return 0;
}
const char *nvmlErrorString(int code)
{
    return code == 7 ? "a fake failure of init" : "a fake failure";
}
#endif

#ifdef FAKE_ROCM
EXPORT int amdsmi_init(uint64_t flags);
EXPORT int amdsmi_shut_down(void);
EXPORT int amdsmi_get_socket_handles(uint32_t *count, void **sockets);
EXPORT int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **processors);

int amdsmi_init(uint64_t flags)
{
    return flags == 2 ? init_code("FAKE_ROCM") : 1;
}
int amdsmi_shut_down(void)
{
    return 0;
}
int amdsmi_get_socket_handles(uint32_t *count, void **sockets)
{
    *count = 1;
    sockets[0] = sockets;
    return 0;
}
int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **processors)
{
    (void)socket, (void)processors;
    return count_code("FAKE_ROCM", count);
}
#endif

#ifdef FAKE_NPU
EXPORT int aclInit(const char *config);
EXPORT int aclFinalize(void);
EXPORT int aclrtGetDeviceCount(uint32_t *count);
EXPORT const char *aclrtGetSocName(void);

int aclInit(const char *config)
{
    (void)config;
    return init_code("FAKE_NPU");
}
int aclFinalize(void)
{
    return 0;
}
int aclrtGetDeviceCount(uint32_t *count)
{
    return count_code("FAKE_NPU", count);
}
const char *aclrtGetSocName(void)
{
    return "FakeAscend";
}
#endif

#ifdef FAKE_XPU
EXPORT int zeInit(uint32_t flags);
EXPORT int zeDriverGet(uint32_t *count, void **drivers);
EXPORT int zeDeviceGet(void *driver, uint32_t *count, void **devices);

int zeInit(uint32_t flags)
{
    (void)flags;
    return init_code("FAKE_XPU");
}
int zeDriverGet(uint32_t *count, void **drivers)
{
    *count = 1;
    drivers[0] = drivers;
    return 0;
}
int zeDeviceGet(void *driver, uint32_t *count, void **devices)
{
    (void)driver, (void)devices;
    return count_code("FAKE_XPU", count);
}
#endif

#ifdef FAKE_MUSA
EXPORT int mtmlLibraryInit(void **session);
EXPORT int mtmlLibraryShutDown(void *session);
EXPORT int mtmlLibraryCountDevice(const void *session, uint32_t *count);

int mtmlLibraryInit(void **session)
{
    *session = session;
    return init_code("FAKE_MUSA");
}
int mtmlLibraryShutDown(void *session)
{
    (void)session;
    return 0;
}
int mtmlLibraryCountDevice(const void *session, uint32_t *count)
{
    (void)session;
    return count_code("FAKE_MUSA", count);
}
#endif

#ifdef FAKE_CUDNN
EXPORT size_t cudnnGetVersion(void);

size_t cudnnGetVersion(void)
{
    return 91002;
}

/* Enough of the backend interface to describe graphs with: descriptors are counted, and the call whose number
 * is $FAKE_CUDNN_FAIL says that something is not supported. */
EXPORT int cudnnCreate(void **handle);
EXPORT int cudnnSetStream(void *handle, void *stream);
EXPORT const char *cudnnGetErrorString(int status);
EXPORT void cudnnGetLastErrorString(char *text, size_t bytes);
EXPORT int cudnnBackendCreateDescriptor(int type, void **descriptor);
EXPORT int cudnnBackendDestroyDescriptor(void *descriptor);
EXPORT int cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t count,
                                    const void *elements);
EXPORT int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t wanted, int64_t *count,
                                    void *elements);
EXPORT int cudnnBackendFinalize(void *descriptor);
EXPORT int cudnnBackendExecute(void *handle, void *plan, void *pack);
/* Read by tests: descriptors alive, calls made, operations of the last graph. */
EXPORT int fake_cudnn_alive, fake_cudnn_calls, fake_cudnn_ops;
int fake_cudnn_alive, fake_cudnn_calls, fake_cudnn_ops;

static int count_call(void)
{
    const char *at = getenv("FAKE_CUDNN_FAIL");
    return ++fake_cudnn_calls == (at ? atoi(at) : 0) ? 3000 : 0;
}
int cudnnCreate(void **handle)
{
    static int one;
    *handle = &one;
    return 0;
}
int cudnnSetStream(void *handle, void *stream)
{
    (void)handle, (void)stream;
    return count_call();
}
const char *cudnnGetErrorString(int status)
{
    return status == 3000 ? "FAKE_NOT_SUPPORTED" : "FAKE_ERROR";
}
void cudnnGetLastErrorString(char *text, size_t bytes)
{
    snprintf(text, bytes, "the fake was told so");
}
int cudnnBackendCreateDescriptor(int type, void **descriptor)
{
    int code = count_call(), *memory = code ? NULL : malloc(sizeof *memory);
    if (code || !memory) return code ? code : 4003;
    *memory = type;
    *descriptor = memory;
    fake_cudnn_alive++;
    return 0;
}
int cudnnBackendDestroyDescriptor(void *descriptor)
{
    free(descriptor);
    fake_cudnn_alive--;
    return 0;
}
int cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t count, const void *elements)
{
    (void)type;
    if (!descriptor || !elements || count < 1) return 2000;
    if (name == 801) fake_cudnn_ops = (int)count;
    return count_call();
}
int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t wanted, int64_t *count,
                             void *elements)
{
    (void)descriptor, (void)type;
    *count = wanted ? 1 : 0;
    if (name == 402) *(int64_t *)elements = 1000;
    return count_call();
}
int cudnnBackendFinalize(void *descriptor)
{
    return descriptor ? count_call() : 2000;
}
int cudnnBackendExecute(void *handle, void *plan, void *pack)
{
    return handle && plan && pack ? count_call() : 2000;
}
#endif

#ifdef FAKE_CUBLAS
#include <dlfcn.h>

/* Single-precision products over the memory of the fake device (modules/fake_gpu.c), whose module is already
 * loaded. */
EXPORT int cublasCreate_v2(void **handle);
EXPORT int cublasDestroy_v2(void *handle);
EXPORT int cublasSgemm_v2(void *handle, int ta, int tb, int m, int n, int k, const float *alpha,
                          const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                          int ldc);

static char *(*view_of)(const void *address);

int cublasCreate_v2(void **handle)
{
    void *module = dlopen(getenv("ATTN_MODULE_PATH"), RTLD_NOW | RTLD_NOLOAD);
    void *address = module ? dlsym(module, "fake_gpu_host_view") : NULL;
    memcpy(&view_of, &address, sizeof address);
    *handle = &view_of;
    return view_of ? 0 : 1;
}
int cublasDestroy_v2(void *handle)
{
    return !handle;
}
/* Columns first; a transposed and b plain, as it is used. */
int cublasSgemm_v2(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const float *a,
                   int lda, const float *b, int ldb, const float *beta, float *c, int ldc)
{
    const float *x = (const void *)view_of(a), *y = (const void *)view_of(b);
    float *z = (void *)view_of(c);
    if (!handle || ta != 1 || tb != 0) return 7;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            float part[16] = {0}, sum = 0; /* sums apart, so that the compiler may keep them side by side */
            for (int l = 0; l < k / 16 * 16; l += 16)
                for (int n16 = 0; n16 < 16; n16++) part[n16] += x[i * lda + l + n16] * y[j * ldb + l + n16];
            for (int l = k / 16 * 16; l < k; l++) sum += x[i * lda + l] * y[j * ldb + l];
            for (int n16 = 0; n16 < 16; n16++) sum += part[n16];
            z[j * ldc + i] = *alpha * sum + (*beta != 0 ? *beta * z[j * ldc + i] : 0);
        }
    return 0;
}
#endif

#ifdef FAKE_COLLECTIVE
EXPORT int fake_collective(void);

int fake_collective(void)
{
    return 0;
}
#endif

#ifdef FAKE_BROKEN
/* A library without the symbols that are looked for. */
EXPORT int fake_broken(void);

int fake_broken(void)
{
    return 0;
}
#endif
