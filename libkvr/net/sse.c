#include "net/sse.h"

void kvr_sse_init(struct kvr_sse *sse, size_t limit_bytes)
{
    *sse = (struct kvr_sse){.limit_bytes = limit_bytes};
}

void kvr_sse_release(struct kvr_sse *sse)
{
    kvr_buffer_release(&sse->line);
    kvr_buffer_release(&sse->data);
}

void kvr_sse_reset(struct kvr_sse *sse)
{
    kvr_buffer_clear(&sse->line);
    kvr_buffer_clear(&sse->data);
    sse->has_data = sse->after_return = sse->begun = false;
}

/* A line is whole: a field of the event, or its end. */
static void end_line(
    struct kvr_sse *sse, const char *line, size_t length, kvr_sse_event *event, void *context)
{
    if (!sse->begun) {
        sse->begun = true;
        if (length >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
            line += 3;
            length -= 3;
        }
    }
    if (length == 0) {
        if (sse->has_data)
            event(context, sse->data.data ? sse->data.data : "", sse->data.length);
        kvr_buffer_clear(&sse->data);
        sse->has_data = false;
        return;
    }
    if (length < 4 || memcmp(line, "data", 4) != 0 || (length > 4 && line[4] != ':'))
        return;
    size_t skip = length > 4 ? 5 : 4;
    if (skip < length && line[skip] == ' ')
        skip++;
    if (sse->has_data)
        kvr_buffer_append_byte(&sse->data, '\n');
    kvr_buffer_append(&sse->data, line + skip, length - skip);
    sse->has_data = true;
}

enum kvr_status kvr_sse_feed(struct kvr_sse *sse, const char *bytes, size_t length,
    kvr_sse_event *event, void *context, struct kvr_error *error)
{
    const char *at = bytes, *end = bytes + length;

    if (sse->after_return && at < end) {
        at += *at == '\n';
        sse->after_return = false;
    }
    while (at < end) {
        const char *stop = at;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        if (sse->line.length + sse->data.length + (size_t)(stop - at) > sse->limit_bytes)
            return kvr_error_set(error, KVR_BAD_INPUT,
                "an event of the stream is longer than %zu "
                "bytes",
                sse->limit_bytes);
        if (stop == end || sse->line.length)
            kvr_buffer_append(&sse->line, at, (size_t)(stop - at));
        if (stop < end) {
            bool kept = sse->line.length > 0;
            end_line(sse, kept ? sse->line.data : at, kept ? sse->line.length : (size_t)(stop - at),
                event, context);
            kvr_buffer_clear(&sse->line);
            if (*stop == '\r') {
                sse->after_return = stop + 1 == end;
                stop += stop + 1 < end && stop[1] == '\n';
            }
            stop++;
        }
        if (sse->line.failed || sse->data.failed)
            return kvr_error_memory(error);
        at = stop;
    }
    return KVR_OK;
}
