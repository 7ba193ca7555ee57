#include "route/stream.h"

#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

void kvr_route_reader_release(struct kvr_route_reader *reader)
{
    kvr_buffer_release(&reader->scratch);
    kvr_session_reader_release(&reader->session);
    free(reader->matches);
    free(reader->ids);
    memset(reader, 0, sizeof *reader);
}

static enum kvr_status read_tokens(const struct kvr_line *line, enum kvr_name name,
    uint32_t *tokens, bool *given, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, name);
    uint64_t number;

    *tokens = 0;
    *given = !kvr_value_missing(value);
    if (!*given)
        return KVR_OK;
    if (!kvr_value_u64(value, &number))
        return kvr_line_wrong_type(kvr_name_text(name), "a whole number", error);
    *tokens = number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
    return KVR_OK;
}

static enum kvr_status read_number(const struct kvr_line *line, enum kvr_name name, double absent,
    double *number, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, name);

    *number = absent;
    if (kvr_value_missing(value))
        return KVR_OK;
    return kvr_value_double(value, number)
               ? KVR_OK
               : kvr_line_wrong_type(kvr_name_text(name), "a number", error);
}

/* The stream's time at this line; NAN where it tells none. */
static enum kvr_status read_time(struct kvr_route_reader *reader, const struct kvr_line *line,
    double *now_ms, struct kvr_error *error)
{
    enum kvr_status status = read_number(line, KVR_NAME_TIMESTAMP, NAN, now_ms, error);

    if (status == KVR_OK && !isnan(*now_ms))
        *now_ms = kvr_stream_clock_follow(&reader->clock, *now_ms);
    return status;
}

static enum kvr_status join(struct kvr_route_reader *reader, struct kvr_value name,
    uint32_t *worker, struct kvr_error *error)
{
    struct kvr_text text;

    enum kvr_status status = kvr_worker_name(name, "worker", &reader->scratch, &text, error);
    if (status == KVR_OK)
        status = kvr_fleet_join(reader->fleet, text.text, text.length, worker, error);
    return status;
}

static uint32_t below(struct kvr_value tiers, const char *medium)
{
    uint64_t tokens;

    if (!kvr_value_u64(kvr_value_get(tiers, medium), &tokens))
        return 0;
    return tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens;
}

/* "tiers":{"w0":{"cpu":…},…} of kvr-match --tiers: the same workers as in match, in its order, so
 * each is looked for from behind the last one on. */
static enum kvr_status read_tiers(struct kvr_route_reader *reader, struct kvr_value tiers,
    uint32_t count, struct kvr_error *error)
{
    struct kvr_cursor cursor = kvr_value_open(tiers);
    struct kvr_member member;
    uint32_t at = 0;

    while (kvr_next_member(&cursor, &member)) {
        uint32_t worker, tried = 0;
        enum kvr_status status = join(reader, member.name, &worker, error);
        if (status != KVR_OK)
            return status;
        for (; tried < count && reader->matches[at].worker != worker; tried++)
            at = at + 1 == count ? 0 : at + 1;
        if (tried == count)
            continue;
        reader->matches[at].host = below(member.value, "cpu");
        reader->matches[at].disk = below(member.value, "disk");
        reader->matches[at].remote = below(member.value, "remote");
    }
    return KVR_OK;
}

/* "match":{"w0":4096,…}. */
static enum kvr_status read_matches(struct kvr_route_reader *reader, const struct kvr_line *line,
    struct kvr_route_request *request, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, KVR_NAME_MATCH);
    struct kvr_value tiers = kvr_line_get(line, KVR_NAME_TIERS);
    struct kvr_member member;
    struct kvr_cursor cursor;
    uint32_t count = 0;

    if (kvr_value_missing(value))
        return KVR_OK;
    if (value.type != KVR_OBJECT)
        return kvr_line_wrong_type("match", "an object", error);
    cursor = kvr_value_open(value);
    while (kvr_next_member(&cursor, &member)) {
        struct kvr_route_match match = {0};
        uint64_t tokens;
        struct kvr_route_match *grown =
            kvr_grow(reader->matches, &reader->match_capacity, count + 1, sizeof *grown);
        if (!grown)
            return kvr_error_memory(error);
        reader->matches = grown;
        if (!kvr_value_u64(member.value, &tokens))
            return kvr_line_wrong_type("match", "of whole numbers", error);
        enum kvr_status status = join(reader, member.name, &match.worker, error);
        if (status != KVR_OK)
            return status;
        match.tokens = tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens;
        reader->matches[count++] = match;
    }
    request->matches = reader->matches;
    request->match_count = count;
    return tiers.type == KVR_OBJECT ? read_tiers(reader, tiers, count, error) : KVR_OK;
}

