/*
 * Replaying request lines through caches, one a worker: what kvr-evict does with each line.
 *
 * A request line goes to the cache of its route.worker, or to the one cache of a stream that is not
 * routed. Caches are made when their worker is first named. Pins, worker lines and quotas act on
 * them; what the caches do can be had as event lines, so that a replay stands in for workers.
 */
#ifndef KVR_CACHE_EVICT_H
#define KVR_CACHE_EVICT_H

#include "base/quantity.h"
#include "cache/choice.h"
#include "cache/replay.h"
#include "cache/request_line.h"
#include "cache/tiers.h"

enum { KVR_QUOTAS_MOST = 64, KVR_WORKERS_MOST = 65534 };

struct kvr_quota {
    struct kvr_text_piece tenant; /* "*": every other tenant, each by itself */
    double share;
};

struct kvr_evict_setup {
    const struct kvr_engine *engine;
    const struct kvr_parameter_value *engine_values;
    const struct kvr_policy *policy; /* of the block engine, as the next six */
    const struct kvr_parameter_value *policy_values;
    const struct kvr_admission_rule *admission;
    const struct kvr_parameter_value *admission_values;
    bool plain, outputs;
    double pool_shared;
    const struct kvr_quota *quotas;
    size_t quota_count;
    const struct kvr_tier *tiers; /* none: one cache of capacity */
    size_t tier_count;
    struct kvr_capacity capacity;
    double kv_bytes_per_token;
    struct kvr_prefill_cost prefill; /* zeros: times are not told */
    uint32_t block_tokens;           /* of the caches; 0: each worker's first request tells */
    uint64_t seed;
    uint32_t live;
    bool skip_last_token;
    bool events;
    const char *worker; /* the name where lines are not routed */
};

struct kvr_evict_result {
    struct kvr_replay_result replay;
    uint64_t hit_tokens; /* of all media */
    uint64_t evicted_tokens;
    bool several_tiers;
    struct kvr_tier_times times;
};

struct kvr_evict;

enum kvr_status kvr_evict_create(struct kvr_evict **out, const struct kvr_evict_setup *setup,
    struct kvr_request_reader *reader, struct kvr_error *error);
void kvr_evict_destroy(struct kvr_evict *evict);

/* Serves one request. KVR_BAD_INPUT where the request is at fault. */
enum kvr_status kvr_evict_request(struct kvr_evict *evict, struct kvr_request_view *view,
    struct kvr_evict_result *result, struct kvr_error *error);

/* Pins the first `tokens` of the request just read (at its worker), now and when they come later.
 */
enum kvr_status kvr_evict_pin_request(struct kvr_evict *evict, const struct kvr_request_view *view,
    uint64_t tokens, struct kvr_error *error);

/* A pin, unpin or worker line; other events are let be. */
enum kvr_status kvr_evict_event(
    struct kvr_evict *evict, const struct kvr_line *line, struct kvr_error *error);

/* Requests that are still live end. */
enum kvr_status kvr_evict_finish(struct kvr_evict *evict, struct kvr_error *error);

/* Appends the value of `cache`. */
void kvr_evict_write_result(const struct kvr_evict_result *result, struct kvr_buffer *out);

/* Moves the event lines since the last call to out, each ended by a newline. */
void kvr_evict_write_events(struct kvr_evict *evict, struct kvr_buffer *out);

/* Appends an event line for each cache that has a free queue (vLLM): the blocks that no request
 * holds, the next to be taken first, null for those without an id. */
void kvr_evict_write_free_queues(const struct kvr_evict *evict, struct kvr_buffer *out);

struct kvr_evict_totals {
    uint64_t requests, without_blocks, rejected, truncated;
    uint64_t accesses;            /* blocks looked for */
    struct kvr_cache_stats stats; /* summed over workers */
    double saved_ms;              /* prefill time of the tokens hit */
    double prefill_ms;            /* of the others */
    struct kvr_tier_times times;
    double written_bytes[KVR_MEDIUM_COUNT];
    bool has_tiers;
    size_t workers;
    uint64_t refused, expired; /* block engine */
};

/* Of worker `index`, or of all for index == workers. The name may be NULL. */
void kvr_evict_totals(const struct kvr_evict *evict, size_t index, struct kvr_evict_totals *totals,
    const char **name);

/* Appends a number with at most `decimals` decimals, no trailing zeros. */
void kvr_append_decimal(struct kvr_buffer *out, double number, int decimals);

/* The summary as one JSON object, or as a table for people. */
void kvr_evict_write_json(const struct kvr_evict *evict, struct kvr_buffer *out);
void kvr_evict_write_table(const struct kvr_evict *evict, struct kvr_buffer *out);

#endif
