/*
 * The state of a kvr-stats run: lines in, numbers out. One report holds everything that was learnt
 * from a stream; renderings and rules only look at it (stat/metrics.h).
 *
 * Memory is bounded whatever the stream: the worker, group and reason tables, the set of sessions,
 * the blocks of the ceiling and the requests that wait for their `done` line all have limits, and
 * what a limit makes unknowable is left out and named (kvr_report_left_out), never estimated.
 *
 * Each request counts in one worker's tally, in the pane of its timestamp, and in one group of
 * --by; the run's totals are the sum over the workers.
 *
 * The reuse of a request is what its response or `cache` measured; where it has neither, what
 * `route.matched` or `match` promised. A `done` line is joined to its request by id; what it
 * measured then replaces the promise.
 */
#ifndef KVR_STAT_REPORT_H
#define KVR_STAT_REPORT_H

#include "base/random.h"
#include "cost/cost.h"
#include "line/session.h"
#include "line/worker.h"
#include "stat/ceiling.h"
#include "stat/facts.h"
#include "stat/groups.h"
#include "stat/prefixes.h"
#include "stat/window.h"

struct kvr_report_options {
    double accuracy;       /* of the sketches */
    uint64_t block_tokens; /* of lines without block_size */
    double window_ms, late_ms;
    double baseline_ms; /* that rules look back */
    double slo_ttft_ms; /* 0: only the lines' own */
    uint32_t worker_limit, group_limit;
    size_t block_limit, session_limit, pending_limit;
    bool ceiling, prefixes; /* whether to look at block ids at all */
    bool brief; /* only requests, tokens, reuse, time saved, TTFT and work, and no windows */
    struct kvr_cost cost;
    struct kvr_expression *by; /* NULL: no groups. Not owned */
};

/* The defaults: 1 %, 512 tokens, windows of 60 s, 30 s late, 1,024 workers, 1,000 groups, 8
 * million blocks, 4 million sessions, 262,144 pending requests, Llama 3.1 8B on an H100. */
enum kvr_status kvr_report_defaults(struct kvr_report_options *options, struct kvr_error *error);

struct kvr_worker_stat {
    struct kvr_tally tally;
    enum kvr_worker_state state;
    bool declared; /* by a worker line */
    uint64_t capacity_tokens;
    uint64_t outstanding, outstanding_most;
    double state_ms, load_ms;       /* when its last worker and load lines came; NaN: never */
    double kv_usage, kv_usage_most; /* from load lines, NaN: none */
    double waiting, running, tokens;
    uint64_t resident_blocks, resident_tokens; /* from stored and removed lines */
    bool blocks_contradict;                    /* two partials speak of its blocks */
};

/* A block that a worker stores, and since when. */
struct kvr_resident {
    uint64_t key; /* in residents; of worker and block id */
    double stored_ms;
    uint32_t worker;
    uint32_t tokens;
    uint32_t copies; /* stored so often; gone when removed as often */
    bool reused;
};

/* A request that waits for its done line. */
struct kvr_pending {
    uint64_t key;
    struct kvr_facts facts; /* its texts and values are not valid any more */
    uint32_t worker, group;
    uint64_t unit; /* see struct kvr_report_place */
    int64_t pane;  /* that it was counted in; INT64_MIN: none */
    bool waiting;  /* not done, not forgotten */
};

struct kvr_addition;
struct kvr_report_place;

