/*
 * Windows in event time that tolerate disorder.
 *
 * The problem: lines come roughly in the order of their timestamps, from several writers, and a
 * rate over the last minute shall not depend on which came first. The idea is that of panes (Li et
 * al., "No pane, no gain", SIGMOD Record 2005): time is cut into panes of a sixth of the window;
 * a line goes into the pane of its timestamp; a window is the sum of six panes and slides by one.
 * A pane stays open until the newest timestamp is `late` past its end, then it closes for good, in
 * order: its window is complete, rules look at it, and it moves into the history. What comes later
 * still counts in the totals and is counted as late.
 *
 *     time ──►   [closed][closed][closed][open][open][newest]
 *                        └── window of the last closed pane (6 panes)
 *
 * One wrong clock must not make all that follows late: a timestamp more than a day ahead of the
 * newest is believed only when the next line goes on from it. Until then its line counts as one
 * without time.
 *
 * The history holds at most KVR_HISTORY_POINTS points; when it is full, neighbours are added up and
 * each point covers twice the time. Everything in a pane adds exactly, so history never lies, it
 * only gets coarser. Memory is constant whatever the stream.
 */
#ifndef KVR_STAT_WINDOW_H
#define KVR_STAT_WINDOW_H

#include "stat/tally.h"

#include <math.h>
#include <stdbool.h>

enum {
    KVR_WINDOW_PANES = 6,
    KVR_HISTORY_POINTS = 480,
    KVR_REASONS = 32,        /* the last ones are "(other)" */
    KVR_PANE_WORKERS = 1024, /* workers that windows tell apart; further ones count as group 0 */
};

/* A worker in a stretch of time. */
struct kvr_worker_load {
    uint64_t requests, prompt_tokens, known_tokens, reused_tokens, evicted_blocks;
    double kv_usage;    /* the largest reported, 0 to 1; NaN: none */
    double outstanding; /* the largest seen */
};

struct kvr_pane {
    int64_t index; /* starts at index · pane_ms */
    int64_t panes; /* how many it covers: 1, more in the history */
    struct kvr_tally tally;
    uint64_t reasons[KVR_REASONS];
    struct kvr_worker_load *workers; /* by the worker's group */
    uint32_t worker_count;
};

/* TTFT and match lengths: what plots and the history's points show. */
#define KVR_WINDOW_SKETCHES (7u << KVR_SKETCH_TTFT_NEW | 1u << KVR_SKETCH_MATCH)

struct kvr_windows {
    double pane_ms, late_ms;
    double oldest_ms, newest_ms; /* timestamps seen; NaN before the first */
    double suspect_ms;           /* the last line's, too far ahead to be believed; NaN: was not */
    double leap_ms;              /* how far ahead that is */
    int64_t newest;              /* its pane */
    int64_t closed;              /* panes below are closed */
    struct kvr_pane *ring;       /* pane i at i & ring_mask while it is kept */
    int64_t ring_mask;
    int64_t keep; /* closed panes that stay for windows and baselines */
    struct kvr_pane *history;
    uint32_t history_count;
    int64_t history_step; /* panes a point */
    uint32_t sketches;    /* the sketches that panes keep, a bit each: those of the plots unless
                             somebody looks at windows */
    uint64_t late_lines;
    uint64_t untimed_lines;
    double most_request_rate; /* the busiest window, per second */
    /* Called for each pane as it closes, in order. NULL: nobody looks. */
    enum kvr_status (*on_close)(void *context, int64_t pane, struct kvr_error *error);
    void *context;
};

/* window_ms is cut into KVR_WINDOW_PANES panes; baseline_ms more are kept for comparisons with the
 * past. KVR_BAD_USAGE for a window that is not positive or a baseline of more than 4,000 panes. */
enum kvr_status kvr_windows_init(struct kvr_windows *windows, double window_ms, double late_ms,
    double baseline_ms, struct kvr_error *error);
void kvr_windows_release(struct kvr_windows *windows);

/*
 * The pane of a timestamp, after closing what it makes old; NULL in *pane when it is late or has no
 * time (NaN), which is counted. Timestamps beyond ±1e15 ms are as none.
 */
enum kvr_status kvr_windows_at(struct kvr_windows *windows, double timestamp_ms,
    struct kvr_pane **pane, struct kvr_error *error);

/* Whether a timestamp tells the time of the stream (above); counted where it does not. */
bool kvr_windows_believe(struct kvr_windows *windows, double timestamp_ms);

/* Only the span of the stream, for those who look at no windows. */
static inline void kvr_windows_stretch(struct kvr_windows *windows, double timestamp_ms)
{
    if (!kvr_windows_believe(windows, timestamp_ms))
        return;
    if (!(windows->oldest_ms <= timestamp_ms))
        windows->oldest_ms = fmin(windows->oldest_ms, timestamp_ms);
    if (!(windows->newest_ms >= timestamp_ms))
        windows->newest_ms = fmax(windows->newest_ms, timestamp_ms);
}

/* The pane of the newest timestamp, for lines without one of their own; NULL before the first. */
struct kvr_pane *kvr_windows_newest(struct kvr_windows *windows);

/* A worker of a pane; NULL when memory is short. */
struct kvr_worker_load *kvr_pane_worker(struct kvr_pane *pane, uint32_t worker);

/* Closes all panes: the stream has ended. */
enum kvr_status kvr_windows_finish(struct kvr_windows *windows, struct kvr_error *error);

/* Adds up panes from ≤ i < end that are still kept into *sum. With sketches false only what costs
 * little. False when memory is short. */
bool kvr_windows_sum(const struct kvr_windows *windows, int64_t from, int64_t end, bool sketches,
    struct kvr_pane *sum);

/* Adds one pane to another. */
bool kvr_pane_add(struct kvr_pane *into, const struct kvr_pane *from, bool sketches);
void kvr_pane_release(struct kvr_pane *pane);
void kvr_pane_clear(struct kvr_pane *pane);

#endif
