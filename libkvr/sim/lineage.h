/*
 * Conversations in traces that do not name them.
 *
 * The problem. "Time to first token of continuations" and session policies need to know which
 * request continues which. Traces as Mooncake's have neither sessions nor turns, only block ids.
 *
 * The idea. The prompt of a turn begins with the whole prompt of the turn before. So a request
 * continues conversation s when it contains a block that was the last full block of an earlier
 * request of s and that only requests of s have had so far: a prefix that strangers share (a system
 * prompt) is nobody's. Of several such blocks the deepest counts. A request that repeats an earlier
 * one continues it too. What the rule cannot see: a turn whose history was cut or rewritten, and
 * first turns shorter than one block.
 *
 * Cost: one look-up a block; 24 bytes a distinct block, for as long as the trace is.
 */
#ifndef KVR_SIM_LINEAGE_H
#define KVR_SIM_LINEAGE_H

#include "base/error.h"
#include "base/u64_map.h"

struct kvr_lineage {
    struct kvr_u64_map blocks; /* id → conversation << 2 | shared << 1 | ends a request */
    uint64_t conversations;
};

void kvr_lineage_release(struct kvr_lineage *lineage);

/* The conversation of a request, from 1, and whether it was there before. ids are its full blocks.
 */
enum kvr_status kvr_lineage_follow(struct kvr_lineage *lineage, const uint64_t *ids, size_t count,
    uint64_t *conversation, bool *continues, struct kvr_error *error);

#endif
