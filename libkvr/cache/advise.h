/*
 * Advice from a trace: which size, which policy and admission rule, which prefixes to pin, each
 * with the gain that a replay of this very trace shows. A past gain, not a promise.
 *
 * - Size: the knee of the LRU curve, and the sizes that reach 90 and 99 % of what any size reaches.
 * - Policy and rule: every online policy with `always`, every rule with leaf LRU, at the size.
 * - Pins: leaf LRU is replayed and every block that was asked for again after it was evicted counts
 *   what it lost. A pin needs the whole path to a block, so the prefix is taken that loses most a
 *   block of it, its blocks count as pinned, and so on until a quarter of the cache is pinned. Of
 *   the first 1, 2, 4, 8, … prefixes the number that gains most in a replay is advised.
 */
#ifndef KVR_CACHE_ADVISE_H
#define KVR_CACHE_ADVISE_H

#include "cache/curve.h"
#include "cache/sweep.h"

enum { KVR_ADVISE_PINS_MOST = 64 };

struct kvr_advised_pin {
    const uint64_t *ids;  /* the prefix, root first; into the trace */
    size_t count;         /* blocks */
    uint64_t requests;    /* that began with it */
    uint64_t lost_tokens; /* of it, that leaf LRU evicted and had to compute again */
};

struct kvr_advice {
    uint64_t capacity_blocks;             /* what the rest is about: given, or the knee */
    uint64_t knee_blocks, most_blocks[2]; /* 90 and 99 % of the tokens */
    double knee_rate, most_rate[2], limit_rate;
    struct kvr_sweep
        sweep; /* cells: [0] the base, leaf LRU with always; then policies, rules, pins */
    size_t policy_first, policy_end, rule_first, rule_end, pin_first, pin_end;
    struct kvr_advised_pin pins[KVR_ADVISE_PINS_MOST];
    size_t pin_count;     /* found */
    size_t pin_best;      /* the cell of the best number of pins; 0: none gains */
    size_t pins_advised;  /* how many of pins that cell has */
    uint64_t *pinned_ids; /* of all pins, in order */
};

/* capacity_blocks 0: the knee. sweep has traces, sizes, cost and threads, no cells. */
enum kvr_status kvr_advise(struct kvr_advice *advice, const struct kvr_sweep *sweep,
    uint64_t capacity_blocks, struct kvr_error *error);
/* More prefill time saved, or without a cost model more tokens. */
bool kvr_advice_better(const struct kvr_sweep_cell *cell, const struct kvr_sweep_cell *than);

void kvr_advice_release(struct kvr_advice *advice);

void kvr_advice_write_json(const struct kvr_advice *advice, const struct kvr_request_reader *reader,
    struct kvr_buffer *out);
void kvr_advice_write_text(const struct kvr_advice *advice, struct kvr_buffer *out);

#endif
