/* kvr-send's lines: requests become calls of the open loop, answers become members. */
#include "base/clock.h"
#include "base/grow.h"
#include "cmd/send.h"
#include "line/worker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *find_url(const struct send *send, const struct kvr_buffer *worker)
{
    const char *url = kvr_endpoints_find(&send->endpoints, worker->data, worker->length);

    return url ? url : send->settings.url;
}

/* ---- what is written ---- */

static void write_intervals(const struct send_item *item, struct kvr_buffer *out)
{
    const double *gaps = (const double *)(const void *)item->due.call.answer.intervals.data;
    size_t count = item->due.call.answer.intervals.length / sizeof *gaps;

    kvr_buffer_append_text(out, ",\"itl_ms\":[");
    for (size_t i = 0; i < count; i++) {
        if (i)
            kvr_buffer_append_byte(out, ',');
        kvr_json_write_fixed(out, gaps[i], 3);
    }
    kvr_buffer_append_byte(out, ']');
}

static void write_response(
    const struct send *send, const struct send_item *item, struct kvr_buffer *out)
{
    const struct kvr_call *call = &item->due.call;
    const char *worker = item->worker.length ? item->worker.data : NULL;
    double due_ms = isnan(item->due.due_ms) ? call->started_ms : item->due.due_ms;

    kvr_answer_write(&call->answer, call->status, due_ms, call->ended_ms, worker, out);
    kvr_buffer_append_text(out, ",\"late_ms\":");
    kvr_json_write_fixed(out, call->started_ms - due_ms, 3);
    if (item->due.tries > 1) {
        kvr_buffer_append_text(out, ",\"attempts\":");
        kvr_buffer_append_u64(out, item->due.tries);
    }
    if (call->failure != KVR_CALL_ANSWERED || call->answer.failed) {
        kvr_buffer_append_text(out, ",\"error\":\"");
        kvr_buffer_append_text(out, call->failure == KVR_CALL_ANSWERED
                                        ? "error in stream"
                                        : kvr_call_failure_name(call->failure));
        kvr_buffer_append_byte(out, '"');
    }
    if (send->settings.intervals)
        write_intervals(item, out);
    kvr_buffer_append_byte(out, '}');
}

static void write_item(struct send *send, struct send_item *item)
{
    struct kvr_writer *writer = &send->tool.out;
    struct kvr_buffer *out = &writer->buffer;

    kvr_buffer_append(out, item->line.data, item->line.length);
    kvr_line_add(out, "response");
    write_response(send, item, out);
    kvr_line_end(out);
    kvr_writer_line_done(writer);
    if (!send->settings.events)
        return;
    kvr_buffer_append_text(out, "{\"event\":\"done\",\"id\":");
    kvr_buffer_append(out, item->id.data, item->id.length);
    if (item->worker.length) {
        kvr_buffer_append_text(out, ",\"worker\":");
        kvr_json_write_string(out, item->worker.data, item->worker.length);
    }
    kvr_line_add(out, "response");
    write_response(send, item, out);
    kvr_buffer_append_byte(out, '}');
    kvr_writer_line_done(writer);
}

/* ---- items ---- */

static void keep_item(struct send *send, struct send_item *item)
{
    item->next = send->spare;
    send->spare = item;
}

static struct send_item *new_item(struct send *send)
{
    struct send_item *item = send->spare;

    if (item) {
        send->spare = item->next;
        kvr_buffer_clear(&item->line);
        kvr_buffer_clear(&item->id);
        kvr_buffer_clear(&item->worker);
        kvr_buffer_clear(&item->url);
        kvr_buffer_clear(&item->body);
        return item;
    }
    item = calloc(1, sizeof *item);
    if (item)
        item->send = send;
    return item;
}

static void free_item(struct send_item *item)
{
    kvr_call_release(&item->due.call);
    kvr_buffer_release(&item->line);
    kvr_buffer_release(&item->id);
    kvr_buffer_release(&item->worker);
    kvr_buffer_release(&item->url);
    kvr_buffer_release(&item->body);
    free(item);
}

void send_items_release(struct send *send)
{
    struct kvr_due_call *due;

    while ((due = kvr_open_loop_take(&send->loop)))
        free_item((struct send_item *)due);
    while (send->spare) {
        struct send_item *item = send->spare;
        send->spare = item->next;
        free_item(item);
    }
}

void send_ended(struct kvr_due_call *due)
{
    struct send_item *item = (struct send_item *)due;
    struct send *send = item->send;

    send->failed += due->call.status != 200 || due->call.failure != KVR_CALL_ANSWERED;
    write_item(send, item);
    keep_item(send, item);
}

void send_dropped(struct kvr_due_call *due, const struct kvr_error *error)
{
    struct send_item *item = (struct send_item *)due;

    tool_fail(&item->send->tool, error);
    keep_item(item->send, item);
}

/* ---- lines ---- */

static enum kvr_status schedule(
    struct send *send, const struct kvr_line *line, double *due_ms, struct kvr_error *error)
{
    struct kvr_value value = kvr_line_get(line, KVR_NAME_TIMESTAMP);
    double timestamp_ms = NAN;

    if (value.type > KVR_NULL &&
        (!kvr_value_double(value, &timestamp_ms) || !isfinite(timestamp_ms)))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'timestamp' is not a number");
    *due_ms = kvr_pace_next(&send->pace, timestamp_ms, kvr_clock_ms());
    return KVR_OK;
}

