#include "kernels/tensor.h"
#include "base/grow.h"
#include "kernels/number.h"

#include <stdlib.h>
#include <string.h>

/* Types by number of kvr_tensor_type. */
static const struct {
    const char *name;
    uint32_t block, bytes;
} types[KVR_TENSOR_TYPES] = {
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},
    {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},
    {"Q8_0", 32, 34},
    {"Q4_K", 256, 144},
    {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},
};

void kvr_tensors_release(struct kvr_tensors *tensors)
{
    free(tensors->items);
    *tensors = (struct kvr_tensors){0};
}

enum kvr_status kvr_tensors_add(
    struct kvr_tensors *tensors, const struct kvr_tensor *tensor, struct kvr_error *error)
{
    struct kvr_tensor *items =
        kvr_grow(tensors->items, &tensors->capacity, tensors->count + 1, sizeof *items);

    if (!items)
        return kvr_error_memory(error);
    tensors->items = items;
    items[tensors->count++] = *tensor;
    return KVR_OK;
}

const char *kvr_tensor_type_name(enum kvr_tensor_type type)
{
    return types[type].name;
}

uint32_t kvr_tensor_block(enum kvr_tensor_type type)
{
    return types[type].block;
}

bool kvr_tensor_bytes(const struct kvr_tensor *tensor, uint64_t *bytes)
{
    uint64_t blocks = tensor->columns / types[tensor->type].block, all;

    return tensor->columns % types[tensor->type].block == 0 &&
           !__builtin_mul_overflow(blocks, tensor->rows, &all) &&
           !__builtin_mul_overflow(all, (uint64_t)types[tensor->type].bytes, bytes) &&
           *bytes <= INT64_MAX;
}

static uint16_t read_u16(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

/* IEEE half precision. What is below its normal range is an integer times 2^-24. */
static float read_half(const unsigned char *at)
{
    uint32_t half = read_u16(at), sign = half >> 15 << 31, exponent = half >> 10 & 31, word;
    uint32_t fraction = half & 1023;
    float value;

    if (exponent == 0) {
        value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    word = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    memcpy(&value, &word, sizeof value);
    return value;
}

static float read_scalar(enum kvr_tensor_type type, const unsigned char *at)
{
    float value;

    if (type == KVR_TENSOR_F16)
        return read_half(at);
    if (type == KVR_TENSOR_BF16)
        return kvr_bf16_value(read_u16(at));
    memcpy(&value, at, sizeof value);
    return value;
}

/* Q4_0, Q4_1, Q5_0, Q5_1: a nibble, with or without a fifth bit and a minimum. */
static void read_nibbles(const unsigned char *at, bool fifth, bool minimum, float *out)
{
    float scale = read_half(at), least = minimum ? read_half(at + 2) : 0;
    const unsigned char *bits = at + (minimum ? 4 : 2), *nibbles = bits + (fifth ? 4 : 0);
    int middle = minimum ? 0 : fifth ? 16 : 8;

    for (int i = 0; i < 32; i++) {
        int q = nibbles[i % 16] >> i / 16 * 4 & 15;
        if (fifth)
            q |= (bits[i / 8] >> i % 8 & 1) << 4;
        out[i] = (float)(q - middle) * scale + least;
    }
}

static void read_q8_0(const unsigned char *at, float *out)
{
    float scale = read_half(at);

    for (int i = 0; i < 32; i++)
        out[i] = (float)(signed char)at[2 + i] * scale;
}

/* Q4_K and Q5_K: eight runs of 32. The six bits of the scales and minima of the first four runs
 * stand in bytes of their own; those of the last four have their low nibbles in the last four bytes
 * and their upper bits on top of the first eight. */
static void read_q45_k(const unsigned char *at, bool fifth, float *out)
{
    float scale = read_half(at), least = read_half(at + 2);
    const unsigned char *packed = at + 4, *bits = at + 16, *nibbles = bits + (fifth ? 32 : 0);

    for (int run = 0; run < 8; run++) {
        int low = run % 4;
        int s = run < 4 ? packed[low] & 63 : (packed[8 + low] & 15) | packed[low] >> 6 << 4;
        int m = run < 4 ? packed[4 + low] & 63 : packed[8 + low] >> 4 | packed[4 + low] >> 6 << 4;
        float run_scale = scale * (float)s, run_least = least * (float)m;
        for (int i = 0; i < 32; i++) {
            int q = nibbles[run / 2 * 32 + i] >> run % 2 * 4 & 15;
            if (fifth)
                q |= (bits[i] >> run & 1) << 4;
            out[run * 32 + i] = run_scale * (float)q - run_least;
        }
    }
}

/* Two halves of 128, each of four runs of 32; a scale for every 16. */
static void read_q6_k(const unsigned char *at, float *out)
{
    const unsigned char *low = at, *high = at + 128;
    const signed char *scales = (const signed char *)at + 192;
    float scale = read_half(at + 208);

    for (int i = 0; i < 256; i++) {
        int half = i / 128, run = i / 32 % 4, column = i % 32;
        int q = low[half * 64 + run % 2 * 32 + column] >> run / 2 * 4 & 15;
        q |= (high[half * 32 + column] >> run * 2 & 3) << 4;
        out[i] = scale * (float)scales[i / 16] * (float)(q - 32);
    }
}

static void read_block(enum kvr_tensor_type type, const unsigned char *at, float *out)
{
    switch (type) {
    case KVR_TENSOR_Q8_0:
        read_q8_0(at, out);
        break;
    case KVR_TENSOR_Q4_K:
    case KVR_TENSOR_Q5_K:
        read_q45_k(at, type == KVR_TENSOR_Q5_K, out);
        break;
    case KVR_TENSOR_Q6_K:
        read_q6_k(at, out);
        break;
    default:
        read_nibbles(at, type == KVR_TENSOR_Q5_0 || type == KVR_TENSOR_Q5_1,
            type == KVR_TENSOR_Q4_1 || type == KVR_TENSOR_Q5_1, out);
    }
}

void kvr_tensor_read(
    const struct kvr_tensor *tensor, uint64_t row, uint64_t first, size_t count, float *out)
{
    uint32_t block = types[tensor->type].block, bytes = types[tensor->type].bytes;
    const unsigned char *at =
        tensor->data + (row * (tensor->columns / block) + first / block) * bytes;

    for (size_t i = 0; i < count; i += block, at += bytes) {
        if (block == 1)
            out[i] = read_scalar(tensor->type, at);
        else
            read_block(tensor->type, at, out + i);
    }
}
