/*
 * What a simulation comes to: one row of the table that --compare prints.
 *
 * Every finished request is noted; percentiles are exact, over all of them. Times to first token
 * are split into first turns and continuations. Cost: 20 bytes a request.
 */
#ifndef KVR_SIM_REPORT_H
#define KVR_SIM_REPORT_H

#include "base/buffer.h"
#include "sim/cluster.h"

struct kvr_sim_slo {
    double ttft_ms, tbt_ms, gap_ms; /* first token, mean and longest between tokens; 0: none */
};

struct kvr_sim_times {
    double *values;
    size_t count, size;
    bool sorted;
};

struct kvr_sim_report {
    struct kvr_sim_slo slo;
    struct kvr_sim_times first[2]; /* times to first token: of first turns, of continuations */
    struct kvr_sim_times all;      /* of both */
    struct kvr_sim_times between;  /* mean time between tokens of each request with several */
    struct kvr_sim_times gaps;     /* and the longest */
    uint64_t requests, completed, rejected, failed;
    uint64_t good; /* completed within the SLO */
    uint64_t prompt_tokens, cached_tokens, output_tokens, recomputed_tokens;
    double first_arrival_ms, last_arrival_ms, end_ms;
};

void kvr_sim_report_init(struct kvr_sim_report *report, struct kvr_sim_slo slo);
void kvr_sim_report_release(struct kvr_sim_report *report);

/* Notes a finished request. */
enum kvr_status kvr_sim_report_add(struct kvr_sim_report *report,
    const struct kvr_sim_request *request, bool continuation, struct kvr_error *error);

/* The p-th quantile (0 … 1) by rank: the smallest value that a share p does not exceed. NaN of
 * none. */
double kvr_sim_quantile(struct kvr_sim_times *times, double p);

/* Share of all requests that completed within the SLO. */
double kvr_sim_good_share(const struct kvr_sim_report *report);
/* Such requests a second of the arrivals' span. */
double kvr_sim_goodput(const struct kvr_sim_report *report);

/* Largest over mean of the work (prompt tokens computed and tokens decoded) of the workers. */
double kvr_sim_skew(const struct kvr_sim *sim);

/* A table for people: kvr_sim_table_head() once, then a row each. */
void kvr_sim_table_head(struct kvr_buffer *out, size_t name_width);
void kvr_sim_table_row(struct kvr_sim_report *report, const char *name, size_t name_width,
    double skew, struct kvr_buffer *out);
/* The same as one JSON object. */
void kvr_sim_report_write(struct kvr_sim_report *report, const char *name, double rate, double skew,
    struct kvr_buffer *out);

#endif
