/*
 * Keys and values made smaller for a link, in the manner of CacheGen (Liu et al., SIGCOMM 2024).
 *
 * Problem: moving the KV of a prefix costs its bytes, and bfloat16 spends 16 bits on a number that
 * needs four or five. Idea, in three steps.
 *   1. Tokens are taken in groups of 16. The first of a group is its anchor, kept in 8 bits; the
 *      others are predicted by it, channel by channel, where that makes them smaller (neighbours
 *      are alike in real text, not in random weights), else by 0.
 *   2. What the prediction leaves is divided into steps, 2·bins + 1 of them over the widest of the
 *      channel; early layers get more bins than late ones, as errors there are carried further.
 *   3. The step numbers are written by an entropy coder: rANS (Duda, arXiv:1311.2540) with the
 *      tile's own frequencies in 1/4096, 32 states that share one stream of 16-bit words, as the
 *      lanes of a warp can (Giesen, arXiv:1402.3392).
 *
 * A tile is one head's keys or values of up to 256 tokens in one layer; tiles know nothing of each
 * other, so that they are coded at once by the warps of a GPU or the threads of a processor. Symbol
 * i of a tile is token i / dim, channel i % dim, and belongs to lane i % 32; anchors of channels
 * that are predicted are no symbols, and channels that are not predicted have no anchors. The
 * encoder walks backward and writes words from the end; so the decoder walks forward and, after
 * each row of 32 symbols, the lanes whose state has run low take the next words in the order of the
 * lanes.
 *
 *   tile:  u32 words, u8 bins, u8 0, u16 P: channels predicted │ u32 state[32] │ bf16 step[dim] │
 *          u16 frequency[2·bins + 1] │ u32 bits of predicted[dim / 32] │ bf16 anchor_step[P] │
 *          i8 anchor[groups][P] │ u16 word[words]        (each part, and the whole, padded to 4)
 *   prefix: "KVRKV1", 2 bytes 0 │ u32 layers, kv_heads, head_dim, tokens │
 *          u32 bytes[spans][layers][2][kv_heads] │ the tiles in that order
 *
 * CPU and GPU give the same bytes and numbers: steps are bfloat16, so a step times an 8-bit number
 * is exact in float, and fusing it with a sum changes nothing; frequencies are integers. Numbers
 * that are not finite count as 0, and those beyond 2^100 as that.
 */
#ifndef KVR_KERNELS_KV_CODEC_H
#define KVR_KERNELS_KV_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define KVR_ANYWHERE static __host__ __device__ inline
#else
#define KVR_ANYWHERE static inline
#endif

enum {
    KVR_CODEC_GROUP = 16,
    KVR_CODEC_SPAN = 256, /* tokens of a tile */
    KVR_CODEC_LANES = 32,
    KVR_CODEC_BITS = 12, /* of frequencies */
    KVR_CODEC_BINS = 127,
    KVR_CODEC_ANCHOR_BINS = 127,
    KVR_CODEC_LOW = 1 << 16, /* states are at least this, and begin there */
    KVR_CODEC_HEADER_BYTES = 24,
    KVR_CODEC_DIM = 1024,
};

/* Where the parts of a tile begin, in bytes. */
struct kvr_codec_places {
    uint32_t steps, frequencies, predicted, anchor_steps, anchors, words;
};
enum { KVR_CODEC_STATES = 8 };

KVR_ANYWHERE struct kvr_codec_places kvr_codec_places(
    uint32_t tokens, uint32_t dim, uint32_t bins, uint32_t predicted)
{
    const uint32_t groups = (tokens + KVR_CODEC_GROUP - 1) / KVR_CODEC_GROUP;
    struct kvr_codec_places at;

    at.steps = KVR_CODEC_STATES + 4 * KVR_CODEC_LANES;
    at.frequencies = at.steps + (2 * dim + 3) / 4 * 4;
    at.predicted = at.frequencies + (2 * (2 * bins + 1) + 3) / 4 * 4;
    at.anchor_steps = at.predicted + (dim + 31) / 32 * 4;
    at.anchors = at.anchor_steps + (2 * predicted + 3) / 4 * 4;
    at.words = at.anchors + (groups * predicted + 3) / 4 * 4;
    return at;
}

/* Bytes of a tile of so many words. */
KVR_ANYWHERE size_t kvr_codec_tile_bytes(
    uint32_t tokens, uint32_t dim, uint32_t bins, uint32_t predicted, uint32_t words)
{
    return kvr_codec_places(tokens, dim, bins, predicted).words + ((size_t)words + 1) / 2 * 4;
}

