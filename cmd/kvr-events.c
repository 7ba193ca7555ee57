/*
 * kvr-events: what the workers really hold, from their KV-event streams. Here are the options, the
 * sources (sockets and files) and the loops over them; what a message means is libkvr/net's.
 */
#include "base/clock.h"
#include "base/grow.h"
#include "cmd/events.h"
#include "net/kv_event_file.h"
#include "net/kv_event_lines.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(member) offsetof(struct events_settings, member)

static const struct kvr_option reading[] = {
    {0, "native", KVR_OPTION_FLAG, AT(native), NULL,
        "keeps the engine's hashes as ids, for prompts hashed by kvr-tokenize --chain", NULL, NULL},
    {0, "ids", KVR_OPTION_FLAG, AT(ids), NULL, "adds token_ids to stored lines", NULL, NULL},
    {0, "raw", KVR_OPTION_FLAG, AT(raw), NULL,
        "prints each message as its engine sent it, as JSON, instead of event lines", NULL, NULL},
    {0, "model", KVR_OPTION_TEXT, AT(model), "NAME",
        "the model of all workers that have no model= of their own, where request lines name one",
        NULL, NULL},
    {0, "record", KVR_OPTION_TEXT, AT(record), "FILE", "keeps every message as it came", NULL,
        "<file>"},
    {0, "replay", KVR_OPTION_LIST, AT(replay), "FILE",
        "reads messages from a record, or from a list of frames ([NAME=]FILE[,replay=FILE]), "
        "instead of sockets; may be given several times",
        NULL, "<file>"},
    {0, "idle", KVR_OPTION_TIME_MS, AT(idle_ms), "TIME",
        "ends when no message has come for so long; 0: never", "0", NULL},
    {0, "replay-timeout", KVR_OPTION_TIME_MS, AT(replay_timeout_ms), "TIME",
        "how long an answer to a replay request may take", "1s", NULL},
    {0, "reorder", KVR_OPTION_TIME_MS, AT(reorder_ms), "TIME",
        "how long a gap stays open where there is no replay socket", "50ms", NULL},
    {0, "max-memory", KVR_OPTION_SIZE, AT(max_memory), "SIZE",
        "bounds what is known of all workers and what waits for missing messages", "1GiB", NULL},
    {0, "max-message", KVR_OPTION_SIZE, AT(max_message), "SIZE",
        "a larger message is refused and its sender disconnected", "16MiB", NULL},
    {0},
};

static const struct kvr_option publishing[] = {
    {0, "publish", KVR_OPTION_LIST, AT(publish), "PLACE",
        "the reverse: event lines (files, or standard input) become a stream like vLLM's on "
        "[NAME=]tcp://…[,replay=tcp://…][,topic=…]; with --replay, recorded messages as they are",
        NULL, NULL},
    {0, "layout", KVR_OPTION_TEXT, AT(layout), "LAYOUT",
        "events as maps (vLLM from 0.24) or as arrays", "map", "map|array"},
    TOOL_OPTION_BLOCK_SIZE(struct events_settings, "16"),
    {0, "batch", KVR_OPTION_COUNT, AT(batch), "N",
        "events in one message at most; fewer when the input pauses", "64", NULL},
    {0, "keep", KVR_OPTION_COUNT, AT(keep), "N", "messages kept for replays", "10000", NULL},
    {0, "wait", KVR_OPTION_COUNT, AT(wait), "N", "waits for so many subscribers first", "0", NULL},
    {0, "linger", KVR_OPTION_TIME_MS, AT(linger_ms), "TIME",
        "answers replay requests for so long after the end", "0", NULL},
    {0},
};

