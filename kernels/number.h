/*
 * bfloat16: the upper half of a float. Weights and cached keys and values are kept in it, on the
 * CPU as on a GPU, so that both work on the same bits.
 */
#ifndef KVR_KERNELS_NUMBER_H
#define KVR_KERNELS_NUMBER_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t kvr_bf16;

static inline float kvr_bf16_value(kvr_bf16 bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &word, sizeof value);
    return value;
}

/* To nearest, ties to even; a NaN stays one. */
static inline kvr_bf16 kvr_bf16_round(float value)
{
    uint32_t word;

    memcpy(&word, &value, sizeof word);
    if ((word & 0x7fffffff) > 0x7f800000)
        return (kvr_bf16)(word >> 16 | 0x40);
    return (kvr_bf16)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

/*
 * FP8 E4M3 (Micikevicius et al., arXiv:2209.05433): sign, four bits of exponent with a bias of 7,
 * three of fraction; no infinity, 448 is the largest. To nearest, ties to even, what is larger
 * becomes 448.
 */
static inline uint8_t kvr_fp8_round(float value)
{
    uint32_t word, sign;
    float size;

    memcpy(&word, &value, sizeof word);
    sign = word >> 24 & 0x80;
    word &= 0x7fffffff;
    if (word > 0x7f800000)
        return 0x7f;
    if (word >= 0x43e00000) /* 448 */
        return (uint8_t)(sign | 0x7e);
    if (word < 0x3c800000) { /* 2^-6: steps of 2^-9 from here on down */
        memcpy(&size, &word, sizeof size);
        size += 16384.0f; /* whose last bit is 2^-9 */
        memcpy(&word, &size, sizeof word);
        return (uint8_t)(sign | (word & 0xf));
    }
    word += 0x7ffff + (word >> 20 & 1);
    return (uint8_t)(sign | ((word >> 20) - (120 << 3)));
}

static inline float kvr_fp8_value(uint8_t bits)
{
    float size = (float)(bits & 7) * 0x1p-9f;

    if ((bits & 0x7f) == 0x7f)
        return NAN;
    if (bits & 0x78)
        size = (float)(8 + (bits & 7)) * 0x1p-10f * (float)(1 << (bits >> 3 & 15));
    return bits & 0x80 ? -size : size;
}

#endif