static enum kvr_status read_blocks(struct kvr_route_reader *reader, const struct kvr_line *line,
    struct kvr_route_request *request, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, KVR_NAME_HASH_IDS);
    struct kvr_value messages = kvr_line_get(line, KVR_NAME_MESSAGES);

    if (!kvr_value_missing(value)) {
        uint64_t *grown =
            kvr_grow(reader->ids, &reader->id_capacity, kvr_value_u64s_room(value), sizeof *grown);
        if (!grown)
            return kvr_error_memory(error);
        reader->ids = grown;
        ptrdiff_t count = kvr_value_u64s(value, reader->ids);
        if (count < 0)
            return kvr_line_wrong_type("hash_ids", "an array of whole numbers", error);
        request->block_ids = reader->ids;
        request->block_count = (uint32_t)count;
    }
    if (messages.type == KVR_ARRAY) {
        struct kvr_cursor cursor = kvr_value_open(messages);
        struct kvr_value first, content;
        if (kvr_next_element(&cursor, &first) &&
            kvr_value_is(kvr_value_get(first, "role"), "system") &&
            !kvr_value_missing(content = kvr_value_get(first, "content")))
            request->system = kvr_value_identity(content);
    }
    return KVR_OK;
}

/* Elements of an array without looking into them; it holds no strings. */
static uint64_t count_elements(struct kvr_value array)
{
    uint64_t count = 1;

    for (size_t i = 0; i < array.length; i++)
        count += array.text[i] == ',';
    return array.length > 2 ? count : 0;
}

static uint32_t estimate_input(const struct kvr_line *line, uint32_t block_tokens)
{
    struct kvr_value ids = kvr_line_get(line, KVR_NAME_HASH_IDS);
    struct kvr_value token_ids = kvr_line_get(line, KVR_NAME_TOKEN_IDS);
    uint64_t tokens;

    if (ids.type == KVR_ARRAY)
        tokens = count_elements(ids) * block_tokens;
    else if (token_ids.type == KVR_ARRAY)
        tokens = count_elements(token_ids);
    else
        tokens = (kvr_line_get(line, KVR_NAME_PROMPT).length +
                     kvr_line_get(line, KVR_NAME_MESSAGES).length) /
                 4;
    return tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens;
}

enum kvr_status kvr_route_read(struct kvr_route_reader *reader, const struct kvr_line *line,
    struct kvr_route_request *request, struct kvr_error *error)
{
    struct kvr_value id = kvr_line_get(line, KVR_NAME_ID);
    struct kvr_value priority = kvr_line_get(line, KVR_NAME_PRIORITY);
    uint32_t block_tokens;
    bool given;
    int64_t number;

    *request = (struct kvr_route_request){.id = kvr_value_identity(id)};
    enum kvr_status status = read_time(reader, line, &request->now_ms, error);
    if (status == KVR_OK)
        status = read_tokens(line, KVR_NAME_BLOCK_SIZE, &block_tokens, &given, error);
    if (status != KVR_OK)
        return status;
    request->block_tokens = given && block_tokens ? block_tokens : reader->block_tokens;
    status = read_tokens(line, KVR_NAME_INPUT_LENGTH, &request->input_tokens, &given, error);
    if (status == KVR_OK && !given)
        request->input_tokens = estimate_input(line, request->block_tokens);
    if (status == KVR_OK)
        status = read_tokens(line, KVR_NAME_OUTPUT_LENGTH, &request->output_tokens, &given, error);
    if (status == KVR_OK)
        status = read_number(line, KVR_NAME_SLO_TTFT_MS, 0, &request->slo_ttft_ms, error);
    if (status != KVR_OK)
        return status;
    if (!kvr_value_missing(priority)) {
        if (!kvr_value_i64(priority, &number) || number < INT32_MIN || number > INT32_MAX)
            return kvr_line_wrong_type("priority", "a whole number", error);
        request->priority = (int32_t)number;
    }
    status = kvr_session_read(&reader->session, line, &request->session, error);
    if (status == KVR_OK && reader->reads_blocks)
        status = read_blocks(reader, line, request, error);
    return status == KVR_OK ? read_matches(reader, line, request, error) : status;
}

