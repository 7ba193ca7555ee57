/* Shared by evict.c (lanes), evict_events.c and evict_report.c. */
#ifndef KVR_CACHE_EVICT_INTERNAL_H
#define KVR_CACHE_EVICT_INTERNAL_H

#include "cache/evict.h"
#include "line/worker.h"

/* What a sink needs; stays where it is while lanes move. */
struct kvr_lane_context {
    struct kvr_evict *evict;
    const char *name;
    uint32_t block_tokens;
};

struct kvr_lane {
    char *name;
    struct kvr_capacity capacity;
    uint32_t block_tokens;
    struct kvr_cache *cache; /* NULL until the first request */
    struct kvr_replay replay;
    struct kvr_lane_context *context;
    struct kvr_u64_map tenants; /* hash of the name to the cache's number */
    double other_share;         /* quota "*"; 0: none */
    uint64_t requests, without_blocks, rejected, truncated, accesses;
    double saved_ms, prefill_ms;
};

struct kvr_evict {
    struct kvr_evict_setup setup;
    struct kvr_request_reader *reader;
    struct kvr_lane *lanes;
    size_t lane_count, lane_size;
    struct kvr_u64_map lane_numbers;
    struct kvr_buffer events;
    struct kvr_buffer scratch; /* a worker's name, decoded */
};

enum kvr_status kvr_lane_add(struct kvr_evict *evict, const char *name, size_t length,
    const struct kvr_capacity *capacity, struct kvr_lane **out, struct kvr_error *error);
enum kvr_status kvr_lane_prepare(
    struct kvr_evict *evict, struct kvr_lane *lane, uint32_t block_tokens, struct kvr_error *error);
void kvr_lane_release(struct kvr_lane *lane);

/* The callbacks that write event lines. */
struct kvr_cache_sink kvr_lane_sink(struct kvr_lane_context *context);

#endif
