#include "cache/request_line.h"

#include "base/grow.h"
#include "base/random.h"

#include <math.h>

enum { WIRE_BITS = 53 };

void kvr_request_reader_release(struct kvr_request_reader *reader)
{
    kvr_session_reader_release(&reader->session);
    kvr_expression_destroy(reader->tenant);
    kvr_u64_map_release(&reader->namespaces);
    free(reader->ids);
    free(reader->output_ids);
    for (size_t i = 0; i < reader->namespace_text_count; i++)
        free(reader->namespace_texts[i]);
    free(reader->namespace_texts);
    memset(reader, 0, sizeof *reader);
}

static enum kvr_status read_u64(const struct kvr_line *line, enum kvr_name name, uint64_t most,
    uint64_t *number, bool *given, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, name);

    *given = !kvr_value_missing(value);
    if (*given && (!kvr_value_u64(value, number) || *number > most))
        return kvr_line_wrong_type(kvr_name_text(name), "a whole number in range", error);
    return KVR_OK;
}

static enum kvr_status read_ids(const struct kvr_line *line, enum kvr_name name, uint64_t **ids,
    size_t *size, size_t *count, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, name);

    *count = 0;
    if (kvr_value_missing(value))
        return KVR_OK;
    if (value.type != KVR_ARRAY)
        return kvr_line_wrong_type(kvr_name_text(name), "an array of whole numbers", error);
    uint64_t *room = kvr_grow(*ids, size, kvr_value_u64s_room(value) + 1, sizeof *room);
    if (!room)
        return kvr_error_memory(error);
    *ids = room;
    ptrdiff_t read = kvr_value_u64s(value, room);
    if (read < 0)
        return kvr_line_wrong_type(kvr_name_text(name), "an array of whole numbers", error);
    *count = (size_t)read;
    return KVR_OK;
}

static const enum kvr_name namespace_names[] = {KVR_NAME_MODEL, KVR_NAME_LORA, KVR_NAME_SALT};

enum { NAMESPACE_NAMES = sizeof namespace_names / sizeof *namespace_names };

static enum kvr_status keep_namespace_text(
    struct kvr_request_reader *reader, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_buffer text = {0};
    char **texts = kvr_grow(reader->namespace_texts, &reader->namespace_text_size,
        reader->namespace_text_count + 1, sizeof *texts);

    if (!texts)
        return kvr_error_memory(error);
    reader->namespace_texts = texts;
    for (int i = 0; i < NAMESPACE_NAMES; i++) {
        struct kvr_value value = kvr_line_get(line, namespace_names[i]);
        if (kvr_value_missing(value))
            continue;
        kvr_buffer_append_format(&text, ",\"%s\":", kvr_name_text(namespace_names[i]));
        kvr_buffer_append(&text, value.text, value.length);
    }
    texts[reader->namespace_text_count] = kvr_buffer_text(&text);
    if (!texts[reader->namespace_text_count])
        return kvr_error_memory(error);
    reader->namespace_text_count++;
    return KVR_OK;
}

const char *kvr_request_namespace_text(const struct kvr_request_reader *reader, uint64_t id)
{
    uint64_t number = reader->namespaces.length > 1 ? id >> WIRE_BITS : 0;

    return number < reader->namespace_text_count ? reader->namespace_texts[number] : "";
}

/* The line's namespace as a small number, 0 for the first one seen. */
static enum kvr_status read_namespace(struct kvr_request_reader *reader,
    const struct kvr_line *line, uint64_t *number, struct kvr_error *error)
{
    uint64_t hash = 0;
    bool is_new;

    for (int i = 0; i < NAMESPACE_NAMES; i++) {
        struct kvr_value value = kvr_line_get(line, namespace_names[i]);
        hash = kvr_mix64(hash + 1 + kvr_value_identity(value));
    }
    uint64_t *known = kvr_u64_map_insert(&reader->namespaces, hash, &is_new);
    if (!known)
        return kvr_error_memory(error);
    if (is_new) {
        *known = reader->namespaces.length - 1;
        if (*known > KVR_NAMESPACES_MOST) {
            kvr_u64_map_remove(&reader->namespaces, hash, NULL);
            return kvr_error_set(error, KVR_BAD_INPUT,
                "more than %d namespaces (model, lora, salt)", KVR_NAMESPACES_MOST + 1);
        }
        enum kvr_status status = keep_namespace_text(reader, line, error);
        if (status != KVR_OK)
            return status;
    }
    *number = *known;
    return KVR_OK;
}

