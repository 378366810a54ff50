/* tensor.c: owned tensors and access to their elements. */
#include "tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define ALIGNMENT 64

attn_status tensor_make(struct tensor *tensor, attn_dtype dtype, int ndim, const int64_t *shape,
                        attn_error *error)
{
    size_t bytes = attn_dtype_bytes(dtype);
    memset(tensor, 0, sizeof *tensor);
    if (ndim < 0 || ndim > TENSOR_DIMS)
        return cli_fail(error, ATTN_KIND_INVALID_SHAPE, "a tensor has %d axes; at most %d are supported",
                        ndim, TENSOR_DIMS);
    for (int i = ndim; i-- > 0;) {
        tensor->shape[i] = shape[i];
        tensor->strides[i] =
            i + 1 < ndim ? tensor->strides[i + 1] * (shape[i + 1] > 0 ? shape[i + 1] : 1) : 1;
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, (size_t)(shape[i] ? shape[i] : 1), &bytes) ||
            bytes > PTRDIFF_MAX - ALIGNMENT)
            return cli_fail(error, ATTN_KIND_INVALID_SHAPE,
                            "axis %d of a tensor has size %lld; the tensor would not "
                            "fit into memory",
                            i, (long long)shape[i]);
    }
    tensor->bytes =
        (size_t)(tensor_count(&(DLTensor){.ndim = ndim, .shape = tensor->shape})) * attn_dtype_bytes(dtype);
    tensor->memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!tensor->memory)
        return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a tensor of %zu bytes", tensor->bytes);
    tensor->dtype = dtype;
    tensor->dl = (DLTensor){.data = tensor->memory,
                            .device = {kDLCPU, 0},
                            .ndim = ndim,
                            .dtype = attn_dtype_to_dl(dtype),
                            .shape = tensor->shape,
                            .strides = tensor->strides};
    return ATTN_OK;
}

void tensor_free(struct tensor *tensor)
{
    free(tensor->memory);
    memset(tensor, 0, sizeof *tensor);
}

int64_t tensor_count(const DLTensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->shape[i];
    return count;
}

/* ---- elements ---------------------------------------------------------------------------------- */

static float bits_to_f32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double f16_to_f64(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double magnitude = exponent == 31  ? fraction ? (double)NAN : (double)INFINITY
                       : exponent == 0 ? ldexp(fraction, -24)
                                       : ldexp(fraction + 1024, exponent - 25);
    return half >> 15 ? -magnitude : magnitude;
}

/* Rounds a double to a 16-bit format of e exponent bits, bias and f fraction bits, nearest even, in one step:
 * by way of a float it would be rounded twice. */
static uint16_t f64_to_16(double value, int fraction_bits, int bias)
{
    int top = 2 * bias + 1; /* exponent field of infinities */
    uint16_t sign = (uint16_t)(signbit(value) ? 0x8000 : 0);
    int exponent;
    if (isnan(value)) return (uint16_t)(sign | top << fraction_bits | 1 << (fraction_bits - 1));
    if (isinf(value)) return (uint16_t)(sign | top << fraction_bits);
    if (value == 0) return sign;
    frexp(value, &exponent);
    exponent--; /* now 1 <= |value| / 2^exponent < 2 */
    if (exponent < 1 - bias) exponent = 1 - bias;
    /* Multiples of the last place; nearbyint rounds to nearest even. The carry into the exponent comes by
     * itself. */
    double scaled = nearbyint(ldexp(fabs(value), fraction_bits - exponent));
    double field = scaled + ldexp(exponent + bias - 1, fraction_bits);
    if (field >= ldexp(top, fraction_bits)) return (uint16_t)(sign | top << fraction_bits);
    return (uint16_t)(sign | (uint16_t)field);
}

double tensor_fetch(const void *address, attn_dtype dtype)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } u = {0};
    memcpy(&u, address, attn_dtype_bytes(dtype));
    switch (dtype) {
    case ATTN_F32:
        return (double)u.f32;
    case ATTN_F64:
        return u.f64;
    case ATTN_F16:
        return f16_to_f64(u.u16);
    case ATTN_BF16:
        return (double)bits_to_f32((uint32_t)u.u16 << 16);
    case ATTN_I32:
        return u.i32;
    case ATTN_I64:
        return (double)u.i64;
    case ATTN_I8:
        return u.i8;
    default:
        return u.u8; /* u8, bool */
    }
}

void tensor_store(void *address, attn_dtype dtype, double value)
{
    uint16_t u16;
    float f32;
    switch (dtype) {
    case ATTN_F64:
        memcpy(address, &value, sizeof value);
        return;
    case ATTN_F32:
        f32 = (float)value;
        memcpy(address, &f32, sizeof f32);
        return;
    case ATTN_F16:
    case ATTN_BF16:
        u16 = dtype == ATTN_F16 ? f64_to_16(value, 10, 15) : f64_to_16(value, 7, 127);
        memcpy(address, &u16, sizeof u16);
        return;
    case ATTN_I32:
        memcpy(address, &(int32_t){(int32_t)value}, sizeof(int32_t));
        return;
    case ATTN_I64:
        memcpy(address, &(int64_t){(int64_t)value}, sizeof(int64_t));
        return;
    default:
        *(uint8_t *)address = (uint8_t)(int)value;
        return; /* u8, i8, bool */
    }
}

double tensor_round(attn_dtype dtype, double value)
{
    char bytes[8];
    tensor_store(bytes, dtype, value);
    return tensor_fetch(bytes, dtype);
}

const char *tensor_address(const DLTensor *tensor, int64_t index)
{
    int64_t offset = 0, dense = 1, size = tensor->dtype.bits / 8;
    for (int i = tensor->ndim; i-- > 0;) {
        int64_t at = index % tensor->shape[i];
        index /= tensor->shape[i];
        offset += at * (tensor->strides ? tensor->strides[i] : dense);
        dense *= tensor->shape[i];
    }
    return (const char *)tensor->data + tensor->byte_offset + offset * size;
}

double tensor_at(const DLTensor *tensor, int64_t index)
{
    return tensor_fetch(tensor_address(tensor, index), attn_dtype_from_dl(tensor->dtype));
}

double *tensor_values(const DLTensor *tensor)
{
    int64_t count = tensor_count(tensor);
    int64_t row = tensor->ndim ? tensor->shape[tensor->ndim - 1] : 1;
    attn_dtype dtype = attn_dtype_from_dl(tensor->dtype);
    int64_t step =
        (tensor->strides && tensor->ndim ? tensor->strides[tensor->ndim - 1] : 1) * tensor->dtype.bits / 8;
    double *values = malloc((size_t)(count ? count : 1) * sizeof *values);
    if (!values) return NULL;
    for (int64_t i = 0; i < count; i += row) {
        const char *at = tensor_address(tensor, i);
        for (int64_t c = 0; c < row; c++) values[i + c] = tensor_fetch(at + c * step, dtype);
    }
    return values;
}
