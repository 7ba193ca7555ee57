/*
 * What caches do, as event lines: {"event":"stored","worker":"w0","hash_ids":[…],"parent":…,
 * "block_size":…,"medium":"gpu"} with the namespace's members where the ids have one. Ids of
 * several namespaces that go at once are parted into one line each.
 */
#include "cache/evict_internal.h"

static void append_ids(
    struct kvr_buffer *out, const struct kvr_request_reader *reader, const uint64_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i)
            kvr_buffer_append_byte(out, ',');
        kvr_buffer_append_u64(out, kvr_request_wire_id(reader, ids[i]));
    }
}

static void append_head(const struct kvr_lane_context *lane, const char *event)
{
    struct kvr_buffer *out = &lane->evict->events;

    kvr_buffer_append_text(out, "{\"event\":\"");
    kvr_buffer_append_text(out, event);
    kvr_buffer_append_text(out, "\",\"worker\":");
    kvr_json_write_string(out, lane->name, strlen(lane->name));
}

static void append_tail(
    const struct kvr_lane_context *lane, enum kvr_medium medium, uint64_t some_id)
{
    struct kvr_buffer *out = &lane->evict->events;

    kvr_buffer_append_text(out, ",\"block_size\":");
    kvr_buffer_append_u64(out, lane->block_tokens);
    kvr_buffer_append_text(out, ",\"medium\":\"");
    kvr_buffer_append_text(out, kvr_medium_name(medium));
    kvr_buffer_append_byte(out, '"');
    kvr_buffer_append_text(out, kvr_request_namespace_text(lane->evict->reader, some_id));
    kvr_buffer_append_text(out, "}\n");
}

/* How many of the ids, from the first on, are of the first's namespace. */
static size_t same_namespace(
    const struct kvr_request_reader *reader, const uint64_t *ids, size_t count)
{
    size_t same = 1;

    if (reader->namespaces.length <= 1)
        return count;
    while (same < count && ids[same] >> 53 == ids[0] >> 53)
        same++;
    return same;
}

static void lane_removed(void *context, enum kvr_medium medium, const uint64_t *ids, size_t count)
{
    const struct kvr_lane_context *lane = context;
    const struct kvr_request_reader *reader = lane->evict->reader;

    for (size_t same; count; ids += same, count -= same) {
        same = same_namespace(reader, ids, count);
        append_head(lane, "removed");
        kvr_buffer_append_text(&lane->evict->events, ",\"hash_ids\":[");
        append_ids(&lane->evict->events, reader, ids, same);
        kvr_buffer_append_byte(&lane->evict->events, ']');
        append_tail(lane, medium, ids[0]);
    }
}

static void lane_stored(void *context, enum kvr_medium medium, const uint64_t *parent,
    const uint64_t *ids, size_t count)
{
    const struct kvr_lane_context *lane = context;
    struct kvr_buffer *out = &lane->evict->events;

    append_head(lane, "stored");
    kvr_buffer_append_text(out, ",\"hash_ids\":[");
    append_ids(out, lane->evict->reader, ids, count);
    kvr_buffer_append_text(out, "],\"parent\":");
    if (parent)
        kvr_buffer_append_u64(out, kvr_request_wire_id(lane->evict->reader, *parent));
    else
        kvr_buffer_append_text(out, "null");
    append_tail(lane, medium, ids[0]);
}

static void lane_cleared(void *context, enum kvr_medium medium)
{
    const struct kvr_lane_context *lane = context;

    append_head(lane, "cleared");
    append_tail(lane, medium, 0);
}

struct kvr_cache_sink kvr_lane_sink(struct kvr_lane_context *context)
{
    return (struct kvr_cache_sink){context, lane_removed, lane_stored, lane_cleared};
}

struct free_list {
    const struct kvr_request_reader *reader;
    struct kvr_buffer *out;
    bool more;
};

static void append_free(void *context, bool has_id, uint64_t id)
{
    struct free_list *list = context;

    if (list->more)
        kvr_buffer_append_byte(list->out, ',');
    list->more = true;
    if (has_id)
        kvr_buffer_append_u64(list->out, kvr_request_wire_id(list->reader, id));
    else
        kvr_buffer_append_text(list->out, "null");
}

void kvr_evict_write_free_queues(const struct kvr_evict *evict, struct kvr_buffer *out)
{
    for (size_t i = 0; i < evict->lane_count; i++) {
        const struct kvr_lane *lane = &evict->lanes[i];
        struct free_list list = {evict->reader, out, false};
        if (!lane->cache || !lane->cache->engine->walk_free)
            continue;
        kvr_buffer_append_text(out, "{\"event\":\"free_queue\",\"worker\":");
        kvr_json_write_string(out, lane->name, strlen(lane->name));
        kvr_buffer_append_text(out, ",\"hash_ids\":[");
        kvr_cache_walk_free(lane->cache, append_free, &list);
        kvr_buffer_append_text(out, "],\"block_size\":");
        kvr_buffer_append_u64(out, lane->cache->block_tokens);
        kvr_buffer_append_text(out, "}\n");
    }
}

void kvr_evict_write_events(struct kvr_evict *evict, struct kvr_buffer *out)
{
    if (evict->events.failed)
        out->failed = true;
    kvr_buffer_append(out, evict->events.data, evict->events.length);
    kvr_buffer_clear(&evict->events);
}
