/*
 * What a front end counts, for Prometheus. Rows by worker and reason; histograms of fixed buckets.
 */
#ifndef KVR_NET_GAUGES_H
#define KVR_NET_GAUGES_H

#include "base/buffer.h"

enum { KVR_GAUGE_BUCKETS = 16 };

struct kvr_histogram {
    uint64_t buckets[KVR_GAUGE_BUCKETS + 1];
    double sum;
    uint64_t count;
};

struct kvr_gauge_row {
    char worker[64], reason[32];
    uint64_t by_class[6]; /* of statuses: 0 is none, 2 is 200 to 299, … */
    struct kvr_histogram ttft_s, e2e_s;
    uint64_t matched_tokens, cached_tokens, input_tokens;
};

struct kvr_gauges {
    struct kvr_gauge_row *rows;
    size_t count, capacity;
    struct kvr_histogram match_tokens;
    uint64_t decisions, decision_timeouts, fallbacks, retries, rejected, unavailable;
    uint64_t client_gone, bad_requests, log_lost, merged_lost, loads;
    double decision_ms;
};

void kvr_gauges_release(struct kvr_gauges *gauges);

/* The row; NULL when memory is short. Names are cut to their room. */
struct kvr_gauge_row *kvr_gauges_row(
    struct kvr_gauges *gauges, const char *worker, const char *reason);

/* Seconds; NaN counts nothing. */
void kvr_histogram_add(struct kvr_histogram *histogram, double value, double first_bound);

/* Appends everything of `gauges` in Prometheus' text format. */
void kvr_gauges_write(const struct kvr_gauges *gauges, struct kvr_buffer *out);

/* Appends `name{labels} value`; worker is escaped. */
void kvr_gauge_line(struct kvr_buffer *out, const char *name, const char *worker,
    const char *more_labels, double value);

#endif
