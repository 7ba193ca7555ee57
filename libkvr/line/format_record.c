#include "line/format_record.h"

#include "line/line.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void add_integer(struct kvr_buffer *out, const char *name, int64_t number)
{
    if (number < 0)
        return;
    kvr_line_add(out, name);
    kvr_buffer_append_u64(out, (uint64_t)number);
}

static void add_ms(struct kvr_buffer *out, const char *name, double ms)
{
    if (!isfinite(ms))
        return;
    kvr_line_add(out, name);
    kvr_json_write_fixed(out, ms, 6);
}

static void add_value(struct kvr_buffer *out, const char *name, struct kvr_value value)
{
    if (value.type != KVR_STRING && value.type != KVR_NUMBER)
        return;
    kvr_line_add(out, name);
    kvr_buffer_append(out, value.text, value.length);
}

void kvr_format_write(const struct kvr_format_record *record, struct kvr_buffer *out)
{
    kvr_buffer_append_byte(out, '{');
    add_value(out, "id", record->id);
    add_ms(out, "timestamp", record->timestamp_ms);
    add_integer(out, "input_length", record->input_length);
    add_integer(out, "output_length", record->output_length);
    add_value(out, "model", record->model);
    add_value(out, "session", record->session);
    add_integer(out, "turn", record->turn);
    if (record->worker.length) {
        kvr_line_add(out, "route");
        kvr_buffer_append_text(out, "{\"worker\":");
        kvr_json_write_string(out, record->worker.text, record->worker.length);
        kvr_buffer_append_byte(out, '}');
    }
    if (record->status >= 0) {
        kvr_line_add(out, "response");
        kvr_buffer_append_byte(out, '{');
        add_integer(out, "status", record->status);
        add_ms(out, "ttft_ms", record->ttft_ms);
        add_ms(out, "e2e_ms", record->e2e_ms);
        add_integer(out, "output_length", record->output_length);
        add_integer(out, "cached_tokens", record->cached_tokens);
        kvr_buffer_append_byte(out, '}');
    }
    kvr_buffer_append_text(out, "}\n");
}

/* The inside of a string without escapes as a terminated copy; false when it does not fit. */
static bool inside(struct kvr_value value, char *text, size_t size)
{
    if (value.type == KVR_STRING)
        value = (struct kvr_value){value.text + 1, value.length - 2, KVR_NUMBER};
    if (value.type != KVR_NUMBER || value.length == 0 || value.length >= size)
        return false;
    memcpy(text, value.text, value.length);
    text[value.length] = '\0';
    return true;
}

double kvr_format_number(struct kvr_value value)
{
    char text[64], *end;

    if (!inside(value, text, sizeof text) || text[strspn(text, "+-.0123456789eE")])
        return NAN;
    double number = strtod(text, &end);
    return *end || end == text || !isfinite(number) ? NAN : number;
}

int64_t kvr_format_integer(struct kvr_value value)
{
    double number = kvr_format_number(value);

    return number >= 0 && number <= 1e15 && number == trunc(number) ? (int64_t)number : -1;
}

double kvr_format_moment_ms(struct kvr_value value)
{
    struct tm moment = {0};
    char text[64];
    double seconds = kvr_format_number(value), fraction = 0;
    int hours, minutes;
    char sign;

    if (!isnan(seconds))
        return seconds * 1e3;
    if (!inside(value, text, sizeof text))
        return NAN;
    char *rest = strptime(text, "%Y-%m-%d", &moment);
    if (!rest || (*rest != 'T' && *rest != ' '))
        return NAN;
    rest = strptime(rest + 1, "%H:%M:%S", &moment);
    if (!rest)
        return NAN;
    if (*rest == '.')
        fraction = strtod(rest, &rest);
    double ms = ((double)timegm(&moment) + fraction) * 1e3;
    while (*rest == ' ')
        rest++;
    if (*rest == '\0' || strcmp(rest, "Z") == 0 || strcmp(rest, "UTC") == 0)
        return ms;
    if (sscanf(rest, "%c%2d:%2d", &sign, &hours, &minutes) == 3 && (sign == '+' || sign == '-'))
        return ms - (sign == '+' ? 1 : -1) * (hours * 60.0 + minutes) * 60e3;
    return NAN;
}
