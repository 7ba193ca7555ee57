/* Requests in and out of a worker. What a worker is stands in worker.h. */
#include "sim/worker_private.h"

#include "base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum kvr_status kvr_sim_worker_create(const struct kvr_sim_worker_options *options,
    struct kvr_sim_worker **out, struct kvr_error *error)
{
    struct kvr_sim_worker *worker = calloc(1, sizeof *worker);
    struct kvr_engine_options cache = {
        .capacity_blocks = options->capacity_blocks,
        .block_tokens = options->block_tokens,
        .seed = options->seed,
        .values = options->engine_values,
        .sink = options->sink,
    };

    if (!worker)
        return kvr_error_memory(error);
    enum kvr_status status = kvr_cache_create(options->engine, &cache, &worker->cache, error);
    if (status != KVR_OK) {
        free(worker);
        return status;
    }
    worker->options = *options;
    worker->counts_memory =
        strcmp(options->engine->name, "vllm") != 0 && strcmp(options->engine->name, "sglang") != 0;
    worker->wake_ms = INFINITY;
    *out = worker;
    return KVR_OK;
}

void kvr_sim_worker_destroy(struct kvr_sim_worker *worker)
{
    if (!worker)
        return;
    kvr_cache_destroy(worker->cache);
    kvr_held_release(&worker->held);
    free(worker->heap);
    free(worker->chunks);
    free(worker->peaks.items);
    free(worker->fresh);
    free(worker);
}

void kvr_sim_worker_set_weight(struct kvr_sim_worker *worker, double weight)
{
    worker->options.weight = weight;
}

double kvr_sim_worker_wake_ms(const struct kvr_sim_worker *worker)
{
    return worker->wake_ms;
}

const struct kvr_sim_worker_counts *kvr_sim_worker_counts(const struct kvr_sim_worker *worker)
{
    return &worker->counts;
}

struct kvr_cache *kvr_sim_worker_cache(struct kvr_sim_worker *worker)
{
    return worker->cache;
}

static uint64_t blocks_for(const struct kvr_sim_worker *worker, uint64_t tokens)
{
    return (tokens + worker->options.block_tokens - 1) / worker->options.block_tokens;
}

/* The ids of the prompt's full blocks, in blocks of the worker; foreign sizes are left unnamed. */
static size_t held_ids(const struct kvr_sim_worker *worker, const struct kvr_sim_request *request)
{
    uint64_t full = request->input_tokens / request->block_tokens;

    if (request->block_tokens != worker->options.block_tokens)
        return 0;
    return full < request->id_count ? (size_t)full : request->id_count;
}

/* An idle worker is to look at once; a busy one at the end of its step, where that could help. */
static void rouse(struct kvr_sim_worker *worker, double now_ms)
{
    if (!worker->running)
        worker->wake_ms = fmin(worker->wake_ms, fmax(now_ms, worker->now_ms));
    else if (worker->admitted < worker->options.batch_requests)
        kvr_sim_run_cut(worker, now_ms);
}

void kvr_sim_worker_submit(
    struct kvr_sim_worker *worker, struct kvr_sim_request *request, bool with_kv, double now_ms)
{
    uint64_t kept = with_kv ? request->sequence.kept : 0;
    /* Who waits already waits for memory or a slot, and the newcomer waits behind. */
    bool first = !worker->waiting.first;

    request->sequence = (struct kvr_sim_sequence){
        .stage = KVR_SIM_WAITING,
        .prompt = request->input_tokens,
        .output = request->output_tokens,
        .generated = with_kv ? 1 : 0,
        .kept = kept,
        .last_token_ms = with_kv ? request->result.first_token_ms : 0,
        .with_kv = with_kv,
    };
    kvr_sim_queue_append(&worker->waiting, request);
    if (first)
        rouse(worker, now_ms);
}

/* The admission ends: its memory goes back, and what was computed for nothing is counted. */
static enum kvr_status give_back(
    struct kvr_sim_worker *worker, struct kvr_sim_request *request, struct kvr_error *error)
{
    struct kvr_sim_sequence *sequence = &request->sequence;

    kvr_held_drop(&worker->held, request->ids, held_ids(worker, request), sequence->held_blocks);
    sequence->held_blocks = 0;
    if (!sequence->first_here)
        request->result.recomputed += sequence->computed;
    sequence->computed = 0;
    sequence->first_here = false;
    return kvr_cache_finish(worker->cache, sequence->live, error);
}

