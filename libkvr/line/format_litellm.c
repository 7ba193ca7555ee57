/*
 * LiteLLM spend logs. TTFT is completionStartTime − startTime; where it equals the end the answer
 * was not streamed and the TTFT is not known. `metadata` is an object or a JSON text in a string;
 * its usage_object has the cached tokens, as OpenAI or as Anthropic names them. The worker is
 * api_base.
 */
#include "line/format.h"
#include "line/format_record.h"

struct state {
    struct kvr_structure *structure; /* to read the text inside metadata */
    struct kvr_buffer text, worker;
};

static enum kvr_status read_metadata(struct state *state, const struct kvr_line *line,
    struct kvr_value *metadata, struct kvr_error *error)
{
    *metadata = kvr_line_find(line, "metadata");
    if (metadata->type != KVR_STRING)
        return KVR_OK;
    if (!state->structure)
        state->structure = kvr_structure_create();
    kvr_buffer_clear(&state->text);
    if (!state->structure || !kvr_value_string(*metadata, &state->text))
        return kvr_error_memory(error);
    *metadata = (struct kvr_value){NULL, 0, KVR_ABSENT};
    if (!kvr_buffer_text(&state->text))
        return kvr_error_memory(error);
    if (state->text.length == 0)
        return KVR_OK;
    enum kvr_status status = kvr_json_check(
        state->structure, state->text.data, state->text.length, metadata, NULL, error);
    return status == KVR_OK ? KVR_OK : kvr_error_prefix(error, "in the text of metadata");
}

static enum kvr_status convert(void *state_pointer, const struct kvr_line *line,
    struct kvr_buffer *out, struct kvr_error *error)
{
    struct state *state = state_pointer;
    struct kvr_format_record record = kvr_format_record();
    struct kvr_value metadata;
    double start_ms = kvr_format_moment_ms(kvr_line_find(line, "startTime"));
    double first_ms = kvr_format_moment_ms(kvr_line_find(line, "completionStartTime"));
    double end_ms = kvr_format_moment_ms(kvr_line_find(line, "endTime"));

    enum kvr_status status = read_metadata(state, line, &metadata, error);
    if (status != KVR_OK)
        return status;
    if (isnan(start_ms))
        return kvr_error_set(error, KVR_BAD_INPUT, "startTime is not a time");
    struct kvr_value usage = kvr_value_get(metadata, "usage_object");
    record.id = kvr_line_find(line, "request_id");
    record.model = kvr_line_get(line, KVR_NAME_MODEL);
    record.session = kvr_line_find(line, "session_id");
    record.timestamp_ms = start_ms;
    record.e2e_ms = end_ms - start_ms;
    record.ttft_ms = first_ms < end_ms ? first_ms - start_ms : NAN;
    record.input_length = kvr_format_integer(kvr_line_find(line, "prompt_tokens"));
    record.output_length = kvr_format_integer(kvr_line_find(line, "completion_tokens"));
    record.cached_tokens = kvr_format_integer(
        kvr_value_get(kvr_value_get(usage, "prompt_tokens_details"), "cached_tokens"));
    if (record.cached_tokens < 0)
        record.cached_tokens = kvr_format_integer(kvr_value_get(usage, "cache_read_input_tokens"));
    bool failed = kvr_value_is(kvr_line_find(line, "status"), "failure") ||
                  kvr_value_is(kvr_value_get(metadata, "status"), "failure");
    record.status = failed ? 500 : 200;
    struct kvr_value base = kvr_line_find(line, "api_base");
    if (base.type == KVR_STRING && !kvr_value_text(base, &state->worker, &record.worker))
        return kvr_error_memory(error);
    kvr_format_write(&record, out);
    return KVR_OK;
}

static void release(void *state_pointer)
{
    struct state *state = state_pointer;

    kvr_structure_destroy(state->structure);
    kvr_buffer_release(&state->text);
    kvr_buffer_release(&state->worker);
}

const struct kvr_format kvr_format_litellm = {
    .name = "litellm",
    .summary = "LiteLLM spend logs",
    .state_bytes = sizeof(struct state),
    .json = true,
    .convert = convert,
    .release = release,
};