static const struct kvr_program program = {
    .name = "kvr-events",
    .summary = "turn the KV-event streams of workers into event lines",
    .operands = "[NAME=]tcp://HOST:PORT[,replay=tcp://HOST:PORT][,topic=…][,model=…]...",
    .description =
        "Subscribes to the KV events of vLLM, SGLang and Mooncake's store and prints stored, "
        "removed and cleared lines for kvr-match. Engine hashes become kvr's chained ids. Lost "
        "messages are asked for again; a worker whose state cannot be known is cleared.",
    .examples = "kvr-events w0=tcp://10.0.0.1:5557,replay=tcp://10.0.0.1:5558 | kvr-match -m - "
                "requests.jsonl\n"
                "kvr-events --record frames w0=tcp://10.0.0.1:5557 >events\n"
                "kvr-events --replay frames | kvr-match - requests.jsonl\n"
                "kvr-evict --events trace.jsonl | kvr-events --publish tcp://127.0.0.1:5557\n",
};

/* ---- sources ---- */

/* unnamed: by whoever started us; publishers that say who they are, are then workers of their own.
 */
enum kvr_status events_add_source(struct events *events, const struct kvr_kv_spec *spec,
    const struct source_name *name, bool can_replay, struct source **made, struct kvr_error *error)
{
    struct source **grown =
        kvr_grow(events->sources, &events->source_room, events->source_count + 1, sizeof *grown);
    struct source *source = grown ? calloc(1, sizeof *source) : NULL;

    if (grown)
        events->sources = grown;
    if (!source)
        return kvr_error_memory(error);
    grown[events->source_count++] = source;
    if (spec)
        source->spec = *spec;
    source->own_name = strdup(name->name);
    if (name->share && asprintf(&source->key, "%s\n%u", name->name, name->share) < 0)
        source->key = NULL;
    else if (!name->share)
        source->key = strdup(name->name);
    if (!source->own_name || !source->key)
        return kvr_error_memory(error);
    struct kvr_kv_stream_options options = {
        .name = source->own_name,
        .model = spec && spec->model ? spec->model : events->settings.model,
        .native = events->settings.native,
        .told = name->share ? &events->told : NULL,
        .by_topic = name->unnamed,
        .tokens = events->settings.ids,
        .can_replay = can_replay,
        .replay_timeout_ms = events->settings.replay_timeout_ms,
        .reorder_ms = events->settings.reorder_ms,
        .memory = &events->memory,
        .sink = &events->sink,
    };
    source->unnamed = name->unnamed;
    *made = source;
    return kvr_kv_stream_create(&source->stream, &options, error);
}

static void end_sources(struct events *events)
{
    for (size_t i = 0; i < events->source_count; i++) {
        struct source *source = events->sources[i];
        kvr_kv_socket_close(source->socket);
        kvr_kv_stream_destroy(source->stream);
        kvr_kv_spec_release(&source->spec);
        free(source->own_name);
        free(source->key);
        free(source->recorded);
        free(source);
    }
    free(events->sources);
    kvr_kv_told_release(&events->told);
}

/* What is wrong with a message is said a few times for each source, and counted always. */
static void complain(
    struct events *events, struct source *source, enum kvr_status status, struct kvr_error *error)
{
    int exit_status = kvr_status_exit(status);

    if (exit_status > events->tool.status)
        events->tool.status = exit_status;
    if (source->complaints < EVENTS_COMPLAINTS)
        tool_warn(&events->tool, "%s: %s", source->own_name, error->text);
    if (++source->complaints == EVENTS_COMPLAINTS)
        tool_warn(&events->tool, "%s: no more messages like these", source->own_name);
}

/* ---- statistics ---- */

static void append_counts(struct kvr_buffer *text, const char *name, uint64_t count)
{
    if (count)
        kvr_buffer_append_format(text, "%s%" PRIu64 " %s", text->length ? ", " : "", count, name);
}

