/* What the renderings share. */
#include "stat/render.h"

#include <math.h>
#include <stdlib.h>

const double kvr_render_quantiles[] = {0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99};
const size_t kvr_render_quantile_count = sizeof kvr_render_quantiles / sizeof *kvr_render_quantiles;

const struct kvr_latency kvr_latencies[3] = {{KVR_SKETCH_TTFT_NEW, "ttft_ms", "TTFT"},
    {KVR_SKETCH_TPOT_NEW, "tpot_ms", "TPOT"}, {KVR_SKETCH_E2E_NEW, "e2e_ms", "end to end"}};

const char *const kvr_kind_names[KVR_KIND_COUNT] = {"new", "continued", "unknown"};

size_t kvr_render_match_bars(const struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale,
    struct kvr_match_bar bars[KVR_MATCH_BARS])
{
    double until = 64;
    size_t count = 1;

    bars[0] = (struct kvr_match_bar){0, sketch->zeros};
    if (sketch->count == 0)
        return 0;
    for (uint64_t seen = sketch->zeros; seen < sketch->count && count < KVR_MATCH_BARS;
         until *= 2, count++) {
        /* Half a bucket of room: a power of two itself belongs to its own bar. */
        uint64_t below = count + 1 == KVR_MATCH_BARS ? sketch->count
                                                     : kvr_sketch_count_until(sketch, scale, until);
        bars[count] = (struct kvr_match_bar){until, below - seen};
        seen = below;
    }
    return count;
}

bool kvr_last_window(const struct kvr_report *report, struct kvr_pane *sum,
    struct kvr_worker_load *scratch, struct kvr_view *view)
{
    const struct kvr_windows *windows = &report->windows;

    if (isnan(windows->newest_ms) || report->merged_parts)
        return false;
    kvr_pane_clear(sum);
    if (!kvr_windows_sum(
            windows, windows->newest - KVR_WINDOW_PANES + 1, windows->newest + 1, true, sum))
        return false;
    *view = kvr_view_pane(report, sum, windows->pane_ms * KVR_WINDOW_PANES, scratch);
    return true;
}

static double largest_gap(const struct kvr_sketch *a, const struct kvr_sketch *b)
{
    double seen_a = (double)a->zeros, seen_b = (double)b->zeros;
    double all_a = (double)a->count, all_b = (double)b->count;
    double gap = fabs(seen_a / all_a - seen_b / all_b);
    int64_t first = a->first, end = first + a->length;

    if (!a->length || (b->length && b->first < first))
        first = b->first;
    if ((int64_t)b->first + b->length > end || !a->length)
        end = (int64_t)b->first + b->length;
    for (int64_t bucket = first; bucket < end; bucket++) {
        int64_t in_a = bucket - a->first, in_b = bucket - b->first;
        seen_a += in_a >= 0 && in_a < a->length ? (double)a->counts[in_a] : 0;
        seen_b += in_b >= 0 && in_b < b->length ? (double)b->counts[in_b] : 0;
        gap = fmax(gap, fabs(seen_a / all_a - seen_b / all_b));
    }
    return gap;
}

bool kvr_match_drift(const struct kvr_report *report, struct kvr_drift *drift)
{
    const struct kvr_windows *windows = &report->windows;
    uint32_t points = windows->history_count, tenth = (points + 9) / 10;
    struct kvr_sketch before = {0}, after = {0};
    bool known = points >= 4;

    for (uint32_t i = 0; i < tenth && known; i++)
        known = kvr_sketch_merge(&before, &windows->history[i].tally.sketches[KVR_SKETCH_MATCH]) &&
                kvr_sketch_merge(
                    &after, &windows->history[points - 1 - i].tally.sketches[KVR_SKETCH_MATCH]);
    known = known && before.count >= 20 && after.count >= 20;
    if (known)
        *drift = (struct kvr_drift){kvr_sketch_quantile(&before, &report->scale, 0.5),
            kvr_sketch_quantile(&after, &report->scale, 0.5), largest_gap(&before, &after)};
    kvr_sketch_release(&before);
    kvr_sketch_release(&after);
    return known;
}

size_t kvr_render_cdf(const struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale,
    struct kvr_cdf_point *points, size_t most)
{
    uint64_t seen = sketch->zeros;
    size_t count = 0, filled = 0, at = 0;

    if (!sketch->count || most < 3)
        return 0;
    for (uint32_t i = 0; i < sketch->length; i++)
        filled += sketch->counts[i] != 0;
    size_t stride = filled / (most - 2) + 1;
    points[count++] = (struct kvr_cdf_point){
        fmax(sketch->least, KVR_SKETCH_LEAST), (double)seen / (double)sketch->count};
    for (uint32_t i = 0; i < sketch->length; i++) {
        if (!sketch->counts[i])
            continue;
        seen += sketch->counts[i];
        if (++at % stride == 0 || seen == sketch->count)
            points[count++] = (struct kvr_cdf_point){
                fmin(kvr_sketch_value(scale, sketch->first + (int32_t)i), sketch->most),
                (double)seen / (double)sketch->count};
    }
    return count;
}

double kvr_render_cdf_start(const struct kvr_view *view)
{
    double least = INFINITY;

    for (int kind = 0; kind < KVR_KIND_COUNT; kind++)
        least = fmin(least, kvr_sketch_quantile(&view->tally->sketches[KVR_SKETCH_TTFT_NEW + kind],
                                view->scale, 0.001));
    return isfinite(least) ? fmax(least, 0.01) : 1;
}

