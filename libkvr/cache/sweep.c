#include "cache/sweep.h"

#include "base/grow.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

void kvr_sweep_release(struct kvr_sweep *sweep)
{
    free(sweep->cells);
    sweep->cells = NULL;
    sweep->cell_count = sweep->cell_size = 0;
}

enum kvr_status kvr_sweep_add(struct kvr_sweep *sweep, struct kvr_text_piece policy,
    struct kvr_text_piece admission, uint64_t capacity_blocks, double pool_shared,
    struct kvr_sweep_cell **out, struct kvr_error *error)
{
    if (sweep->cell_count == KVR_SWEEP_CELLS_MOST)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "a sweep of more than %d cells", KVR_SWEEP_CELLS_MOST);
    if (capacity_blocks < 1 || capacity_blocks > KVR_STORE_CAPACITY_MOST)
        return kvr_error_set(error, KVR_BAD_USAGE, "a size of %llu blocks is out of range",
            (unsigned long long)capacity_blocks);
    if (policy.length >= KVR_SWEEP_NAME || admission.length >= KVR_SWEEP_NAME)
        return kvr_error_set(error, KVR_BAD_USAGE, "a policy or rule with too long a text");
    struct kvr_sweep_cell *cells =
        kvr_grow(sweep->cells, &sweep->cell_size, sweep->cell_count + 1, sizeof *cells);
    if (!cells)
        return kvr_error_memory(error);
    sweep->cells = cells;
    struct kvr_sweep_cell *cell = &cells[sweep->cell_count];
    memset(cell, 0, sizeof *cell);
    memcpy(cell->policy_text, policy.text, policy.length);
    memcpy(cell->admission_text, admission.text, admission.length);
    cell->capacity_blocks = capacity_blocks;
    cell->pool_shared = pool_shared;
    cell->plain = sweep->plain;
    cell->status = KVR_END; /* not run yet */
    enum kvr_status status = kvr_choice_policy(policy, &cell->policy, cell->policy_values, error);
    if (status == KVR_OK)
        status = kvr_choice_admission(admission, &cell->admission, cell->admission_values, error);
    if (status != KVR_OK)
        return status;
    sweep->cell_count++;
    if (out)
        *out = cell;
    return KVR_OK;
}

/* ── running ── */

static enum kvr_status run_trace(
    const struct kvr_sweep *sweep, const struct kvr_trace *trace, struct kvr_sweep_cell *cell)
{
    bool offline = cell->policy->needs_future;
    struct kvr_block_options options = {
        .capacity_blocks = cell->capacity_blocks,
        .block_tokens = sweep->block_tokens,
        .seed = sweep->seed,
        .policy = cell->policy,
        .policy_values = cell->policy_values,
        .admission = cell->admission,
        .admission_values = cell->admission_values,
        .plain = cell->plain,
        .pool_shared = cell->pool_shared,
        .future = offline ? trace->future : NULL,
        .future_length = offline ? trace->id_count : 0,
    };
    struct kvr_cache *cache;

    enum kvr_status status = kvr_block_cache_create(&options, &cache, &cell->error);
    if (status != KVR_OK)
        return status;
    status = kvr_block_cache_pin_ahead(cache, cell->pins, cell->pin_count, &cell->error);
    for (size_t i = 0; i < trace->request_count && status == KVR_OK; i++) {
        uint64_t tokens = 0, input = trace->requests[i].input_tokens;
        status = kvr_trace_serve(trace, i, cache, NULL, &tokens, &cell->error);
        cell->saved_ms += kvr_prefill_cost_ms(&sweep->prefill, (double)tokens, 0);
        cell->prefill_ms +=
            kvr_prefill_cost_ms(&sweep->prefill, (double)(input - tokens), (double)tokens);
    }
    const struct kvr_block_counts *counts = kvr_block_cache_counts(cache);
    cell->hits += counts->hits;
    cell->hit_tokens += counts->hit_tokens;
    cell->inserted += counts->inserted;
    cell->evicted += counts->evicted;
    cell->refused += counts->refused;
    cell->requests += counts->requests;
    cell->accesses += counts->accesses;
    cell->prompt_tokens += counts->prompt_tokens;
    kvr_cache_destroy(cache);
    return status;
}

struct crew {
    struct kvr_sweep *sweep;
    atomic_size_t next;
};

static void *work(void *argument)
{
    struct crew *crew = argument;
    struct kvr_sweep *sweep = crew->sweep;

    for (;;) {
        size_t at = atomic_fetch_add(&crew->next, 1);
        if (at >= sweep->cell_count)
            return NULL;
        struct kvr_sweep_cell *cell = &sweep->cells[at];
        if (cell->status != KVR_END)
            continue;
        cell->status = KVR_OK;
        for (size_t i = 0; i < sweep->trace_count && cell->status == KVR_OK; i++)
            cell->status = run_trace(sweep, &sweep->traces[i], cell);
    }
}

enum kvr_status kvr_sweep_run(struct kvr_sweep *sweep, struct kvr_error *error)
{
    enum { THREADS_MOST = 256 };
    pthread_t threads[THREADS_MOST];
    struct crew crew = {.sweep = sweep};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = sweep->threads ? sweep->threads : cores > 0 ? (size_t)cores : 1, started = 0;
    bool offline = false;

    for (size_t i = 0; i < sweep->cell_count; i++)
        offline = offline || sweep->cells[i].policy->needs_future;
    for (size_t i = 0; offline && i < sweep->trace_count; i++) {
        enum kvr_status status = kvr_trace_look_ahead(&sweep->traces[i], error);
        if (status != KVR_OK)
            return status;
    }
    if (wanted > THREADS_MOST)
        wanted = THREADS_MOST;
    if (wanted > sweep->cell_count)
        wanted = sweep->cell_count;
    /* this thread works too; where no other can be started it does all */
    while (started + 1 < wanted && !pthread_create(&threads[started], NULL, work, &crew))
        started++;
    work(&crew);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < sweep->cell_count; i++)
        if (sweep->cells[i].status != KVR_OK) {
            *error = sweep->cells[i].error;
            return sweep->cells[i].status;
        }
    return KVR_OK;
}

const struct kvr_sweep_cell *kvr_sweep_ceiling(
    const struct kvr_sweep *sweep, uint64_t capacity_blocks)
{
    for (size_t i = 0; i < sweep->cell_count; i++)
        if (sweep->cells[i].ceiling && sweep->cells[i].capacity_blocks == capacity_blocks)
            return &sweep->cells[i];
    return NULL;
}