struct kvr_report {
    struct kvr_report_options options;
    struct kvr_sketch_scale scale;
    struct kvr_groups worker_names;
    struct kvr_worker_stat *workers; /* by group */
    size_t worker_capacity;
    uint32_t inactive_workers;
    bool inactive_seen; /* some worker was draining or down */
    uint32_t no_worker; /* the group of requests without one; 0 until there is one */
    struct kvr_groups group_names;
    struct kvr_tally *groups;
    size_t group_capacity;
    struct kvr_groups reason_names;
    uint64_t reasons[KVR_REASONS];
    struct kvr_windows windows;
    struct kvr_session_reader session_reader;
    struct kvr_u64_map sessions; /* seen */
    bool sessions_full;
    uint64_t sessions_asked; /* requests whose kind only the session could say */
    struct kvr_ceiling ceiling;
    struct kvr_prefixes prefixes;
    struct kvr_u64_map residents; /* of worker and block -> index into resident pool */
    struct kvr_resident *resident_pool;
    uint32_t *resident_free; /* a stack of free places */
    size_t resident_capacity, resident_free_count, resident_count;
    bool residents_full;
    bool blocks_seen; /* some stored line came: occupancy is known */
    bool done_seen;
    bool match_seen;                  /* some request said who holds what */
    struct kvr_u64_map pending_index; /* id -> sequence number */
    struct kvr_pending *pending;      /* a ring by sequence number */
    size_t pending_capacity;
    uint64_t pending_first, pending_next;
    uint64_t forgotten, unmatched_done;
    /* Sums of the identities of the requests that came with their answers, and of the unmatched
     * done lines. They are equal where a stream says each end twice, as kvr-sim --events does. */
    uint64_t answered_ids, unmatched_ids;
    uint64_t lines, request_lines, event_lines;
    uint64_t other_events; /* of kinds that mean nothing here */
    uint64_t *ids;         /* scratch */
    size_t ids_capacity;
    struct kvr_buffer scratch;
    uint64_t ceiling_stands_in;      /* requests whose best match is the ceiling, having no match */
    struct kvr_tally beyond_workers; /* what merging knows of the run and of no worker */
    /* Sees everything that is added (sign 1) or taken back (-1); false: memory ran short. */
    bool (*observe)(void *context, const struct kvr_addition *addition,
        const struct kvr_report_place *place, int sign);
    void *observe_context;
    bool sessions_contradict, blocks_contradict; /* two partials have the same one */
    bool ceiling_lost;                           /* some partial had no blocks */
    uint64_t merged_parts;                       /* 0: read from lines */
    struct kvr_buffer left_out; /* names that merging left out, each "name\0why\0" */
};

enum kvr_status kvr_report_create(
    struct kvr_report **report, const struct kvr_report_options *options, struct kvr_error *error);
void kvr_report_destroy(struct kvr_report *report);

/* One line, request or event. KVR_BAD_INPUT: it was not counted at all. */
enum kvr_status kvr_report_line(
    struct kvr_report *report, const struct kvr_line *line, struct kvr_error *error);

/* Ends the stream: closes the windows. Nothing is added after. */
enum kvr_status kvr_report_finish(struct kvr_report *report, struct kvr_error *error);

/* The sum of all workers, into an empty tally. */
bool kvr_report_total(const struct kvr_report *report, struct kvr_tally *total);

/* Calls each() with the name of every part of the report that is not known exactly, and why. */
/* done lines whose request was never told: 0 where all of them repeat what requests brought along.
 */
uint64_t kvr_report_lost_done(const struct kvr_report *report);

void kvr_report_left_out(const struct kvr_report *report,
    void (*each)(void *context, const char *name, const char *why), void *context);

/* ---- between the files of the report ---- */

/* The key of a block in a worker's store. */
static inline uint64_t kvr_resident_key(uint32_t worker, uint64_t id)
{
    return kvr_mix64(id + worker * 0x9e3779b97f4a7c15u);
}

/* hash_ids of a line into report->ids. KVR_BAD_INPUT when it is no list of ids. */
enum kvr_status kvr_report_ids(
    struct kvr_report *report, struct kvr_value list, size_t *count, struct kvr_error *error);

/* The worker of a name (made where new), and room for its numbers. */
enum kvr_status kvr_report_worker(
    struct kvr_report *report, struct kvr_text inside, uint32_t *worker, struct kvr_error *error);
enum kvr_status kvr_report_event(
    struct kvr_report *report, const struct kvr_line *line, struct kvr_error *error);
enum kvr_status kvr_report_done(struct kvr_report *report, const struct kvr_line *line,
    struct kvr_pane *pane, struct kvr_error *error);

#endif
