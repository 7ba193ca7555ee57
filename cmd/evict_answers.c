/* The questions of kvr-evict that need the whole trace: it is read into memory first, parted by
 * worker. */
#include "base/grow.h"
#include "cache/advise.h"
#include "cmd/evict.h"
#include "line/worker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct workers {
    struct kvr_trace *traces;
    size_t count, size;
    struct kvr_u64_map numbers;
    struct kvr_buffer scratch; /* a worker's name, decoded */
};

static void release_workers(struct workers *workers)
{
    for (size_t i = 0; i < workers->count; i++)
        kvr_trace_release(&workers->traces[i]);
    free(workers->traces);
    kvr_u64_map_release(&workers->numbers);
    kvr_buffer_release(&workers->scratch);
}

static enum kvr_status trace_of(struct workers *workers, struct kvr_value worker,
    uint32_t block_tokens, struct kvr_trace **trace, struct kvr_error *error)
{
    bool is_new;
    struct kvr_text name = {NULL, 0};
    enum kvr_status status = KVR_OK;

    if (worker.type != KVR_ABSENT)
        status = kvr_worker_name(worker, "route.worker", &workers->scratch, &name, error);
    if (status != KVR_OK)
        return status;
    uint64_t *number = kvr_u64_map_insert(
        &workers->numbers, name.length ? XXH3_64bits(name.text, name.length) : 0, &is_new);
    if (!number)
        return kvr_error_memory(error);
    if (is_new) {
        if (workers->count == KVR_WORKERS_MOST)
            return kvr_error_set(error, KVR_BAD_INPUT, "more than %d workers", KVR_WORKERS_MOST);
        struct kvr_trace *traces =
            kvr_grow(workers->traces, &workers->size, workers->count + 1, sizeof *traces);
        if (!traces)
            return kvr_error_memory(error);
        workers->traces = traces;
        memset(&traces[workers->count], 0, sizeof *traces);
        traces[workers->count].block_tokens = block_tokens;
        *number = workers->count++;
    }
    *trace = &workers->traces[*number];
    return KVR_OK;
}

static enum kvr_status take_line(struct tool *tool, struct evict_program *evict,
    struct workers *workers, uint32_t *block_tokens, struct kvr_error *error)
{
    struct kvr_request_view view;
    struct kvr_trace *trace = NULL;
    enum kvr_status status = kvr_request_read(&evict->reader, &tool->line, &view, error);

    if (status != KVR_OK || view.worker.type == KVR_NULL)
        return status;
    if (!*block_tokens)
        *block_tokens = view.request.block_tokens;
    status = trace_of(workers, view.worker, *block_tokens, &trace, error);
    return status == KVR_OK ? kvr_trace_add(trace, &view, error) : status;
}

static enum kvr_status read_all(struct tool *tool, struct evict_program *evict,
    struct workers *workers, uint32_t *block_tokens, struct kvr_error *error)
{
    *block_tokens = evict->setup.block_tokens;
    while (tool_next(tool) == TOOL_LINE) {
        if (kvr_line_is_event(&tool->line))
            continue;
        enum kvr_status status = take_line(tool, evict, workers, block_tokens, error);
        if (status == KVR_BAD_INPUT)
            tool_bad_line(tool, error);
        else if (status != KVR_OK)
            return status;
    }
    if (!*block_tokens)
        *block_tokens = evict->reader.block_tokens;
    return KVR_OK;
}

/* ── the curve ── */

static enum kvr_status make_curves(const struct evict_program *evict, const struct workers *workers,
    uint32_t block_tokens, struct kvr_curve **curves, struct kvr_error *error)
{
    struct kvr_curve_options options = {
        block_tokens, evict->settings->sample, evict->settings->seed};
    enum kvr_status status = KVR_OK;

    for (size_t i = 0; i < workers->count && status == KVR_OK; i++) {
        const struct kvr_trace *trace = &workers->traces[i];
        status = kvr_curve_create(&curves[i], &options, error);
        for (size_t j = 0; j < trace->request_count && status == KVR_OK; j++) {
            const struct kvr_trace_request *request = &trace->requests[j];
            status = kvr_curve_add(curves[i], trace->ids + request->first, request->count,
                request->input_tokens, request->session, error);
        }
    }
    return status;
}

