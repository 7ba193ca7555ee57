/*
 * Any lines through the virtual cluster: refused with a reason, or simulated to the end; every
 * request leaves once, and what is written is JSON. The first byte chooses policy, engine and load.
 */
#include "sim/stage.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LINES = 64 };

static uint64_t check_lines(struct kvr_buffer *out)
{
    struct kvr_structure *structure = kvr_structure_create();
    uint64_t responses = 0;
    struct kvr_value value;
    struct kvr_error error;
    const char *at = out->data, *end = out->data + out->length, *stop;

    for (; at && at < end; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop ||
            kvr_json_check(structure, at, (size_t)(stop - at), &value, NULL, &error) != KVR_OK)
            abort();
        responses += kvr_value_get(value, "event").type == KVR_ABSENT;
    }
    kvr_structure_destroy(structure);
    return responses;
}

static uint64_t feed(struct kvr_stage *stage, const char *text, size_t size)
{
    struct kvr_line line;
    struct kvr_error error = {0};
    uint64_t requests = 0, lines = 0;
    const char *end = text + size;

    if (kvr_line_init(&line, &error) != KVR_OK)
        abort();
    for (const char *at = text, *stop; at < end && lines++ < MOST_LINES; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        /* the parser may look a little past the end */
        char *copy = calloc(1, (size_t)(stop - at) + 64);
        memcpy(copy, at, (size_t)(stop - at));
        const struct kvr_source_line source = {
            .text = copy, .length = (size_t)(stop - at), .file = "fuzz", .number = lines};
        if (kvr_line_parse(&line, &source, &error) == KVR_OK) {
            enum kvr_status status = kvr_stage_line(stage, &line, &error);
            if (status == KVR_OK)
                requests += !kvr_line_is_event(&line);
            else if (status != KVR_BAD_INPUT && !error.text[0])
                abort();
            if (status != KVR_OK && status != KVR_BAD_INPUT) {
                requests = UINT64_MAX;
                at = end;
                stop = end;
            }
        }
        free(copy);
    }
    kvr_line_release(&line);
    if (requests != UINT64_MAX && kvr_stage_end(stage, &error) != KVR_OK)
        requests = UINT64_MAX;
    return requests;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct kvr_worker_description worker = {
        .name = {"w0", 2}, .capacity = {20000, KVR_TOKENS}, .weight = 1};
    uint8_t choice = size ? data[0] : 0;
    struct kvr_sim_reader reader = {.block_tokens = 16, .default_output = 40};
    struct kvr_sim_options sim = kvr_sim_defaults();
    struct kvr_desk_options desk = {.match = {.block_size = 16}, .router = kvr_router_defaults()};
    struct kvr_stage_options options = {.sim = &sim,
        .desk = &desk,
        .events = true,
        .pace = {.rate = choice & 64 ? 3 : 1, .closed = choice & 128 ? 3 : 0}};
    struct kvr_error error = {0};
    struct kvr_stage *stage = NULL;
    struct kvr_writer out;

    reader.derive_sessions = choice & 32;
    if (kvr_cost_preset(&sim.cost, NULL, NULL, 0, &error) != KVR_OK)
        abort();
    sim.engine = kvr_engines[choice % kvr_engine_count];
    sim.capacity_tokens = 4000;
    sim.batch_tokens = 300;
    sim.load_every_ms = choice & 16 ? 500 : 0;
    desk.cost = sim.cost;
    desk.router.policy = kvr_route_policies[(choice >> 2) % kvr_route_policy_count]->name;
    desk.router.pull = choice & 8;
    kvr_writer_init(&out, open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (kvr_sim_reader_init(&reader, &error) != KVR_OK ||
        kvr_stage_create(&options, &reader, &out, &stage, &error) != KVR_OK ||
        kvr_stage_join(stage, &worker, &error) != KVR_OK)
        abort();
    uint64_t requests = size ? feed(stage, (const char *)data + 1, size - 1) : 0;
    uint64_t responses = check_lines(&out.buffer);
    /* a flush may have taken the first lines of a large output */
    if (requests != UINT64_MAX && responses != requests && out.buffer.length < 1 << 14)
        abort();
    kvr_stage_destroy(stage);
    kvr_sim_reader_release(&reader);
    kvr_writer_close(&out, &error);
    return 0;
}
