/* The lists of a worker: queues, the order of admission, the heap of decoding sequences. */
#include "base/grow.h"
#include "sim/worker_private.h"

#include <math.h>

void kvr_sim_queue_append(struct kvr_sim_queue *queue, struct kvr_sim_request *request)
{
    request->sequence.queue_before = queue->last;
    request->sequence.queue_after = NULL;
    if (queue->last)
        queue->last->sequence.queue_after = request;
    else
        queue->first = request;
    queue->last = request;
    queue->count++;
}

void kvr_sim_queue_prepend(struct kvr_sim_queue *queue, struct kvr_sim_request *request)
{
    request->sequence.queue_before = NULL;
    request->sequence.queue_after = queue->first;
    if (queue->first)
        queue->first->sequence.queue_before = request;
    else
        queue->last = request;
    queue->first = request;
    queue->count++;
}

void kvr_sim_queue_remove(struct kvr_sim_queue *queue, struct kvr_sim_request *request)
{
    struct kvr_sim_request *before = request->sequence.queue_before;
    struct kvr_sim_request *after = request->sequence.queue_after;

    *(before ? &before->sequence.queue_after : &queue->first) = after;
    *(after ? &after->sequence.queue_before : &queue->last) = before;
    queue->count--;
}

void kvr_sim_admitted_append(struct kvr_sim_worker *worker, struct kvr_sim_request *request)
{
    request->sequence.admission = ++worker->admissions;
    request->sequence.before = worker->newest;
    request->sequence.after = NULL;
    if (worker->newest)
        worker->newest->sequence.after = request;
    else
        worker->oldest = request;
    worker->newest = request;
    worker->admitted++;
}

void kvr_sim_admitted_remove(struct kvr_sim_worker *worker, struct kvr_sim_request *request)
{
    struct kvr_sim_request *before = request->sequence.before, *after = request->sequence.after;

    *(before ? &before->sequence.after : &worker->oldest) = after;
    *(after ? &after->sequence.before : &worker->newest) = before;
    worker->admitted--;
}

/*
 * The heap. An end comes before a block that is needed at the same step, because it frees memory;
 * equals in order of admission.
 */
static uint64_t end_step(const struct kvr_sim_sequence *sequence)
{
    return sequence->joined_step + (sequence->output - sequence->generated);
}

static bool earlier(const struct kvr_sim_request *a, const struct kvr_sim_request *b)
{
    const struct kvr_sim_sequence *x = &a->sequence, *y = &b->sequence;

    if (x->event_step != y->event_step)
        return x->event_step < y->event_step;
    bool x_ends = x->event_step == end_step(x), y_ends = y->event_step == end_step(y);
    return x_ends != y_ends ? x_ends : x->admission < y->admission;
}

static void put(struct kvr_sim_worker *worker, uint32_t at, struct kvr_sim_request *request)
{
    worker->heap[at] = request;
    request->sequence.heap_at = at;
}

static void settle(struct kvr_sim_worker *worker, uint32_t at, struct kvr_sim_request *request)
{
    while (at && earlier(request, worker->heap[(at - 1) / 2])) {
        put(worker, at, worker->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= worker->decoding)
            break;
        if (child + 1 < worker->decoding && earlier(worker->heap[child + 1], worker->heap[child]))
            child++;
        if (!earlier(worker->heap[child], request))
            break;
        put(worker, at, worker->heap[child]);
        at = child;
    }
    put(worker, at, request);
}

/* The next step before which it ends or needs a block: the slot of a token is the first of a block
 * when the tokens before it fill blocks. `from` is the first step to be looked at. */
static void plan(
    const struct kvr_sim_worker *worker, struct kvr_sim_sequence *sequence, uint64_t from)
{
    uint64_t block = worker->options.block_tokens;
    uint64_t tokens = sequence->prompt + (from - sequence->joined_step);
    uint64_t to_boundary = (block - tokens % block) % block;
    uint64_t end = end_step(sequence);

    sequence->event_step = end - from < to_boundary ? end : from + to_boundary;
}

enum kvr_status kvr_sim_decode_join(
    struct kvr_sim_worker *worker, struct kvr_sim_request *request, struct kvr_error *error)
{
    struct kvr_sim_sequence *sequence = &request->sequence;
    struct kvr_sim_request **heap =
        kvr_grow(worker->heap, &worker->heap_size, worker->decoding + 1, sizeof *heap);

    if (!heap)
        return kvr_error_memory(error);
    worker->heap = heap;
    struct kvr_sim_request **fresh =
        kvr_grow(worker->fresh, &worker->fresh_size, worker->fresh_count + 1, sizeof *fresh);
    if (!fresh)
        return kvr_error_memory(error);
    worker->fresh = fresh;
    fresh[worker->fresh_count++] = request;
    sequence->stage = KVR_SIM_DECODING;
    sequence->joined_step = worker->step;
    worker->context += sequence->prompt;
    plan(worker, sequence, worker->step);
    worker->decoding++;
    settle(worker, worker->decoding - 1, request);
    return KVR_OK;
}

void kvr_sim_decode_leave(struct kvr_sim_worker *worker, struct kvr_sim_request *request)
{
    struct kvr_sim_sequence *sequence = &request->sequence;
    uint64_t steps = worker->step - sequence->joined_step;
    uint32_t at = sequence->heap_at;

    if (steps)
        request->result.longest_gap_ms = fmax(request->result.longest_gap_ms,
            kvr_sim_longest_step_ms(&worker->peaks, sequence->joined_step));
    for (size_t i = 0; i < worker->fresh_count; i++)
        if (worker->fresh[i] == request)
            worker->fresh[i--] = worker->fresh[--worker->fresh_count];
    worker->context -= sequence->prompt + steps;
    sequence->generated += steps;
    sequence->stage = KVR_SIM_OUTSIDE;
    struct kvr_sim_request *last = worker->heap[--worker->decoding];
    if (at < worker->decoding)
        settle(worker, at, last);
}

void kvr_sim_decode_next(struct kvr_sim_worker *worker, struct kvr_sim_request *request)
{
    plan(worker, &request->sequence, worker->step + 1);
    settle(worker, request->sequence.heap_at, request);
}
