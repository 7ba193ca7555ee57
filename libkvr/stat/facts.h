/*
 * What one request line says that statistics ask for, read in one pass over its nested objects.
 */
#ifndef KVR_STAT_FACTS_H
#define KVR_STAT_FACTS_H

#include "line/line.h"
#include "stat/tally.h"

/* Times are NaN and token counts -1 where the line does not say. Texts point into the line, their
 * escapes as they were written. */
struct kvr_facts {
    double timestamp_ms;
    int64_t input_tokens, output_tokens;
    int64_t measured_tokens; /* really reused: response.cached_tokens, else cache.hit */
    int64_t chosen_tokens;   /* held by the chosen worker: match, else route.matched */
    int64_t best_tokens;     /* held by the best active worker, of match */
    int64_t reused_tokens;   /* measured, else what route.matched or match promised */
    int64_t evicted_tokens;  /* cache.evicted */
    double ttft_ms, e2e_ms, predicted_ttft_ms;
    double slo_ttft_ms; /* the line's own bound */
    int64_t status;     /* response.status */
    bool routed;        /* has a route */
    bool rejected;      /* whose worker is null */
    bool answered;      /* has a response */
    struct kvr_text worker;
    struct kvr_text reason;
    uint64_t session;   /* of line/session.h, which the report keeps; 0: none */
    enum kvr_kind kind; /* as turn or parent say; unknown where only the session could */
    uint64_t block_tokens;
};

/* Whether a worker may be chosen, for the best match. NULL: all may. */
typedef bool kvr_facts_active(void *context, struct kvr_text worker);

/*
 * KVR_BAD_INPUT when a member has a type that cannot be read: a token count that is no whole
 * number, a time that is none. default_block_tokens stands where a line has no block_size. Brief
 * leaves out what only a full report asks for: match, cache and kind.
 */
enum kvr_status kvr_facts_read(const struct kvr_line *line, bool brief,
    uint64_t default_block_tokens, kvr_facts_active *active, void *context, struct kvr_facts *facts,
    struct kvr_error *error);

/* A hash of model, lora and salt: block ids of different ones never match. 0 where there are none.
 */
uint64_t kvr_facts_name_space(const struct kvr_line *line);

/* The members of a response, of a request line or of a done line. */
enum kvr_status kvr_facts_read_response(
    struct kvr_value response, struct kvr_facts *facts, struct kvr_error *error);

#endif