struct curve_sum {
    struct kvr_curve **curves;
    size_t count;
    uint64_t tokens, accesses, footprint; /* footprint: of the largest */
};

/* Hits of all workers, each with a cache of that capacity; errors add as variances do. */
static void sum_point(const struct curve_sum *all, uint64_t capacity, struct kvr_curve_point *sum)
{
    double variance = 0;

    *sum = (struct kvr_curve_point){.capacity_blocks = capacity};
    for (size_t i = 0; i < all->count; i++) {
        struct kvr_curve_point point;
        struct kvr_curve_totals totals;
        kvr_curve_point(all->curves[i], capacity, &point);
        kvr_curve_totals(all->curves[i], &totals);
        double weight = all->tokens ? (double)totals.prompt_tokens / (double)all->tokens : 0;
        sum->hit_blocks += point.hit_blocks;
        sum->hit_tokens += point.hit_tokens;
        variance += pow(weight * point.standard_error, 2);
    }
    sum->token_hit_rate = all->tokens ? sum->hit_tokens / (double)all->tokens : 0;
    sum->standard_error = sqrt(variance);
}

static void write_point(struct tool *tool, const struct evict_program *evict,
    const struct curve_sum *all, uint32_t block_tokens, const struct kvr_curve_point *point,
    bool knee)
{
    struct kvr_buffer *out = &tool->out.buffer;
    double bytes = (double)point->capacity_blocks * block_tokens * evict->cost.kv_bytes_per_token;
    double block_rate = all->accesses ? point->hit_blocks / (double)all->accesses : 0;

    if (evict->settings->json) {
        kvr_buffer_append_format(out,
            "{\"capacity_blocks\":%llu,\"capacity_tokens\":%llu,\"capacity_bytes\":%.0f,"
            "\"hits\":%.0f,\"hit_tokens\":%.0f,\"block_hit_rate\":",
            (unsigned long long)point->capacity_blocks,
            (unsigned long long)(point->capacity_blocks * block_tokens), bytes, point->hit_blocks,
            point->hit_tokens);
        kvr_append_decimal(out, block_rate, 6);
        kvr_buffer_append_text(out, ",\"token_hit_rate\":");
        kvr_append_decimal(out, point->token_hit_rate, 6);
        kvr_buffer_append_text(out, ",\"standard_error\":");
        kvr_append_decimal(out, point->standard_error, 6);
        kvr_buffer_append_text(out, knee ? ",\"knee\":true}" : "}");
    } else {
        kvr_buffer_append_format(out, "%12llu %15llu %10.2f %7.2f%% %7.2f%%",
            (unsigned long long)point->capacity_blocks,
            (unsigned long long)(point->capacity_blocks * block_tokens), bytes / 1073741824.0,
            100 * block_rate, 100 * point->token_hit_rate);
        if (evict->settings->sample < 1)
            kvr_buffer_append_format(out, " ±%.2f%%", 100 * point->standard_error);
        if (knee)
            kvr_buffer_append_text(out, "  knee");
    }
    kvr_writer_line_done(&tool->out);
}

static void write_curve(struct tool *tool, const struct evict_program *evict,
    const struct curve_sum *all, uint32_t block_tokens)
{
    uint64_t points = evict->settings->points;
    uint64_t knee = all->count == 1 ? kvr_curve_knee(all->curves[0]) : 0, last = 0;
    struct kvr_curve_point point;
    double step = points ? exp2(1.0 / (double)points) : 1, at = 1;

    if (!evict->settings->json) {
        kvr_buffer_append_format(&tool->out.buffer, "%12s %15s %10s %8s %8s%s", "blocks", "tokens",
            "GiB", "blocks%", "tokens%", evict->settings->sample < 1 ? " error" : "");
        kvr_writer_line_done(&tool->out);
    }
    while (last < all->footprint) {
        uint64_t capacity = points ? (uint64_t)llround(at) : last + 1;
        if (points)
            at *= step;
        if (capacity <= last)
            continue;
        if (last < knee && knee < capacity) {
            sum_point(all, knee, &point);
            write_point(tool, evict, all, block_tokens, &point, true);
        }
        if (capacity > all->footprint)
            capacity = all->footprint;
        sum_point(all, capacity, &point);
        write_point(tool, evict, all, block_tokens, &point, capacity == knee);
        last = capacity;
    }
}

