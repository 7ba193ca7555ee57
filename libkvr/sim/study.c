#include "sim/study.h"

#include "base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void kvr_sim_trace_release(struct kvr_sim_trace *trace)
{
    for (size_t i = 0; i < trace->count; i++)
        kvr_sim_item_destroy(trace->items[i]);
    for (size_t i = 0; i < trace->change_count; i++)
        free(trace->changes[i].name);
    free(trace->items);
    free(trace->changes);
    free(trace->change_at);
    memset(trace, 0, sizeof *trace);
}

enum kvr_status kvr_sim_trace_add(
    struct kvr_sim_trace *trace, struct kvr_sim_item *item, struct kvr_error *error)
{
    struct kvr_sim_item **grown =
        kvr_grow(trace->items, &trace->size, trace->count + 1, sizeof *grown);

    if (!grown) {
        kvr_sim_item_destroy(item);
        return kvr_error_memory(error);
    }
    kvr_buffer_release(&item->base);
    kvr_buffer_release(&item->line);
    trace->items = grown;
    grown[trace->count++] = item;
    return KVR_OK;
}

enum kvr_status kvr_sim_trace_change(struct kvr_sim_trace *trace,
    const struct kvr_worker_description *worker, bool has_role, bool has_weight,
    double timestamp_ms, struct kvr_error *error)
{
    struct kvr_sim_change *changes =
        kvr_grow(trace->changes, &trace->change_size, trace->change_count + 1, sizeof *changes);
    trace->changes = changes ? changes : trace->changes;
    size_t *at = kvr_grow(trace->change_at, &trace->at_size, trace->change_count + 1, sizeof *at);
    trace->change_at = at ? at : trace->change_at;
    char *name = malloc(worker->name.length + 1);

    if (!changes || !at || !name) {
        free(name);
        return kvr_error_memory(error);
    }
    memcpy(name, worker->name.text, worker->name.length);
    name[worker->name.length] = '\0';
    struct kvr_sim_change *change = &changes[trace->change_count];
    *change = (struct kvr_sim_change){*worker, has_role, has_weight, timestamp_ms, name};
    change->worker.name.text = name;
    change->worker.url = (struct kvr_text){0};
    at[trace->change_count++] = trace->count;
    return KVR_OK;
}

double kvr_sim_pace_ms(struct kvr_sim_pace *pace, double timestamp_ms)
{
    if (isnan(timestamp_ms))
        return pace->last_ms;
    if (!pace->begun) {
        pace->begun = true;
        pace->first_ms = timestamp_ms;
    }
    double ms = pace->rate == 1 ? timestamp_ms
                                : pace->first_ms + (timestamp_ms - pace->first_ms) / pace->rate;
    pace->last_ms = fmax(pace->last_ms, ms);
    return pace->last_ms;
}

void kvr_sim_translate(const struct kvr_route_decision *from, struct kvr_sim_decision *to)
{
    to->worker = from->worker;
    to->decode_worker = from->decode_worker;
    to->rejected = from->reason == KVR_ROUTE_REJECTED;
    to->pull_from = from->pull.from;
    to->pull_tokens = (uint64_t)from->matched + from->pull.tokens;
}

struct run {
    const struct kvr_sim_trace *trace;
    struct kvr_sim *sim;
    struct kvr_desk *desk;
    struct kvr_sim_report *report;
    const struct kvr_sim_reader *reader;
    enum kvr_status failure; /* inside a cache's event */
    struct kvr_error error;
};

static enum kvr_status run_decide(void *context, struct kvr_sim_request *request, double now_ms,
    struct kvr_sim_decision *decision, struct kvr_error *error)
{
    struct run *run = context;
    const struct kvr_sim_item *item = request->context;
    struct kvr_desk_request asked = item->desk;
    struct kvr_route_decision answer;

    asked.route.now_ms = now_ms;
    enum kvr_status status = kvr_desk_decide(run->desk, &asked, &answer, NULL, error);
    if (status == KVR_OK)
        kvr_sim_translate(&answer, decision);
    return status;
}

static enum kvr_status run_finished(
    void *context, struct kvr_sim_request *request, double now_ms, struct kvr_error *error)
{
    struct run *run = context;
    const struct kvr_sim_item *item = request->context;

    if (request->result.status != KVR_SIM_REJECTED)
        kvr_desk_done(run->desk, now_ms, item->desk.route.id);
    return kvr_sim_report_add(run->report, request, item->continuation, error);
}

static enum kvr_status run_load(void *context, uint32_t worker, double now_ms,
    const struct kvr_sim_load *load, struct kvr_error *error)
{
    struct run *run = context;
    const struct kvr_load_report report = {
        load->waiting, load->running, load->kv_usage, (int64_t)load->tokens};

    (void)error;
    kvr_desk_load(run->desk, now_ms, worker, &report);
    return KVR_OK;
}

static void keep_failure(struct run *run, enum kvr_status status, const struct kvr_error *error)
{
    if (run->failure == KVR_OK && status != KVR_OK) {
        run->failure = status;
        run->error = *error;
    }
}

static void run_stored(void *context, uint32_t worker, enum kvr_medium medium, double now_ms,
    const uint64_t *parent, const uint64_t *ids, size_t count)
{
    struct run *run = context;
    const struct kvr_blocks blocks = kvr_sim_blocks(run->reader, run->sim, worker, ids, count);
    struct kvr_error error = {0};

    (void)now_ms;
    (void)parent;
    keep_failure(run, kvr_desk_stored(run->desk, worker, medium, &blocks, &error), &error);
}