static void fold(uint64_t *ids, size_t count, uint64_t number)
{
    uint64_t wire = ((uint64_t)1 << WIRE_BITS) - 1;

    for (size_t i = 0; number && i < count; i++)
        ids[i] = number << WIRE_BITS | (ids[i] > wire ? kvr_mix64(ids[i]) & wire : ids[i]);
}

static enum kvr_status read_numbers(struct kvr_request_reader *reader, const struct kvr_line *line,
    struct kvr_request_view *view, struct kvr_error *error)
{
    struct kvr_cache_request *request = &view->request;
    struct kvr_value time = kvr_line_get(line, KVR_NAME_TIMESTAMP);
    struct kvr_value priority = kvr_line_get(line, KVR_NAME_PRIORITY);
    uint64_t block_tokens = reader->block_tokens, most = (uint64_t)1 << 59;
    bool given;

    enum kvr_status status =
        read_u64(line, KVR_NAME_BLOCK_SIZE, 1 << 30, &block_tokens, &given, error);
    if (status != KVR_OK)
        return status;
    if (!block_tokens)
        return kvr_line_wrong_type(kvr_name_text(KVR_NAME_BLOCK_SIZE), "a positive number", error);
    request->block_tokens = (uint32_t)block_tokens;
    status = read_u64(line, KVR_NAME_INPUT_LENGTH, most, &request->input_tokens, &given, error);
    if (status != KVR_OK)
        return status;
    if (!given)
        request->input_tokens = request->id_count * block_tokens;
    status = read_u64(line, KVR_NAME_OUTPUT_LENGTH, most, &request->output_tokens, &given, error);
    if (status != KVR_OK)
        return status;
    view->has_time = !kvr_value_missing(time);
    if (view->has_time &&
        (!kvr_value_double(time, &request->time_ms) || !isfinite(request->time_ms)))
        return kvr_line_wrong_type(kvr_name_text(KVR_NAME_TIMESTAMP), "a number", error);
    if (view->has_time)
        request->time_ms = kvr_stream_clock_follow(&reader->clock, request->time_ms);
    int64_t number = 0;
    if (!kvr_value_missing(priority) &&
        (!kvr_value_i64(priority, &number) || number < INT32_MIN || number > INT32_MAX))
        return kvr_line_wrong_type(kvr_name_text(KVR_NAME_PRIORITY), "a whole number", error);
    request->priority = (int32_t)number;
    return KVR_OK;
}

enum kvr_status kvr_request_read(struct kvr_request_reader *reader, const struct kvr_line *line,
    struct kvr_request_view *view, struct kvr_error *error)
{
    struct kvr_cache_request *request = &view->request;
    struct kvr_value id = kvr_line_get(line, KVR_NAME_ID);
    struct kvr_value route = kvr_line_get(line, KVR_NAME_ROUTE);
    uint64_t number = 0;

    memset(view, 0, sizeof *view);
    enum kvr_status status = read_ids(
        line, KVR_NAME_HASH_IDS, &reader->ids, &reader->id_size, &request->id_count, error);
    if (status == KVR_OK)
        status = read_ids(line, KVR_NAME_OUTPUT_HASH_IDS, &reader->output_ids,
            &reader->output_id_size, &request->output_id_count, error);
    if (status == KVR_OK)
        status = read_namespace(reader, line, &number, error);
    if (status == KVR_OK)
        status = read_numbers(reader, line, view, error);
    if (status == KVR_OK && reader->wants_session)
        status = kvr_session_read(&reader->session, line, &view->tags.session, error);
    if (status == KVR_OK && reader->tenant)
        status = kvr_expression_evaluate(reader->tenant, line, &view->tenant, error);
    if (status != KVR_OK)
        return status;
    fold(reader->ids, request->id_count, number);
    fold(reader->output_ids, request->output_id_count, number);
    request->ids = reader->ids;
    request->output_ids = reader->output_ids;
    view->has_blocks = !kvr_value_missing(kvr_line_get(line, KVR_NAME_HASH_IDS));
    view->tags.identity = kvr_value_identity(id);
    if (route.type == KVR_OBJECT)
        view->worker = kvr_value_get(route, "worker");
    return KVR_OK;
}

enum kvr_status kvr_request_read_ids(struct kvr_request_reader *reader, const struct kvr_line *line,
    const uint64_t **ids, size_t *count, struct kvr_error *error)
{
    uint64_t number = 0;
    enum kvr_status status =
        read_ids(line, KVR_NAME_HASH_IDS, &reader->ids, &reader->id_size, count, error);

    if (status == KVR_OK)
        status = read_namespace(reader, line, &number, error);
    if (status != KVR_OK)
        return status;
    fold(reader->ids, *count, number);
    *ids = reader->ids;
    return KVR_OK;
}
