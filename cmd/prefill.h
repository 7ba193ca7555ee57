/* kvr-prefill's settings and state: prefill_setup.c makes the state of the settings,
 * prefill_measure.c measures the machine in place of reading lines. */
#ifndef KVR_CMD_PREFILL_H
#define KVR_CMD_PREFILL_H

#include "cache/request_line.h"
#include "cmd/tool.h"
#include "cost/cost.h"
#include "kernels/likely.h"
#include "kernels/model_file.h"
#include "kernels/plugin.h"
#include "kernels/prefix_store.h"
#include "kernels/smoke.h"

enum { GPUS_MOST = 64 };

struct prefill_settings {
    const char *backend, *model, *weights, *gpu, *cost_file, *cached, *directory, *codec;
    struct kvr_capacity capacity;
    uint64_t block_size, page_size, threads, seed, tokens, repeats, top, gpus;
    double mfu, expect, seconds;
    bool table, calibrate, smoke, tap, all_gpus, fp8, eager;
};

struct prefill {
    struct tool tool;
    struct prefill_settings settings;
    struct kvr_bench bench; /* bench.runner is NULL with --backend model */
    struct kvr_cost cost;
    struct kvr_prefix_store *store;
    struct kvr_request_reader reader;
    struct kvr_model_file *file; /* NULL: random weights */
    const char *device;
    uint32_t device_number; /* of the GPU */
    float *logits;          /* of the last token; NULL without --top */
    struct kvr_likely *top;
    uint32_t *tokens;
    size_t token_size;
    uint64_t *given;
    size_t given_size;
    uint32_t block_tokens; /* of the store */
};

/* Refuses what does not go together; chooses what --cached auto is with --top. */
enum kvr_status prefill_check(struct prefill_settings *settings, struct kvr_error *error);

/* Whether it measures the machine instead of reading lines. */
bool prefill_measures(const struct prefill_settings *settings);

/* The cost model of --backend model, which computes nothing. */
enum kvr_status prefill_read_cost(struct prefill *prefill, struct kvr_error *error);

/* Starts what computes: backend, model, KV cache. */
enum kvr_status prefill_start(struct prefill *prefill, struct kvr_error *error);

/* --table, --calibrate, --kv-codec, --smoke, into the output's buffer. */
enum kvr_status prefill_measure(struct prefill *prefill, struct kvr_error *error);

#endif
