#include "net/kv_event_lines.h"

#include <string.h>

/* Numbers by pairs of digits: ids are most of what is written. */
static char *put_number(char *end, uint64_t number)
{
    static const char pairs[] = "0001020304050607080910111213141516171819202122232425262728293031"
                                "3233343536373839404142434445464748495051525354555657585960616263"
                                "6465666768697071727374757677787980818283848586878889909192939495"
                                "96979899";

    while (number >= 100) {
        end -= 2;
        memcpy(end, pairs + 2 * (number % 100), 2);
        number /= 100;
    }
    if (number >= 10) {
        end -= 2;
        memcpy(end, pairs + 2 * number, 2);
    } else {
        *--end = (char)('0' + number);
    }
    return end;
}

static void append_number(struct kvr_buffer *out, uint64_t number)
{
    char digits[20];
    const char *start = put_number(digits + sizeof digits, number);

    kvr_buffer_append(out, start, (size_t)(digits + sizeof digits - start));
}

static void append_string(struct kvr_buffer *out, const char *name, struct kvr_text text)
{
    if (!text.text)
        return;
    kvr_buffer_append_format(out, ",\"%s\":", name);
    kvr_json_write_string(out, text.text, text.length);
}

static void begin_line(struct kvr_buffer *out, const char *event, const char *worker)
{
    kvr_buffer_append_text(out, "{\"event\":\"");
    kvr_buffer_append_text(out, event);
    kvr_buffer_append_text(out, "\",\"worker\":");
    kvr_json_write_string(out, worker, strlen(worker));
}

static void append_ids(struct kvr_buffer *out, const uint64_t *ids, size_t count)
{
    kvr_buffer_append_text(out, ",\"hash_ids\":[");
    for (size_t i = 0; i < count; i++) {
        if (i)
            kvr_buffer_append_byte(out, ',');
        append_number(out, ids[i]);
    }
    kvr_buffer_append_byte(out, ']');
}

static void append_tail(struct kvr_buffer *out, const struct kvr_kv_run *run)
{
    if (run->space->block_size) {
        kvr_buffer_append_text(out, ",\"block_size\":");
        append_number(out, run->space->block_size);
    }
    kvr_buffer_append_text(out, ",\"medium\":\"");
    kvr_buffer_append_text(out, kvr_medium_name(run->medium));
    kvr_buffer_append_byte(out, '"');
    append_string(out, "model", run->space->model);
    append_string(out, "lora", run->space->lora);
    append_string(out, "salt", run->space->salt);
}

static void line_stored(void *context, const struct kvr_kv_run *run)
{
    struct kvr_writer *writer = context;
    struct kvr_buffer *out = &writer->buffer;

    begin_line(out, "stored", run->worker);
    append_ids(out, run->ids, run->count);
    kvr_buffer_append_text(out, ",\"parent\":");
    if (run->has_parent)
        append_number(out, run->parent);
    else
        kvr_buffer_append_text(out, "null");
    append_tail(out, run);
    if (run->tokens) {
        kvr_buffer_append_text(out, ",\"token_ids\":[");
        for (size_t i = 0; i < run->token_count; i++) {
            if (i)
                kvr_buffer_append_byte(out, ',');
            append_number(out, run->tokens[i]);
        }
        kvr_buffer_append_byte(out, ']');
    }
    kvr_buffer_append_byte(out, '}');
    kvr_writer_line_done(writer);
}

static void line_removed(void *context, const struct kvr_kv_run *run)
{
    struct kvr_writer *writer = context;

    begin_line(&writer->buffer, "removed", run->worker);
    append_ids(&writer->buffer, run->ids, run->count);
    append_tail(&writer->buffer, run);
    kvr_buffer_append_byte(&writer->buffer, '}');
    kvr_writer_line_done(writer);
}

static void line_cleared(void *context, const char *worker, const char *reason)
{
    struct kvr_writer *writer = context;

    begin_line(&writer->buffer, "cleared", worker);
    if (reason)
        kvr_buffer_append_format(&writer->buffer, ",\"reason\":\"%s\"", reason);
    kvr_buffer_append_byte(&writer->buffer, '}');
    kvr_writer_line_done(writer);
}

struct kvr_kv_sink kvr_kv_line_sink(struct kvr_writer *writer)
{
    return (struct kvr_kv_sink){writer, line_stored, line_removed, line_cleared};
}
