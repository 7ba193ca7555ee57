/*
 * A simulation over lines: request lines in, the same lines out with `route`, `cache` and
 * `response`, in the order in which they end. Decisions are made in process (desk.h) or by real
 * programs (child.h); the cluster cannot tell them apart, and both give the same bytes.
 *
 * The order of what a decision pipeline is told is the order of virtual time: workers, then for
 * each moment what ended before it (`done`), load reports, and the request.
 */
#ifndef KVR_SIM_STAGE_H
#define KVR_SIM_STAGE_H

#include "line/writer.h"
#include "sim/study.h"

struct kvr_stage;

struct kvr_stage_options {
    const struct kvr_sim_options *sim;
    const struct kvr_desk_options *desk; /* in process; or, where NULL, */
    const char *command;                 /* the pipeline */
    double patience_ms;                  /* for one of its answers */
    bool events;                         /* write done, load, stored, removed, cleared lines too */
    bool cache_events; /* tell who decides of the caches' stored, removed and cleared events */
    struct kvr_sim_pace pace;
};

/* The reader, the writer and what the options point to must outlive the stage. */
enum kvr_status kvr_stage_create(const struct kvr_stage_options *options,
    struct kvr_sim_reader *reader, struct kvr_writer *out, struct kvr_stage **stage,
    struct kvr_error *error);
void kvr_stage_destroy(struct kvr_stage *stage);

/* A worker that is there from the start. */
enum kvr_status kvr_stage_join(
    struct kvr_stage *stage, const struct kvr_worker_description *worker, struct kvr_error *error);

/*
 * The next line of the trace. Of event lines only worker lines act; all are passed on.
 * KVR_BAD_INPUT: the line is bad, nothing has happened. KVR_IO and others: the simulation is over.
 */
enum kvr_status kvr_stage_line(
    struct kvr_stage *stage, const struct kvr_line *line, struct kvr_error *error);

/* After the last line: everything ends, and so does the pipeline. */
enum kvr_status kvr_stage_end(struct kvr_stage *stage, struct kvr_error *error);

#endif