enum kvr_status kvr_route_read_routed(struct kvr_route_reader *reader, const struct kvr_line *line,
    uint32_t *worker, uint32_t *decode_worker, struct kvr_error *error)
{
    struct kvr_value route = kvr_line_get(line, KVR_NAME_ROUTE);
    struct kvr_value name = kvr_value_get(route, "worker");
    struct kvr_value decode = kvr_value_get(route, "decode");
    enum kvr_status status = KVR_OK;

    *worker = *decode_worker = KVR_NO_WORKER;
    if (!kvr_value_missing(name))
        status = join(reader, name, worker, error);
    if (status == KVR_OK && !kvr_value_missing(decode))
        status = join(reader, decode, decode_worker, error);
    return status;
}

/* Tokens that a capacity holds; one in bytes of an unknown model is left unknown. */
static uint64_t capacity_tokens(
    const struct kvr_route_reader *reader, const struct kvr_worker_description *worker)
{
    uint64_t block_tokens = worker->block_size ? worker->block_size : reader->block_tokens;
    uint64_t blocks = 0;

    if (worker->capacity.unit == KVR_TOKENS)
        return worker->capacity.amount;
    kvr_capacity_blocks(&worker->capacity, block_tokens, reader->kv_bytes_per_token, &blocks, NULL);
    return blocks > UINT64_MAX / block_tokens ? UINT64_MAX : blocks * block_tokens;
}

enum kvr_status kvr_route_worker(struct kvr_route_reader *reader,
    const struct kvr_worker_description *worker, bool has_role, bool has_weight,
    struct kvr_error *error)
{
    struct kvr_fleet *fleet = reader->fleet;
    uint32_t number;

    if (has_weight && !(worker->weight >= 1e-6 && worker->weight <= 1e6))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'weight' is not from 1e-6 to 1e6");
    enum kvr_status status =
        kvr_fleet_join(fleet, worker->name.text, worker->name.length, &number, error);
    if (status != KVR_OK)
        return status;
    if (has_weight)
        kvr_fleet_set_weight(fleet, number, worker->weight);
    if (has_role)
        kvr_fleet_set_role(fleet, number, worker->role);
    if (worker->capacity.amount)
        fleet->workers[number].capacity_tokens = capacity_tokens(reader, worker);
    kvr_fleet_set_state(fleet, number, worker->state);
    return KVR_OK;
}

static enum kvr_status read_load(
    struct kvr_route_reader *reader, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_load_report report;
    uint32_t worker, tokens;
    bool given;

    enum kvr_status status = join(reader, kvr_line_get(line, KVR_NAME_WORKER), &worker, error);
    if (status == KVR_OK)
        status = read_tokens(line, KVR_NAME_WAITING, &report.waiting, &given, error);
    if (status == KVR_OK)
        status = read_tokens(line, KVR_NAME_RUNNING, &report.running, &given, error);
    if (status == KVR_OK)
        status = read_tokens(line, KVR_NAME_TOKENS, &tokens, &given, error);
    if (status == KVR_OK) {
        report.tokens = given ? (int64_t)tokens : -1;
        status = read_number(line, KVR_NAME_KV_USAGE, NAN, &report.kv_usage, error);
    }
    if (status == KVR_OK)
        kvr_fleet_report(reader->fleet, worker, &report);
    return status;
}

enum kvr_status kvr_route_event(
    struct kvr_route_reader *reader, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_value event = kvr_line_get(line, KVR_NAME_EVENT);
    double now_ms;

    enum kvr_status status = read_time(reader, line, &now_ms, error);
    if (status != KVR_OK)
        return status;
    kvr_fleet_advance(reader->fleet, now_ms);
    if (kvr_value_is(event, "worker")) {
        struct kvr_worker_description worker;
        status = kvr_worker_read(line, &reader->scratch, &worker, error);
        if (status == KVR_OK)
            status = kvr_route_worker(reader, &worker,
                !kvr_value_missing(kvr_line_get(line, KVR_NAME_ROLE)),
                !kvr_value_missing(kvr_line_get(line, KVR_NAME_WEIGHT)), error);
    } else if (kvr_value_is(event, "load")) {
        status = read_load(reader, line, error);
    } else if (kvr_value_is(event, "done")) {
        struct kvr_value id = kvr_line_get(line, KVR_NAME_ID);
        if (!kvr_value_missing(id))
            kvr_fleet_done(reader->fleet, kvr_value_identity(id));
    }
    return status;
}

