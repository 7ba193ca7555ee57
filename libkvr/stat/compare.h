/*
 * Two or more runs side by side, and whether a difference is more than noise.
 *
 * The problem: one p99 or hit rate is one number; how far would it have moved with other users? The
 * bootstrap (Efron, Annals of Statistics 1979) answers by drawing the sessions of a run again with
 * replacement, many times. Requests of a session hang together, so whole sessions are drawn. The
 * idea that makes it a stream: drawing n of n with replacement gives each session a number that is
 * very nearly Poisson with mean 1 (Chamandy et al., "Estimating uncertainty for massive data
 * streams", 2012). So replicate r counts each request as often as a Poisson number made of
 * hash(session, r) says: one pass, constant memory, nothing stored of the requests.
 *
 * The number depends on the session alone, so two runs of the same trace draw the same sessions:
 * the comparison is paired, and noise that both share cancels. Requests without a session are drawn
 * by their id, else by their place in the run.
 *
 * A difference exceeds the noise when zero lies outside of the middle 95 % of its replicates.
 * Cost: KVR_REPLICATES tallies a run, some 10 us a request.
 */
#ifndef KVR_STAT_COMPARE_H
#define KVR_STAT_COMPARE_H

#include "stat/metrics.h"

enum { KVR_REPLICATES = 200, KVR_COMPARED_WORKERS = 256, KVR_COMPARED_RUNS = 16 };

struct kvr_replicates {
    struct kvr_report *report;
    struct kvr_tally *tallies;     /* KVR_REPLICATES */
    struct kvr_worker_load *loads; /* replicate · KVR_COMPARED_WORKERS + worker's group */
};

/* Follows a report from its first line on. */
enum kvr_status kvr_replicates_watch(
    struct kvr_replicates *replicates, struct kvr_report *report, struct kvr_error *error);
void kvr_replicates_release(struct kvr_replicates *replicates);

/* How often replicate r counts what `unit` hashes to: Poisson with mean 1. */
unsigned kvr_replicate_weight(uint64_t unit, unsigned r);

/* One run of a comparison. */
struct kvr_compared {
    const char *name;
    struct kvr_report *report;
    struct kvr_run_view run;
    struct kvr_replicates replicates;
};

struct kvr_difference {
    double value;     /* this run's less the first run's */
    double low, high; /* the middle 95 % of the replicates; NaN: too few of them */
    bool beyond_noise;
};
struct kvr_difference kvr_compare(const struct kvr_metric *metric, const struct kvr_compared *first,
    const struct kvr_compared *other);

/* A table, or one JSON object. metrics ends with NULL. */
void kvr_render_compared(const struct kvr_compared *runs, size_t count,
    const struct kvr_metric *const *metrics, bool json, struct kvr_buffer *out);

/* Reads "name,name" into at most `most` metrics and a NULL; text NULL gives the default choice.
 * KVR_BAD_USAGE. */
enum kvr_status kvr_metrics_read(
    const char *text, const struct kvr_metric **metrics, size_t most, struct kvr_error *error);

#endif
