/*
 * Routing in process: match, route and learn, on one core. bench_route TRACE [POLICY...]
 *
 * Reads a trace into memory, then drives the prefix index and the router over it as kvr-match and
 * kvr-route would in a closed loop, for 8 and 256 workers, and prints one line of NDJSON a policy:
 * requests a second, the share of prompt tokens found on the chosen workers, the busiest worker's
 * requests over the mean, and the mean predicted time to first token. MODEL and GPU choose the cost
 * model.
 */
#include "base/clock.h"
#include "cache/index.h"
#include "line/intake.h"
#include "route/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY_TOKENS = 3000000, BLOCK_TOKENS = 512 };

struct trace_request {
    double now_ms;
    uint32_t input, output, first, blocks;
};

struct trace {
    struct trace_request *requests;
    uint64_t *ids;
    size_t count, size, id_count, id_size;
};

static int fail(const struct kvr_error *error)
{
    fprintf(stderr, "bench_route: %s\n", error->text);
    return 3;
}

static uint64_t member(const struct kvr_line *line, enum kvr_name name)
{
    uint64_t number = 0;

    kvr_value_u64(kvr_line_get(line, name), &number);
    return number;
}

static enum kvr_status read_trace(const char *path, struct trace *trace, struct kvr_error *error)
{
    struct kvr_source_options options = {.files = &path, .file_count = 1};
    struct kvr_intake_options none = {0};
    struct kvr_source *source = NULL;
    struct kvr_intake *intake = NULL;
    struct kvr_line line;

    enum kvr_status status = kvr_source_create(&source, &options, error);
    if (status == KVR_OK)
        status = kvr_intake_create(&intake, &none, error);
    if (status == KVR_OK)
        status = kvr_line_init(&line, error);
    while (status == KVR_OK && (status = kvr_intake_next(intake, source, &line, error)) == KVR_OK) {
        struct kvr_value ids = kvr_line_get(&line, KVR_NAME_HASH_IDS);
        size_t room = trace->id_count + kvr_value_u64s_room(ids);
        if (trace->count == trace->size) {
            trace->size = trace->size ? trace->size * 2 : 4096;
            trace->requests = reallocarray(trace->requests, trace->size, sizeof *trace->requests);
        }
        if (room > trace->id_size) {
            trace->id_size = room * 2;
            trace->ids = reallocarray(trace->ids, trace->id_size, sizeof *trace->ids);
        }
        if (!trace->requests || !trace->ids)
            return kvr_error_memory(error);
        ptrdiff_t blocks = kvr_value_u64s(ids, trace->ids + trace->id_count);
        if (blocks < 0)
            return kvr_error_set(error, KVR_BAD_INPUT, "a line without hash_ids");
        trace->requests[trace->count++] = (struct trace_request){
            .now_ms = (double)member(&line, KVR_NAME_TIMESTAMP),
            .input = (uint32_t)member(&line, KVR_NAME_INPUT_LENGTH),
            .output = (uint32_t)member(&line, KVR_NAME_OUTPUT_LENGTH),
            .first = (uint32_t)trace->id_count,
            .blocks = (uint32_t)blocks,
        };
        trace->id_count += (size_t)blocks;
    }
    kvr_line_release(&line);
    kvr_intake_destroy(intake);
    kvr_source_destroy(source);
    return status == KVR_END ? KVR_OK : status;
}

struct run {
    struct kvr_index *index;
    struct kvr_router *router;
    struct kvr_route_match *matches;
    uint64_t *placed;
    uint64_t hit_tokens, input_tokens;
    double ttft_ms;
};

/* Match, decide, learn: what a closed loop does with one request. */
static enum kvr_status serve(struct run *run, const struct trace *trace,
    const struct trace_request *asked, uint64_t space, uint64_t number, struct kvr_error *error)
{
    uint32_t full = asked->input / BLOCK_TOKENS;
    struct kvr_blocks blocks = {space, trace->ids + asked->first,
        full < asked->blocks ? full : asked->blocks, BLOCK_TOKENS};
    const struct kvr_index_match *found;
    size_t count = kvr_index_find(run->index, (int64_t)asked->now_ms, &blocks, &found);
    struct kvr_route_decision decision;

    for (size_t i = 0; i < count; i++)
        run->matches[i] = (struct kvr_route_match){
            .worker = found[i].worker, .tokens = found[i].blocks * BLOCK_TOKENS};
    struct kvr_route_request request = {
        .id = number,
        .now_ms = asked->now_ms,
        .input_tokens = asked->input,
        .output_tokens = asked->output,
        .block_ids = blocks.ids,
        .block_count = (uint32_t)blocks.count,
        .block_tokens = BLOCK_TOKENS,
        .session = blocks.count > 1 ? blocks.ids[1] : 1,
        .matches = run->matches,
        .match_count = (uint32_t)count,
    };
    enum kvr_status status = kvr_router_decide(run->router, &request, &decision, error);
    if (status != KVR_OK)
        return status;
    run->hit_tokens += decision.matched;
    run->input_tokens += asked->input;
    run->ttft_ms += decision.ttft_ms;
    run->placed[decision.worker]++;
    return kvr_index_place(
        run->index, decision.worker, (int64_t)asked->now_ms, &blocks, NULL, error);
}