static void leave(
    struct kvr_sim_worker *worker, struct kvr_sim_request *request, enum kvr_sim_status status)
{
    request->sequence.stage = KVR_SIM_OUTSIDE;
    worker->options.calls.left(worker->options.calls.context, request, status, worker->now_ms);
}

/* The last token is made. Its KV was never needed; that of the others is. */
static enum kvr_status complete(
    struct kvr_sim_worker *worker, struct kvr_sim_request *request, struct kvr_error *error)
{
    struct kvr_sim_sequence *sequence = &request->sequence;
    uint64_t slots = request->input_tokens + sequence->output - 1, made;
    enum kvr_status status = KVR_OK;

    if (slots > sequence->prompt + sequence->reported)
        status = kvr_cache_output(worker->cache, sequence->live,
            slots - sequence->prompt - sequence->reported, &made, error);
    kvr_sim_admitted_remove(worker, request);
    if (status == KVR_OK)
        status = give_back(worker, request, error);
    leave(worker, request, KVR_SIM_OK);
    return status;
}

/* Takes an admitted request out of whatever list its stage has. */
static void unlist(struct kvr_sim_worker *worker, struct kvr_sim_request *request)
{
    if (request->sequence.stage == KVR_SIM_DECODING)
        kvr_sim_decode_leave(worker, request);
    else if (request->sequence.stage == KVR_SIM_LOADING)
        kvr_sim_queue_remove(&worker->loading, request);
    else if (request->sequence.stage == KVR_SIM_PREFILLING)
        kvr_sim_queue_remove(&worker->prefilling, request);
}

static enum kvr_status preempt(
    struct kvr_sim_worker *worker, struct kvr_sim_request *request, struct kvr_error *error)
{
    struct kvr_sim_sequence *sequence = &request->sequence;

    if (sequence->stage == KVR_SIM_DECODING && worker->step > sequence->joined_step)
        sequence->last_token_ms = worker->now_ms;
    unlist(worker, request);
    kvr_sim_admitted_remove(worker, request);
    worker->counts.preemptions++;
    request->result.preemptions++;
    enum kvr_status status = give_back(worker, request, error);
    sequence->stage = KVR_SIM_WAITING;
    sequence->prompt = request->input_tokens + sequence->generated;
    sequence->with_kv = false;
    kvr_sim_queue_prepend(&worker->waiting, request);
    return status;
}

/* The request's next token opens a block; the request admitted last makes way when there is none.
 */
static enum kvr_status open_block(
    struct kvr_sim_worker *worker, struct kvr_sim_request *request, struct kvr_error *error)
{
    struct kvr_sim_sequence *sequence = &request->sequence;
    uint64_t tokens = worker->step - sequence->joined_step + 1;

    for (;;) {
        uint64_t made = 0, wanted = tokens - sequence->reported;
        if (!worker->counts_memory || worker->held.blocks < worker->options.capacity_blocks) {
            enum kvr_status status =
                kvr_cache_output(worker->cache, sequence->live, wanted, &made, error);
            if (status != KVR_OK)
                return status;
        }
        sequence->reported += made;
        if (made == wanted) {
            sequence->held_blocks++;
            worker->held.blocks++;
            kvr_sim_decode_next(worker, request);
            return KVR_OK;
        }
        struct kvr_sim_request *victim = worker->newest;
        if (victim == request && worker->oldest == request && !worker->moving.first) {
            unlist(worker, request);
            kvr_sim_admitted_remove(worker, request);
            enum kvr_status status = give_back(worker, request, error);
            leave(worker, request, KVR_SIM_TOO_LARGE);
            return status;
        }
        enum kvr_status status = preempt(worker, victim, error);
        if (status != KVR_OK || victim == request)
            return status;
    }
}

static enum kvr_status decode_events(struct kvr_sim_worker *worker, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    while (status == KVR_OK && worker->decoding &&
           worker->heap[0]->sequence.event_step <= worker->step) {
        struct kvr_sim_request *request = worker->heap[0];
        if (kvr_sim_generated(worker, request) >= request->sequence.output) {
            kvr_sim_decode_leave(worker, request);
            status = complete(worker, request, error);
        } else {
            status = open_block(worker, request, error);
        }
    }
    return status;
}

