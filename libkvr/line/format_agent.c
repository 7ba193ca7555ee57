/*
 * LMCache agent traces: a turn's whole conversation as text in `input`, the answer in `output`,
 * timestamps in microseconds, `session_id`. The text becomes `prompt`, for kvr-tokenize.
 */
#include "line/format.h"

static enum kvr_status convert(
    void *state, const struct kvr_line *line, struct kvr_buffer *out, struct kvr_error *error)
{
    struct kvr_value input = kvr_line_find(line, "input");
    struct kvr_value output = kvr_line_find(line, "output");
    struct kvr_value session = kvr_line_find(line, "session_id");
    struct kvr_value timestamp = kvr_line_get(line, KVR_NAME_TIMESTAMP);
    double microseconds;

    (void)state;
    if (input.type != KVR_STRING)
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'input' is not a string");
    kvr_buffer_append_byte(out, '{');
    if (timestamp.type != KVR_ABSENT) {
        if (!kvr_value_double(timestamp, &microseconds))
            return kvr_error_set(error, KVR_BAD_INPUT, "timestamp is not a number");
        kvr_line_add(out, "timestamp");
        kvr_json_write_fixed(out, microseconds / 1e3, 3);
    }
    if (session.type != KVR_ABSENT) {
        kvr_line_add(out, "session");
        kvr_buffer_append(out, session.text, session.length);
    }
    kvr_line_add(out, "prompt");
    kvr_buffer_append(out, input.text, input.length);
    if (output.type == KVR_STRING) {
        kvr_line_add(out, "output");
        kvr_buffer_append(out, output.text, output.length);
    }
    kvr_line_end(out);
    kvr_buffer_append_byte(out, '\n');
    return KVR_OK;
}

const struct kvr_format kvr_format_agent = {
    .name = "agent",
    .summary = "LMCache agent traces: text in input and output, timestamps in microseconds",
    .json = true,
    .convert = convert,
};
