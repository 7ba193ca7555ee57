/*
 * Any lines through routing: refused with a reason, or decided, and what is written is JSON. The
 * first byte chooses the policy.
 */
#include "route/stream.h"

#include <stdlib.h>
#include <string.h>

static void check_json(const struct kvr_buffer *out)
{
    struct kvr_structure *structure = kvr_structure_create();
    struct kvr_value value;
    struct kvr_error error;

    if (!structure ||
        kvr_json_check(structure, out->data, out->length, &value, NULL, &error) != KVR_OK)
        abort();
    kvr_structure_destroy(structure);
}

static void route_line(struct kvr_router *router, struct kvr_route_reader *reader,
    const struct kvr_line *line, struct kvr_buffer *out)
{
    struct kvr_error error = {0};
    struct kvr_route_request request;
    struct kvr_route_decision decision;
    uint32_t worker, decoder, count;

    if (kvr_line_is_event(line)) {
        kvr_route_event(reader, line, &error);
    } else if (kvr_route_read(reader, line, &request, &error) == KVR_OK) {
        if (kvr_route_read_routed(reader, line, &worker, &decoder, &error) == KVR_OK &&
            worker != KVR_NO_WORKER) {
            kvr_router_learn(router, &request, worker, decoder, &error);
        } else if (kvr_router_decide(router, &request, &decision, &error) == KVR_OK) {
            const struct kvr_route_candidate *candidates = kvr_router_explain(router, &count);
            kvr_buffer_clear(out);
            kvr_route_write(reader->fleet, &decision, candidates, count, out);
            check_json(out);
        }
    } else if (!error.text[0]) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_router_options options = kvr_router_defaults();
    struct kvr_router *router;
    struct kvr_error error;
    struct kvr_cost cost;
    struct kvr_line line;
    struct kvr_buffer out = {0};

    if (size == 0 || kvr_line_init(&line, &error) != KVR_OK)
        return 0;
    options.policy = kvr_route_policies[data[0] % kvr_route_policy_count]->name;
    options.explain = true;
    options.escape = options.pull = data[0] & 0x80;
    if (kvr_cost_preset(&cost, NULL, NULL, 0, &error) != KVR_OK ||
        kvr_router_create(&options, &cost, &router, &error) != KVR_OK)
        abort();
    struct kvr_route_reader reader = {
        .fleet = kvr_router_fleet(router), .block_tokens = 16, .reads_blocks = true};
    for (size_t at = 1; at < size;) {
        const char *text = (const char *)data + at;
        const char *end = memchr(text, '\n', size - at);
        struct kvr_source_line source = {
            .text = text, .length = end ? (size_t)(end - text) : size - at, .file = "fuzz"};
        if (kvr_line_parse(&line, &source, &error) == KVR_OK)
            route_line(router, &reader, &line, &out);
        at += source.length + 1;
    }
    kvr_route_reader_release(&reader);
    kvr_router_destroy(router);
    kvr_line_release(&line);
    kvr_buffer_release(&out);
    return 0;
}