static enum kvr_status prompt_is_there(
    struct kvr_sim_worker *worker, struct kvr_sim_request *request, struct kvr_error *error)
{
    struct kvr_sim_sequence *sequence = &request->sequence;
    const struct kvr_sim_worker_calls *calls = &worker->options.calls;
    bool first = sequence->generated == 0;

    kvr_sim_queue_remove(&worker->prefilling, request);
    sequence->stage = KVR_SIM_OUTSIDE;
    if (!first)
        request->result.longest_gap_ms =
            fmax(request->result.longest_gap_ms, worker->now_ms - sequence->last_token_ms);
    sequence->generated++;
    sequence->last_token_ms = worker->now_ms;
    if (first) {
        sequence->first_here = true;
        sequence->kept = sequence->computed;
        request->result.first_token_ms = worker->now_ms;
    }
    if (sequence->generated >= sequence->output)
        return complete(worker, request, error);
    if (first && calls->prefilled(calls->context, request, worker->now_ms)) {
        kvr_sim_admitted_remove(worker, request);
        sequence->stage = KVR_SIM_MOVING;
        kvr_sim_queue_append(&worker->moving, request);
        return KVR_OK;
    }
    return kvr_sim_decode_join(worker, request, error);
}

static enum kvr_status end_chunks(struct kvr_sim_worker *worker, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    for (size_t i = 0; status == KVR_OK && i < worker->chunk_count; i++) {
        struct kvr_sim_request *request = worker->chunks[i].request;
        request->sequence.done += worker->chunks[i].tokens;
        request->sequence.computed += worker->chunks[i].tokens;
        worker->counts.computed_tokens += worker->chunks[i].tokens;
        if (request->sequence.done == request->sequence.prompt)
            status = prompt_is_there(worker, request, error);
    }
    worker->chunk_count = 0;
    return status;
}

static void end_loads(struct kvr_sim_worker *worker)
{
    struct kvr_sim_request *after;

    for (struct kvr_sim_request *request = worker->loading.first; request; request = after) {
        after = request->sequence.queue_after;
        if (request->sequence.ready_ms > worker->now_ms)
            continue;
        kvr_sim_queue_remove(&worker->loading, request);
        request->sequence.stage = KVR_SIM_PREFILLING;
        kvr_sim_queue_append(&worker->prefilling, request);
    }
}

/* What was found of the prompt, by medium, and how long bringing it here takes. At least one token
 * is computed: the one whose output is the first token. */
static enum kvr_status find_kv(struct kvr_sim_worker *worker, struct kvr_sim_request *request,
    const struct kvr_cache_request *view, const struct kvr_admission *admission, double *load_ms,
    struct kvr_error *error)
{
    const struct kvr_sim_worker_options *options = &worker->options;
    struct kvr_sim_sequence *sequence = &request->sequence;
    uint64_t cached[KVR_MEDIUM_COUNT], found = 0, pulled = 0;
    struct kvr_sim_tiers *tiers = options->tiers;
    enum kvr_status status = KVR_OK;

    *load_ms = 0;
    memcpy(cached, admission->hit_tokens, sizeof cached);
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++) {
        found += cached[medium];
        if (tiers && medium != KVR_MEDIUM_GPU)
            *load_ms += kvr_cost_transfer_ms(options->cost, &tiers->links[medium],
                tiers->compression[medium], (double)cached[medium]);
    }
    if (tiers) {
        double tiers_ms;
        status = kvr_sim_tiers_serve(
            tiers, view, options->cost, options->weight, found, cached, &tiers_ms, error);
        *load_ms += tiers_ms;
        found = 0;
        for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
            found += cached[medium];
    }
    if (status == KVR_OK && request->pull_tokens) {
        uint64_t there = options->calls.pullable(options->calls.context, request);
        if (there > found) {
            pulled = there - found;
            *load_ms += kvr_cost_transfer_ms(
                options->cost, options->link, options->compression, (double)pulled);
            found = there;
        }
    }
    if (found >= sequence->prompt) {
        uint64_t excess = found - (sequence->prompt - 1);
        uint64_t less = excess < pulled ? excess : pulled;
        pulled -= less;
        excess -= less;
        for (int medium = KVR_MEDIUM_COUNT; excess && medium-- > 0;) {
            less = excess < cached[medium] ? excess : cached[medium];
            cached[medium] -= less;
            excess -= less;
        }
        found = sequence->prompt - 1;
    }
    sequence->done = found;
    if (sequence->generated == 0) {
        memcpy(request->result.cached, cached, sizeof cached);
        request->result.pulled = pulled;
    }
    return status;
}

