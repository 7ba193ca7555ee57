#include "sim/item.h"

#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum kvr_status kvr_sim_reader_init(struct kvr_sim_reader *reader, struct kvr_error *error)
{
    const struct kvr_match_options match = {.block_size = reader->block_tokens};

    kvr_fleet_init(&reader->fleet);
    enum kvr_status status = kvr_matcher_create(&reader->matcher, &match, error);
    if (status == KVR_OK)
        status = kvr_line_init(&reader->line, error);
    reader->route = (struct kvr_route_reader){
        .fleet = &reader->fleet,
        .block_tokens = reader->block_tokens,
        .session = {.expression = reader->session},
        .reads_blocks = true,
    };
    reader->session = NULL;
    if (status != KVR_OK)
        kvr_sim_reader_release(reader);
    return status;
}

void kvr_sim_reader_release(struct kvr_sim_reader *reader)
{
    kvr_matcher_destroy(reader->matcher);
    kvr_route_reader_release(&reader->route);
    kvr_fleet_release(&reader->fleet);
    if (reader->line.structure)
        kvr_line_release(&reader->line);
    kvr_lineage_release(&reader->lineage);
    kvr_u64_map_release(&reader->sessions);
    kvr_buffer_release(&reader->scratch);
    memset(reader, 0, sizeof *reader);
}

/* The year 5138. Beyond it a double is too coarse for the time of a step, and nanoseconds of today
 * taken for ms would make every duration 0. */
static const double latest_ms = 1e14;

enum kvr_status kvr_sim_timestamp(
    const struct kvr_line *line, double *timestamp_ms, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, KVR_NAME_TIMESTAMP);

    *timestamp_ms = NAN;
    if (kvr_value_missing(value))
        return KVR_OK;
    if (!kvr_value_double(value, timestamp_ms) || isnan(*timestamp_ms))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'timestamp' is not a number");
    if (fabs(*timestamp_ms) > latest_ms)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "member 'timestamp' is beyond 1e14 ms (is its unit ms?)");
    return KVR_OK;
}

/* The conversation that the line's blocks belong to, where the line itself says nothing. */
static enum kvr_status follow(struct kvr_sim_reader *reader, const struct kvr_line *line,
    uint64_t *conversation, bool *continues, struct kvr_error *error)
{
    struct kvr_match_request request;

    *conversation = 0;
    *continues = false;
    if (!reader->derive_sessions && !reader->tell_turns)
        return KVR_OK;
    enum kvr_status status = kvr_match_read(reader->matcher, line, &request, error);
    if (status != KVR_OK || !request.blocks.count)
        return status;
    uint64_t full = request.input_tokens / request.blocks.block_size;
    size_t count = full < request.blocks.count ? (size_t)full : request.blocks.count;
    uint64_t *ids = (uint64_t *)request.blocks.ids; /* the matcher's own, read again before use */
    for (size_t i = 0; i < count; i++)
        ids[i] ^= request.blocks.space;
    return kvr_lineage_follow(&reader->lineage, ids, count, conversation, continues, error);
}

enum kvr_status kvr_sim_base(struct kvr_sim_reader *reader, const struct kvr_line *line,
    double now_ms, struct kvr_buffer *out, struct kvr_error *error)
{
    enum kvr_name dropped[7] = {
        KVR_NAME_MATCH, KVR_NAME_TIERS, KVR_NAME_ROUTE, KVR_NAME_CACHE, KVR_NAME_RESPONSE};
    bool event = kvr_line_is_event(line);
    size_t count = event ? 0 : 5;
    double timestamp_ms;

    enum kvr_status status = kvr_sim_timestamp(line, &timestamp_ms, error);
    if (status != KVR_OK)
        return status;
    reader->requests += !event;
    bool stamps = !isnan(now_ms) && timestamp_ms != now_ms;
    bool names = !event && kvr_value_missing(kvr_line_get(line, KVR_NAME_ID));
    if (stamps)
        dropped[count++] = KVR_NAME_TIMESTAMP;
    if (names)
        dropped[count++] = KVR_NAME_ID;
    kvr_line_begin(line, out, dropped, count);
    if (names) {
        kvr_line_add(out, "id");
        kvr_buffer_append_format(out, "\"request:%llu\"", (unsigned long long)reader->requests);
    }
    if (stamps) {
        kvr_line_add(out, "timestamp");
        kvr_json_write_double(out, now_ms);
    }
    return out->failed ? kvr_error_memory(error) : KVR_OK;
}

