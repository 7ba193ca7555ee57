/* Requests that wait for their done line. */
#include "stat/report_private.h"

#include <stdlib.h>

static struct kvr_pending *pending_at(const struct kvr_report *report, uint64_t sequence)
{
    return &report->pending[sequence & (report->pending_capacity - 1)];
}

static void forget(struct kvr_report *report, struct kvr_pending *pending)
{
    kvr_u64_map_remove(&report->pending_index, pending->key, NULL);
    pending->waiting = false;
    report->forgotten++;
    report->workers[pending->worker].outstanding--;
}

static bool grow(struct kvr_report *report)
{
    size_t capacity = report->pending_capacity ? report->pending_capacity * 2 : 256;
    struct kvr_pending *ring = malloc(capacity * sizeof *ring);

    if (!ring)
        return false;
    for (uint64_t i = report->pending_first; i < report->pending_next; i++)
        ring[i & (capacity - 1)] = *pending_at(report, i);
    free(report->pending);
    report->pending = ring;
    report->pending_capacity = capacity;
    return true;
}

enum kvr_status kvr_report_wait(struct kvr_report *report, const struct kvr_line *line,
    const struct kvr_facts *facts, const struct kvr_report_place *place, struct kvr_error *error)
{
    uint64_t key = kvr_value_identity(kvr_line_get(line, KVR_NAME_ID));

    if (!report->options.pending_limit)
        return KVR_OK;
    while (report->pending_first < report->pending_next &&
           !pending_at(report, report->pending_first)->waiting)
        report->pending_first++;
    uint64_t *known = kvr_u64_map_find(&report->pending_index, key);
    if (known) /* the same id again: the earlier one cannot be told apart any more */
        forget(report, pending_at(report, *known));
    if (report->pending_next - report->pending_first >= report->options.pending_limit) {
        struct kvr_pending *oldest = pending_at(report, report->pending_first++);
        if (oldest->waiting)
            forget(report, oldest);
    }
    if (report->pending_next - report->pending_first >= report->pending_capacity && !grow(report))
        return kvr_error_memory(error);
    uint64_t *sequence = kvr_u64_map_insert(&report->pending_index, key, NULL);
    if (!sequence)
        return kvr_error_memory(error);
    *sequence = report->pending_next++;
    *pending_at(report, *sequence) = (struct kvr_pending){.key = key,
        .facts = *facts,
        .worker = place->worker,
        .group = place->group,
        .unit = place->unit,
        .pane = place->pane ? place->pane->index : INT64_MIN,
        .waiting = true};
    struct kvr_worker_stat *stat = &report->workers[place->worker];
    if (++stat->outstanding > stat->outstanding_most)
        stat->outstanding_most = stat->outstanding;
    return KVR_OK;
}

/* The reuse that the request was counted with gives way to what was measured, in the totals and,
 * while its window is open, there. */
static enum kvr_status correct(struct kvr_report *report, const struct kvr_pending *pending,
    const struct kvr_facts *promised, struct kvr_error *error)
{
    struct kvr_windows *windows = &report->windows;
    struct kvr_pane *pane = NULL;
    struct kvr_addition before, after;

    if (pending->pane >= windows->closed) {
        pane = &windows->ring[pending->pane & windows->ring_mask];
        if (pane->index != pending->pane)
            pane = NULL;
    }
    struct kvr_report_place place = {pending->worker, pending->group, pane, pending->unit};
    kvr_addition_clear(&before);
    kvr_addition_clear(&after);
    kvr_add_reuse(report, promised, &before);
    kvr_add_reuse(report, &pending->facts, &after);
    kvr_addition_take_back(report, &before, &place);
    return kvr_addition_apply(report, &after, &place, error);
}

uint64_t kvr_report_lost_done(const struct kvr_report *report)
{
    return report->unmatched_ids == report->answered_ids ? 0 : report->unmatched_done;
}

enum kvr_status kvr_report_done(struct kvr_report *report, const struct kvr_line *line,
    struct kvr_pane *pane, struct kvr_error *error)
{
    uint64_t key = kvr_value_identity(kvr_line_get(line, KVR_NAME_ID));
    uint64_t *known = key ? kvr_u64_map_find(&report->pending_index, key) : NULL;
    struct kvr_facts answer = {.measured_tokens = -1};
    struct kvr_addition addition;

    if (known)
        answer = pending_at(report, *known)->facts;
    enum kvr_status status =
        kvr_facts_read_response(kvr_line_get(line, KVR_NAME_RESPONSE), &answer, error);
    if (status != KVR_OK)
        return status;
    report->done_seen = true;
    if (!known) {
        report->unmatched_done++;
        report->unmatched_ids += key ? key : 1; /* one without an id has no request */
        return KVR_OK;
    }
    struct kvr_pending *pending = pending_at(report, *known);
    const struct kvr_facts promised = pending->facts;
    pending->waiting = false;
    kvr_u64_map_remove(&report->pending_index, key, NULL);
    report->workers[pending->worker].outstanding--;
    answer.answered = true;
    if (answer.measured_tokens >= 0 && answer.input_tokens >= 0) {
        answer.reused_tokens = answer.measured_tokens < answer.input_tokens ? answer.measured_tokens
                                                                            : answer.input_tokens;
        pending->facts = answer;
        status = correct(report, pending, &promised, error);
        if (status != KVR_OK)
            return status;
    }
    struct kvr_report_place place = {pending->worker, pending->group, pane, pending->unit};
    kvr_addition_clear(&addition);
    kvr_add_outcome(report, &answer, &addition);
    return kvr_addition_apply(report, &addition, &place, error);
}