static void run_removed(void *context, uint32_t worker, enum kvr_medium medium, double now_ms,
    const uint64_t *ids, size_t count)
{
    struct run *run = context;
    const struct kvr_blocks blocks = kvr_sim_blocks(run->reader, run->sim, worker, ids, count);
    struct kvr_error error = {0};

    (void)now_ms;
    keep_failure(run, kvr_desk_removed(run->desk, worker, medium, &blocks, &error), &error);
}

static void run_cleared(void *context, uint32_t worker, enum kvr_medium medium, double now_ms)
{
    struct run *run = context;
    struct kvr_error error = {0};

    (void)now_ms;
    keep_failure(run, kvr_desk_cleared(run->desk, worker, medium, &error), &error);
}

static enum kvr_status apply(struct run *run, struct kvr_sim_pace *pace,
    const struct kvr_sim_change *change, struct kvr_error *error)
{
    double now_ms = pace->closed || isnan(change->timestamp_ms)
                        ? fmax(kvr_sim_now_ms(run->sim), pace->last_ms)
                        : kvr_sim_pace_ms(pace, change->timestamp_ms);

    /* What happens before it is told before it; what it does itself, after. */
    enum kvr_status status = kvr_sim_advance(run->sim, now_ms, error);
    if (status == KVR_OK)
        status = kvr_desk_worker(
            run->desk, now_ms, &change->worker, change->has_role, change->has_weight, error);
    if (status == KVR_OK)
        status = kvr_sim_change_worker(
            run->sim, now_ms, &change->worker, change->has_role, change->has_weight, error);
    return status;
}

static enum kvr_status feed(struct run *run, struct kvr_sim_pace *pace,
    struct kvr_sim_request *requests, struct kvr_error *error)
{
    const struct kvr_sim_trace *trace = run->trace;
    enum kvr_status status = KVR_OK;
    size_t change = 0;

    for (size_t i = 0; status == KVR_OK && i <= trace->count; i++) {
        while (status == KVR_OK && change < trace->change_count && trace->change_at[change] == i)
            status = apply(run, pace, &trace->changes[change++], error);
        if (status != KVR_OK || i == trace->count)
            break;
        const struct kvr_sim_item *item = trace->items[i];
        struct kvr_sim_request *request = &requests[i];
        *request = item->request;
        request->context = (void *)item;
        while (status == KVR_OK && pace->closed && kvr_sim_inside(run->sim) >= pace->closed)
            status = kvr_sim_next(run->sim, error);
        request->arrival_ms =
            pace->closed ? kvr_sim_now_ms(run->sim) : kvr_sim_pace_ms(pace, item->timestamp_ms);
        if (status == KVR_OK)
            status = kvr_sim_submit(run->sim, request, error);
    }
    while (status == KVR_OK)
        status = kvr_sim_next(run->sim, error);
    return status == KVR_END ? KVR_OK : status;
}

static void add_counts(struct kvr_sim_worker_counts *sum, const struct kvr_sim_worker_counts *more)
{
    sum->steps += more->steps;
    sum->runs += more->runs;
    sum->computed_tokens += more->computed_tokens;
    sum->decoded_tokens += more->decoded_tokens;
    sum->preemptions += more->preemptions;
    sum->busy_ms += more->busy_ms;
}

enum kvr_status kvr_sim_study_run(const struct kvr_sim_study *study,
    const struct kvr_sim_trace *trace, struct kvr_sim_outcome *outcome, struct kvr_error *error)
{
    struct run run = {.trace = trace, .report = &outcome->report, .reader = study->reader};
    struct kvr_sim_calls calls = {
        .context = &run, .decide = run_decide, .finished = run_finished, .load = run_load};
    struct kvr_sim_request *requests = calloc(trace->count + 1, sizeof *requests);
    struct kvr_sim_pace pace = study->pace;

    if (study->cache_events) {
        calls.stored = run_stored;
        calls.removed = run_removed;
        calls.cleared = run_cleared;
    }
    *outcome = (struct kvr_sim_outcome){0};
    kvr_sim_report_init(&outcome->report, study->slo);
    enum kvr_status status = requests ? KVR_OK : kvr_error_memory(error);
    if (status == KVR_OK)
        status = kvr_desk_create(study->desk, &run.desk, error);
    if (status == KVR_OK)
        status = kvr_sim_create(study->sim, &calls, &run.sim, error);
    if (status == KVR_OK)
        status = feed(&run, &pace, requests, error);
    if (status == KVR_OK && run.failure != KVR_OK) {
        *error = run.error;
        status = run.failure;
    }
    if (status == KVR_OK) {
        outcome->skew = kvr_sim_skew(run.sim);
        for (uint32_t i = 0; i < kvr_sim_worker_count(run.sim); i++) {
            struct kvr_sim_worker_counts counts = kvr_sim_worker_totals(run.sim, i);
            add_counts(&outcome->totals, &counts);
        }
    }
    kvr_sim_destroy(run.sim);
    kvr_desk_destroy(run.desk);
    free(requests);
    if (status != KVR_OK)
        kvr_sim_report_release(&outcome->report);
    return status;
}