static enum kvr_status parse(struct kvr_sim_reader *reader, const char *text, size_t length,
    const struct kvr_source_line *place, struct kvr_error *error)
{
    struct kvr_source_line source = {.text = text, .length = length, .file = "line", .number = 1};

    if (place) {
        source.file = place->file;
        source.number = place->number;
    }
    return kvr_line_parse(&reader->line, &source, error);
}

enum kvr_status kvr_sim_stamp(
    struct kvr_sim_reader *reader, struct kvr_buffer *line, double now_ms, struct kvr_error *error)
{
    static const enum kvr_name dropped[] = {KVR_NAME_TIMESTAMP};
    struct kvr_buffer stamped = {0};
    double timestamp_ms;

    enum kvr_status status = parse(reader, line->data, line->length, NULL, error);
    if (status == KVR_OK)
        status = kvr_sim_timestamp(&reader->line, &timestamp_ms, error);
    if (status != KVR_OK || timestamp_ms == now_ms)
        return status;
    kvr_line_begin(&reader->line, &stamped, dropped, 1);
    kvr_line_add(&stamped, "timestamp");
    kvr_json_write_double(&stamped, now_ms);
    kvr_line_end(&stamped);
    kvr_buffer_release(line);
    *line = stamped;
    return stamped.failed ? kvr_error_memory(error) : KVR_OK;
}

/* Whether the request is a later turn, as far as the line says it; else as its blocks do. */
static enum kvr_status classify(struct kvr_sim_reader *reader, const struct kvr_line *line,
    uint64_t session, bool *continuation, struct kvr_error *error)
{
    struct kvr_value turn = kvr_line_get(line, KVR_NAME_TURN);
    struct kvr_value parent = kvr_line_get(line, KVR_NAME_PARENT_CHAT_ID);
    double number;
    bool inserted;

    if (!reader->tell_turns)
        return KVR_OK;
    if (kvr_value_double(turn, &number)) {
        *continuation = number > 1;
        return KVR_OK;
    }
    if (!kvr_value_missing(parent)) {
        *continuation = kvr_names_parent(parent);
        return KVR_OK;
    }
    if (!session || !(kvr_line_names_session(line) || reader->route.session.expression))
        return KVR_OK; /* as its blocks said */
    if (!kvr_u64_map_insert(&reader->sessions, session, &inserted))
        return kvr_error_memory(error);
    *continuation = !inserted;
    return KVR_OK;
}

/* Copies ids, output ids, and, where the line is in a namespace, the prompt's folded with it. */
static enum kvr_status keep_ids(struct kvr_sim_reader *reader, struct kvr_sim_item *item,
    const struct kvr_line *line, const struct kvr_match_request *match, struct kvr_error *error)
{
    struct kvr_value output = kvr_line_get(line, KVR_NAME_OUTPUT_HASH_IDS);
    uint64_t plain = kvr_index_space(
        kvr_matcher_index(reader->matcher), NULL, 0, NULL, 0, NULL, 0, item->request.block_tokens);
    uint64_t fold =
        match->has_blocks && match->blocks.space != plain ? kvr_mix64(match->blocks.space) | 1 : 0;
    size_t count = match->blocks.count;
    size_t room = 2 * count + (kvr_value_missing(output) ? 0 : kvr_value_u64s_room(output)) + 1;
    uint64_t *ids = calloc(room, sizeof *ids);

    if (!ids)
        return kvr_error_memory(error);
    free(item->ids);
    item->ids = ids;
    item->fold = fold;
    if (count)
        memcpy(ids, match->blocks.ids, count * sizeof *ids);
    item->desk.route.block_ids = ids;
    item->desk.route.block_count = (uint32_t)count;
    item->request.ids = ids;
    item->request.id_count = count;
    if (fold) {
        for (size_t i = 0; i < count; i++)
            ids[count + i] = ids[i] ^ fold;
        item->request.ids = ids + count;
    }
    item->desk.space = plain;
    item->desk.match_ids = item->request.ids;
    item->request.output_ids = ids + 2 * count;
    item->request.output_id_count = 0;
    if (!kvr_value_missing(output)) {
        ptrdiff_t outputs = kvr_value_u64s(output, ids + 2 * count);
        if (outputs < 0)
            return kvr_error_set(
                error, KVR_BAD_INPUT, "member 'output_hash_ids' is not an array of whole numbers");
        for (ptrdiff_t i = 0; i < outputs; i++)
            ids[2 * count + (size_t)i] ^= fold;
        item->request.output_id_count = (size_t)outputs;
    }
    return KVR_OK;
}