static uint64_t evicted_blocks(const struct kvr_sim_worker *worker)
{
    struct kvr_cache_stats stats;

    kvr_cache_stats(worker->cache, &stats);
    return stats.evicted_blocks[KVR_MEDIUM_GPU];
}

/* Admits the first that waits, if there is memory for it. */
static enum kvr_status admit(struct kvr_sim_worker *worker, bool *admitted, struct kvr_error *error)
{
    struct kvr_sim_request *request = worker->waiting.first;
    struct kvr_sim_sequence *sequence = &request->sequence;
    size_t named = held_ids(worker, request);
    uint64_t unnamed = blocks_for(worker, sequence->prompt) - named;
    struct kvr_admission admission;
    /* After a preemption the prompt goes on with what was generated, which has no ids. */
    bool original = sequence->prompt == request->input_tokens;
    uint64_t full = request->input_tokens / request->block_tokens;
    struct kvr_cache_request view = {
        .ids = request->ids,
        .id_count = original || full > request->id_count ? request->id_count : (size_t)full,
        .output_ids = original ? request->output_ids : NULL,
        .output_id_count = original ? request->output_id_count : 0,
        .input_tokens = sequence->prompt,
        .output_tokens = request->input_tokens + sequence->output - 1 - sequence->prompt,
        .block_tokens = request->block_tokens,
        .priority = request->priority,
        .time_ms = worker->now_ms,
    };

    *admitted = false;
    if (worker->counts_memory &&
        worker->held.blocks + kvr_held_growth(&worker->held, request->ids, named, unnamed) >
            worker->options.capacity_blocks)
        return KVR_OK;
    uint64_t evicted = evicted_blocks(worker);
    enum kvr_status status = kvr_cache_admit(worker->cache, &view, &admission, error);
    if (status != KVR_OK || !admission.admitted)
        return status;
    *admitted = true;
    sequence->live = admission.live;
    sequence->reported = 0;
    sequence->done = sequence->prompt;
    sequence->held_blocks = unnamed;
    request->result.evicted_tokens +=
        (evicted_blocks(worker) - evicted) * worker->options.block_tokens;
    kvr_sim_queue_remove(&worker->waiting, request);
    kvr_sim_admitted_append(worker, request);
    status = kvr_held_add(&worker->held, request->ids, named, unnamed, error);
    if (status != KVR_OK)
        return status;
    if (sequence->with_kv)
        return kvr_sim_decode_join(worker, request, error);
    double load_ms;
    status = find_kv(worker, request, &view, &admission, &load_ms, error);
    sequence->stage = load_ms > 0 ? KVR_SIM_LOADING : KVR_SIM_PREFILLING;
    sequence->ready_ms = worker->now_ms + load_ms;
    kvr_sim_queue_append(load_ms > 0 ? &worker->loading : &worker->prefilling, request);
    return status;
}

/* Admits while the budget of the next step, the slots and the memory last. */
static enum kvr_status admit_more(struct kvr_sim_worker *worker, struct kvr_error *error)
{
    uint64_t budget = worker->options.batch_tokens, used = worker->decoding;
    enum kvr_status status = KVR_OK;

    for (const struct kvr_sim_request *request = worker->prefilling.first; request && used < budget;
         request = request->sequence.queue_after)
        used += request->sequence.prompt - request->sequence.done;
    while (status == KVR_OK && worker->waiting.first && used < budget &&
           worker->admitted < worker->options.batch_requests) {
        struct kvr_sim_request *request = worker->waiting.first;
        bool admitted;
        status = admit(worker, &admitted, error);
        if (status != KVR_OK)
            return status;
        if (admitted) {
            used += request->sequence.stage == KVR_SIM_PREFILLING
                        ? request->sequence.prompt - request->sequence.done
                        : request->sequence.stage == KVR_SIM_DECODING;
        } else if (worker->admitted || worker->moving.first) {
            break;
        } else {
            kvr_sim_queue_remove(&worker->waiting, request);
            leave(worker, request, KVR_SIM_TOO_LARGE);
        }
    }
    return status;
}

static enum kvr_status cut_chunks(
    struct kvr_sim_worker *worker, double *prefill_ms, struct kvr_error *error)
{
    uint64_t budget = worker->options.batch_tokens - worker->decoding;

