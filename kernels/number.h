/*
 * bfloat16: the upper half of a float. Weights and cached keys and values are kept in it, on the
 * CPU as on a GPU, so that both work on the same bits.
 */
#ifndef KVR_KERNELS_NUMBER_H
#define KVR_KERNELS_NUMBER_H

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

#endif
