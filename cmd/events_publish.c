/*
 * kvr-events --publish: event lines, or recorded messages, to the subscribers of a stream like a
 * worker's own.
 */
#include "base/clock.h"
#include "cmd/events.h"
#include "net/kv_event_file.h"
#include "net/kv_event_publish.h"
#include "net/kv_event_spec.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

enum { OUTLETS = 64, RANKS = 1024, PAUSE_MS = 5, BATCH_BYTES = 1 << 20 };

/* One stream. */
struct outlet {
    struct kvr_kv_spec spec;
    struct kvr_kv_publisher *publisher;
    struct kvr_kv_packer *packer;
    uint64_t rank; /* of the batch under way */
    uint64_t *sequences;
    uint64_t messages;
};

struct publishing {
    struct tool *tool;
    const struct events_settings *settings;
    void *context;
    struct outlet outlets[OUTLETS];
    size_t count;
    struct kvr_buffer worker, first;
    uint64_t left_out;
    bool warned;
};

static void pause_ms(long time_ms)
{
    struct timespec time = {time_ms / 1000, time_ms % 1000 * 1000000};

    nanosleep(&time, NULL); /* a signal ends it early */
}

static bool send_message(struct publishing *p, struct outlet *outlet, struct kvr_text topic,
    uint64_t sequence, struct kvr_frame payload, bool only_keep)
{
    while (!kvr_kv_publisher_send(outlet->publisher, topic, sequence, payload, only_keep))
        if (tool_interrupted())
            return false;
    outlet->messages += !only_keep;
    (void)p;
    return true;
}

/* Sends what was packed. */
static void end_batch(struct publishing *p, struct outlet *outlet)
{
    const char *topic = outlet->spec.topic ? outlet->spec.topic : "kv-events";
    struct kvr_error error = {0};
    struct kvr_frame payload;

    size_t bytes;

    if (!kvr_kv_packed(outlet->packer, &bytes))
        return;
    if (kvr_kv_pack_end(
            outlet->packer, kvr_clock_wall_ms() / 1e3, outlet->rank, &payload, &error) != KVR_OK) {
        tool_fail(p->tool, &error);
        return;
    }
    send_message(p, outlet, (struct kvr_text){topic, strlen(topic)},
        outlet->sequences[outlet->rank]++, payload, false);
}

static void end_batches(struct tool *tool)
{
    struct publishing *p = tool->context;

    for (size_t i = 0; i < p->count; i++)
        end_batch(p, &p->outlets[i]);
}

/* "w0/3" is rank 3 of w0. */
static uint64_t split_rank(struct kvr_text *worker)
{
    uint64_t rank = 0;
    size_t at = worker->length;

    while (at && worker->text[at - 1] >= '0' && worker->text[at - 1] <= '9')
        at--;
    if (at == worker->length || worker->length - at > 4 || at < 2 || worker->text[at - 1] != '/')
        return 0;
    for (size_t i = at; i < worker->length; i++)
        rank = rank * 10 + (uint64_t)(worker->text[i] - '0');
    if (rank >= RANKS)
        return 0;
    worker->length = at - 1;
    return rank;
}

/* A stream without a name takes every worker's lines, which is right for one worker only. */
static void watch_workers(struct publishing *p, struct kvr_text worker)
{
    if (!p->first.length)
        kvr_buffer_append(&p->first, worker.text, worker.length);
    else if (!p->warned && (p->first.length != worker.length ||
                               memcmp(p->first.data, worker.text, worker.length) != 0)) {
        tool_warn(p->tool, "lines of several workers become one stream; NAME=tcp://… takes those "
                           "of one");
        p->warned = true;
    }
}

static enum kvr_status publish_line(struct publishing *p, struct kvr_error *error)
{
    struct tool *tool = p->tool;
    struct kvr_text worker = {"", 0};
    struct kvr_value value = kvr_line_get(&tool->line, KVR_NAME_WORKER);
    enum kvr_status status = KVR_OK;
    bool taken = false, some = false;