static void write_name(const struct kvr_fleet *fleet, uint32_t worker, struct kvr_buffer *out)
{
    if (worker == KVR_NO_WORKER)
        kvr_buffer_append_text(out, "null");
    else
        kvr_json_write_string(out, fleet->names[worker], strlen(fleet->names[worker]));
}

static void write_ms(const char *name, double ms, struct kvr_buffer *out)
{
    kvr_buffer_append_text(out, name);
    kvr_json_write_fixed(out, ms, 3);
}

static void write_candidate(const struct kvr_fleet *fleet,
    const struct kvr_route_candidate *candidate, struct kvr_buffer *out)
{
    kvr_buffer_append_text(out, "{\"worker\":");
    write_name(fleet, candidate->worker, out);
    kvr_buffer_append_text(out, ",\"load\":");
    kvr_buffer_append_u64(out, candidate->load);
    kvr_buffer_append_text(out, ",\"tokens\":");
    kvr_buffer_append_u64(out, candidate->tokens);
    kvr_buffer_append_text(out, ",\"matched\":");
    kvr_buffer_append_u64(out, candidate->matched);
    write_ms(",\"queue_ms\":", candidate->queue_ms, out);
    write_ms(",\"prefill_ms\":", candidate->prefill_ms, out);
    write_ms(",\"ttft_ms\":", candidate->ttft_ms, out);
    kvr_buffer_append_text(out, ",\"score\":");
    kvr_json_write_double(out, candidate->score);
    kvr_buffer_append_byte(out, '}');
}

void kvr_route_write(const struct kvr_fleet *fleet, const struct kvr_route_decision *decision,
    const struct kvr_route_candidate *candidates, uint32_t candidate_count, struct kvr_buffer *out)
{
    kvr_buffer_append_text(out, "{\"worker\":");
    write_name(fleet, decision->worker, out);
    kvr_buffer_append_text(out, ",\"reason\":\"");
    kvr_buffer_append_text(out, kvr_route_reason_name(decision->reason));
    kvr_buffer_append_text(out, "\",\"policy\":\"");
    kvr_buffer_append_text(out, decision->policy);
    kvr_buffer_append_byte(out, '"');
    if (decision->reason != KVR_ROUTE_NO_WORKER) {
        kvr_buffer_append_text(out, ",\"matched\":");
        kvr_buffer_append_u64(out, decision->matched);
        write_ms(",\"queue_ms\":", decision->queue_ms, out);
        write_ms(",\"prefill_ms\":", decision->prefill_ms, out);
        write_ms(",\"ttft_ms\":", decision->ttft_ms, out);
    }
    if (decision->decode_worker != KVR_NO_WORKER) {
        kvr_buffer_append_text(out, ",\"decode\":");
        write_name(fleet, decision->decode_worker, out);
    }
    if (decision->pull.from != KVR_NO_WORKER) {
        kvr_buffer_append_text(out, ",\"pull\":{\"from\":");
        write_name(fleet, decision->pull.from, out);
        kvr_buffer_append_text(out, ",\"tokens\":");
        kvr_buffer_append_u64(out, decision->pull.tokens);
        write_ms(",\"ms\":", decision->pull.ms, out);
        if (decision->pull.medium != KVR_MEDIUM_GPU) {
            kvr_buffer_append_text(out, ",\"medium\":\"");
            kvr_buffer_append_text(out, kvr_medium_name(decision->pull.medium));
            kvr_buffer_append_byte(out, '"');
        }
        kvr_buffer_append_byte(out, '}');
    }
    if (decision->reason == KVR_ROUTE_REJECTED && !isnan(decision->retry_after_ms))
        write_ms(",\"retry_after_ms\":", decision->retry_after_ms, out);
    if (candidates) {
        kvr_buffer_append_text(out, ",\"candidates\":[");
        for (uint32_t i = 0; i < candidate_count; i++) {
            if (i)
                kvr_buffer_append_byte(out, ',');
            write_candidate(fleet, &candidates[i], out);
        }
        kvr_buffer_append_byte(out, ']');
    }
    kvr_buffer_append_byte(out, '}');
}
