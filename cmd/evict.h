/* kvr-evict's settings, and what stands between them and the library: evict_setup.c reads them,
 * evict_answers.c runs the questions that need the whole trace. */
#ifndef KVR_CMD_EVICT_H
#define KVR_CMD_EVICT_H

#include "cache/evict.h"
#include "cmd/tool.h"
#include "cost/cost.h"

#define EVICT_POLICY_NAMES                                                                         \
    "lru|fifo|lfu|clock|sieve|s3fifo|s3fifo-cold|slru|arc|gdsf|value|ttl|random|belady|"           \
    "belady-bypass"
#define EVICT_ADMISSION_NAMES "always|min-length|max-length|second|tinylfu|prefix-aware"

struct evict_settings {
    struct kvr_capacity capacity;
    uint64_t block_size;
    const char *engine, *policy, *admission;
    bool outputs, plain, skip_last_token;
    uint64_t live, seed;
    const char *pin, *pool, *tenant, *session;
    struct kvr_text_list quotas, tiers;
    const char *model, *gpu, *cost_file;
    bool json, table, events, free_queue;
    const char *worker, *sweep;
    bool curve, advise;
    double sample, mfu;
    uint64_t points, threads;
};

struct evict_program {
    struct evict_settings *settings;
    struct kvr_evict_setup setup;
    struct kvr_request_reader reader;
    struct kvr_expression *pin;
    struct kvr_cost cost;
    struct kvr_evict *evict;
    bool capacity_given;
    bool has_time;    /* a line had a timestamp */
    bool needs_trace; /* the whole of it in memory */
    struct kvr_parameter_value engine_values[KVR_ENGINE_PARAMETERS_MOST];
    struct kvr_parameter_value policy_values[KVR_POLICY_PARAMETERS_MOST];
    struct kvr_parameter_value admission_values[KVR_ADMISSION_PARAMETERS_MOST];
    struct kvr_quota quotas[KVR_QUOTAS_MOST];
    struct kvr_tier tiers[KVR_MEDIUM_COUNT];
};

/* Reads the settings into setup, reader, cost. KVR_BAD_USAGE names the option. */
enum kvr_status evict_prepare(struct evict_program *evict, struct kvr_error *error);
void evict_release(struct evict_program *evict);

/* --engine help. */
void evict_describe(struct kvr_buffer *out);

/* --sweep, --curve, --advise, and a summary with an offline policy. */
enum kvr_status evict_answer(
    struct tool *tool, struct evict_program *evict, struct kvr_error *error);

#endif