static void fill_step(struct kvr_timeline *timeline, size_t at, const struct kvr_pane *sum,
    double span_ms, const struct kvr_render *render, double *work)
{
    const uint64_t *counters = sum->tally.counters;
    struct kvr_render_step *step = &timeline->steps[at];

    step->hit_rate = counters[KVR_COUNT_KNOWN_TOKENS] ? (double)counters[KVR_COUNT_REUSED_TOKENS] /
                                                            (double)counters[KVR_COUNT_KNOWN_TOKENS]
                                                      : NAN;
    step->request_rate = (double)counters[KVR_COUNT_REQUESTS] * 1e3 / span_ms;
    for (uint32_t i = 0; i < timeline->worker_count; i++) {
        uint32_t worker = render->run->load_workers[i];
        const struct kvr_worker_load *load =
            worker < sum->worker_count ? &sum->workers[worker] : NULL;
        timeline->heat[at * timeline->worker_count + i] = load ? load->kv_usage : NAN;
        work[at * timeline->worker_count + i] =
            load ? (double)(load->prompt_tokens - load->reused_tokens) : 0;
    }
}

/* Without any report of KV use the map shows work, against the most in any cell. */
static void heat_from_work(struct kvr_timeline *timeline, const double *work)
{
    size_t cells = timeline->step_count * timeline->worker_count;
    double most = 0;
    bool reported = false;

    for (size_t i = 0; i < cells; i++) {
        reported |= !isnan(timeline->heat[i]);
        most = fmax(most, work[i]);
    }
    timeline->heat_text = "share of KV cache in use, stronger is more";
    if (reported)
        return;
    timeline->heat_text = "prefill work, stronger is more";
    for (size_t i = 0; i < cells; i++)
        timeline->heat[i] = most > 0 ? work[i] / most : NAN;
}

enum kvr_status kvr_timeline_make(struct kvr_timeline *timeline, const struct kvr_render *render,
    size_t most, struct kvr_error *error)
{
    const struct kvr_windows *windows = &render->report->windows;
    uint32_t points = windows->history_count, workers = render->run->view.load_count;
    struct kvr_pane sum = {0};
    bool whole = true;

    memset(timeline, 0, sizeof *timeline);
    if (!points)
        return KVR_OK;
    timeline->worker_count = workers < KVR_HEAT_WORKERS ? workers : KVR_HEAT_WORKERS;
    int64_t first = windows->history[0].index;
    int64_t panes = windows->history[points - 1].index + windows->history_step - first;
    int64_t stride = windows->history_step;
    while (panes / stride >= (int64_t)most)
        stride *= 2;
    timeline->step_count = (size_t)((panes + stride - 1) / stride);
    double span_ms = (double)panes * windows->pane_ms;
    double unit_ms = span_ms < 120e3 ? 1e3 : span_ms < 120 * 60e3 ? 60e3 : 3600e3;
    timeline->unit = unit_ms == 1e3 ? "s" : unit_ms == 60e3 ? "min" : "h";
    timeline->step_length = (double)stride * windows->pane_ms / unit_ms;
    timeline->length = (double)timeline->step_count * timeline->step_length;
    size_t cells = timeline->step_count * ((size_t)timeline->worker_count + 1);
    timeline->steps = calloc(timeline->step_count, sizeof *timeline->steps);
    timeline->heat = calloc(cells, sizeof *timeline->heat);
    double *work = calloc(cells, sizeof *work);
    if (!timeline->steps || !timeline->heat || !work)
        whole = false;
    for (size_t at = 0, point = 0; at < timeline->step_count && whole; at++) {
        int64_t end = first + (int64_t)(at + 1) * stride;
        kvr_pane_clear(&sum);
        for (; point < points && windows->history[point].index < end; point++)
            whole &= kvr_pane_add(&sum, &windows->history[point], false);
        timeline->steps[at].start = (double)at * timeline->step_length;
        /* The last step reaches only as far as the stream. */
        double left_ms =
            windows->newest_ms - (double)(first + (int64_t)at * stride) * windows->pane_ms;
        double step_ms = (double)stride * windows->pane_ms;
        fill_step(timeline, at, &sum, fmin(step_ms, fmax(left_ms, windows->pane_ms)), render, work);
    }
    if (whole)
        heat_from_work(timeline, work);
    free(work);
    kvr_pane_release(&sum);
    return whole ? KVR_OK : kvr_error_memory(error);
}

void kvr_timeline_release(struct kvr_timeline *timeline)
{
    free(timeline->steps);
    free(timeline->heat);
    memset(timeline, 0, sizeof *timeline);
}

static bool starts_character(char byte)
{
    return ((unsigned char)byte & 0xc0) != 0x80;
}

void kvr_render_short_name(char text[KVR_SHORT_NAME_BYTES], const char *name, unsigned characters)
{
    unsigned length = 0, at = 0, head = (characters - 1) / 2, tail = characters - 1 - head;
    size_t used = 0;

    for (const char *byte = name; *byte; byte++)
        length += starts_character(*byte);
    for (const char *byte = name; *byte && used + 8 < KVR_SHORT_NAME_BYTES; byte++) {
        at += starts_character(*byte);
        if (length <= characters || at <= head || at > length - tail) {
            text[used++] = *byte;
        } else if (at == head + 1 && starts_character(*byte)) {
            memcpy(text + used, "…", 3);
            used += 3;
        }
    }
    text[used] = '\0';
}
