/*
 * Partials: a report as one line of JSON, and the way back. Partials of a split of a stream, merged
 * in any order, give the report of the whole, counter for counter and bucket for bucket.
 *
 * What needs the whole order is carried exactly or left out by name, never estimated:
 * - New or continued by first sight of a session: the sessions seen are carried. Where two partials
 *   saw the same one, their first sights contradict, and the split by kind is left out.
 * - The ceiling: the set of blocks is carried. Hits are accesses less first sights, so ceilings of
 *   any split add up exactly in tokens (stat/ceiling.h); its share of requests and of time, and the
 *   ceilings of workers and groups, are exact only where the partials share no block, else left
 * out. So is the regret where the ceiling stood in for a missing match.
 * - Blocks stored and removed: carried as counts; left out for a worker that other partials speak
 * of too.
 * - The regret where a worker was not active all the time: which one could have been chosen then.
 * - Requests answered by `done` lines: exact where a request and its done line are in one partial;
 *   otherwise named.
 * - Windows, alerts, shared prefixes and reuse distance: left out of what has more than one
 * partial. Splits by session, or by worker where sessions stay, keep all but the last.
 */
#ifndef KVR_STAT_PARTIAL_H
#define KVR_STAT_PARTIAL_H

#include "stat/report.h"

/* Appends a finished report as one JSON object without a newline. by is the text of its --by. */
void kvr_partial_write(const struct kvr_report *report, const char *by, struct kvr_buffer *out);

/*
 * Adds a partial to a report that reads no lines itself. KVR_BAD_INPUT: no partial, or one that was
 * made with other options (accuracy, window, cost, SLO, --by); the report is as before.
 */
enum kvr_status kvr_partial_merge(struct kvr_report *report, const struct kvr_line *line,
    const char *by, struct kvr_error *error);

/* After the last partial: settles what could not be merged. */
enum kvr_status kvr_partial_settle(struct kvr_report *report, struct kvr_error *error);

#endif
