/* kvr-events from sockets: connections, replays, the record, and the loop over all sources. */
#include "base/clock.h"
#include "cmd/events.h"
#include "net/kv_event_file.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    MESSAGES_AT_ONCE = 256, /* of one source before the next has its turn */
    LONGEST_WAIT_MS = 1000,
};

/* A record that cannot be written is said at once, and the lines go on; the exit status tells it.
 */
static void flush_record(struct events *events)
{
    if (!events->settings.record || events->record.error.status != KVR_OK)
        return;
    kvr_writer_flush(&events->record);
    if (events->record.error.status != KVR_OK)
        tool_warn(&events->tool, "%s: no more of it: %s", events->settings.record,
            events->record.error.text);
}

static void record_message(struct events *events, const struct source *source,
    const struct kvr_frame *frames, size_t count, bool replayed)
{
    struct kvr_kv_record record = {
        source->key, replayed, source->unnamed, kvr_clock_wall_ms(), {{0}}, count};

    if (!events->settings.record || events->record.error.status != KVR_OK)
        return;
    memcpy(record.frames, frames, count * sizeof *frames);
    kvr_kv_record_append(&events->record.buffer, &record);
    events->record.whole = events->record.buffer.length;
    if (events->record.whole >= 1 << 16)
        flush_record(events);
}

/* What has come for one source. False: nothing. */
static bool drain_source(struct events *events, struct source *source)
{
    struct kvr_frame frames[KVR_MESSAGE_FRAMES];
    size_t count;
    bool replayed, some = false;

    source->busy = true;
    for (int i = 0; i < MESSAGES_AT_ONCE && !events_over(events); i++) {
        source->busy = kvr_kv_socket_receive(source->socket, frames, &count, &replayed);
        if (!source->busy)
            break;
        record_message(events, source, frames, count, replayed);
        events_take(events, source, frames, count, replayed, kvr_clock_ms());
        some = true;
    }
    return some;
}

/* Says that a source came up, went down, or cannot be reached and why: some times aloud. */
static void tell_connection(struct events *events, struct source *source, bool connected)
{
    const char *trouble = kvr_kv_socket_trouble(source->socket);

    if (connected == source->connected && (connected || !trouble || source->in_trouble))
        return;
    source->connected = connected;
    source->in_trouble = !connected;
    if (source->outages < EVENTS_COMPLAINTS && (!connected || source->outages)) {
        source->outages += !connected;
        if (connected)
            tool_warn(&events->tool, "%s: connected", source->own_name);
        else
            tool_warn(&events->tool, "%s: not connected, trying: %s", source->own_name, trouble);
    } else {
        tool_detail(&events->tool, "%s: %s", source->own_name, connected ? "connected" : trouble);
    }
}

/* Connections, replays and patience of one source. Returns when it wants to be seen again. */
static double attend(struct events *events, struct source *source, double now_ms)
{
    bool connected;
    uint64_t from;

    if (kvr_kv_socket_reconnected(source->socket, &connected))
        kvr_kv_stream_reconnected(source->stream);
    tell_connection(events, source, connected);
    double wake_ms = kvr_kv_stream_tick(source->stream, now_ms);
    if (kvr_kv_stream_request(source->stream, now_ms, &from)) {
        bool sent = kvr_kv_socket_request(source->socket, from);
        tool_detail(&events->tool, "%s: %s messages from %" PRIu64 " on", source->own_name,
            sent ? "asked for" : "cannot ask for", from);
        wake_ms = kvr_kv_stream_tick(source->stream, now_ms);
    }
    return wake_ms;
}

/* Descriptors for as many workers as the system lets us have. */
static void raise_limits(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int by_name(const void *a, const void *b)
{
    const struct source_name *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);

    return order ? order : *x < *y ? -1 : 1;
}

