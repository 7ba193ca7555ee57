/*
 * Random weights that are the same bits on every machine and every device, in any order.
 *
 * Problem: comparing a GPU with a CPU, or one split of a model with another, needs equal weights,
 * and gigabytes of them should neither be stored nor drawn one after the other. Idea: a weight is a
 * function of (seed, tensor, index) alone, as in counter-based generators (Salmon et al., "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011). Eight indices share one 64-bit hash; a byte b of
 * it becomes the odd number 2b − 255, times a power of two. Such a number has eight significant
 * bits, so bfloat16 holds it exactly: no rounding and no libm stand between the counter and the
 * bits. Variance of 2b − 255 is 21845; the power of two makes that of a weight about 1 / fan-in.
 */
#ifndef KVR_KERNELS_WEIGHT_H
#define KVR_KERNELS_WEIGHT_H

#include "base/random.h"
#include "kernels/number.h"

#include <stddef.h>

/* A tensor of a layer; tensors of no layer have layer 0 and kinds of their own. */
enum kvr_weight_kind {
    KVR_WEIGHT_EMBEDDING,
    KVR_WEIGHT_LOGITS,
    KVR_WEIGHT_FINAL_NORM,
    KVR_WEIGHT_ATTENTION_NORM,
    KVR_WEIGHT_QUERY_NORM,
    KVR_WEIGHT_KEY_NORM,
    KVR_WEIGHT_QKV, /* [(heads + 2·kv_heads)·head_dim][hidden] */
    KVR_WEIGHT_OUT, /* [hidden][heads·head_dim] */
    KVR_WEIGHT_INNER_NORM,
    KVR_WEIGHT_GATE_UP,  /* [2·inner][hidden], all gates first */
    KVR_WEIGHT_DOWN,     /* [hidden][inner] */
    KVR_WEIGHT_KV,       /* what fills the pages of a prefix that nobody computed */
    KVR_WEIGHT_QKV_BIAS, /* of real models only */
};

struct kvr_weight_stream {
    uint64_t key;
    float scale;
};

/* fan_in: products that are summed into one output. */
static inline struct kvr_weight_stream kvr_weight_stream(
    uint64_t seed, enum kvr_weight_kind kind, uint32_t layer, uint32_t fan_in)
{
    struct kvr_weight_stream stream;

    stream.key = kvr_mix64(kvr_mix64(seed + 0x9e3779b97f4a7c15u) + ((uint64_t)kind << 32 | layer));
    stream.scale = 1;
    for (uint64_t four = 1; four < (uint64_t)21845 * fan_in; four *= 4)
        stream.scale *= 0.5f;
    return stream;
}

static inline float kvr_weight_value(const struct kvr_weight_stream *stream, uint64_t index)
{
    uint64_t word = kvr_mix64(stream->key + (index / 8) * 0x9e3779b97f4a7c15u);
    int byte = (int)(word >> index % 8 * 8 & 255);

    return (float)(2 * byte - 255) * stream->scale;
}

/* A norm's weight: one of the sixteen bfloat16 numbers round 1. */
static inline float kvr_weight_norm_value(const struct kvr_weight_stream *stream, uint64_t index)
{
    uint64_t word = kvr_mix64(stream->key + (index / 8) * 0x9e3779b97f4a7c15u);

    return (float)(120 + (int)(word >> (index % 8 * 8 + 4) & 15)) / 128;
}

/* The weights first .. first + count - 1 of a tensor. */
void kvr_weight_fill(
    const struct kvr_weight_stream *stream, uint64_t first, size_t count, kvr_bf16 *out);

#endif
