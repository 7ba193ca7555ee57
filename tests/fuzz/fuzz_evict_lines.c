/*
 * Any lines through kvr-evict's replay: requests, pins, worker lines. The first byte chooses the
 * policy, the rule and whether there are tiers or plain semantics. Laws: inserted = evicted +
 * cleared + resident, no more resident than room, every event line parses.
 */
#include "cache/evict.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool law)
{
    if (!law)
        abort();
}

static void check_totals(const struct kvr_evict *evict)
{
    struct kvr_evict_totals totals;

    kvr_evict_totals(evict, SIZE_MAX, &totals, NULL);
    for (int i = 0; i < KVR_MEDIUM_COUNT; i++) {
        require(totals.stats.inserted_blocks[i] == totals.stats.evicted_blocks[i] +
                                                       totals.stats.cleared_blocks[i] +
                                                       totals.stats.resident_blocks[i]);
        require(totals.stats.resident_blocks[i] <= totals.stats.capacity_blocks[i]);
    }
}

static void check_events(struct kvr_evict *evict, struct kvr_line *line)
{
    struct kvr_buffer out = {0};
    struct kvr_error error;

    kvr_evict_write_events(evict, &out);
    for (const char *at = kvr_buffer_text(&out); at && *at;) {
        const char *end = strchr(at, '\n');
        require(end != NULL);
        struct kvr_source_line source = {.text = at, .length = (size_t)(end - at)};
        require(kvr_line_parse(line, &source, &error) == KVR_OK && kvr_line_is_event(line));
        at = end + 1;
    }
    kvr_buffer_release(&out);
}

static void serve_line(struct kvr_evict *evict, struct kvr_request_reader *reader,
    struct kvr_line *line, struct kvr_line *scratch, const char *text, size_t length)
{
    struct kvr_source_line source = {.text = text, .length = length};
    struct kvr_request_view view;
    struct kvr_evict_result result;
    struct kvr_error error = {0};

    if (kvr_line_parse(line, &source, &error) != KVR_OK)
        return;
    if (kvr_line_is_event(line)) {
        kvr_evict_event(evict, line, &error);
    } else if (kvr_request_read(reader, line, &view, &error) == KVR_OK) {
        if (kvr_evict_request(evict, &view, &result, &error) == KVR_OK) {
            struct kvr_buffer out = {0};
            kvr_evict_write_result(&result, &out);
            require(!out.failed && result.hit_tokens <= view.request.input_tokens);
            kvr_buffer_release(&out);
        }
    }
    check_events(evict, scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_request_reader reader = {.block_tokens = 16, .wants_session = true};
    struct kvr_line line, scratch;
    struct kvr_evict *evict;
    struct kvr_error error = {0};
    struct kvr_tier tiers[2];

    if (!size)
        return 0;
    require(kvr_tier_read("gpu=8b", &tiers[0], &error) == KVR_OK);
    require(kvr_tier_read("cpu=20b(write=second,policy=sieve)", &tiers[1], &error) == KVR_OK);
    struct kvr_evict_setup setup = {
        .engine = &kvr_engine_block,
        .policy = kvr_policies[data[0] % (kvr_policy_count - 2)], /* those without a future */
        .admission = kvr_admission_rules[data[0] / 16 % kvr_admission_rule_count],
        .plain = data[0] % 7 == 0,
        .outputs = data[0] % 2,
        .pool_shared = data[0] % 3 ? 0 : 0.4,
        .tiers = tiers,
        .tier_count = data[0] % 5 == 4 ? 2 : 0,
        .capacity = {12, KVR_BLOCKS},
        .kv_bytes_per_token = 64,
        .live = data[0] % 4,
        .events = true,
        .worker = "w0",
    };
    require(kvr_line_init(&line, &error) == KVR_OK && kvr_line_init(&scratch, &error) == KVR_OK);
    require(kvr_evict_create(&evict, &setup, &reader, &error) == KVR_OK);
    const char *at = (const char *)data + 1, *end = (const char *)data + size;
    for (int lines = 0; at < end && lines < 2000; lines++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = newline ? (size_t)(newline - at) : (size_t)(end - at);
        serve_line(evict, &reader, &line, &scratch, at, length);
        at += length + 1;
        check_totals(evict);
    }
    require(kvr_evict_finish(evict, &error) == KVR_OK);
    check_totals(evict);
    kvr_evict_destroy(evict);
    kvr_request_reader_release(&reader);
    kvr_line_release(&line);
    kvr_line_release(&scratch);
    return 0;
}
