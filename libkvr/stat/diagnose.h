/*
 * The two-sided diagnosis: is it the router or the cache?
 *
 * Between what could have been reused and what was lie two losses, and each has one owner:
 *
 *     ceiling ──────────► best worker ──────────► chosen worker ──────► reused
 *     all that was         what caches still       what the router       what the worker
 *     ever seen            hold somewhere          picked                really still had
 *             the cache lost it      the router passed it by     the cache lost it since
 *
 * router = chosen / best; cache = best / ceiling · reused / promised. A side that keeps less than
 * KVR_DIAGNOSIS_GOOD of its input is at fault when the loss is more than KVR_DIAGNOSIS_MATTERS of
 * all prompt tokens. Without `match` the best worker is not known; then only blocks that were
 * removed and promises that were not kept speak for the cache.
 */
#ifndef KVR_STAT_DIAGNOSE_H
#define KVR_STAT_DIAGNOSE_H

#include "stat/metrics.h"

#define KVR_DIAGNOSIS_GOOD 0.8
#define KVR_DIAGNOSIS_MATTERS 0.02

enum kvr_verdict {
    KVR_VERDICT_UNKNOWN,
    KVR_VERDICT_LITTLE_TO_SHARE,
    KVR_VERDICT_FINE,
    KVR_VERDICT_ROUTER,
    KVR_VERDICT_CACHE,
    KVR_VERDICT_BOTH,
};

struct kvr_diagnosis {
    enum kvr_verdict verdict;
    double ceiling, best, chosen; /* shares of the prompt tokens; NaN: unknown */
    double router;                /* chosen / best */
    double cache;                 /* best / ceiling */
    double kept;                  /* reused / promised */
    double kv_usage, evicted_unused;
    uint32_t workers; /* that requests were sent to */
};

struct kvr_diagnosis kvr_diagnose(const struct kvr_view *view, bool has_match);

/* "router-shattering-locality", … and the sentence with its numbers. */
const char *kvr_verdict_name(enum kvr_verdict verdict);
void kvr_diagnosis_text(const struct kvr_diagnosis *diagnosis, struct kvr_buffer *out);

#endif
