/* Runs of steps: how long, how far, where to cut. See worker.h. */
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

void kvr_sim_run_end(struct kvr_sim_worker *worker)
{
    worker->now_ms = worker->wake_ms;
    if (!worker->running)
        return;
    worker->running = false;
    worker->counts.runs++;
    worker->counts.steps += worker->steps;
    worker->counts.busy_ms += worker->now_ms - worker->start_ms;
    if (worker->decoding) {
        worker->step += worker->steps;
        worker->context += worker->steps * worker->decoding;
        worker->counts.decoded_tokens += worker->steps * worker->decoding;
    }
}
