/*
 * Azure LLM inference traces: CSV of TIMESTAMP,ContextTokens,GeneratedTokens with a header line.
 * The time of day becomes milliseconds since 1970 (UTC); lengths only, so nothing can match.
 */
#include "base/quantity.h"
#include "line/format.h"

#include <stdlib.h>
#include <time.h>

/* Three fields cut at commas, copied into text; false when there are fewer or they are too long. */
static bool cut(const struct kvr_source_line *line, char *text, size_t size, char *fields[3])
{
    if (line->length >= size)
        return false;
    memcpy(text, line->text, line->length);
    text[line->length] = '\0';
    fields[0] = text;
    for (int i = 1; i < 3; i++) {
        char *comma = strchr(fields[i - 1], ',');
        if (!comma)
            return false;
        *comma = '\0';
        fields[i] = comma + 1;
    }
    return true;
}

static bool read_time(const char *text, double *time_ms)
{
    struct tm moment = {0};
    const char *rest = strptime(text, "%Y-%m-%d %H:%M:%S", &moment);
    double fraction = 0;

    if (!rest)
        return false;
    if (*rest == '.') {
        char *end;
        fraction = strtod(rest, &end);
        rest = end;
    }
    /* The 2024 files append "+00:00" */
    if (*rest && strcmp(rest, "+00:00") != 0 && strcmp(rest, "Z") != 0)
        return false;
    *time_ms = (double)timegm(&moment) * 1e3 + fraction * 1e3;
    return true;
}

static enum kvr_status convert(
    void *state, const struct kvr_line *line, struct kvr_buffer *out, struct kvr_error *error)
{
    char text[256];
    char *fields[3];
    double time_ms;
    uint64_t input, output;

    (void)state;
    if (!cut(&line->source, text, sizeof text, fields))
        return kvr_error_set(error, KVR_BAD_INPUT, "not three fields separated by commas");
    if (line->source.number == 1 && strcmp(fields[0], "TIMESTAMP") == 0)
        return KVR_OK;
    if (!read_time(fields[0], &time_ms))
        return kvr_error_set(error, KVR_BAD_INPUT, "the first field is not a time");
    if (kvr_quantity_count(fields[1], &input, NULL) != KVR_OK ||
        kvr_quantity_count(fields[2], &output, NULL) != KVR_OK)
        return kvr_error_set(error, KVR_BAD_INPUT, "a number of tokens is not a whole number");
    kvr_buffer_append_text(out, "{\"timestamp\":");
    kvr_json_write_fixed(out, time_ms, 3);
    kvr_buffer_append_format(out, ",\"input_length\":%lu,\"output_length\":%lu}\n", input, output);
    return KVR_OK;
}

const struct kvr_format kvr_format_azure = {
    .name = "azure",
    .summary = "Azure LLM inference traces: CSV of time, context tokens, generated tokens",
    .convert = convert,
};
