/*
 * Qwen-Bailian usage traces: kvr's members with their meaning there, but timestamps in seconds and
 * blocks of 16 tokens, which the records do not say.
 */
#include "line/format.h"

static enum kvr_status convert(
    void *state, const struct kvr_line *line, struct kvr_buffer *out, struct kvr_error *error)
{
    static const enum kvr_name dropped[] = {KVR_NAME_TIMESTAMP};
    bool sized = line->slots[KVR_NAME_BLOCK_SIZE] != 0;
    double seconds;

    (void)state;
    kvr_line_begin(line, out, dropped, 1);
    if (line->slots[KVR_NAME_TIMESTAMP]) {
        if (!kvr_value_double(kvr_line_get(line, KVR_NAME_TIMESTAMP), &seconds))
            return kvr_error_set(error, KVR_BAD_INPUT, "timestamp is not a number");
        kvr_line_add(out, "timestamp");
        kvr_json_write_fixed(out, seconds * 1e3, 6);
    }
    if (!sized) {
        kvr_line_add(out, "block_size");
        kvr_buffer_append_text(out, "16");
    }
    kvr_line_end(out);
    kvr_buffer_append_byte(out, '\n');
    return KVR_OK;
}

const struct kvr_format kvr_format_bailian = {
    .name = "bailian",
    .summary = "Qwen-Bailian traces: timestamps in seconds, blocks of 16 tokens",
    .json = true,
    .convert = convert,
};
