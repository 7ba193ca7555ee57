#include "stat/window.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIME_MOST_MS 1e15
#define DAY_MS 86400e3

enum { KEEP_MOST = 4000, OPEN_MOST = 4000 };

enum kvr_status kvr_windows_init(struct kvr_windows *windows, double window_ms, double late_ms,
    double baseline_ms, struct kvr_error *error)
{
    memset(windows, 0, sizeof *windows);
    windows->oldest_ms = windows->newest_ms = windows->suspect_ms = NAN;
    windows->leap_ms = DAY_MS;
    windows->pane_ms = window_ms / KVR_WINDOW_PANES;
    windows->late_ms = late_ms;
    windows->history_step = 1;
    windows->sketches = KVR_WINDOW_SKETCHES;
    if (!(window_ms >= 1e-3) || !(late_ms >= 0) || !(baseline_ms >= 0))
        return kvr_error_set(error, KVR_BAD_USAGE, "a window of %g ms is not positive", window_ms);
    double keep = KVR_WINDOW_PANES + ceil(baseline_ms / windows->pane_ms);
    double open = ceil(late_ms / windows->pane_ms) + 1;
    if (keep > KEEP_MOST)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "a baseline of %g ms is too long for this window", baseline_ms);
    if (open > OPEN_MOST)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "lateness of %g ms is too long for this window", late_ms);
    int64_t slots = 8;
    while (slots < (int64_t)(keep + open) + 1)
        slots *= 2;
    windows->keep = (int64_t)keep;
    windows->ring = calloc((size_t)slots, sizeof *windows->ring);
    windows->history = calloc(KVR_HISTORY_POINTS, sizeof *windows->history);
    if (!windows->ring || !windows->history)
        return kvr_error_memory(error);
    windows->ring_mask = slots - 1;
    for (int64_t i = 0; i < slots; i++)
        windows->ring[i].index = INT64_MIN;
    return KVR_OK;
}

void kvr_pane_release(struct kvr_pane *pane)
{
    kvr_tally_release(&pane->tally);
    free(pane->workers);
    pane->workers = NULL;
    pane->worker_count = 0;
}

void kvr_pane_clear(struct kvr_pane *pane)
{
    kvr_tally_clear(&pane->tally);
    memset(pane->reasons, 0, sizeof pane->reasons);
    for (uint32_t i = 0; i < pane->worker_count; i++)
        pane->workers[i] = (struct kvr_worker_load){.kv_usage = NAN};
    pane->panes = 1;
}

void kvr_windows_release(struct kvr_windows *windows)
{
    for (int64_t i = 0; windows->ring && i <= windows->ring_mask; i++)
        kvr_pane_release(&windows->ring[i]);
    for (uint32_t i = 0; windows->history && i < KVR_HISTORY_POINTS; i++)
        kvr_pane_release(&windows->history[i]);
    free(windows->ring);
    free(windows->history);
    memset(windows, 0, sizeof *windows);
}

struct kvr_worker_load *kvr_pane_worker(struct kvr_pane *pane, uint32_t worker)
{
    if (worker >= KVR_PANE_WORKERS)
        worker = 0;
    if (worker >= pane->worker_count) {
        uint32_t count = (worker | 15) + 1;
        struct kvr_worker_load *workers = realloc(pane->workers, count * sizeof *workers);
        if (!workers)
            return NULL;
        pane->workers = workers;
        for (; pane->worker_count < count; pane->worker_count++)
            workers[pane->worker_count] = (struct kvr_worker_load){.kv_usage = NAN};
    }
    return &pane->workers[worker];
}

bool kvr_pane_add(struct kvr_pane *into, const struct kvr_pane *from, bool sketches)
{
    bool whole = true;

    if (sketches) {
        whole = kvr_tally_merge(&into->tally, &from->tally);
    } else {
        for (int i = 0; i < KVR_COUNTER_COUNT; i++)
            into->tally.counters[i] += from->tally.counters[i];
    }
    for (int i = 0; i < KVR_REASONS; i++)
        into->reasons[i] += from->reasons[i];
    for (uint32_t i = 0; i < from->worker_count; i++) {
        const struct kvr_worker_load *add = &from->workers[i];
        struct kvr_worker_load *load = kvr_pane_worker(into, i);
        if (!load)
            return false;
        load->requests += add->requests;
        load->prompt_tokens += add->prompt_tokens;
        load->known_tokens += add->known_tokens;
        load->reused_tokens += add->reused_tokens;
        load->evicted_blocks += add->evicted_blocks;
        load->kv_usage = fmax(load->kv_usage, add->kv_usage); /* NaN where both are */
        load->outstanding = fmax(load->outstanding, add->outstanding);
    }
    return whole;
}

bool kvr_windows_sum(const struct kvr_windows *windows, int64_t from, int64_t end, bool sketches,
    struct kvr_pane *sum)
{
    bool whole = true;

    for (int64_t i = from; i < end; i++) {
        const struct kvr_pane *pane = &windows->ring[i & windows->ring_mask];
        if (pane->index == i)
            whole &= kvr_pane_add(sum, pane, sketches);
    }
    return whole;
}

