#include "line/intake.h"

#include "line/expression.h"
#include "line/format.h"

#include <stdlib.h>

struct kvr_intake {
    const struct kvr_format *format;
    void *format_state;
    const char *format_file; /* the input that begin() was called for */
    struct kvr_expression *map;
    struct kvr_expression *where;
    double timestamp_factor; /* to milliseconds */
    struct kvr_line foreign; /* the record that is being converted */
    struct kvr_buffer lines; /* what it became, lines ended by newlines */
    size_t next;             /* offset of the next of them */
    struct kvr_source_line origin;
    struct kvr_buffer rewritten;
};

enum kvr_status kvr_intake_create(
    struct kvr_intake **result, const struct kvr_intake_options *options, struct kvr_error *error)
{
    struct kvr_intake *intake = calloc(1, sizeof *intake);
    enum kvr_status status = KVR_OK;

    *result = intake;
    if (!intake)
        return kvr_error_memory(error);
    intake->format = kvr_format_find(options->from ? options->from : "kvr");
    if (!intake->format)
        return kvr_error_set(error, KVR_BAD_USAGE, "there is no format '%s'", options->from);
    if (intake->format->state_bytes) {
        intake->format_state = calloc(1, intake->format->state_bytes);
        if (!intake->format_state)
            return kvr_error_memory(error);
    }
    intake->timestamp_factor = 1;
    if (options->time_unit && strcmp(options->time_unit, "s") == 0)
        intake->timestamp_factor = 1e3;
    if (options->time_unit && strcmp(options->time_unit, "us") == 0)
        intake->timestamp_factor = 1e-3;
    if (options->map)
        status = kvr_expression_create_program(&intake->map, options->map, error);
    if (status == KVR_OK && options->where)
        status = kvr_expression_create(&intake->where, options->where, error);
    if (status == KVR_OK)
        status = kvr_line_init(&intake->foreign, error);
    return status;
}

void kvr_intake_destroy(struct kvr_intake *intake)
{
    if (!intake)
        return;
    if (intake->format && intake->format->release && intake->format_state)
        intake->format->release(intake->format_state);
    free(intake->format_state);
    kvr_expression_destroy(intake->map);
    kvr_expression_destroy(intake->where);
    if (intake->foreign.structure)
        kvr_line_release(&intake->foreign);
    kvr_buffer_release(&intake->lines);
    kvr_buffer_release(&intake->rewritten);
    free(intake);
}

static enum kvr_status add_mapped(void *context, const char *json, size_t length)
{
    struct kvr_buffer *lines = context;

    kvr_buffer_append(lines, json, length);
    kvr_buffer_append_byte(lines, '\n');
    return lines->failed ? KVR_NO_MEMORY : KVR_OK;
}

/* Turns one foreign record into intake->lines. */
static enum kvr_status convert(
    struct kvr_intake *intake, const struct kvr_source_line *source, struct kvr_error *error)
{
    const struct kvr_format *format = intake->format;
    enum kvr_status status = KVR_OK;

    intake->origin = *source;
    intake->next = 0;
    kvr_buffer_clear(&intake->lines);
    if (intake->map)
        return kvr_expression_each(
            intake->map, source->text, source->length, add_mapped, &intake->lines, error);
    if (source->file != intake->format_file) {
        intake->format_file = source->file;
        if (format->begin)
            status = format->begin(intake->format_state, source->file, error);
    }
    intake->foreign.source = *source;
    if (status == KVR_OK && format->json)
        status = kvr_line_parse(&intake->foreign, source, error);
    if (status == KVR_OK)
        status = format->convert(intake->format_state, &intake->foreign, &intake->lines, error);
    if (status == KVR_OK && intake->lines.failed)
        status = kvr_error_memory(error);
    if (status != KVR_OK)
        kvr_buffer_clear(&intake->lines);
    return status;
}

/* The next line of intake->lines as a source line that names its origin; false when none is left.
 */
static bool next_converted(struct kvr_intake *intake, struct kvr_source_line *source)
{
    if (intake->next >= intake->lines.length)
        return false;
    const char *text = intake->lines.data + intake->next;
    const char *newline = memchr(text, '\n', intake->lines.length - intake->next);
    *source = intake->origin;
    source->text = text;
    source->length = (size_t)(newline - text);
    intake->next += source->length + 1;
    return true;
}

/* Timestamps become milliseconds in the line itself, so that the tools behind need no unit. */
static enum kvr_status to_milliseconds(
    struct kvr_intake *intake, struct kvr_line *line, struct kvr_error *error)
{
    static const enum kvr_name dropped[] = {KVR_NAME_TIMESTAMP};
    struct kvr_buffer *out = &intake->rewritten;
    double timestamp;

    if (intake->timestamp_factor == 1 ||
        !kvr_value_double(kvr_line_get(line, KVR_NAME_TIMESTAMP), &timestamp))
        return KVR_OK;
    kvr_buffer_clear(out);
    kvr_line_begin(line, out, dropped, 1);
    kvr_line_add(out, "timestamp");
    kvr_json_write_fixed(out, timestamp * intake->timestamp_factor, 6);
    kvr_line_end(out);
    if (out->failed)
        return kvr_error_memory(error);
    struct kvr_source_line source = line->source;
    source.text = out->data;
    source.length = out->length;
    return kvr_line_parse(line, &source, error);
}

static enum kvr_status passes(
    struct kvr_intake *intake, const struct kvr_line *line, bool *pass, struct kvr_error *error)
{
    struct kvr_value value;

    *pass = true;
    if (!intake->where || kvr_line_is_event(line))
        return KVR_OK;
    enum kvr_status status = kvr_expression_evaluate(intake->where, line, &value, error);
    *pass = status == KVR_OK && kvr_value_true(value);
    return status;
}

enum kvr_status kvr_intake_next(struct kvr_intake *intake, struct kvr_source *source,
    struct kvr_line *line, struct kvr_error *error)
{
    bool foreign = intake->map || intake->format->convert;
    struct kvr_source_line text;
    enum kvr_status status;
    bool pass;

    for (;;) {
        if (!next_converted(intake, &text)) {
            status = kvr_source_next(source, &text, error);
            line->source = text;
            if (status != KVR_OK)
                return status;
            if (foreign && !text.merged) {
                status = convert(intake, &text, error);
                if (status != KVR_OK)
                    return status;
                continue;
            }
        }
        status = kvr_line_parse(line, &text, error);
        if (status == KVR_OK && !text.merged)
            status = to_milliseconds(intake, line, error);
        if (status == KVR_OK)
            status = passes(intake, line, &pass, error);
        if (status != KVR_OK)
            return status;
        if (pass)
            return KVR_OK;
    }
}