static enum kvr_status answer_curve(struct tool *tool, struct evict_program *evict,
    struct workers *workers, uint32_t block_tokens, struct kvr_error *error)
{
    struct kvr_curve **curves = calloc(workers->count + 1, sizeof *curves);
    struct curve_sum all = {curves, workers->count, 0, 0, 0};

    if (!curves)
        return kvr_error_memory(error);
    enum kvr_status status = make_curves(evict, workers, block_tokens, curves, error);
    for (size_t i = 0; i < workers->count && status == KVR_OK; i++) {
        struct kvr_curve_totals totals;
        kvr_curve_totals(curves[i], &totals);
        all.tokens += totals.prompt_tokens;
        all.accesses += totals.accesses;
        if (totals.footprint_blocks > all.footprint)
            all.footprint = totals.footprint_blocks;
    }
    if (status == KVR_OK)
        write_curve(tool, evict, &all, block_tokens);
    for (size_t i = 0; i < workers->count; i++)
        kvr_curve_destroy(curves[i]);
    free(curves);
    return status;
}

/* ── cells ── */

static enum kvr_status answer_cells(struct tool *tool, struct evict_program *evict,
    struct kvr_sweep *sweep, struct kvr_error *error)
{
    const struct evict_settings *settings = evict->settings;
    enum kvr_status status;
    uint64_t blocks;

    if (settings->sweep) {
        status = kvr_sweep_grid(sweep, settings->sweep, error);
    } else {
        status = kvr_capacity_blocks(
            &evict->setup.capacity, sweep->block_tokens, sweep->kv_bytes_per_token, &blocks, error);
        if (status == KVR_OK)
            status = kvr_sweep_add(sweep,
                (struct kvr_text_piece){settings->policy, strlen(settings->policy)},
                (struct kvr_text_piece){settings->admission, strlen(settings->admission)}, blocks,
                evict->setup.pool_shared, NULL, error);
    }
    if (status == KVR_OK)
        status = kvr_sweep_run(sweep, error);
    if (status != KVR_OK)
        return status;
    if (settings->json)
        kvr_sweep_write_json(sweep, &tool->out.buffer);
    else
        kvr_sweep_write_table(sweep, &tool->out.buffer);
    return KVR_OK;
}

static enum kvr_status answer_advice(struct tool *tool, struct evict_program *evict,
    struct kvr_sweep *sweep, struct kvr_error *error)
{
    struct kvr_advice advice;
    uint64_t blocks = 0;
    enum kvr_status status = KVR_OK;

    if (evict->capacity_given)
        status = kvr_capacity_blocks(
            &evict->setup.capacity, sweep->block_tokens, sweep->kv_bytes_per_token, &blocks, error);
    if (status != KVR_OK)
        return status;
    status = kvr_advise(&advice, sweep, blocks, error);
    if (status == KVR_OK && evict->settings->json)
        kvr_advice_write_json(&advice, &evict->reader, &tool->out.buffer);
    else if (status == KVR_OK)
        kvr_advice_write_text(&advice, &tool->out.buffer);
    kvr_advice_release(&advice);
    return status;
}

enum kvr_status evict_answer(
    struct tool *tool, struct evict_program *evict, struct kvr_error *error)
{
    struct workers workers = {0};
    struct kvr_sweep sweep = {
        .kv_bytes_per_token = evict->cost.kv_bytes_per_token,
        .prefill = evict->setup.prefill,
        .seed = evict->settings->seed,
        .threads = (uint32_t)evict->settings->threads,
        .plain = evict->settings->plain,
    };

    enum kvr_status status = read_all(tool, evict, &workers, &sweep.block_tokens, error);
    sweep.traces = workers.traces;
    sweep.trace_count = workers.count;
    bool answers = status == KVR_OK && !tool_opened_nothing(tool);
    if (answers && evict->settings->curve)
        status = answer_curve(tool, evict, &workers, sweep.block_tokens, error);
    else if (answers && evict->settings->advise)
        status = answer_advice(tool, evict, &sweep, error);
    else if (answers)
        status = answer_cells(tool, evict, &sweep, error);
    tool->out.whole = tool->out.buffer.length;
    kvr_sweep_release(&sweep);
    release_workers(&workers);
    return status;
}