void events_show_statistics(struct events *events)
{
    struct kvr_buffer text = {0};

    for (size_t i = 0; i < events->source_count; i++) {
        const struct source *source = events->sources[i];
        const struct kvr_kv_stream_counts *stream = kvr_kv_stream_counts(source->stream);
        struct kvr_kv_counts counts;
        uint64_t blocks;

        kvr_kv_stream_event_counts(source->stream, &counts, &blocks);
        kvr_buffer_clear(&text);
#define SHOW_STREAM(member, name) append_counts(&text, name, stream->member);
        KVR_KV_STREAM_COUNTS(SHOW_STREAM)
#undef SHOW_STREAM
#define SHOW_EVENTS(member, name) append_counts(&text, name, counts.member);
        KVR_KV_COUNTS(SHOW_EVENTS)
#undef SHOW_EVENTS
        append_counts(&text, "blocks held", blocks);
        if (kvr_buffer_text(&text))
            tool_warn(
                &events->tool, "%s: %s", source->own_name, text.length ? text.data : "no messages");
    }
    kvr_buffer_release(&text);
}

/* ---- messages ---- */

static void append_member(struct kvr_buffer *out, const char *name, struct kvr_text text)
{
    kvr_line_add(out, name);
    kvr_json_write_string(out, text.text ? text.text : "", text.length);
}

/* --raw: the message as it is. */
static enum kvr_status print_message(struct events *events, const struct source *source,
    const struct kvr_frame *frames, size_t count, bool replayed, struct kvr_error *error)
{
    struct kvr_buffer *out = &events->tool.out.buffer;
    struct kvr_kv_message message;
    struct kvr_kv_batch batch;
    struct kvr_kv_event event;
    enum kvr_status status = kvr_kv_message_read(frames, count, &message, error), worst = KVR_OK;
    const char *name = source->own_name;

    if (status != KVR_OK || message.end)
        return status;
    status = kvr_kv_batch_read(message.payload, &events->memory.decoder, &batch, error);
    if (status != KVR_OK)
        return status;
    kvr_buffer_append_text(out, "{\"worker\":");
    kvr_json_write_string(out, name, strlen(name));
    append_member(out, "topic", message.topic);
    kvr_line_add(out, "seq");
    kvr_buffer_append_u64(out, message.sequence);
    if (replayed)
        kvr_buffer_append_text(out, ",\"replayed\":true");
    kvr_line_add(out, "ts");
    kvr_json_write_double(out, batch.time_s);
    if (batch.has_rank) {
        kvr_line_add(out, "rank");
        kvr_buffer_append_u64(out, batch.rank);
    }
    kvr_line_add(out, "events");
    char separator = '[';
    struct kvr_error own = {0};
    while ((status = kvr_kv_event_next(&batch, &events->memory.decoder, &event, &own)) != KVR_END) {
        size_t before = out->length;
        kvr_buffer_append_byte(out, separator);
        if (status == KVR_OK && kvr_kv_event_json(&event, out)) {
            separator = ',';
            continue;
        }
        out->length = before;
        if (worst == KVR_OK)
            *error = own;
        worst = KVR_BAD_INPUT;
    }
    kvr_buffer_append_text(out, separator == '[' ? "[]}" : "]}");
    kvr_writer_line_done(&events->tool.out);
    return worst;
}

void events_take(struct events *events, struct source *source, const struct kvr_frame *frames,
    size_t count, bool replayed, double now_ms)
{
    struct kvr_error error = {0};
    enum kvr_status status;

    events->messages++;
    if (events->settings.raw)
        status = print_message(events, source, frames, count, replayed, &error);
    else
        status = kvr_kv_stream_take(source->stream, frames, count, replayed, now_ms, &error);
    if (status != KVR_OK)
        complain(events, source, status, &error);
}

bool events_over(const struct events *events)
{
    return tool_interrupted() || events->tool.out.closed || events->tool.out.error.status != KVR_OK;
}

/* ---- from files ---- */