/* Room for any tile: no symbol takes more than one word, nor an anchor more than one byte. */
KVR_ANYWHERE size_t kvr_codec_tile_room(uint32_t tokens, uint32_t dim, uint32_t bins)
{
    return kvr_codec_tile_bytes(tokens, dim, bins, dim, tokens * dim);
}

/*
 * Counts of 2·bins + 1 symbols become frequencies of at least 1 where the count is not 0, 4096 in
 * all: rounded down, then the most frequent symbol (the first of equals) takes what is left, or the
 * most frequent at each time gives what is too much. The sum of the counts is below 2^20.
 */
KVR_ANYWHERE void kvr_codec_normalise(uint32_t *counts, uint32_t symbols)
{
    uint32_t total = 0, sum = 0;

    for (uint32_t i = 0; i < symbols; i++)
        total += counts[i];
    for (uint32_t i = 0; i < symbols; i++) {
        uint32_t share = (counts[i] << KVR_CODEC_BITS) / total;
        counts[i] = counts[i] > 0 && share == 0 ? 1 : share;
        sum += counts[i];
    }
    while (sum != 1u << KVR_CODEC_BITS) {
        uint32_t most = 0;
        for (uint32_t i = 1; i < symbols; i++)
            most = counts[i] > counts[most] ? i : most;
        uint32_t change = sum < 1u << KVR_CODEC_BITS ? (1u << KVR_CODEC_BITS) - sum : ~0u;
        counts[most] += change;
        sum += change;
    }
}

KVR_ANYWHERE void kvr_codec_put(uint8_t *to, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(number >> 8 * i);
}

KVR_ANYWHERE uint32_t kvr_codec_get(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

/* The shape of a packed prefix; its tiles; and the first KVR_CODEC_HEADER_BYTES of it. */
struct kvr_codec_shape {
    uint32_t layers, kv_heads, head_dim, tokens;
};

KVR_ANYWHERE size_t kvr_codec_tiles(const struct kvr_codec_shape *shape)
{
    size_t spans = shape->tokens / KVR_CODEC_SPAN + (shape->tokens % KVR_CODEC_SPAN != 0);

    return spans * shape->layers * 2 * shape->kv_heads;
}

KVR_ANYWHERE void kvr_codec_write_header(const struct kvr_codec_shape *shape, uint8_t *to)
{
    const char magic[9] = "KVRKV1\0";

    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)magic[i];
    kvr_codec_put(to + 8, shape->layers);
    kvr_codec_put(to + 12, shape->kv_heads);
    kvr_codec_put(to + 16, shape->head_dim);
    kvr_codec_put(to + 20, shape->tokens);
}

/*
 * Checks the header and the sizes of a packed prefix against the shape, whose `tokens` are the most
 * that there is room for, and are set to what there are. begin: NULL, or where each tile begins
 * behind the sizes, one more than there are tiles. Returns NULL, or what is wrong.
 */
KVR_ANYWHERE const char *kvr_codec_read_header(
    struct kvr_codec_shape *shape, const uint8_t *bytes, size_t size, uint64_t *begin)
{
    uint8_t head[KVR_CODEC_HEADER_BYTES];
    uint64_t at = 0;

    if (size < sizeof head)
        return "it is cut short";
    kvr_codec_write_header(shape, head);
    for (int i = 0; i < 20; i++)
        if (bytes[i] != head[i])
            return i < 8 ? "it is no packed KV" : "it is of another model";
    uint32_t tokens = kvr_codec_get(bytes + 20);
    if (tokens == 0 || tokens > shape->tokens)
        return "it has no tokens, or more than there is room for";
    shape->tokens = tokens;
    size_t tiles = kvr_codec_tiles(shape);
    if (tiles > (size - sizeof head) / 4)
        return "it is cut short";
    for (size_t i = 0; i < tiles; i++) {
        if (begin)
            begin[i] = at;
        at += kvr_codec_get(bytes + sizeof head + 4 * i);
    }
    if (begin)
        begin[tiles] = at;
    return at == size - sizeof head - 4 * tiles ? NULL : "its tiles are not of the size it says";
}

/* How fine a codec is, by thirds of the layers. */
struct kvr_codec_level {
    const char *name;
    uint8_t bins[3];
};

#endif
