#include "net/decide.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct kvr_decider {
    struct kvr_desk *desk;
    struct kvr_annotator *annotator;
    struct kvr_fleet fleet; /* of the reader; the desk's own is not asked about text */
    struct kvr_route_reader reader;
    struct kvr_line line;
    struct kvr_buffer annotated, scratch;
};

enum kvr_status kvr_decider_create(
    struct kvr_decider **out, const struct kvr_decider_options *options, struct kvr_error *error)
{
    struct kvr_decider *decider = calloc(1, sizeof *decider);

    if (!decider)
        return kvr_error_memory(error);
    kvr_fleet_init(&decider->fleet);
    decider->reader = (struct kvr_route_reader){.fleet = &decider->fleet,
        .block_tokens = options->desk.match.block_size,
        .reads_blocks = true};
    enum kvr_status status = kvr_desk_create(&options->desk, &decider->desk, error);
    if (status == KVR_OK)
        status = kvr_line_init(&decider->line, error);
    if (status == KVR_OK && options->models)
        status =
            kvr_annotator_create(&decider->annotator, options->models, &options->annotate, error);
    if (status != KVR_OK) {
        kvr_decider_destroy(decider);
        return status;
    }
    *out = decider;
    return KVR_OK;
}

void kvr_decider_destroy(struct kvr_decider *decider)
{
    if (!decider)
        return;
    kvr_desk_destroy(decider->desk);
    kvr_annotator_destroy(decider->annotator);
    kvr_route_reader_release(&decider->reader);
    kvr_fleet_release(&decider->fleet);
    if (decider->line.structure)
        kvr_line_release(&decider->line);
    kvr_buffer_release(&decider->annotated);
    kvr_buffer_release(&decider->scratch);
    free(decider);
}

static enum kvr_status parse(
    struct kvr_decider *decider, const char *text, size_t length, struct kvr_error *error)
{
    struct kvr_source_line source = {
        .text = text, .length = length, .file = "request", .number = 1};

    return kvr_line_parse(&decider->line, &source, error);
}

/* The request that the parsed line is. What it points to lives until the next line. */
static enum kvr_status read_request(
    struct kvr_decider *decider, struct kvr_desk_request *request, struct kvr_error *error)
{
    struct kvr_match_request match;
    struct kvr_route_request route;

    enum kvr_status status =
        kvr_match_read(kvr_desk_matcher(decider->desk), &decider->line, &match, error);
    if (status == KVR_OK)
        status = kvr_route_read(&decider->reader, &decider->line, &route, error);
    if (status != KVR_OK)
        return status;
    route.matches = NULL;
    route.match_count = 0;
    *request = (struct kvr_desk_request){
        .route = route, .space = match.blocks.space, .match_tokens = match.input_tokens};
    return KVR_OK;
}

/* Appends what tokenizing adds to the line, with its brace: ,"input_length":…} */
static void add_tokens(
    struct kvr_decider *decider, const char *text, size_t length, struct kvr_buffer *line)
{
    struct kvr_error ignored;

    kvr_buffer_clear(&decider->annotated);
    if (decider->annotator && parse(decider, text, length, &ignored) == KVR_OK &&
        kvr_annotate(decider->annotator, &decider->line, &decider->annotated, &ignored) == KVR_OK &&
        decider->annotated.length >= length &&
        memcmp(decider->annotated.data, text, length - 1) == 0)
        kvr_buffer_append(
            line, decider->annotated.data + length - 1, decider->annotated.length - length + 1);
    else
        kvr_buffer_append_byte(line, '}');
}

static void fill_verdict(const struct kvr_decider *decider,
    const struct kvr_route_decision *decision, struct kvr_decide_verdict *verdict)
{
    const struct kvr_fleet *fleet = kvr_desk_fleet(decider->desk);

    *verdict = (struct kvr_decide_verdict){.matched = decision->matched,
        .retry_after_ms = decision->retry_after_ms,
        .rejected = decision->reason == KVR_ROUTE_REJECTED};
    snprintf(
        verdict->reason, sizeof verdict->reason, "%s", kvr_route_reason_name(decision->reason));
    if (decision->worker != KVR_NO_WORKER)
        snprintf(verdict->worker, sizeof verdict->worker, "%s", fleet->names[decision->worker]);
}

