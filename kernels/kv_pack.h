/*
 * kv_codec.h on the CPU: tiles, the plain reference for the kernels in kv_codec.cu; and a whole
 * prefix of them, out of the pages and into others.
 */
#ifndef KVR_KERNELS_KV_PACK_H
#define KVR_KERNELS_KV_PACK_H

#include "base/buffer.h"
#include "kernels/crew.h"
#include "kernels/kv_codec.h"
#include "kernels/operations.h"

/* One head's keys (value 0) or values (1) of tokens first .. first + tokens − 1 in one layer. */
struct kvr_codec_tile {
    const struct kvr_kv *kv;
    const uint32_t *page_table;
    uint32_t layer, value, head, first;
    uint32_t tokens; /* 1 to KVR_CODEC_SPAN */
    uint32_t bins;   /* 1 to KVR_CODEC_BINS; decoding takes the tile's own */
};

/* Writes a tile into `out`, which has kvr_codec_tile_room(), and returns its bytes. */
size_t kvr_codec_encode_tile(const struct kvr_codec_tile *tile, uint8_t *out);

/* Writes a tile's numbers into the pages. Any bytes are safe; false, and the tile's part of the
 * pages holds anything, where they are no tile of this size. */
bool kvr_codec_decode_tile(const struct kvr_codec_tile *tile, const uint8_t *bytes, size_t size);

/* fine, medium and coarse; `default_level` is medium. KVR_BAD_USAGE lists them. */
extern const char kvr_codec_level_names[];
enum kvr_status kvr_codec_level_find(
    const char *name, const struct kvr_codec_level **level, struct kvr_error *error);

/* Appends the first `tokens` tokens of a page table, at least 1. KVR_BAD_USAGE for a head of more
 * than KVR_CODEC_DIM numbers; KVR_NO_MEMORY. */
enum kvr_status kvr_codec_pack(const struct kvr_kv *kv, const uint32_t *page_table, uint32_t tokens,
    const struct kvr_codec_level *level, struct kvr_crew *crew, struct kvr_buffer *out,
    struct kvr_error *error);

/* Writes a packed prefix into pages; page_table has room for max_tokens tokens. *tokens says how
 * many there were. KVR_BAD_INPUT where the bytes are damaged, of another shape, or too many. */
enum kvr_status kvr_codec_unpack(const struct kvr_kv *kv, const uint32_t *page_table,
    uint32_t max_tokens, const void *bytes, size_t size, struct kvr_crew *crew, uint32_t *tokens,
    struct kvr_error *error);

#endif