/* Halves the history by adding up neighbours. */
static bool coarsen(struct kvr_windows *windows)
{
    uint32_t kept = 0;
    bool whole = true;

    windows->history_step *= 2;
    for (uint32_t i = 0; i < windows->history_count; i++) {
        struct kvr_pane *pane = &windows->history[i];
        int64_t start =
            pane->index -
            (pane->index % windows->history_step + windows->history_step) % windows->history_step;
        struct kvr_pane *last = kept ? &windows->history[kept - 1] : NULL;
        if (last && last->index == start) {
            whole &= kvr_pane_add(last, pane, true);
            kvr_pane_clear(pane);
        } else {
            struct kvr_pane moved = *pane;
            windows->history[i] = windows->history[kept];
            windows->history[kept] = moved;
            windows->history[kept].index = start;
            kept++;
        }
        windows->history[kept - 1].panes = windows->history_step;
    }
    for (uint32_t i = kept; i < windows->history_count; i++)
        kvr_pane_clear(&windows->history[i]);
    windows->history_count = kept;
    return whole;
}

static bool remember(struct kvr_windows *windows, const struct kvr_pane *pane)
{
    int64_t step = windows->history_step;
    int64_t start = pane->index - (pane->index % step + step) % step;
    uint32_t count = windows->history_count;

    if (count && windows->history[count - 1].index == start)
        return kvr_pane_add(&windows->history[count - 1], pane, true);
    if (count == KVR_HISTORY_POINTS) {
        /* Points may lie far apart (gaps): halve until there is room, at most 63 times. */
        for (int i = 0; i < 62 && windows->history_count == KVR_HISTORY_POINTS; i++) {
            if (!coarsen(windows))
                return false;
        }
        return remember(windows, pane);
    }
    struct kvr_pane *point = &windows->history[windows->history_count++];
    kvr_pane_clear(point);
    point->index = start;
    point->panes = step;
    return kvr_pane_add(point, pane, true);
}

static enum kvr_status close_pane(
    struct kvr_windows *windows, int64_t index, struct kvr_error *error)
{
    struct kvr_pane *pane = &windows->ring[index & windows->ring_mask];
    uint64_t requests = 0;

    windows->closed = index + 1;
    if (pane->index == index && !remember(windows, pane))
        return kvr_error_memory(error);
    for (int64_t i = index - KVR_WINDOW_PANES + 1; i <= index; i++) {
        const struct kvr_pane *part = &windows->ring[i & windows->ring_mask];
        if (part->index == i)
            requests += part->tally.counters[KVR_COUNT_REQUESTS];
    }
    double rate = (double)requests * 1e3 / (windows->pane_ms * KVR_WINDOW_PANES);
    if (rate > windows->most_request_rate)
        windows->most_request_rate = rate;
    return windows->on_close ? windows->on_close(windows->context, index, error) : KVR_OK;
}

/* Closes all panes below `until`. A long silence is passed over once it has emptied all windows. */
static enum kvr_status close_until(
    struct kvr_windows *windows, int64_t until, struct kvr_error *error)
{
    int64_t newest = windows->newest;
    enum kvr_status status = KVR_OK;

    while (windows->closed < until && status == KVR_OK) {
        if (windows->closed > newest + windows->keep && until - windows->closed > windows->keep)
            windows->closed = until - windows->keep;
        status = close_pane(windows, windows->closed, error);
    }
    return status;
}

bool kvr_windows_believe(struct kvr_windows *windows, double timestamp_ms)
{
    double step_ms = timestamp_ms - windows->newest_ms;

    if (!(fabs(timestamp_ms) < TIME_MOST_MS)) {
        windows->untimed_lines++;
        return false;
    }
    if (step_ms > windows->leap_ms) {
        if (!(timestamp_ms >= windows->suspect_ms - windows->late_ms)) {
            windows->suspect_ms = timestamp_ms;
            windows->untimed_lines++;
            return false;
        }
        windows->leap_ms = fmax(windows->leap_ms, 2 * step_ms); /* such pauses are this log's way */
    }
    windows->suspect_ms = NAN;
    return true;
}

enum kvr_status kvr_windows_at(struct kvr_windows *windows, double timestamp_ms,
    struct kvr_pane **pane, struct kvr_error *error)
{
    *pane = NULL;
    if (!kvr_windows_believe(windows, timestamp_ms))
        return KVR_OK;
    int64_t index = (int64_t)floor(timestamp_ms / windows->pane_ms);
    windows->oldest_ms = fmin(windows->oldest_ms, timestamp_ms);
    int64_t oldest = (int64_t)floor((timestamp_ms - windows->late_ms) / windows->pane_ms);
    if (isnan(windows->newest_ms)) {
        windows->closed = oldest;
        windows->newest = index;
        windows->newest_ms = timestamp_ms;
    } else if (timestamp_ms > windows->newest_ms) {
        if (oldest > windows->closed) {
            enum kvr_status status = close_until(windows, oldest, error);
            if (status != KVR_OK)
                return status;
        }
        windows->newest = index;
        windows->newest_ms = timestamp_ms;
    } else if (index < windows->closed) {
        windows->late_lines++;
        return KVR_OK;
    }
    *pane = &windows->ring[index & windows->ring_mask];
    if ((*pane)->index != index) {
        kvr_pane_clear(*pane);
        (*pane)->index = index;
    }
    return KVR_OK;
}

struct kvr_pane *kvr_windows_newest(struct kvr_windows *windows)
{
    if (isnan(windows->newest_ms))
        return NULL;
    struct kvr_pane *pane = &windows->ring[windows->newest & windows->ring_mask];
    return pane->index == windows->newest ? pane : NULL;
}

enum kvr_status kvr_windows_finish(struct kvr_windows *windows, struct kvr_error *error)
{
    if (isnan(windows->newest_ms))
        return KVR_OK;
    return close_until(windows, windows->newest + 1, error);
}