    *prefill_ms = 0;
    for (struct kvr_sim_request *request = worker->prefilling.first; request && budget;
         request = request->sequence.queue_after) {
        uint64_t left = request->sequence.prompt - request->sequence.done;
        uint64_t tokens = left < budget ? left : budget;
        struct kvr_sim_chunk *chunks =
            kvr_grow(worker->chunks, &worker->chunk_size, worker->chunk_count + 1, sizeof *chunks);
        if (!chunks)
            return kvr_error_memory(error);
        worker->chunks = chunks;
        if (!request->sequence.computed)
            request->sequence.began_ms = worker->now_ms;
        chunks[worker->chunk_count++] = (struct kvr_sim_chunk){request, tokens};
        budget -= tokens;
        *prefill_ms += kvr_cost_prefill_compute_ms(
            worker->options.cost, (double)tokens, (double)request->sequence.done);
    }
    return KVR_OK;
}

enum kvr_status kvr_sim_worker_step(struct kvr_sim_worker *worker, struct kvr_error *error)
{
    double prefill_ms;

    enum kvr_status status = kvr_sim_run_end(worker, error);
    if (status == KVR_OK)
        status = end_chunks(worker, error);
    end_loads(worker);
    if (status == KVR_OK)
        status = decode_events(worker, error);
    /* Who was just admitted may find no block for its first token; once nobody is left to make way,
     * the next is tried. Each round admits one or sends one away. */
    do {
        if (status == KVR_OK)
            status = admit_more(worker, error);
        if (status == KVR_OK)
            status = decode_events(worker, error);
    } while (
        status == KVR_OK && !worker->admitted && !worker->moving.first && worker->waiting.first);
    if (status == KVR_OK)
        status = cut_chunks(worker, &prefill_ms, error);
    if (status == KVR_OK)
        kvr_sim_run_begin(worker, prefill_ms);
    return status;
}

enum kvr_status kvr_sim_worker_release(struct kvr_sim_worker *worker,
    struct kvr_sim_request *request, double now_ms, struct kvr_error *error)
{
    kvr_sim_queue_remove(&worker->moving, request);
    request->sequence.stage = KVR_SIM_OUTSIDE;
    enum kvr_status status = give_back(worker, request, error);
    if (worker->waiting.first)
        rouse(worker, now_ms);
    return status;
}

enum kvr_status kvr_sim_worker_kill(struct kvr_sim_worker *worker, double now_ms,
    struct kvr_sim_request **failed, struct kvr_error *error)
{
    struct kvr_sim_request **end = failed, *request;
    enum kvr_status status = KVR_OK;

    worker->now_ms = fmax(worker->now_ms, now_ms);
    if (worker->running)
        worker->counts.busy_ms += fmax(0, worker->now_ms - worker->start_ms);
    worker->running = false;
    worker->wake_ms = INFINITY;
    worker->chunk_count = 0;
    while ((request = worker->oldest) || (request = worker->moving.first) ||
           (request = worker->waiting.first)) {
        struct kvr_sim_sequence *sequence = &request->sequence;
        enum kvr_status freed = KVR_OK;
        if (request == worker->oldest) {
            unlist(worker, request);
            kvr_sim_admitted_remove(worker, request);
            freed = give_back(worker, request, error);
        } else if (sequence->stage == KVR_SIM_MOVING) {
            kvr_sim_queue_remove(&worker->moving, request);
            freed = give_back(worker, request, error);
        } else {
            kvr_sim_queue_remove(&worker->waiting, request);
        }
        status = status == KVR_OK ? freed : status;
        sequence->stage = KVR_SIM_OUTSIDE;
        *end = request;
        end = &request->next_failed;
    }
    *end = NULL;
    kvr_cache_clear(worker->cache);
    return status;
}

void kvr_sim_worker_load(const struct kvr_sim_worker *worker, struct kvr_sim_load *load)
{
    const struct kvr_sim_request *request;

    *load = (struct kvr_sim_load){
        .waiting = worker->waiting.count,
        .running = worker->admitted,
        .kv_usage = (double)worker->held.blocks / (double)worker->options.capacity_blocks,
    };
    for (request = worker->oldest; request; request = request->sequence.after)
        load->tokens += request->sequence.prompt + kvr_sim_generated(worker, request);
    for (request = worker->waiting.first; request; request = request->sequence.queue_after)
        load->tokens += request->sequence.prompt;
}