    if (!kvr_line_is_event(&tool->line))
        return KVR_OK;
    if (value.type > KVR_NULL && !kvr_value_text(value, &p->worker, &worker))
        return kvr_error_set(error, KVR_BAD_INPUT, "member 'worker' is not a name");
    uint64_t rank = split_rank(&worker);
    for (size_t i = 0; i < p->count && status == KVR_OK; i++) {
        struct outlet *outlet = &p->outlets[i];
        const char *name = outlet->spec.name;
        if (name &&
            (strlen(name) != worker.length || memcmp(name, worker.text, worker.length) != 0))
            continue;
        if (outlet->rank != rank)
            end_batch(p, outlet);
        outlet->rank = rank;
        size_t next = 0, bytes;
        do {
            status = kvr_kv_pack_line(
                outlet->packer, &tool->line, p->settings->block_size, &next, &taken, error);
            if (kvr_kv_packed(outlet->packer, &bytes) >= p->settings->batch || bytes >= BATCH_BYTES)
                end_batch(p, outlet);
        } while (status == KVR_OK && next);
        if (taken && !name)
            watch_workers(p, worker);
        some = true;
    }
    p->left_out += !some;
    return status;
}

static void publish_lines(struct publishing *p)
{
    struct tool *tool = p->tool;
    struct kvr_error error = {0};
    enum tool_result result;

    tool->before_wait = end_batches;
    tool->context = p;
    while ((result = tool_next(tool)) != TOOL_END) {
        enum kvr_status status = result == TOOL_LINE ? publish_line(p, &error) : KVR_OK;
        if (status == KVR_BAD_INPUT) {
            tool_bad_line(tool, &error);
        } else if (status != KVR_OK) {
            tool_fail(tool, &error);
            break;
        }
    }
    end_batches(tool);
    if (p->left_out)
        tool_warn(tool, "%" PRIu64 " lines of other workers were left out", p->left_out);
}

/* ---- recorded messages ---- */

static enum kvr_status publish_file(struct publishing *p, struct outlet *outlet, const char *path,
    bool only_keep, struct kvr_error *error)
{
    struct kvr_kv_reader *reader;
    struct kvr_kv_record record;
    struct kvr_kv_message message;
    enum kvr_status status = kvr_kv_reader_open(&reader, path, p->settings->max_message, error);

    if (status != KVR_OK)
        return status;
    while (!tool_interrupted() && (status = kvr_kv_reader_next(reader, &record, error)) == KVR_OK) {
        if (kvr_kv_message_read(record.frames, record.frame_count, &message, error) != KVR_OK) {
            tool_bad_foreign_line(p->tool, error);
            continue;
        }
        if (message.end || (record.replayed && !only_keep))
            continue;
        if (!send_message(p, outlet, message.topic, message.sequence, message.payload, only_keep))
            break;
    }
    kvr_kv_reader_close(reader);
    return status == KVR_END ? KVR_OK : status;
}

static void publish_files(struct publishing *p)
{
    const struct kvr_text_list *files = &p->settings->replay;
    struct kvr_error error = {0};
    enum kvr_status status = KVR_OK;

    for (size_t i = 0; i < files->count && status == KVR_OK; i++) {
        struct kvr_kv_spec spec;
        status = kvr_kv_spec_read(files->items[i], false, &spec, &error);
        /* To the stream of that name, else to the one at the same place in the list. */
        struct outlet *outlet = &p->outlets[i < p->count ? i : p->count - 1];
        for (size_t j = 0; j < p->count && status == KVR_OK; j++)
            if (spec.name && p->outlets[j].spec.name &&
                strcmp(spec.name, p->outlets[j].spec.name) == 0)
                outlet = &p->outlets[j];
        if (status == KVR_OK && spec.replay)
            status = publish_file(p, outlet, spec.replay, true, &error);
        if (status == KVR_OK)
            status = publish_file(p, outlet, spec.place, false, &error);
        kvr_kv_spec_release(&spec);
    }
    if (status == KVR_BAD_INPUT)
        tool_bad_foreign_line(p->tool, &error);
    else if (status != KVR_OK)
        tool_fail(p->tool, &error);
}