static enum kvr_status make_prompt(
    struct send *send, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_value blocks = kvr_line_get(line, KVR_NAME_HASH_IDS);
    struct kvr_value size = kvr_line_get(line, KVR_NAME_BLOCK_SIZE);
    uint64_t block_tokens = send->settings.block_size, tokens;
    ptrdiff_t count = 0;

    if (size.type > KVR_NULL &&
        (!kvr_value_u64(size, &block_tokens) || !block_tokens || block_tokens > 1 << 24))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'block_size' is no size of a block");
    if (!kvr_value_u64(kvr_line_get(line, KVR_NAME_INPUT_LENGTH), &tokens) || tokens > 1 << 24)
        return kvr_error_set(error, KVR_BAD_INPUT, "--synthesize needs an input_length below 2^24");
    if (blocks.type == KVR_ARRAY) {
        uint64_t *grown =
            kvr_grow(send->ids, &send->id_capacity, kvr_value_u64s_room(blocks), sizeof *grown);
        if (!grown)
            return kvr_error_memory(error);
        send->ids = grown;
        count = kvr_value_u64s(blocks, grown);
    }
    if (count < 0)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "member 'hash_ids' is not an array of whole numbers");
    kvr_buffer_clear(&send->prompt);
    return kvr_synthesize(send->synthesizer, send->ids, (size_t)count, block_tokens, tokens,
        send->tool.lines, &send->prompt, error);
}

/* A line that the router rejected, or had no worker for, is not sent and says so. */
static enum kvr_status not_sent(struct send *send, struct kvr_value route)
{
    static const enum kvr_name dropped[] = {KVR_NAME_RESPONSE};
    struct kvr_buffer *out = &send->tool.out.buffer;
    bool rejected = kvr_value_is(kvr_value_get(route, "reason"), "rejected");

    kvr_line_begin(&send->tool.line, out, dropped, 1);
    kvr_line_add(out, "response");
    kvr_buffer_append_text(out, rejected ? "{\"status\":429}" : "{\"status\":503}");
    kvr_line_end(out);
    kvr_writer_line_done(&send->tool.out);
    return KVR_OK;
}

static enum kvr_status fill_item(
    struct send *send, struct send_item *item, struct kvr_value worker, struct kvr_error *error)
{
    static const enum kvr_name dropped[] = {KVR_NAME_RESPONSE, KVR_NAME_ID};
    const struct kvr_line *line = &send->tool.line;
    struct kvr_value id = kvr_line_get(line, KVR_NAME_ID);
    struct kvr_text prompt = {0};
    const char *path;
    bool named = id.type > KVR_NULL;

    if (worker.type > KVR_NULL && !kvr_value_string(worker, &item->worker))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'route.worker' is not a name");
    const char *url = find_url(send, &item->worker);
    if (!url)
        return kvr_error_set(error, KVR_BAD_INPUT,
            item->worker.length ? "the worker has no url (-w, worker lines or --url tell it)"
                                : "the line has no route.worker and there is no --url");
    if (item->worker.length)
        kvr_buffer_text(&item->worker);
    if (named) {
        kvr_buffer_append(&item->id, id.text, id.length);
    } else {
        kvr_buffer_clear(&send->scratch);
        kvr_buffer_append_format(
            &send->scratch, "%s:%llu", line->source.file, (unsigned long long)line->source.number);
        kvr_json_write_string(&item->id, send->scratch.data, send->scratch.length);
    }
    enum kvr_status status = KVR_OK;
    if (send->synthesizer) {
        status = make_prompt(send, line, error);
        prompt = (struct kvr_text){send->prompt.data, send->prompt.length};
    }
    if (status == KVR_OK)
        status = kvr_ask_write(&send->ask, line, prompt, &item->body, &path, error);
    if (status == KVR_OK)
        status = schedule(send, line, &item->due.due_ms, error);
    if (status != KVR_OK)
        return status;
    kvr_ask_url(url, strlen(url), path, &item->url);
    kvr_line_begin(line, &item->line, dropped, named ? 1 : 2);
    if (!named) {
        kvr_line_add(&item->line, "id");
        kvr_buffer_append(&item->line, item->id.data, item->id.length);
    }
    if (item->line.failed || item->id.failed || !kvr_buffer_text(&item->url))
        return kvr_error_memory(error);
    item->due.call.url = item->url.data;
    item->due.call.body = item->body.data;
    item->due.call.body_length = item->body.length;
    item->due.call.answer.keep_intervals = send->settings.intervals;
    item->due.held_bytes = item->line.length + item->body.length;
    return KVR_OK;
}

enum kvr_status send_request(struct send *send, struct kvr_error *error)
{
    struct kvr_value route = kvr_line_get(&send->tool.line, KVR_NAME_ROUTE);
    struct kvr_value worker = kvr_value_get(route, "worker");

    if (worker.type == KVR_NULL)
        return not_sent(send, route);
    struct send_item *item = new_item(send);
    if (!item)
        return kvr_error_memory(error);
    enum kvr_status status = fill_item(send, item, worker, error);
    if (status != KVR_OK) {
        keep_item(send, item);
        return status;
    }
    kvr_open_loop_add(&send->loop, &item->due);
    return KVR_OK;
}

enum kvr_status send_event(struct send *send, struct kvr_error *error)
{
    struct kvr_worker_description worker;
    enum kvr_status status = KVR_OK;

    if (kvr_value_is(kvr_line_get(&send->tool.line, KVR_NAME_EVENT), "worker")) {
        status = kvr_worker_read(&send->tool.line, &send->scratch, &worker, error);
        if (status == KVR_OK)
            status = kvr_endpoints_set(&send->endpoints, &worker, error);
    }
    if (status == KVR_OK)
        kvr_line_pass(&send->tool.line, &send->tool.out);
    return status;
}
