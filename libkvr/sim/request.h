/*
 * A request on its way through the virtual cluster, and what became of it.
 *
 * The caller owns it, fills in the first part and gives it to kvr_sim_submit(); from then until the
 * `finished` callback it and its ids must stay where they are. Every submitted request comes back
 * exactly once.
 */
#ifndef KVR_SIM_REQUEST_H
#define KVR_SIM_REQUEST_H

#include "cache/engine.h"

#define KVR_SIM_NOBODY UINT32_MAX

/* The HTTP statuses that a client would have seen. */
enum kvr_sim_status {
    KVR_SIM_OK = 200,
    KVR_SIM_TOO_LARGE = 413,   /* would not fit into the worker even alone */
    KVR_SIM_REJECTED = 429,    /* by the policy */
    KVR_SIM_UNAVAILABLE = 503, /* no worker, or its worker failed and the retries are used up */
};

struct kvr_sim_result {
    enum kvr_sim_status status;
    uint32_t worker;        /* that did the prefill; KVR_SIM_NOBODY: none */
    uint32_t decode_worker; /* where the output was made, if elsewhere; else KVR_SIM_NOBODY */
    double first_token_ms, end_ms; /* virtual time; the first is NaN where none was made */
    double longest_gap_ms;         /* between two tokens; 0 where there are no two */
    /* Tokens of the prompt by where they came from; together with what was computed they are the
     * whole prompt. `pulled` came from another worker's memory. */
    uint64_t cached[KVR_MEDIUM_COUNT], pulled;
    uint64_t recomputed;     /* tokens computed for nothing: before a preemption or a failure */
    uint64_t evicted_tokens; /* whole blocks that its admission pushed out of the first medium */
    uint32_t preemptions, attempts;
};

/* What the worker keeps of it. Nobody else looks at this. */
struct kvr_sim_sequence {
    int stage;
    uint32_t live;        /* the cache's handle */
    uint64_t prompt;      /* tokens whose KV must be there before (more) output is made */
    uint64_t done;        /* of these, in place */
    uint64_t output;      /* tokens to make in all, at least 1 */
    uint64_t generated;   /* made, as of joined_step */
    uint64_t reported;    /* told to the cache since its admission */
    uint64_t held_blocks; /* of output, where the worker counts memory itself */
    uint64_t joined_step; /* decoding since this step of the worker */
    uint64_t event_step;  /* before this step something is to be done */
    uint64_t admission;   /* the worker's count when it was admitted */
    uint64_t computed;    /* prompt tokens computed since its admission */
    uint64_t kept;        /* those of the admission that made the first token */
    bool first_here;      /* which was this one */
    bool with_kv;         /* its prompt was computed elsewhere and has been copied here */
    double began_ms;      /* its first chunk was begun */
    double last_token_ms; /* when it does not decode: when its last token was made */
    double ready_ms;      /* loading: when its KV has arrived */
    uint32_t heap_at;
    struct kvr_sim_request *before, *after;             /* in the worker's list of admitted ones */
    struct kvr_sim_request *queue_before, *queue_after; /* waiting, loading or prefilling */
};

struct kvr_sim_request {
    double arrival_ms;
    uint64_t input_tokens, output_tokens; /* 0 becomes 1 */
    /* Chained ids of the prompt's blocks, namespace folded in; see struct kvr_cache_request. */
    const uint64_t *ids, *output_ids;
    size_t id_count, output_id_count;
    uint32_t block_tokens; /* tokens an id; at least 1 */
    int32_t priority;
    void *context; /* the caller's */

    struct kvr_sim_result result;

    /* Where it is. */
    struct kvr_sim_sequence sequence;
    uint32_t pull_from; /* of the decision in force */
    uint64_t pull_tokens;
    double move_end_ms;   /* while its KV moves to the decode worker */
    uint64_t move_number; /* copies that end at one moment end in order of their begin */
    struct kvr_sim_request *next_failed;
};

/* Tokens of the prompt that were not computed. */
static inline uint64_t kvr_sim_cached_tokens(const struct kvr_sim_request *request)
{
    uint64_t sum = request->result.pulled;

    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
        sum += request->result.cached[medium];
    return sum;
}

#endif
