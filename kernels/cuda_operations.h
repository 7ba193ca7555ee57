/*
 * The operations of operations.h on a GPU: the same meaning, activations and weights in bfloat16,
 * sums in float. Each is one function that starts its kernel on a stream; arrays are the device's.
 * Widths are multiples of 8.
 */
#ifndef KVR_KERNELS_CUDA_OPERATIONS_H
#define KVR_KERNELS_CUDA_OPERATIONS_H

#include "kernels/kv_codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
typedef struct CUstream_st *kvr_stream; /* cudaStream_t */

/* The new tokens of one sequence in a batch of rows. */
struct kvr_cuda_part {
    uint32_t row, count;   /* its rows */
    uint32_t first;        /* position of the first */
    uint32_t table_offset; /* of its page table in the batch's */
};

struct kvr_cuda_kv {
    uint16_t *layer; /* [pages][2][kv_heads][page_tokens][head_dim] */
    uint32_t kv_heads, head_dim, page_tokens;
};

/* Weights of a stream (weight.h): rows of `count`, the first from `first` on, each `stride` behind
 * the one before; out has no gaps. norm: those round 1. */
void kvr_cuda_weights(kvr_stream stream, uint16_t *out, uint64_t key, float scale, bool norm,
    uint64_t first, size_t count, size_t rows, size_t stride);

/* `count` numbers in 8 bits (FP8 E4M3): out[i] = x[i] / scale[0] rounded (kvr_fp8_round()), with
 * scale[0] their largest over 448; 1 where all are 0. scale[1] is the kernel's. */
void kvr_cuda_fp8(kvr_stream stream, uint8_t *out, float *scale, const uint16_t *x, size_t count);

void kvr_cuda_embed(kvr_stream stream, uint16_t *out, const uint16_t *table, const uint32_t *tokens,
    uint32_t count, uint32_t hidden);

/* Rows of residual, added and out are `stride` numbers apart; `heads` rows of `width` stand in each
 * (1 for a whole row). out may be residual. */
void kvr_cuda_rms_norm(kvr_stream stream, uint16_t *out, uint16_t *residual, const uint16_t *added,
    const uint16_t *weight, uint32_t rows, uint32_t stride, uint32_t heads, uint32_t width,
    float epsilon);

/* turns[position][head_dim / 2][2], see kvr_rope_turns(). */
void kvr_cuda_rope(kvr_stream stream, uint16_t *x, uint32_t stride, const float *turns,
    const uint32_t *positions, uint32_t rows, uint32_t heads, uint32_t head_dim);

/* slots[row]: page · page_tokens + place in the page. */
void kvr_cuda_kv_write(kvr_stream stream, const struct kvr_cuda_kv *kv, const uint32_t *slots,
    const uint16_t *keys, const uint16_t *values, uint32_t stride, uint32_t rows);

/* head_dim 64, 128 or 256; most_count: the largest count of a part; out[rows][heads][head_dim].
 * False for another head_dim, or heads / kv_heads above 64. */
bool kvr_cuda_attention(kvr_stream stream, uint16_t *out, const uint16_t *queries, uint32_t stride,
    const struct kvr_cuda_kv *kv, const uint32_t *page_tables, const struct kvr_cuda_part *parts,
    uint32_t part_count, uint32_t most_count, uint32_t heads);

void kvr_cuda_swiglu(
    kvr_stream stream, uint16_t *out, const uint16_t *gate_up, uint32_t rows, uint32_t inner);

/* x[rows][hidden]; those rows that last_rows names: logits[count][vocabulary] in float. */
void kvr_cuda_logits(kvr_stream stream, float *logits, const uint16_t *x, const uint32_t *last_rows,
    uint32_t count, const uint16_t *table, uint32_t vocabulary, uint32_t hidden);

/* The first `tokens` tokens of a page table in pages of all layers: kv.layer is the first of
 * `layers`, each of `pages` pages. bins: of the thirds of the layers. Head dims to KVR_CODEC_DIM.
 */
struct kvr_cuda_codec {
    struct kvr_cuda_kv kv;
    const uint32_t *page_table; /* the device's */
    uint32_t layers, pages, tokens;
    uint8_t bins[3];
};

/* Tiles first_tile and following (kv_codec.h), each into its room of room_bytes, a multiple of 4
 * and at least kvr_codec_tile_room(); sizes[tiles] says how much it takes. */
void kvr_cuda_codec_encode(kvr_stream stream, const struct kvr_cuda_codec *codec,
    uint32_t first_tile, uint32_t tiles, uint8_t *rooms, size_t room_bytes, uint32_t *sizes);

/* All tiles of a prefix back into the pages; tile i lies in bytes at begin[i] .. begin[i + 1], a
 * multiple of 4. damaged[i] becomes 1 where it is none. */
void kvr_cuda_codec_decode(kvr_stream stream, const struct kvr_cuda_codec *codec, uint32_t tiles,
    const uint8_t *bytes, const uint64_t *begin, uint32_t *damaged);

#ifdef __cplusplus
}
#endif

#endif
