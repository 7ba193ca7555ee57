/*
 * What one request adds to a report: counted once, then added to each tally that it belongs to.
 * Internal to the files of the report.
 */
#ifndef KVR_STAT_REPORT_PRIVATE_H
#define KVR_STAT_REPORT_PRIVATE_H

#include "stat/report.h"

struct kvr_sample {
    enum kvr_sketch_name sketch;
    int32_t bucket;
    double value;
    uint64_t thousandths;
};

enum { KVR_ADDITION_SAMPLES = 8 };

struct kvr_addition {
    uint64_t counters[KVR_COUNTER_COUNT];
    struct kvr_sample samples[KVR_ADDITION_SAMPLES];
    unsigned sample_count;
};

static inline void kvr_addition_clear(struct kvr_addition *addition)
{
    memset(addition->counters, 0, sizeof addition->counters);
    addition->sample_count = 0;
}

/* Where an addition goes. */
struct kvr_report_place {
    uint32_t worker, group;
    struct kvr_pane *pane; /* NULL: in no window */
    uint64_t unit;         /* a hash of the session, id or place: what a bootstrap draws */
};

/* What is known when a request arrives; `reusable` is its ceiling, -1: not known. */
void kvr_add_arrival(const struct kvr_report *report, const struct kvr_facts *facts,
    int64_t reusable, struct kvr_addition *addition);

/* What it reused. */
void kvr_add_reuse(
    const struct kvr_report *report, const struct kvr_facts *facts, struct kvr_addition *addition);

/* How it was answered. */
void kvr_add_outcome(
    const struct kvr_report *report, const struct kvr_facts *facts, struct kvr_addition *addition);

enum kvr_status kvr_addition_apply(struct kvr_report *report, const struct kvr_addition *addition,
    const struct kvr_report_place *place, struct kvr_error *error);

/* Takes back what was added before. */
void kvr_addition_take_back(struct kvr_report *report, const struct kvr_addition *addition,
    const struct kvr_report_place *place);

/* Sets the counters first … last of every worker, group and window to 0: they are not known. */
void kvr_report_clear(struct kvr_report *report, enum kvr_counter first, enum kvr_counter last);

/* A routed request without an answer, until its done line comes. */
enum kvr_status kvr_report_wait(struct kvr_report *report, const struct kvr_line *line,
    const struct kvr_facts *facts, const struct kvr_report_place *place, struct kvr_error *error);

#endif