/* Answers a replay request from a file, as a publisher would. */
static enum kvr_status answer_from(struct events *events, struct source *source, uint64_t from,
    double now_ms, struct kvr_error *error)
{
    static const struct kvr_frame end[] = {
        {NULL, 0}, {(const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff", 8}, {NULL, 0}};
    struct kvr_kv_reader *reader;
    struct kvr_kv_record record;
    struct kvr_kv_message message;
    enum kvr_status status =
        kvr_kv_reader_open(&reader, source->spec.replay, events->settings.max_message, error);

    if (status != KVR_OK)
        return status;
    while (!events_over(events) && (status = kvr_kv_reader_next(reader, &record, error)) == KVR_OK)
        if (kvr_kv_message_read(record.frames, record.frame_count, &message, NULL) == KVR_OK &&
            !message.end && message.sequence >= from)
            events_take(events, source, record.frames, record.frame_count, true, now_ms);
    events_take(events, source, end, 3, true, now_ms);
    kvr_kv_reader_close(reader);
    return status == KVR_END ? KVR_OK : status;
}

/* The source of a record's message; a bare list has the one that it was given. */
static struct source *source_of(struct events *events, struct source *given,
    const struct kvr_kv_record *record, struct kvr_error *error)
{
    struct source *source = NULL;

    if (given && !*record->source)
        return given;
    if (given && given->spec.name) {
        if (!given->recorded)
            given->recorded = strdup(record->source);
        if (given->recorded && strcmp(given->recorded, record->source) == 0)
            return given;
        kvr_error_set(error, KVR_BAD_USAGE,
            "%s: several sources were recorded, and cannot all be '%s'", given->spec.place,
            given->spec.name);
        return NULL;
    }
    for (size_t i = 0; i < events->source_count; i++)
        if (strcmp(events->sources[i]->key, record->source) == 0)
            return events->sources[i];
    char text[KVR_KV_NAME_LIMIT + 1];
    snprintf(text, sizeof text, "%s", record->source);
    char *share = strchr(text, '\n'); /* as events_add_source() made it */
    if (share)
        *share++ = 0;
    const struct source_name name = {
        text, record->unnamed, share ? (unsigned)strtoul(share, NULL, 10) : 0};
    return events_add_source(events, NULL, &name, true, &source, error) == KVR_OK ? source : NULL;
}

/* Gives up what sources waited for too long, as it was when this was recorded. Returns when to look
 * again. */
static double let_time_pass(struct events *events, double now_ms)
{
    double wake_ms = INFINITY;

    for (size_t i = 0; i < events->source_count; i++)
        wake_ms = fmin(wake_ms, kvr_kv_stream_tick(events->sources[i]->stream, now_ms));
    return wake_ms;
}

static enum kvr_status replay_file(
    struct events *events, const struct kvr_kv_spec *spec, struct kvr_error *error)
{
    double wake_ms = INFINITY;
    struct kvr_kv_reader *reader;
    struct kvr_kv_record record;
    struct source *given = NULL, *source;
    uint64_t from;
    enum kvr_status status =
        kvr_kv_reader_open(&reader, spec->place, events->settings.max_message, error);

    if (status != KVR_OK)
        return status;
    while (
        !events_over(events) && (status = kvr_kv_reader_next(reader, &record, error)) == KVR_OK) {
        if (!given && (!*record.source || spec->name)) {
            char own[32];
            snprintf(own, sizeof own, "w%zu", events->source_count);
            const struct source_name name = {spec->name ? spec->name : own, !spec->name, 0};
            status = events_add_source(events, spec, &name, spec->replay != NULL, &given, error);
            if (status != KVR_OK)
                break;
        }
        source = source_of(events, given, &record, error);
        if (!source) {
            status = error->status;
            break;
        }
        if (record.time_ms >= wake_ms)
            wake_ms = let_time_pass(events, record.time_ms);
        events_take(
            events, source, record.frames, record.frame_count, record.replayed, record.time_ms);
        wake_ms = fmin(wake_ms, kvr_kv_stream_tick(source->stream, record.time_ms));
        /* What was asked for then is in the record where it came; else there is a file for it. */
        if (kvr_kv_stream_request(source->stream, record.time_ms, &from) && source->spec.replay &&
            (status = answer_from(events, source, from, record.time_ms, error)) != KVR_OK)
            break;
        if (tool_signalled(SIGUSR1))
            events_show_statistics(events);
    }
    kvr_kv_reader_close(reader);
    return status == KVR_END ? KVR_OK : status;
}

static enum kvr_status replay_files(struct events *events, struct kvr_error *error)
{
    const struct kvr_text_list *files = &events->settings.replay;
    enum kvr_status status = KVR_OK;

    for (size_t i = 0; i < files->count && status == KVR_OK; i++) {
        struct kvr_kv_spec spec;
        size_t before = events->source_count;
        status = kvr_kv_spec_read(files->items[i], false, &spec, error);
        if (status != KVR_OK)
            return status;
        status = replay_file(events, &spec, error);
        bool kept = false;
        for (size_t j = before; j < events->source_count; j++)
            kept |= events->sources[j]->spec.memory == spec.memory;
        if (!kept)
            kvr_kv_spec_release(&spec);
    }
    return status;
}

/* ---- the program ---- */

static enum kvr_status check(const struct events *events, struct kvr_error *error)
{
    const struct events_settings *settings = &events->settings;

    if (!settings->replay.count && !events->tool.operand_count)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "nothing to read: name workers' endpoints, or files with --replay");
    if (settings->replay.count && events->tool.operand_count)
        return kvr_error_set(error, KVR_BAD_USAGE, "--replay reads files instead of endpoints");
    if (settings->record && settings->replay.count)
        return kvr_error_set(error, KVR_BAD_USAGE, "--record keeps what comes from endpoints");
    return KVR_OK;
}

static enum kvr_status begin_record(struct events *events, struct kvr_error *error)
{
    const char *path = events->settings.record;

    if (!path)
        return KVR_OK;
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return kvr_error_errno(error, KVR_IO, "cannot write %s", path);
    kvr_writer_init(&events->record, descriptor);
    kvr_kv_record_begin(&events->record.buffer);
    events->record.whole = events->record.buffer.length;
    return KVR_OK;
}

static void end_record(struct events *events)
{
    struct kvr_error error = {0};

    if (events->record.buffer.data && kvr_writer_close(&events->record, &error) != KVR_OK)
        tool_fail(&events->tool, &error);
}

static void read_events(struct events *events)
{
    struct kvr_error error = {0};
    enum kvr_status status = check(events, &error);

    events->reactor.epoll = -1;
    events->memory.limit = events->settings.max_memory;
    events->sink = kvr_kv_line_sink(&events->tool.out);
    if (status == KVR_OK)
        status = begin_record(events, &error);
    if (status == KVR_OK && events->settings.replay.count) {
        status = replay_files(events, &error);
    } else if (status == KVR_OK) {
        status = events_open_sockets(events, &error);
        if (status == KVR_OK)
            events_live(events);
    }
    for (size_t i = 0; i < events->source_count; i++)
        if (events->sources[i]->stream)
            kvr_kv_stream_finish(events->sources[i]->stream);
    if (status == KVR_BAD_INPUT) /* of a record, whose rest is left out */
        tool_bad_foreign_line(&events->tool, &error);
    else if (status != KVR_OK)
        tool_fail(&events->tool, &error);
    else if (!events->settings.raw)
        events_show_statistics(events);
    end_record(events);
    end_sources(events);
    kvr_kv_memory_release(&events->memory);
    kvr_reactor_release(&events->reactor);
}

int main(int argc, char **argv)
{
    static struct events events;
    const struct kvr_option_group groups[] = {
        {"Reading", reading, &events.settings}, {"Publishing", publishing, &events.settings}, {0}};
    int begun = tool_begin_without_input(&events.tool, &program, groups, argc, argv);

    if (begun >= 0)
        return begun;
    tool_catch(SIGUSR1);
    if (events.settings.publish.count)
        return publish_events(&events.tool, &events.settings);
    read_events(&events);
    return tool_end(&events.tool);
}
