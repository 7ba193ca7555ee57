/*
 * SGLang, both of its logs: --log-requests-format json (request.finished lines, whose timestamp is
 * the end) and --export-metrics-to-file (the request's meta_info on the top level). Latencies are
 * in seconds. Neither names the worker: one log is one worker's.
 */
#include "line/format.h"
#include "line/format_record.h"

static double first_number(struct kvr_value object, const char *const *names)
{
    for (; *names; names++) {
        double number = kvr_format_number(kvr_value_get(object, *names));
        if (!isnan(number))
            return number;
    }
    return NAN;
}

/* finish_reason is an object; an aborted request has type "abort". */
static int64_t status_of(struct kvr_value meta)
{
    struct kvr_value reason = kvr_value_get(meta, "finish_reason");
    int64_t code = kvr_format_integer(kvr_value_get(reason, "status_code"));

    if (!kvr_value_is(kvr_value_get(reason, "type"), "abort"))
        return 200;
    return code >= 400 ? code : 499;
}

static enum kvr_status convert(
    void *state, const struct kvr_line *line, struct kvr_buffer *out, struct kvr_error *error)
{
    static const char *const ttft_names[] = {
        "time_to_first_token", "ttft", "first_token_latency", NULL};
    static const char *const start_names[] = {"request_received_ts", "received_ts", NULL};
    struct kvr_value event = kvr_line_get(line, KVR_NAME_EVENT);
    struct kvr_value meta = kvr_value_get(kvr_line_find(line, "out"), "meta_info");
    struct kvr_format_record record = kvr_format_record();

    (void)state;
    if (event.type != KVR_ABSENT && !kvr_value_is(event, "request.finished"))
        return KVR_OK; /* request.received, and whatever else is logged beside */
    if (event.type == KVR_ABSENT)
        meta = line->object;
    record.input_length = kvr_format_integer(kvr_value_get(meta, "prompt_tokens"));
    if (meta.type != KVR_OBJECT || record.input_length < 0)
        return kvr_error_set(error, KVR_BAD_INPUT, "no prompt_tokens in the request's meta_info");
    record.id = kvr_line_find(line, "rid");
    if (record.id.type == KVR_ABSENT)
        record.id = kvr_value_get(meta, "id");
    record.output_length = kvr_format_integer(kvr_value_get(meta, "completion_tokens"));
    record.cached_tokens = kvr_format_integer(kvr_value_get(meta, "cached_tokens"));
    record.e2e_ms = kvr_format_number(kvr_value_get(meta, "e2e_latency")) * 1e3;
    record.ttft_ms = first_number(meta, ttft_names) * 1e3;
    record.timestamp_ms = first_number(meta, start_names) * 1e3;
    if (isnan(record.timestamp_ms)) {
        double end_ms = kvr_format_moment_ms(kvr_line_get(line, KVR_NAME_TIMESTAMP));
        record.timestamp_ms = isnan(record.e2e_ms) ? end_ms : end_ms - record.e2e_ms;
    }
    record.status = status_of(meta);
    kvr_format_write(&record, out);
    return KVR_OK;
}

const struct kvr_format kvr_format_sglang = {
    .name = "sglang",
    .summary = "SGLang's request log as JSON, and its files of --export-metrics-to-file",
    .json = true,
    .convert = convert,
};
