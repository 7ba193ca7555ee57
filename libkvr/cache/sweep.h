/*
 * Many caches over one trace in memory, on all cores: the cells of --sweep and --advise.
 *
 * A cell is a block cache with one policy, admission rule, size and pool. The trace (one a worker,
 * each with a cache of its own of that size) is read only and shared by the threads; a cell costs
 * one replay. For every size there is also a cell of belady-bypass, the most that any policy with
 * any rule could reach there.
 */
#ifndef KVR_CACHE_SWEEP_H
#define KVR_CACHE_SWEEP_H

#include "cache/choice.h"
#include "cache/tiers.h"
#include "cache/trace.h"

enum { KVR_SWEEP_CELLS_MOST = 10000, KVR_SWEEP_NAME = 64 };

struct kvr_sweep_cell {
    char policy_text[KVR_SWEEP_NAME], admission_text[KVR_SWEEP_NAME]; /* as written */
    const struct kvr_policy *policy;
    struct kvr_parameter_value policy_values[KVR_POLICY_PARAMETERS_MOST];
    const struct kvr_admission_rule *admission;
    struct kvr_parameter_value admission_values[KVR_ADMISSION_PARAMETERS_MOST];
    uint64_t capacity_blocks;
    double pool_shared;
    bool plain;
    bool ceiling;         /* added for its size; not asked for */
    const uint64_t *pins; /* ids pinned from the start; the caller's */
    size_t pin_count;
    /* the answer */
    uint64_t hits, hit_tokens, inserted, evicted, refused;
    uint64_t requests, accesses, prompt_tokens;
    double saved_ms, prefill_ms;
    enum kvr_status status;
    struct kvr_error error;
};

struct kvr_sweep {
    struct kvr_trace *traces; /* one a worker */
    size_t trace_count;
    uint32_t block_tokens;
    double kv_bytes_per_token;
    struct kvr_prefill_cost prefill;
    uint64_t seed;
    uint32_t threads; /* 0: one a core */
    bool plain;
    struct kvr_sweep_cell *cells;
    size_t cell_count, cell_size;
};

void kvr_sweep_release(struct kvr_sweep *sweep); /* the cells only */

/*
 * Adds the cells of a grid such as "policy=lru,sieve size=10k:10M:x2 admission=always,second
 * pool=0,30%": each axis a list; sizes are capacities, or FIRST:LAST:xFACTOR (or ×FACTOR) or
 * FIRST:LAST:+STEP. Missing axes: lru, always, no pool; size must be there. A cell of
 * belady-bypass is added for each size. KVR_BAD_USAGE.
 */
enum kvr_status kvr_sweep_grid(struct kvr_sweep *sweep, const char *grid, struct kvr_error *error);

/* Adds one cell with the texts' policy and rule. */
enum kvr_status kvr_sweep_add(struct kvr_sweep *sweep, struct kvr_text_piece policy,
    struct kvr_text_piece admission, uint64_t capacity_blocks, double pool_shared,
    struct kvr_sweep_cell **cell, struct kvr_error *error);

/* Runs all cells that have no answer yet; the first failure is returned. */
enum kvr_status kvr_sweep_run(struct kvr_sweep *sweep, struct kvr_error *error);

/* The ceiling's cell for a size; NULL: none. */
const struct kvr_sweep_cell *kvr_sweep_ceiling(
    const struct kvr_sweep *sweep, uint64_t capacity_blocks);

/* One NDJSON object a cell, or a table. */
void kvr_sweep_write_json(const struct kvr_sweep *sweep, struct kvr_buffer *out);
void kvr_sweep_write_table(const struct kvr_sweep *sweep, struct kvr_buffer *out);

#endif