/* Fills the item from the line just parsed. */
static enum kvr_status fill(
    struct kvr_sim_reader *reader, struct kvr_sim_item *item, struct kvr_error *error)
{
    const struct kvr_line *line = &reader->line;
    struct kvr_match_request match;
    struct kvr_route_request route;

    enum kvr_status status = kvr_match_read(reader->matcher, line, &match, error);
    if (status == KVR_OK)
        status = kvr_route_read(&reader->route, line, &route, error);
    if (status != KVR_OK)
        return status;
    struct kvr_value id = kvr_line_get(line, KVR_NAME_ID);
    item->has_blocks = match.has_blocks;
    item->desk = (struct kvr_desk_request){
        .route = route, .space = match.blocks.space, .match_tokens = match.input_tokens};
    item->request.input_tokens = route.input_tokens;
    item->request.output_tokens =
        route.output_tokens ? route.output_tokens : reader->default_output;
    if (!kvr_value_missing(kvr_line_get(line, KVR_NAME_OUTPUT_LENGTH)))
        item->request.output_tokens = route.output_tokens;
    item->request.block_tokens = route.block_tokens;
    item->request.priority = route.priority;
    item->desk.route.matches = NULL;
    item->desk.route.match_count = 0;
    if (!item->id_length) {
        item->id_at = (size_t)(id.text - line->source.text);
        item->id_length = id.length;
    }
    return keep_ids(reader, item, line, &match, error);
}

enum kvr_status kvr_sim_item_create(struct kvr_sim_reader *reader, const struct kvr_line *line,
    double now_ms, struct kvr_sim_item **out, struct kvr_error *error)
{
    struct kvr_sim_item *item = calloc(1, sizeof *item);
    uint64_t conversation = 0;

    if (!item)
        return kvr_error_memory(error);
    enum kvr_status status = kvr_sim_timestamp(line, &item->timestamp_ms, error);
    if (status == KVR_OK && !kvr_line_names_session(line) && !reader->route.session.expression)
        status = follow(reader, line, &conversation, &item->continuation, error);
    if (status == KVR_OK)
        status = kvr_sim_base(reader, line, now_ms, &item->base, error);
    if (status == KVR_OK && conversation && reader->derive_sessions) {
        kvr_line_add(&item->base, "session");
        kvr_buffer_append_format(&item->base, "\"s%llu\"", (unsigned long long)conversation);
    }
    kvr_line_end(&item->base);
    if (status == KVR_OK && item->base.failed)
        status = kvr_error_memory(error);
    if (status == KVR_OK)
        status = parse(reader, item->base.data, item->base.length, &line->source, error);
    if (status == KVR_OK)
        status = fill(reader, item, error);
    if (status == KVR_OK)
        status = classify(reader, line, item->desk.route.session, &item->continuation, error);
    if (status != KVR_OK) {
        kvr_sim_item_destroy(item);
        return status;
    }
    *out = item;
    return KVR_OK;
}

enum kvr_status kvr_sim_item_reread(struct kvr_sim_reader *reader, struct kvr_sim_item *item,
    const char *text, size_t length, struct kvr_error *error)
{
    enum kvr_status status = parse(reader, text, length, NULL, error);
    uint64_t conversation;

    if (status == KVR_OK && !item->continuation && !kvr_line_names_session(&reader->line) &&
        !reader->route.session.expression)
        status = follow(reader, &reader->line, &conversation, &item->continuation, error);
    return status == KVR_OK ? fill(reader, item, error) : status;
}

struct kvr_blocks kvr_sim_blocks(const struct kvr_sim_reader *reader, const struct kvr_sim *sim,
    uint32_t worker, const uint64_t *ids, size_t count)
{
    uint32_t block = kvr_sim_worker_block_tokens(sim, worker);
    uint64_t plain =
        kvr_index_space(kvr_matcher_index(reader->matcher), NULL, 0, NULL, 0, NULL, 0, block);

    return (struct kvr_blocks){plain, ids, count, block};
}

void kvr_sim_item_destroy(struct kvr_sim_item *item)
{
    if (!item)
        return;
    free(item->ids);
    kvr_buffer_release(&item->base);
    kvr_buffer_release(&item->line);
    free(item);
}
