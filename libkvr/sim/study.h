/*
 * A trace in memory, simulated as often as needed: for comparing policies and for finding the
 * highest rate that one sustains. Decisions are made in process; no text is made.
 */
#ifndef KVR_SIM_STUDY_H
#define KVR_SIM_STUDY_H

#include "sim/item.h"
#include "sim/report.h"

/* A worker line in the trace, with its own copy of the texts. */
struct kvr_sim_change {
    struct kvr_worker_description worker;
    bool has_role, has_weight;
    double timestamp_ms; /* NaN: that of the line before */
    char *name;
};

/* Requests and changes in the order of their lines. */
struct kvr_sim_trace {
    struct kvr_sim_item **items;
    size_t count, size;
    struct kvr_sim_change *changes;
    size_t *change_at; /* the number of items before each */
    size_t change_count, change_size, at_size;
};

void kvr_sim_trace_release(struct kvr_sim_trace *trace);

/* Takes the item over, also on failure. Its text is dropped. */
enum kvr_status kvr_sim_trace_add(
    struct kvr_sim_trace *trace, struct kvr_sim_item *item, struct kvr_error *error);
/* A worker line (or, with timestamp NaN before any item, a worker of the start). Copies it. */
enum kvr_status kvr_sim_trace_change(struct kvr_sim_trace *trace,
    const struct kvr_worker_description *worker, bool has_role, bool has_weight,
    double timestamp_ms, struct kvr_error *error);

/*
 * Arrival times: with closed 0, at their timestamps, `rate` times as fast as the trace; a line
 * without one, or with one that goes back, comes at the time of the line before. With closed N, the
 * next request arrives when fewer than N are inside, and worker lines act where they stand.
 */
struct kvr_sim_pace {
    double rate;
    uint64_t closed;
    /* private */
    double first_ms, last_ms;
    bool begun;
};
/* The time of the next line in open loop. */
double kvr_sim_pace_ms(struct kvr_sim_pace *pace, double timestamp_ms);

struct kvr_sim_study {
    const struct kvr_sim_options *sim;
    const struct kvr_desk_options *desk;
    const struct kvr_sim_reader *reader; /* that read the trace */
    bool cache_events;                   /* as in struct kvr_stage_options */
    struct kvr_sim_pace pace;
    struct kvr_sim_slo slo;
};

struct kvr_sim_outcome {
    struct kvr_sim_report report; /* the caller's to release */
    double skew;
    struct kvr_sim_worker_counts totals; /* of all workers */
};

enum kvr_status kvr_sim_study_run(const struct kvr_sim_study *study,
    const struct kvr_sim_trace *trace, struct kvr_sim_outcome *outcome, struct kvr_error *error);

/* How a decision of the router reads for the cluster. */
void kvr_sim_translate(const struct kvr_route_decision *from, struct kvr_sim_decision *to);

#endif
