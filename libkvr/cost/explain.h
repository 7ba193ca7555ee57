/* What a cost model says, as a small table for people. */
#ifndef KVR_COST_EXPLAIN_H
#define KVR_COST_EXPLAIN_H

#include "cost/cost.h"

/* Appends the table of a prompt of so many tokens: time to first token by the share that is cached,
 * a decode step, and moving the KV over each link. */
void kvr_cost_explain(const struct kvr_cost *cost, double tokens, struct kvr_buffer *out);

#endif