/* ---- beginning and end ---- */

static enum kvr_status open_outlets(struct publishing *p, struct kvr_error *error)
{
    const struct events_settings *settings = p->settings;
    const struct kvr_text_list *list = &settings->publish;

    if (list->count > OUTLETS || !settings->batch || !settings->block_size ||
        settings->keep > UINT32_MAX)
        return kvr_error_set(error, KVR_BAD_USAGE, "%s",
            list->count > OUTLETS   ? "too many streams to publish"
            : !settings->batch      ? "--batch is 0"
            : !settings->block_size ? "--block-size is 0"
                                    : "--keep is out of range");
    for (size_t i = 0; i < list->count; i++) {
        struct outlet *outlet = &p->outlets[p->count++];
        enum kvr_status status = kvr_kv_spec_read(list->items[i], true, &outlet->spec, error);
        if (status != KVR_OK)
            return status;
        const struct kvr_kv_publisher_options options = {outlet->spec.place, outlet->spec.replay,
            settings->keep, settings->max_memory / list->count};
        outlet->sequences = calloc(RANKS, sizeof *outlet->sequences);
        if (!outlet->sequences)
            return kvr_error_memory(error);
        status =
            kvr_kv_packer_create(&outlet->packer, strcmp(settings->layout, "array") == 0, error);
        if (status == KVR_OK)
            status = kvr_kv_publisher_open(&outlet->publisher, p->context, &options, error);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

static void wait_for_subscribers(struct publishing *p)
{
    for (size_t i = 0; i < p->count; i++)
        while (kvr_kv_publisher_subscribers(p->outlets[i].publisher) < p->settings->wait &&
               !tool_interrupted())
            pause_ms(PAUSE_MS);
}

static void linger(const struct publishing *p)
{
    double until_ms = kvr_clock_ms() + p->settings->linger_ms;

    while (!tool_interrupted() && kvr_clock_ms() < until_ms)
        pause_ms(PAUSE_MS);
}

static void close_outlets(struct publishing *p)
{
    for (size_t i = 0; i < p->count; i++) {
        struct outlet *outlet = &p->outlets[i];
        if (outlet->publisher)
            tool_warn(p->tool, "%s: %" PRIu64 " messages sent, %" PRIu64 " replays",
                outlet->spec.place, outlet->messages, kvr_kv_publisher_replays(outlet->publisher));
        kvr_kv_publisher_close(outlet->publisher);
        kvr_kv_packer_destroy(outlet->packer);
        kvr_kv_spec_release(&outlet->spec);
        free(outlet->sequences);
    }
    zmq_ctx_term(p->context);
    kvr_buffer_release(&p->worker);
    kvr_buffer_release(&p->first);
}

int publish_events(struct tool *tool, const struct events_settings *settings)
{
    static struct publishing publishing;
    struct publishing *p = &publishing;
    struct kvr_error error = {0};

    p->tool = tool;
    p->settings = settings;
    p->context = zmq_ctx_new();
    if (!p->context || open_outlets(p, &error) != KVR_OK) {
        if (!p->context)
            kvr_error_memory(&error);
        tool_fail(tool, &error);
    } else {
        int begun = settings->replay.count ? -1 : tool_open_input(tool);
        if (begun >= 0) {
            close_outlets(p);
            return begun;
        }
        wait_for_subscribers(p);
        if (settings->replay.count)
            publish_files(p);
        else
            publish_lines(p);
        linger(p);
    }
    close_outlets(p);
    return tool_end(tool);
}
