/*
 * Worker lines that come before their time: a file of failures merged into a trace (-m) is read
 * first, but each of its lines is to act at its timestamp. They wait here, in order of time.
 */
#ifndef KVR_SIM_PLAN_H
#define KVR_SIM_PLAN_H

#include "line/line.h"

struct kvr_sim_plan {
    struct kvr_sim_planned *lines; /* from `next` on in order of time; equals as they came */
    size_t next, count, size;
    struct kvr_line line; /* the one that is due */
};

void kvr_sim_plan_release(struct kvr_sim_plan *plan);

/* Keeps a copy of the line until time_ms. */
enum kvr_status kvr_sim_plan_add(struct kvr_sim_plan *plan, const struct kvr_line *line,
    double time_ms, struct kvr_error *error);

/* The next line that is due at until_ms, valid until the next call; KVR_END: none. */
enum kvr_status kvr_sim_plan_due(struct kvr_sim_plan *plan, double until_ms,
    const struct kvr_line **line, struct kvr_error *error);

#endif
