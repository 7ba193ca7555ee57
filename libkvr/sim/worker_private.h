/* What the parts of a worker share: worker.c (requests in and out), run.c (time), batch.c (lists).
 */
#ifndef KVR_SIM_WORKER_PRIVATE_H
#define KVR_SIM_WORKER_PRIVATE_H

#include "sim/held.h"
#include "sim/worker.h"

enum kvr_sim_stage {
    KVR_SIM_OUTSIDE,
    KVR_SIM_WAITING,    /* not admitted */
    KVR_SIM_LOADING,    /* admitted; its KV is being copied here */
    KVR_SIM_PREFILLING, /* admitted; some of its prompt is not computed */
    KVR_SIM_DECODING,   /* in the heap */
    KVR_SIM_MOVING,     /* its KV is being copied to the decode worker */
};

/* A first-in-first-out list through sequence.queue_before and queue_after. */
struct kvr_sim_queue {
    struct kvr_sim_request *first, *last;
    uint32_t count;
};

struct kvr_sim_chunk {
    struct kvr_sim_request *request;
    uint64_t tokens;
};

/*
 * The longest step since any step: a stack of steps whose durations fall, each the longest of all
 * after the one before it. A new step takes off those that are not longer; the first entry from a
 * step on is the answer.
 */
struct kvr_sim_peaks {
    struct kvr_sim_peak {
        uint64_t step;
        double ms;
    } * items;
    size_t count, size;
};

struct kvr_sim_worker {
    struct kvr_sim_worker_options options;
    struct kvr_cache *cache;
    struct kvr_held held;
    bool counts_memory; /* the engine does not */
    struct kvr_sim_worker_counts counts;

    struct kvr_sim_queue waiting, loading, prefilling, moving;
    struct kvr_sim_request *oldest, *newest; /* admitted, in order of admission */
    uint32_t admitted;                       /* of these; those that move out are not among them */
    uint64_t admissions;                     /* ever */

    struct kvr_sim_request **heap; /* decoding, the next event first */
    uint32_t decoding;
    size_t heap_size;

    uint64_t step;    /* decode steps taken, ever */
    uint64_t context; /* tokens of KV that the decoding sequences read in the next step */

    struct kvr_sim_peaks peaks;     /* of the durations of steps */
    struct kvr_sim_request **fresh; /* joined the decode since the last run */
    size_t fresh_count, fresh_size;

    /* The run under way: `steps` steps from start_ms, the j-th of first_ms + j·slope_ms. */
    bool running;
    double start_ms, first_ms, slope_ms;
    uint64_t steps;
    struct kvr_sim_chunk *chunks; /* of prompts; then steps is 1 */
    size_t chunk_count, chunk_size;

    double now_ms;  /* everything up to here has happened */
    double wake_ms; /* INFINITY: nothing to do */
};

/* batch.c */
void kvr_sim_queue_append(struct kvr_sim_queue *queue, struct kvr_sim_request *request);
void kvr_sim_queue_prepend(struct kvr_sim_queue *queue, struct kvr_sim_request *request);
void kvr_sim_queue_remove(struct kvr_sim_queue *queue, struct kvr_sim_request *request);
void kvr_sim_admitted_append(struct kvr_sim_worker *worker, struct kvr_sim_request *request);
void kvr_sim_admitted_remove(struct kvr_sim_worker *worker, struct kvr_sim_request *request);
enum kvr_status kvr_sim_decode_join(
    struct kvr_sim_worker *worker, struct kvr_sim_request *request, struct kvr_error *error);
void kvr_sim_decode_leave(struct kvr_sim_worker *worker, struct kvr_sim_request *request);
/* The event of the first sequence was dealt with: it gets its next one. */
void kvr_sim_decode_next(struct kvr_sim_worker *worker, struct kvr_sim_request *request);
static inline uint64_t kvr_sim_generated(
    const struct kvr_sim_worker *worker, const struct kvr_sim_request *request)
{
    const struct kvr_sim_sequence *sequence = &request->sequence;

    return sequence->stage == KVR_SIM_DECODING
               ? sequence->generated + (worker->step - sequence->joined_step)
               : sequence->generated;
}

/* run.c */
/* The longest step from this one on. */
double kvr_sim_longest_step_ms(const struct kvr_sim_peaks *peaks, uint64_t from);
/* Begins a run at now_ms with the chunks gathered; wake_ms is its end, or INFINITY. */
void kvr_sim_run_begin(struct kvr_sim_worker *worker, double prefill_ms);
/* Ends the run under way at the end of its first step that ends at now_ms or later. */
void kvr_sim_run_cut(struct kvr_sim_worker *worker, double now_ms);
/* The run is over: time and counters move to its end. */
enum kvr_status kvr_sim_run_end(struct kvr_sim_worker *worker, struct kvr_error *error);

#endif
