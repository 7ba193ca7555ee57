/*
 * aiperf's profile_export.jsonl: one record a request, `metadata` with its times in ns and the
 * conversation, `metrics` with a value and a unit each. worker_id there is aiperf's own process and
 * says nothing about the engine. Turns count from 0.
 */
#include "line/format.h"
#include "line/format_record.h"

static double metric(struct kvr_value metrics, const char *name)
{
    return kvr_format_number(kvr_value_get(kvr_value_get(metrics, name), "value"));
}

static int64_t tokens(struct kvr_value metrics, const char *name, const char *other)
{
    double number = metric(metrics, name);

    if (isnan(number) && other)
        number = metric(metrics, other);
    return number >= 0 && number <= 1e12 ? (int64_t)number : -1;
}

static double metric_ms(struct kvr_value metrics, const char *name)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"ms", 1}, {"s", 1e3}, {"sec", 1e3}, {"us", 1e-3}, {"ns", 1e-6}};
    struct kvr_value unit = kvr_value_get(kvr_value_get(metrics, name), "unit");

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (kvr_value_is(unit, units[i].name))
            return metric(metrics, name) * units[i].ms;
    }
    return NAN;
}

static enum kvr_status convert(
    void *state, const struct kvr_line *line, struct kvr_buffer *out, struct kvr_error *error)
{
    struct kvr_value metadata = kvr_line_find(line, "metadata");
    struct kvr_value metrics = kvr_line_find(line, "metrics");
    struct kvr_value failure = kvr_line_find(line, "error");
    struct kvr_format_record record = kvr_format_record();

    (void)state;
    if (metadata.type != KVR_OBJECT)
        return kvr_error_set(error, KVR_BAD_INPUT, "no member 'metadata'");
    record.id = kvr_value_get(metadata, "x_request_id");
    record.session = kvr_value_get(metadata, "conversation_id");
    record.turn = kvr_format_integer(kvr_value_get(metadata, "turn_index"));
    record.turn += record.turn >= 0;
    record.timestamp_ms = kvr_format_number(kvr_value_get(metadata, "request_start_ns")) / 1e6;
    record.input_length = tokens(metrics, "usage_prompt_tokens", "input_sequence_length");
    record.output_length = tokens(metrics, "output_sequence_length", "usage_completion_tokens");
    record.cached_tokens = tokens(metrics, "usage_prompt_cache_read_tokens", NULL);
    record.ttft_ms = metric_ms(metrics, "time_to_first_token");
    record.e2e_ms = metric_ms(metrics, "request_latency");
    record.status = 200;
    if (failure.type == KVR_OBJECT) {
        record.status = kvr_format_integer(kvr_value_get(failure, "code"));
        if (record.status < 400)
            record.status = 0;
    } else if (kvr_value_true(kvr_value_get(metadata, "was_cancelled"))) {
        record.status = 499;
    }
    kvr_format_write(&record, out);
    return KVR_OK;
}

const struct kvr_format kvr_format_aiperf = {
    .name = "aiperf",
    .summary = "aiperf's profile_export.jsonl: times, tokens and cached tokens of each request",
    .json = true,
    .convert = convert,
};