static enum kvr_status run_policy(const struct trace *trace, const char *policy, uint32_t workers,
    const char *model, const char *gpu, struct kvr_error *error)
{
    struct kvr_index_options index_options = KVR_INDEX_DEFAULTS;
    struct kvr_router_options options = kvr_router_defaults();
    struct run run = {0};
    struct kvr_cost cost;
    uint32_t worker, busiest = 0;

    index_options.capacity_tokens = CAPACITY_TOKENS;
    options.policy = policy;
    run.matches = calloc(workers, sizeof *run.matches);
    run.placed = calloc(workers, sizeof *run.placed);
    enum kvr_status status = kvr_cost_preset(&cost, model, gpu, 0, error);
    if (status == KVR_OK)
        status = kvr_index_create(&run.index, &index_options, error);
    if (status == KVR_OK)
        status = kvr_router_create(&options, &cost, &run.router, error);
    for (uint32_t i = 0; i < workers && status == KVR_OK; i++) {
        char name[16];
        int length = snprintf(name, sizeof name, "w%u", i);
        status = kvr_index_worker(run.index, name, (size_t)length, &worker, error);
        if (status == KVR_OK)
            status =
                kvr_fleet_join(kvr_router_fleet(run.router), name, (size_t)length, &worker, error);
    }
    uint64_t space =
        status == KVR_OK ? kvr_index_space(run.index, NULL, 0, NULL, 0, NULL, 0, BLOCK_TOKENS) : 0;
    double begun_ms = kvr_clock_processor_ms();
    for (size_t i = 0; i < trace->count && status == KVR_OK; i++)
        status = serve(&run, trace, &trace->requests[i], space, i + 1, error);
    double seconds = (kvr_clock_processor_ms() - begun_ms) / 1e3;
    for (uint32_t i = 0; i < workers; i++)
        if (run.placed[i] > run.placed[busiest])
            busiest = i;
    if (status == KVR_OK)
        printf("{\"bench\":\"route\",\"policy\":\"%s\",\"workers\":%u,\"requests_per_s\":%.0f,"
               "\"hit\":%.4f,\"hit_tokens\":%lu,\"skew\":%.3f,\"ttft_ms\":%.1f}\n",
            policy, workers, trace->count / seconds,
            (double)run.hit_tokens / (double)run.input_tokens, (unsigned long)run.hit_tokens,
            (double)run.placed[busiest] * workers / (double)trace->count,
            run.ttft_ms / (double)trace->count);
    fflush(stdout);
    kvr_router_destroy(run.router);
    kvr_index_destroy(run.index);
    free(run.matches);
    free(run.placed);
    return status;
}

int main(int argc, char **argv)
{
    static const uint32_t fleets[] = {8, 256};
    struct trace trace = {0};
    struct kvr_error error = {0};
    const char *model = getenv("MODEL"), *gpu = getenv("GPU");

    if (argc < 2) {
        fprintf(stderr, "usage: bench_route TRACE [POLICY...]\n");
        return 2;
    }
    if (read_trace(argv[1], &trace, &error) != KVR_OK)
        return fail(&error);
    for (size_t f = 0; f < sizeof fleets / sizeof *fleets; f++) {
        for (int i = 2; i < argc; i++)
            if (run_policy(&trace, argv[i], fleets[f], model, gpu, &error) != KVR_OK)
                return fail(&error);
        for (size_t i = 0; i < kvr_route_policy_count && argc == 2; i++)
            if (run_policy(&trace, kvr_route_policies[i]->name, fleets[f], model, gpu, &error) !=
                KVR_OK)
                return fail(&error);
    }
    free(trace.requests);
    free(trace.ids);
    return 0;
}
