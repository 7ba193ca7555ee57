/*
 * Amounts as people write them on a command line: times ("500us", "10m", plain = milliseconds),
 * sizes ("40GiB", "1MB", plain = bytes), capacities of a cache ("3000000" tokens, "10000b" blocks,
 * "40GiB" bytes).
 */
#ifndef KVR_BASE_QUANTITY_H
#define KVR_BASE_QUANTITY_H

#include "base/error.h"

#include <stdint.h>

enum kvr_capacity_unit { KVR_TOKENS, KVR_BLOCKS, KVR_BYTES };

struct kvr_capacity {
    uint64_t amount; /* 0: not given */
    enum kvr_capacity_unit unit;
};

/* Each reads the whole of text or fails with KVR_BAD_USAGE and a message that quotes it. */
enum kvr_status kvr_quantity_count(const char *text, uint64_t *count, struct kvr_error *error);
enum kvr_status kvr_quantity_real(const char *text, double *number, struct kvr_error *error);
enum kvr_status kvr_quantity_time_ms(const char *text, double *time_ms, struct kvr_error *error);
enum kvr_status kvr_quantity_size(const char *text, uint64_t *bytes, struct kvr_error *error);
enum kvr_status kvr_quantity_capacity(
    const char *text, struct kvr_capacity *capacity, struct kvr_error *error);

/*
 * A capacity in blocks of block_tokens tokens, rounded down. A capacity in bytes needs the bytes
 * that one token's KV takes (kv_bytes_per_token; 0 = unknown, then KVR_BAD_USAGE).
 */
enum kvr_status kvr_capacity_blocks(const struct kvr_capacity *capacity, uint64_t block_tokens,
    double kv_bytes_per_token, uint64_t *blocks, struct kvr_error *error);

#endif
