/*
 * Causal attention over pages, as fast as the CPU's matrix loops allow.
 *
 * Problem: scores of all pairs do not fit into a cache, and a query must get the same bits whether
 * its prefix was computed just now or long ago. Idea: the online softmax of FlashAttention (Dao et
 * al., arXiv:2205.14135; Milakov and Gimelshein, arXiv:1805.02867). A job takes one key head and up
 * to 256 rows, a row being a query token of one of the heads that share the key head. It walks the
 * keys in blocks of 64, counted from the start of the sequence, never from the start of the cached
 * part or of a page, and copies each block out of the pages into panels: keys transposed, values as
 * they are, slots behind the end of the sequence as zeros, unread. Every row then goes through the
 * same blocks in the same order, whatever tile it is in, and skips those that it does not see.
 * Layout of a job's scratch: queries and sums [256][head_dim], scores [256][64], two panels.
 * Cost: two products of 64 · head_dim a row and block, 64 exponentials, and the copying shared by
 * the rows of the tile.
 */
#ifndef KVR_KERNELS_ATTENTION_TILED_H
#define KVR_KERNELS_ATTENTION_TILED_H

#include "kernels/gemm.h"
#include "kernels/operations.h"

enum { KVR_ATTENTION_ROWS = 256, KVR_ATTENTION_KEYS = 64 };

/* Floats of scratch that one job needs. */
size_t kvr_attention_scratch(uint32_t head_dim);

/* Tokens of a tile: so many that the heads of one key head fill it. At least 1; heads / kv_heads is
 * at most KVR_ATTENTION_ROWS. */
uint32_t kvr_attention_tile_tokens(uint32_t heads, uint32_t kv_heads);

/* What kvr_attention() does, for one key head and at most a tile of tokens. head_dim is a multiple
 * of 32. floats: the pages' numbers in single precision, laid as kv->data is, instead of kv->data;
 * NULL: kv->data. */
void kvr_attention_tile(const struct kvr_tile *tile, float *scratch, float *out,
    const float *queries, size_t stride, const struct kvr_kv *kv, const float *floats,
    const uint32_t *page_table, uint32_t layer, uint32_t first, size_t count, uint32_t heads,
    uint32_t kv_head);

#endif
