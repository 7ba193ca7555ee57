/*
 * nginx access logs written with `log_format … escape=json`, whose members bear the names of the
 * variables: msec, request_time, status, upstream_addr, upstream_header_time,
 * upstream_response_time, request_id. All may be in quotes.
 *
 * $msec is the end, so the start is msec − request_time. $upstream_header_time is a lower bound of
 * the TTFT: the headers come before the first token. Where a request was retried, the upstream
 * variables are lists ("0.004, 0.312"; " : " after an internal redirect; "-" for one that never
 * answered): the last address answered, and what the earlier ones took comes before its headers.
 *
 * Members with kvr's own names (model, session, user, input_length, output_length, cached_tokens),
 * which a gateway may log from headers, are taken as they are.
 */
#include "line/format.h"
#include "line/format_record.h"

#include <stdlib.h>

struct state {
    struct kvr_buffer text;
    char address[256];
};

/* The last element of an upstream list. */
static struct kvr_text last_of(struct kvr_text list)
{
    size_t start = list.length;

    while (start > 0 && !(list.text[start - 1] == ' '))
        start--;
    return (struct kvr_text){list.text + start, list.length - start};
}

static double seconds(struct kvr_text text)
{
    return kvr_format_number((struct kvr_value){text.text, text.length, KVR_NUMBER});
}

/* The sum of all elements but the last; those without a number count nothing. */
static double sum_before_last(struct kvr_text list)
{
    double sum = 0;

    for (size_t at = 0; at < list.length;) {
        size_t length = 0;
        while (at + length < list.length && !strchr(", :", list.text[at + length]))
            length++;
        double value = seconds((struct kvr_text){list.text + at, length});
        at += length;
        if (at >= list.length)
            break;
        while (at < list.length && strchr(", :", list.text[at]))
            at++;
        sum += isnan(value) ? 0 : value;
    }
    return sum;
}

static bool text_of(struct state *state, struct kvr_value value, struct kvr_text *text)
{
    if (value.type == KVR_NUMBER) {
        *text = (struct kvr_text){value.text, value.length};
        return true;
    }
    return kvr_value_text(value, &state->text, text);
}

static enum kvr_status convert(void *state_pointer, const struct kvr_line *line,
    struct kvr_buffer *out, struct kvr_error *error)
{
    struct state *state = state_pointer;
    struct kvr_format_record record = kvr_format_record();
    double end_s = kvr_format_number(kvr_line_find(line, "msec"));
    double took_s = kvr_format_number(kvr_line_find(line, "request_time"));
    struct kvr_text list;
    double waited_s = 0;

    if (isnan(end_s) || isnan(took_s))
        return kvr_error_set(error, KVR_BAD_INPUT, "no numbers 'msec' and 'request_time'");
    record.timestamp_ms = (end_s - took_s) * 1e3;
    record.e2e_ms = took_s * 1e3;
    record.status = kvr_format_integer(kvr_line_find(line, "status"));
    record.id = kvr_line_find(line, "request_id");
    if (record.id.type == KVR_STRING && record.id.length == 2)
        record.id.type = KVR_ABSENT;
    if (text_of(state, kvr_line_find(line, "upstream_response_time"), &list))
        waited_s = sum_before_last(list);
    if (text_of(state, kvr_line_find(line, "upstream_header_time"), &list) && list.length)
        record.ttft_ms = (waited_s + seconds(last_of(list))) * 1e3;
    if (text_of(state, kvr_line_find(line, "upstream_addr"), &list)) {
        struct kvr_text address = last_of(list);
        if (address.length < sizeof state->address &&
            !(address.length == 1 && *address.text == '-')) {
            memcpy(state->address, address.text, address.length);
            record.worker = (struct kvr_text){state->address, address.length};
        }
    }
    record.model = kvr_line_get(line, KVR_NAME_MODEL);
    record.session = kvr_line_get(line, KVR_NAME_SESSION);
    if (record.session.type == KVR_ABSENT)
        record.session = kvr_line_get(line, KVR_NAME_USER);
    if (kvr_value_is(record.session, "") || kvr_value_is(record.session, "-"))
        record.session.type = KVR_ABSENT;
    record.input_length = kvr_format_integer(kvr_line_get(line, KVR_NAME_INPUT_LENGTH));
    record.output_length = kvr_format_integer(kvr_line_get(line, KVR_NAME_OUTPUT_LENGTH));
    record.cached_tokens = kvr_format_integer(kvr_line_find(line, "cached_tokens"));
    kvr_format_write(&record, out);
    return KVR_OK;
}

static void release(void *state_pointer)
{
    struct state *state = state_pointer;

    kvr_buffer_release(&state->text);
}

const struct kvr_format kvr_format_nginx = {
    .name = "nginx",
    .summary = "nginx access logs of log_format … escape=json with the variables' own names",
    .state_bytes = sizeof(struct state),
    .json = true,
    .convert = convert,
    .release = release,
};