/* The names of all operands: those without one are w0, w1 and so on by their place. */
static struct source_name *name_sources(
    const struct kvr_kv_spec *specs, size_t count, char (*own)[32])
{
    struct source_name *names = calloc(count + 1, sizeof *names);

    for (size_t i = 0; names && i < count; i++) {
        snprintf(own[i], sizeof own[i], "w%zu", i);
        names[i] = (struct source_name){specs[i].name ? specs[i].name : own[i], !specs[i].name, 0};
    }
    /* Sorted by name, those that share one are neighbours: thousands of operands are no loop in a
     * loop. */
    struct source_name **sorted = names ? calloc(count + 1, sizeof *sorted) : NULL;
    for (size_t i = 0; sorted && i < count; i++)
        sorted[i] = &names[i];
    if (sorted)
        qsort(sorted, count, sizeof *sorted, by_name);
    for (size_t i = 1; sorted && i < count; i++) {
        if (strcmp(sorted[i]->name, sorted[i - 1]->name) != 0)
            continue;
        if (!sorted[i - 1]->share)
            sorted[i - 1]->share = 1;
        sorted[i]->share = sorted[i - 1]->share + 1;
    }
    if (!sorted) {
        free(names);
        return NULL;
    }
    free(sorted);
    return names;
}

static enum kvr_status open_socket(struct events *events, struct kvr_kv_spec *spec,
    const struct source_name *name, struct kvr_error *error)
{
    const struct kvr_kv_socket_options options = {
        spec->place, spec->replay, spec->topic, events->settings.max_message, &events->budget};
    struct source *source;
    enum kvr_status status =
        events_add_source(events, spec, name, spec->replay != NULL, &source, error);

    if (status == KVR_OK)
        status = kvr_kv_socket_open(&source->socket, &events->reactor, &options, error);
    return status;
}

enum kvr_status events_open_sockets(struct events *events, struct kvr_error *error)
{
    size_t count = events->tool.operand_count, read = 0, opened = 0;
    struct kvr_kv_spec *specs = calloc(count + 1, sizeof *specs);
    char(*own)[32] = calloc(count + 1, sizeof *own);
    struct source_name *names = NULL;
    enum kvr_status status = specs && own ? KVR_OK : kvr_error_memory(error);

    raise_limits();
    events->budget.limit = events->settings.max_memory;
    if (status == KVR_OK)
        status = kvr_reactor_init(&events->reactor, error);
    for (; status == KVR_OK && read < count; read++) {
        status = kvr_kv_spec_read(events->tool.operands[read], true, &specs[read], error);
        if (status != KVR_OK)
            break;
    }
    if (status == KVR_OK) {
        names = name_sources(specs, count, own);
        status = names ? KVR_OK : kvr_error_memory(error);
    }
    for (; status == KVR_OK && opened < count; opened++)
        status = open_socket(events, &specs[opened], &names[opened], error);
    /* What became a source is the source's. */
    for (size_t i = events->source_count; i < read; i++)
        kvr_kv_spec_release(&specs[i]);
    free(names);
    free(own);
    free(specs);
    return status;
}

/* Sees to every source that wants it. Returns when the next one will, 0 where one has more already;
 * *some: messages came. */
static double serve_sources(struct events *events, bool *some)
{
    double now_ms = kvr_clock_ms(), wake_ms = now_ms + LONGEST_WAIT_MS;

    *some = false;
    for (size_t i = 0; i < events->source_count && !events_over(events); i++) {
        struct source *source = events->sources[i];
        bool stirred = kvr_kv_socket_stirred(source->socket);
        if (stirred || source->busy || now_ms >= source->wake_ms) {
            if (drain_source(events, source)) {
                *some = true;
                now_ms = kvr_clock_ms();
            }
            source->wake_ms = attend(events, source, now_ms);
        }
        wake_ms = fmin(wake_ms, source->busy ? 0 : source->wake_ms);
    }
    return wake_ms;
}

void events_live(struct events *events)
{
    double heard_ms = kvr_clock_ms(), idle_ms = events->settings.idle_ms;
    bool some;

    while (!events_over(events)) {
        double wake_ms = serve_sources(events, &some), now_ms = kvr_clock_ms();
        if (some)
            heard_ms = now_ms;
        if (tool_signalled(SIGUSR1))
            events_show_statistics(events);
        if (idle_ms > 0 && now_ms - heard_ms >= idle_ms)
            break;
        if (idle_ms > 0)
            wake_ms = fmin(wake_ms, heard_ms + idle_ms);
        if (wake_ms > now_ms) { /* the next read may have to wait */
            kvr_writer_flush(&events->tool.out);
            flush_record(events);
        }
        if (!kvr_reactor_step(&events->reactor, wake_ms > now_ms ? wake_ms - now_ms : 0))
            break;
    }
}