enum kvr_status kvr_decider_decide(struct kvr_decider *decider, const char *text, size_t length,
    size_t content_at, struct kvr_buffer *line, struct kvr_decide_verdict *verdict,
    struct kvr_error *error)
{
    struct kvr_desk_request request;
    struct kvr_route_decision decision;
    size_t start = line->length;

    kvr_buffer_append(line, text, content_at);
    add_tokens(decider, text, length, line);
    if (line->failed)
        return kvr_error_memory(error);
    enum kvr_status status = parse(decider, line->data + start, line->length - start, error);
    if (status == KVR_OK)
        status = read_request(decider, &request, error);
    line->length--; /* open again: what points into the line stays where it is or was copied */
    if (status == KVR_OK)
        status = kvr_desk_decide(decider->desk, &request, &decision, line, error);
    if (status != KVR_OK) {
        line->length = start;
        return status;
    }
    fill_verdict(decider, &decision, verdict);
    verdict->input_tokens = request.route.input_tokens;
    return KVR_OK;
}

void kvr_decider_corrected(
    struct kvr_decider *decider, const struct kvr_buffer *line, const char *worker)
{
    struct kvr_desk_request request;
    struct kvr_error ignored;

    kvr_buffer_clear(&decider->scratch);
    kvr_buffer_append(&decider->scratch, line->data, line->length);
    kvr_buffer_append_byte(&decider->scratch, '}');
    if (decider->scratch.failed ||
        parse(decider, decider->scratch.data, decider->scratch.length, &ignored) != KVR_OK ||
        read_request(decider, &request, &ignored) != KVR_OK)
        return;
    kvr_desk_done(decider->desk, NAN, request.route.id);
    kvr_desk_placed(decider->desk, &request, worker, strlen(worker), &ignored);
}

static bool given(struct kvr_value value)
{
    return value.type > KVR_NULL;
}

static enum kvr_status tell_worker(struct kvr_decider *decider, struct kvr_error *error)
{
    struct kvr_worker_description worker;

    enum kvr_status status = kvr_worker_read(&decider->line, &decider->scratch, &worker, error);
    if (status != KVR_OK)
        return status;
    return kvr_desk_worker(decider->desk, NAN, &worker,
        given(kvr_line_get(&decider->line, KVR_NAME_ROLE)),
        given(kvr_line_get(&decider->line, KVR_NAME_WEIGHT)), error);
}

/* Another router's placement, from its log: learned, and no load of ours once it has ended. */
static enum kvr_status tell_placement(struct kvr_decider *decider, struct kvr_error *error)
{
    struct kvr_value route = kvr_line_get(&decider->line, KVR_NAME_ROUTE);
    bool ended = given(kvr_line_get(&decider->line, KVR_NAME_RESPONSE));
    struct kvr_desk_request request;
    struct kvr_text worker;

    if (!kvr_value_text(kvr_value_get(route, "worker"), &decider->scratch, &worker) ||
        !worker.length)
        return KVR_OK;
    enum kvr_status status = read_request(decider, &request, error);
    if (status == KVR_OK)
        status = kvr_desk_placed(decider->desk, &request, worker.text, worker.length, error);
    if (status == KVR_OK && ended)
        kvr_desk_done(decider->desk, NAN, request.route.id);
    return status;
}

enum kvr_status kvr_decider_tell(
    struct kvr_decider *decider, const char *text, size_t length, struct kvr_error *error)
{
    enum kvr_status status = parse(decider, text, length, error);

    if (status != KVR_OK)
        return status;
    if (!kvr_line_is_event(&decider->line))
        return tell_placement(decider, error);
    if (kvr_value_is(kvr_line_get(&decider->line, KVR_NAME_EVENT), "worker"))
        return tell_worker(decider, error);
    return kvr_desk_event(decider->desk, &decider->line, error);
}
