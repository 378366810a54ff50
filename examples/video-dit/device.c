/* device.c: attention and matrix products on a GPU. */
#include "device.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHTS = 128, BUFFERS = 8 };

/* The part of cuBLAS that is used, as its documentation gives it. */
typedef struct cublas {
    void *library, *handle;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*sgemm)(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const float *alpha,
                 const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc);
} cublas;

/* Memory of the device that grows. */
typedef struct buffer {
    void *memory;
    size_t bytes;
} buffer;

struct device {
    attn_context *context;
    DLDevice id;
    cublas blas;
    pthread_mutex_t lock;
    buffer buffers[BUFFERS];
    struct {
        const float *host;
        float *there;
    } weights[WEIGHTS];
    int weight_count;
    attn_error error; /* of the first product that failed */
};

/* ---- opening ------------------------------------------------------------------------------------ */

static int find_symbols(cublas *b)
{
    const struct {
        const char *name;
        void *place;
    } symbols[] = {
        {"cublasCreate_v2", &b->create}, {"cublasDestroy_v2", &b->destroy}, {"cublasSgemm_v2", &b->sgemm}};
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(b->library, symbols[i].name);
        if (!address) return -1;
        memcpy(symbols[i].place, &address, sizeof address);
    }
    return 0;
}

static int open_cublas(cublas *b, failure *f)
{
    const char *named = getenv("VIDEO_DIT_CUBLAS"),
               *files[] = {named ? named : "libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    size_t count = named ? 1 : sizeof files / sizeof *files;
    for (size_t i = 0; i < count && !b->library; i++) b->library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    if (!b->library || find_symbols(b))
        return fail(
            f, ATTN_KIND_PACKAGE_MISSING,
            "cuBLAS was not found (%s); install it (pip install nvidia-cublas, or NVIDIA's packages) or set "
            "VIDEO_DIT_CUBLAS to the path of libcublas.so",
            files[0]);
    int code = b->create(&b->handle);
    if (!code) return 0;
    b->handle = NULL;
    return fail(f, ATTN_KIND_NOT_IMPLEMENTED, "cuBLAS does not start on this GPU: status %d", code);
}

device *device_open(attn_context *context, failure *f)
{
    device *d = calloc(1, sizeof *d);
    attn_error error = ATTN_ERROR_INIT;
    attn_device_limits limits = {.size = sizeof limits};
    if (!d) {
        fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory for a device");
        return NULL;
    }
    d->context = context;
    d->id = (DLDevice){kDLCUDA, 0};
    d->error = (attn_error)ATTN_ERROR_INIT;
    pthread_mutex_init(&d->lock, NULL);
    int rc = attn_device_get_limits(context, d->id, &limits, &error)
                 ? fail_attn(f, "cannot use the GPU", &error)
                 : open_cublas(&d->blas, f);
    if (!rc) return d;
    device_close(d);
    return NULL;
}

void device_close(device *d)
{
    if (!d) return;
    if (d->blas.handle) d->blas.destroy(d->blas.handle);
    for (int i = 0; i < BUFFERS; i++) attn_device_free(d->context, d->id, d->buffers[i].memory);
    for (int i = 0; i < d->weight_count; i++) attn_device_free(d->context, d->id, d->weights[i].there);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* ---- memory ------------------------------------------------------------------------------------- */

static attn_status reserve(device *d, int at, size_t bytes, void **memory, attn_error *error)
{
    buffer *b = &d->buffers[at];
    attn_status status = ATTN_OK;
    if (b->bytes < bytes) {
        attn_device_free(d->context, d->id, b->memory);
        *b = (buffer){NULL, 0};
        status = attn_device_alloc(d->context, d->id, bytes, &b->memory, error);
        if (!status) b->bytes = bytes;
    }
    *memory = b->memory;
    return status;
}

static attn_status send(device *d, int at, const void *from, size_t bytes, void **memory, attn_error *error)
{
    attn_status status = reserve(d, at, bytes, memory, error);
    return status ? status : attn_device_copy(d->context, d->id, *memory, from, bytes, NULL, error);
}

/* ---- attention ---------------------------------------------------------------------------------- */

typedef struct view {
    DLTensor tensor;
    int64_t shape[4], strides[4];
} view;

static const DLTensor *see(const device *d, view *v, void *data, int64_t rows, int64_t stride,
                           attn_dtype dtype)
{
    *v = (view){.shape = {1, rows, HEADS, HEAD_DIM}, .strides = {rows * stride, stride, HEAD_DIM, 1}};
    v->tensor = (DLTensor){.data = data,
                           .device = d->id,
                           .ndim = 4,
                           .dtype = attn_dtype_to_dl(dtype),
                           .shape = v->shape,
                           .strides = v->strides};
    return &v->tensor;
}

attn_status device_attend(device *d, attn_layer *layer, attn_dtype dtype, const row_view qkv[3],
                          const unsigned char *valid, float *out, int64_t out_stride, const attn_args *call,
                          attn_error *error)
{
    enum { OUT = 3, VALID };
    view views[4];
    void *there[5] = {NULL};
    int64_t rows = qkv[0].rows, keys = qkv[1].rows;
    size_t size = attn_dtype_bytes(dtype), out_bytes = (size_t)((rows - 1) * out_stride + DIM) * sizeof *out;
    attn_status status = ATTN_OK;
    for (int i = 0; i < 3 && !status; i++)
        status = send(d, i, qkv[i].data, (size_t)((qkv[i].rows - 1) * qkv[i].stride + DIM) * size, &there[i],
                      error);
    if (!status) status = reserve(d, OUT, out_bytes, &there[OUT], error);
    if (!status && valid) status = send(d, VALID, valid, (size_t)keys, &there[VALID], error);
    if (status) return status;
    int64_t mask_shape[] = {1, keys};
    DLTensor mask = {.data = there[VALID],
                     .device = d->id,
                     .ndim = 2,
                     .dtype = attn_dtype_to_dl(ATTN_BOOL),
                     .shape = mask_shape};
    attn_args args = *call;
    args.q = see(d, &views[0], there[0], rows, qkv[0].stride, dtype);
    args.k = see(d, &views[1], there[1], keys, qkv[1].stride, dtype);
    args.v = see(d, &views[2], there[2], keys, qkv[2].stride, dtype);
    args.out = see(d, &views[3], there[OUT], rows, out_stride, ATTN_F32);
    args.key_mask = valid ? &mask : NULL;
    status = attn_forward(layer, &args, error);
    if (!status) status = attn_device_copy(d->context, d->id, out, there[OUT], out_bytes, NULL, error);
    return status ? status : attn_device_wait(d->context, d->id, NULL, error);
}

/* ---- products ----------------------------------------------------------------------------------- */

static attn_status weights_there(device *d, const float *w, size_t bytes, float **there, attn_error *error)
{
    void *memory;
    for (int i = 0; i < d->weight_count; i++) {
        *there = d->weights[i].there;
        if (d->weights[i].host == w) return ATTN_OK;
    }
    attn_status status = attn_device_alloc(d->context, d->id, bytes, &memory, error);
    if (!status) status = attn_device_copy(d->context, d->id, memory, w, bytes, NULL, error);
    if (status) return status;
    *there = memory;
    if (d->weight_count < WEIGHTS) {
        d->weights[d->weight_count].host = w;
        d->weights[d->weight_count++].there = memory;
    }
    return ATTN_OK;
}

/* cuBLAS counts columns first: y^T = w x^T of our rows. */
static attn_status multiply(device *d, const float *x, int64_t rows, int in, const float *w, float *y,
                            int out, float beta, attn_error *error)
{
    enum { X = 5, Y, TRANSPOSED = 1, PLAIN = 0 };
    static const float one = 1;
    size_t x_bytes = (size_t)rows * (size_t)in * sizeof *x, y_bytes = (size_t)rows * (size_t)out * sizeof *y;
    void *dx, *dy;
    float *dw;
    attn_status status = weights_there(d, w, (size_t)out * (size_t)in * sizeof *w, &dw, error);
    if (!status) status = send(d, X, x, x_bytes, &dx, error);
    if (!status) status = beta != 0 ? send(d, Y, y, y_bytes, &dy, error) : reserve(d, Y, y_bytes, &dy, error);
    if (status) return status;
    int code = d->blas.sgemm(d->blas.handle, TRANSPOSED, PLAIN, out, (int)rows, in, &one, dw, in, dx, in,
                             &beta, dy, out);
    if (code) {
        *error = (attn_error){.size = sizeof *error, .status = ATTN_INTERNAL, .kind = ATTN_KIND_INTERNAL};
        snprintf(error->text, sizeof error->text, "cuBLAS status %d", code);
        return ATTN_INTERNAL;
    }
    status = attn_device_copy(d->context, d->id, y, dy, y_bytes, NULL, error);
    return status ? status : attn_device_wait(d->context, d->id, NULL, error);
}

void device_product(device *d, const float *x, int64_t rows, int in, const float *w, float *y, int out,
                    float beta)
{
    pthread_mutex_lock(&d->lock);
    if (!d->error.kind) multiply(d, x, rows, in, w, y, out, beta, &d->error);
    pthread_mutex_unlock(&d->lock);
}

int device_failed(device *d, failure *f)
{
    pthread_mutex_lock(&d->lock);
    int rc = d->error.kind ? fail_attn(f, "a matrix product failed", &d->error) : 0;
    pthread_mutex_unlock(&d->lock);
    return rc;
}
