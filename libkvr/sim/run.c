/* Runs of steps: how long, how far, where to cut. See worker.h. */
#include "base/grow.h"
#include "sim/worker_private.h"

#include <math.h>

enum { MOST_STEPS = 1 << 24 };

/* Duration of the j-th step from here without prefill. */
static double decode_step_ms(const struct kvr_sim_worker *worker, uint64_t j)
{
    double context = (double)worker->context + (double)worker->decoding * (double)j;

    return kvr_cost_decode_ms(worker->options.cost, worker->decoding, context) /
           worker->options.weight;
}

/* Duration of the first j steps of the run. */
static double elapsed_ms(const struct kvr_sim_worker *worker, uint64_t j)
{
    double n = (double)j;

    return n * worker->first_ms + worker->slope_ms * (0.5 * n * (n - 1));
}

/* The fewest steps, at least 1, that take `ms` or longer. A quadratic, then put right by steps of
 * one against rounding. */
static uint64_t steps_for(const struct kvr_sim_worker *worker, double ms)
{
    double a = worker->first_ms, d = worker->slope_ms, guess;
    uint64_t j;

    if (!(ms > 0) || worker->steps <= 1)
        return 1;
    double linear = a - 0.5 * d;
    guess = d > 0 ? 2 * ms / (linear + sqrt(linear * linear + 2 * d * ms)) : ms / a;
    j = guess >= (double)worker->steps ? worker->steps : (uint64_t)guess;
    j = j ? j : 1;
    while (j > 1 && elapsed_ms(worker, j - 1) >= ms)
        j--;
    while (j < worker->steps && elapsed_ms(worker, j) < ms)
        j++;
    return j;
}

static void run_for(struct kvr_sim_worker *worker, uint64_t steps)
{
    worker->steps = steps;
    worker->wake_ms = worker->start_ms + elapsed_ms(worker, steps);
}

static void begin_decodes(struct kvr_sim_worker *worker)
{
    uint64_t steps = worker->heap[0]->sequence.event_step - worker->step;

    steps = steps < 1 ? 1 : steps > MOST_STEPS ? MOST_STEPS : steps;
    worker->first_ms = decode_step_ms(worker, 0);
    double second_ms = steps > 1 ? decode_step_ms(worker, 1) : worker->first_ms;
    worker->slope_ms = second_ms - worker->first_ms;
    for (; steps > 2; steps /= 2) {
        double straight = worker->first_ms + worker->slope_ms * (double)(steps - 1);
        double last_ms = decode_step_ms(worker, steps - 1);
        if (last_ms - straight <= 1e-9 * last_ms)
            break;
    }
    run_for(worker, steps);
    if (worker->loading.first) {
        double ready_ms = INFINITY;
        for (const struct kvr_sim_request *request = worker->loading.first; request;
             request = request->sequence.queue_after)
            ready_ms = fmin(ready_ms, request->sequence.ready_ms);
        if (ready_ms < worker->wake_ms)
            kvr_sim_run_cut(worker, ready_ms);
    }
}

void kvr_sim_run_begin(struct kvr_sim_worker *worker, double prefill_ms)
{
    worker->start_ms = worker->now_ms;
    worker->slope_ms = 0;
    worker->running = true;
    if (worker->chunk_count) {
        worker->first_ms = kvr_cost_step_ms(worker->options.cost, prefill_ms, worker->decoding,
                               (double)worker->context) /
                           worker->options.weight;
        run_for(worker, 1);
    } else if (worker->decoding) {
        begin_decodes(worker);
    } else {
        worker->running = false;
        worker->wake_ms = INFINITY;
        for (const struct kvr_sim_request *request = worker->loading.first; request;
             request = request->sequence.queue_after)
            worker->wake_ms = fmin(worker->wake_ms, request->sequence.ready_ms);
    }
}

void kvr_sim_run_cut(struct kvr_sim_worker *worker, double now_ms)
{
    if (worker->running && worker->steps > 1)
        run_for(worker, steps_for(worker, now_ms - worker->start_ms));
}

double kvr_sim_longest_step_ms(const struct kvr_sim_peaks *peaks, uint64_t from)
{
    size_t low = 0, high = peaks->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (peaks->items[middle].step < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low < peaks->count ? peaks->items[low].ms : 0;
}

/* The last step of a run is its longest: contexts only grow. */
static enum kvr_status note_peak(struct kvr_sim_worker *worker, struct kvr_error *error)
{
    struct kvr_sim_peaks *peaks = &worker->peaks;
    double ms = worker->first_ms + worker->slope_ms * (double)(worker->steps - 1);

    while (peaks->count && peaks->items[peaks->count - 1].ms <= ms)
        peaks->count--;
    struct kvr_sim_peak *items =
        kvr_grow(peaks->items, &peaks->size, peaks->count + 1, sizeof *items);
    if (!items)
        return kvr_error_memory(error);
    peaks->items = items;
    items[peaks->count++] = (struct kvr_sim_peak){worker->step - 1, ms};
    return KVR_OK;
}

/* The first token after a pause (a copy of KV, a preemption) ends the pause and a step. */
static void end_pauses(struct kvr_sim_worker *worker)
{
    for (size_t i = 0; i < worker->fresh_count; i++) {
        struct kvr_sim_request *request = worker->fresh[i];
        double gap_ms = worker->start_ms + worker->first_ms - request->sequence.last_token_ms;
        if (request->sequence.stage == KVR_SIM_DECODING)
            request->result.longest_gap_ms = fmax(request->result.longest_gap_ms, gap_ms);
    }
    worker->fresh_count = 0;
}

enum kvr_status kvr_sim_run_end(struct kvr_sim_worker *worker, struct kvr_error *error)
{
    worker->now_ms = worker->wake_ms;
    if (!worker->running)
        return KVR_OK;
    worker->running = false;
    worker->counts.runs++;
    worker->counts.steps += worker->steps;
    worker->counts.busy_ms += worker->now_ms - worker->start_ms;
    if (!worker->decoding) {
        worker->peaks.count = 0;
        return KVR_OK;
    }
    worker->step += worker->steps;
    worker->context += worker->steps * worker->decoding;
    worker->counts.decoded_tokens += worker->steps * worker->decoding;
    end_pauses(worker);
    return note_peak(worker, error);
}
