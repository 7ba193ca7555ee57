/*
 * Studies over a trace: policies side by side, and the highest rate that each sustains.
 *
 * The goodput curve: the share of requests within the SLO at each rate of a range. It falls with
 * the rate, near enough, so the highest rate that meets the SLO lies between the last rate that
 * does and the next one; halving that interval finds it to a 64th of a step.
 */
#ifndef KVR_SIM_SWEEP_H
#define KVR_SIM_SWEEP_H

#include "sim/study.h"

struct kvr_sim_sweep {
    struct kvr_sim_study study;
    const char *policies; /* chains, separated by commas outside of brackets if `several` */
    bool several;
    const char *rates; /* "rate=FROM:TO[:STEP]" */
    double slo_share;
    bool json; /* NDJSON instead of a table */
    struct kvr_buffer *out;
};

/* One row a policy. */
enum kvr_status kvr_sim_compare(
    const struct kvr_sim_sweep *sweep, const struct kvr_sim_trace *trace, struct kvr_error *error);

/* One row a policy with the curve and the rate found. KVR_BAD_USAGE where `rates` is wrong. */
enum kvr_status kvr_sim_sweep(
    const struct kvr_sim_sweep *sweep, const struct kvr_sim_trace *trace, struct kvr_error *error);

#endif
